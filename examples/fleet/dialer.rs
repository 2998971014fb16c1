//! Dials the simulated gateways in place of the network.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use voxbridge::{
    server::upstream_pool::{
        dial::DialRequest,
        probe::{Probe, WorkerReport},
    },
    vocabulary::{DisconnectReason, LanePurpose, Mode},
};

use crate::site::{Link, Site};

/// Dials one gateway.
#[derive(Clone)]
pub(crate) struct SiteDialer {
    pub(crate) site: Arc<Site>,
    /// The gateway has a page that reports its workers.
    pub(crate) has_status: bool,
}

impl tower::Service<DialRequest> for SiteDialer {
    type Response = Link;
    type Error = DisconnectReason;
    type Future = BoxFuture<'static, Result<Link, DisconnectReason>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: DialRequest) -> Self::Future {
        Box::pin(Arc::clone(&self.site).connect(request.mode))
    }
}

impl Probe for SiteDialer {
    fn probe(&self) -> BoxFuture<'static, Result<Option<WorkerReport>, String>> {
        let (site, has_status) = (Arc::clone(&self.site), self.has_status);
        Box::pin(async move {
            site.check().await?;
            Ok(has_status.then(|| site.worker_report()))
        })
    }

    fn reports_workers(&self) -> bool {
        self.has_status
    }

    fn serves(&self, _: LanePurpose, _: Mode) -> bool {
        true
    }
}
