//! Accepts a client's request for a session: the checks, the upgrade and the start of the session.
//!
//! - [`request_stream`]: the stream before the upgrade, one request at a time; [`request_body`]: the body of a request, which is
//!   read on if it is refused
//! - [`host`]: the host that a request names, and the page that it comes from
//! - [`admission`]: the checks that may reject a request; [`http_error`]: the answer then, and [`not_found`] that to requests for
//!   unknown paths
//! - [`upgrade`]: the WebSocket handshake; [`session_start`]: the session after it, whose bridge [`session_opening`] opens

pub(super) mod admission;
pub(super) mod host;
pub(crate) mod http_error;
pub(super) mod not_found;
pub(super) mod request_body;
pub(super) mod request_stream;
pub(crate) mod session_opening;
pub(crate) mod session_start;
pub(crate) mod upgrade;

/// The path as the client wrote it, in the extensions of a request that is served at the canonical one.
#[derive(Clone)]
pub(super) struct WrittenPath(pub(super) String);
