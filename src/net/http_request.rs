//! HTTP requests to a server of the operator's, each on a connection of its own: they are rare, and servers close idle connections
//! at any time.

use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
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

/// Name and version of this program, as requests have them.
pub(crate) const OWN_AGENT: &str = concat!("voxbridge/", env!("CARGO_PKG_VERSION"));

impl RequestTarget {
    /// A server, and the path of every request to it.
    pub(crate) fn new(endpoint: Endpoint, uri: &Uri, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Self { endpoint, path, headers }
    }

    /// A request that posts this body.
    ///
    /// # Errors
    /// A message about the path.
    pub(crate) fn post(&self, content_type: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::post(&self.path)
            .header(HOST, &self.endpoint.authority)
            .header(USER_AGENT, OWN_AGENT)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body));
        let mut request = request.map_err(|error| error.to_string())?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }
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
    // The connection ends with the answer, or when that is dropped.
    start(connected).await?.send_request(request).await.map_err(|error| error.to_string())
}

/// Opens a connection for requests. It ends when the sender is dropped.
///
/// # Errors
/// A message about the connection.
pub(crate) async fn open(endpoint: &Endpoint) -> Result<SendRequest<Full<Bytes>>, String> {
    start(endpoint.connect().await.map_err(|error| error.to_string())?).await
}

async fn start(connected: Box<dyn Transport>) -> Result<SendRequest<Full<Bytes>>, String> {
    let handshake = http1::handshake(TokioIo::new(CountedStream::new(connected))).await;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}
