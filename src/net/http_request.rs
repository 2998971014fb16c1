//! HTTP requests to a server of the operator's, each on a connection of its own: they are rare, and servers close idle connections
//! at any time.

use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    client::conn::http1,
    header::{HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{CountedStream, Endpoint, Transport};

/// Time to connect, with TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, and the path and headers of every request to it.
#[derive(Clone)]
pub struct RequestTarget {
    /// The server.
    pub(crate) endpoint: Endpoint,
    /// Path and query of its URL.
    pub(crate) path: String,
    /// Values with secrets are marked as sensitive.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// A URL with `http` or `https` in the scheme that [`Endpoint::from_uri`] takes, that of WebSockets.
///
/// # Errors
/// A message about the URL.
pub(crate) fn websocket_uri(url: &str) -> Result<Uri, String> {
    let rest = url.strip_prefix("http").filter(|rest| rest.starts_with(':') || rest.starts_with("s:"));
    let rest = rest.ok_or("the scheme must be http or https")?;
    format!("ws{rest}").parse().map_err(|error| format!("invalid URL ({error})"))
}

/// Sends a request, and waits for the head of the answer. Dropping the answer ends the connection.
///
/// # Errors
/// A message about the connection.
pub(crate) async fn send(
    endpoint: &Endpoint,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    send_over(endpoint.connect(), &endpoint.authority, request).await
}

/// Sends a request on this connection to a host, and waits for the head of the answer.
///
/// # Errors
/// A message about the connection.
pub(crate) async fn send_over(
    connection: impl Future<Output = io::Result<Box<dyn Transport>>>,
    host: &str,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let late = |_| format!("{host}: no connection within {} s", CONNECT_TIMEOUT.as_secs());
    let connected = timeout(CONNECT_TIMEOUT, connection).await;
    let connected = connected.map_err(late)?.map_err(|error| format!("{host}: {error}"))?;
    let stream = CountedStream::new(connected);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Ends with the answer, or when that is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}
