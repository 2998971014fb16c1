//! Stands for [`super::webrtc`] in a program that was built without it: there are no calls.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::{
    CallChannel, CallRates, WebRtcAddresses,
    client_port::{PortInput, PortOutput},
    codec_threads::CodecThreads,
};

pub(crate) type OpenSession = Box<
    dyn FnOnce(&str, CallRates, mpsc::Receiver<PortInput>) -> Result<mpsc::Receiver<PortOutput>, String>
        + Send,
>;

/// An offer to begin a call.
#[expect(dead_code, reason = "there are no calls")]
pub(crate) struct CallOffer {
    pub(crate) sdp: String,
    pub(crate) address: IpAddr,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) channel: CallChannel,
}

/// No calls.
#[derive(Clone)]
pub(crate) struct Calls(Infallible);

/// A call that was accepted: none is.
pub(crate) struct AcceptedCall {
    pub(crate) id: String,
    pub(crate) answer: String,
    pub(crate) task: BoxFuture<'static, ()>,
}

/// A connection besides the client's: there is none.
pub(crate) struct Sideband {
    pub(crate) events: mpsc::Receiver<String>,
    pub(crate) commands: mpsc::Sender<PortInput>,
}

/// Why a call was not accepted.
#[expect(dead_code, reason = "there are no calls")]
pub(crate) enum CallRejection {
    Full(&'static str),
    Offer(String),
    Internal(String),
}

#[expect(clippy::unused_async, reason = "the signatures of the real ones")]
impl Calls {
    pub(crate) async fn bind(
        _: WebRtcAddresses,
        _: crate::telemetry::metrics::Metrics,
        _: super::registry::Waiting,
    ) -> io::Result<Self> {
        Err(io::Error::other("this program was built without WebRTC (cargo feature `webrtc`)"))
    }

    pub(crate) fn advertised(&self) -> SocketAddr {
        match self.0 {}
    }

    pub(crate) async fn accept(
        &self,
        _: CallOffer,
        _: &CodecThreads,
        _: OpenSession,
    ) -> Result<AcceptedCall, CallRejection> {
        match self.0 {}
    }

    pub(crate) fn hang_up(&self, _: &str, _: Option<&str>) -> bool {
        match self.0 {}
    }

    pub(crate) fn has(&self, _: &str, _: Option<&str>) -> bool {
        match self.0 {}
    }

    pub(crate) async fn renew(
        &self,
        _: &str,
        _: Option<&str>,
        _: String,
        _: &CodecThreads,
        _: bool,
    ) -> Option<Result<String, CallRejection>> {
        match self.0 {}
    }

    pub(crate) async fn join(&self, _: &str, _: Option<&str>) -> Option<Sideband> {
        match self.0 {}
    }

    pub(crate) fn end_waiting(&self) {
        match self.0 {}
    }

    pub(crate) async fn run(self) {
        match self.0 {}
    }
}
