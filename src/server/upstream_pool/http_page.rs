//! A page of an upstream's HTTP server: for probes, and to find out which dialect the upstream speaks.

use std::{io, time::Duration};

use hyper::header::{HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::net::Transport;

/// The start of an answer.
pub(crate) struct HttpPage {
    /// HTTP status.
    pub(crate) status: u16,
    /// Raw head and body, as far as they were read.
    pub(crate) text: String,
}

impl HttpPage {
    /// The body, behind the head.
    pub(crate) fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// The status is in these bytes: "HTTP/1.1 200".
const STATUS_BYTES: usize = 12;

/// Longest pause in an answer whose status has come. Some servers leave the connection open.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests a page on an open connection, which the server closes then. Reads at least as many bytes as asked for, or to the
/// end, or until a pause.
///
/// # Errors
/// The connection broke, or the answer is not HTTP.
pub(crate) async fn fetch_page(
    transport: &mut Box<dyn Transport>,
    path: &str,
    host: &str,
    token: Option<&(HeaderName, HeaderValue)>,
    bytes_min: usize,
) -> io::Result<HttpPage> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    if let Some((name, value)) = token {
        request.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    request.extend_from_slice(b"\r\n");
    transport.write_all(&request).await?;
    transport.flush().await?;
    let mut answer = Vec::new();
    while answer.len() < bytes_min {
        let has_status = answer.len() >= STATUS_BYTES;
        let read = transport.read_buf(&mut answer);
        let count = if has_status { timeout(REST_TIMEOUT, read).await.unwrap_or(Ok(0)) } else { read.await };
        if count? == 0 {
            break;
        }
    }
    let status = answer.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(rest.get(2..5)?).ok());
    let status = status.and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the response is not HTTP"))?;
    Ok(HttpPage { status, text: String::from_utf8_lossy(&answer).into_owned() })
}
