//! The body of a client's request.
//!
//! A client that is still sending when its connection is closed may never read the answer: the system resets the connection. So
//! what is left of a refused request is read on and dropped, beside its answer (RFC 9112 §9.6), within bounds.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONTENT_ENCODING, EXPECT, HeaderValue},
};
use tokio::{runtime::Handle, time::timeout};

/// Most bytes that are dropped: several times the longest upload.
const DROPPED_MAX_BYTES: usize = 128 * 1024 * 1024;
/// Longest time for it, and longest time without a byte.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The body of a request. Dropping it before its end reads the rest.
#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Option<Incoming>,
    /// The client sends the body only once it is read (`Expect: 100-continue`).
    waits_for_reader: bool,
    /// How the client has compressed it (`Content-Encoding`).
    encoding: Option<HeaderValue>,
}

/// A request of a client.
pub(crate) type ReceivedRequest = Request<RequestBody>;

impl RequestBody {
    /// The request with such a body.
    pub(in crate::server) fn of(request: Request<Incoming>) -> Request<Self> {
        let waits_for_reader = request.headers().contains_key(EXPECT);
        let encoding = request.headers().get(CONTENT_ENCODING).cloned();
        request.map(|body| Self { body: Some(body), waits_for_reader, encoding })
    }

    /// How the client has compressed the body, if it has.
    pub(in crate::server) fn compression(&self) -> Option<String> {
        let encoding = String::from_utf8_lossy(self.encoding.as_ref()?.as_bytes());
        let encoding = encoding.trim();
        (!["", "identity"].iter().any(|plain| encoding.eq_ignore_ascii_case(plain)))
            .then(|| encoding.to_owned())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.waits_for_reader = false;
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !self.waits_for_reader && !body.is_end_stream());
        if let Some((body, runtime)) = unread.zip(Handle::try_current().ok()) {
            runtime.spawn(timeout(DROP_TIMEOUT, drop_rest(body)));
        }
    }
}

/// Reads a body to its end, to a pause, or up to [`DROPPED_MAX_BYTES`].
async fn drop_rest(mut body: Incoming) {
    let mut left = DROPPED_MAX_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(PAUSE_MAX, body.frame()).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { return };
        left = rest;
    }
}
