//! The page that a probe asks an upstream for: a configured path, or the page by which its dialect is found.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use hyper::header::{HeaderName, HeaderValue};
use tokio::time::timeout;
use tracing::info;

use super::{
    http_page::{HttpPage, fetch_page},
    probe::WorkerReport,
};
use crate::{net::Transport, spelling::UpstreamMapping};

/// Longest wait for a page that need not answer.
const OPTIONAL_PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Most that is read of a gateway's page of its workers: about 6000 running tasks.
const PAGE_MAX_BYTES: usize = 1 << 20;

/// The page of an upstream that a probe asks for.
#[derive(Debug)]
pub(super) struct StatusPage {
    path: String,
    /// The operator named it, so it must answer.
    is_configured: bool,
    /// It is the page of a gateway, which reports the workers.
    has_workers: bool,
    /// The upstream has answered, so it can.
    has_answered: AtomicBool,
    /// Its missing report of the workers was logged.
    was_logged: AtomicBool,
}

impl PartialEq for StatusPage {
    /// Compares the settings, not what is known of the upstream.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.is_configured, self.has_workers)
            == (&other.path, other.is_configured, other.has_workers)
    }
}

impl StatusPage {
    /// The page of an upstream of this dialect, if it has one.
    pub(super) fn new(mapping: &UpstreamMapping, status_path: Option<&str>) -> Option<Self> {
        let sign = mapping.detect.first();
        let path = status_path.or_else(|| Some(&*sign?.path))?.to_owned();
        let (is_configured, has_workers) = (status_path.is_some(), mapping.has_queue());
        let (has_answered, was_logged) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Self { path, is_configured, has_workers, has_answered, was_logged })
    }

    /// True if it reports the workers of a gateway.
    pub(super) const fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Requests the page. A page must answer if it is configured or has answered before, as a server that hangs still accepts
    /// connections. Fails if that page does not answer, or with an HTTP 5xx status that tells of the health
    /// of the server.
    pub(super) async fn ask(
        &self,
        transport: &mut Box<dyn Transport>,
        authority: &str,
        token: Option<&(HeaderName, HeaderValue)>,
    ) -> Result<Option<WorkerReport>, String> {
        let page = fetch_page(transport, &self.path, authority, token, PAGE_MAX_BYTES);
        let must_answer = self.is_configured || self.has_answered.load(Relaxed);
        let page = if must_answer {
            page.await
        } else {
            let page = timeout(OPTIONAL_PAGE_TIMEOUT, page).await;
            page.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        };
        let problem = match page {
            Ok(page) if page.status < 500 => {
                self.has_answered.store(true, Relaxed);
                return Ok(self.report_on(&page, authority));
            }
            // The page of the workers may be hidden by a proxy, but a gateway that answers lives.
            Ok(_) if self.has_workers && !self.is_configured => return Ok(None),
            Ok(page) => format!("{} returned HTTP {}", self.path, page.status),
            Err(error) => format!("{}: {error}", self.path),
        };
        if must_answer { Err(problem) } else { Ok(None) }
    }

    /// The report of the workers on this page. Logs once that there is none.
    fn report_on(&self, page: &HttpPage, authority: &str) -> Option<WorkerReport> {
        if !self.has_workers {
            return None;
        }
        let report = match page.status {
            200..300 => serde_json::from_str(page.body()).map_err(|error| error.to_string()),
            status => Err(format!("HTTP {status}")),
        };
        let problem = match report {
            Ok(report) => return Some(report),
            Err(problem) => problem,
        };
        if !self.was_logged.swap(true, Relaxed) {
            info!(
                "{authority}{} does not report the gateway's workers: {problem}; their load is known only from the lanes of \
                 this process. Let the page through to the gateway, or set `status_path` to its path",
                self.path
            );
        }
        None
    }
}
