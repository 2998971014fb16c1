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
    /// Head and body, as far as they were read.
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
    Ok(HttpPage { status, text: String::from_utf8_lossy(&without_chunks(answer)).into_owned() })
}

/// Joins the chunks of a body that came in chunks (RFC 9112 §7.1).
fn without_chunks(answer: Vec<u8>) -> Vec<u8> {
    let end_of_head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let Some((head, mut rest)) = end_of_head.map(|at| answer.split_at(at + 4)) else { return answer };
    let head_text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let is_chunked = |line: &str| line.starts_with("transfer-encoding:") && line.contains("chunked");
    if !head_text.lines().any(is_chunked) {
        return answer;
    }
    let mut joined = head.to_vec();
    while let Some((length, chunk)) = split_chunk_length(rest).filter(|(length, _)| *length > 0) {
        joined.extend_from_slice(&chunk[..length.min(chunk.len())]);
        // A line end follows the chunk.
        rest = chunk.get(length.saturating_add(2)..).unwrap_or_default();
    }
    joined
}

/// The length of the next chunk, and the bytes after its line.
fn split_chunk_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
    Some((length, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_body_are_joined_and_other_bodies_stay() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
        for (body, joined) in [
            ("5;x=\"1\"\r\n{\"a\":\r\n3\r\n\"\u{e9}\r\n2\r\n\"}\r\n0\r\n\r\n", "{\"a\":\"\u{e9}\"}"),
            ("A\r\n01234", "01234"),
            ("ffffffffffffffff\r\nabc", "abc"),
            ("no length\r\nabc", ""),
            ("", ""),
        ] {
            let answer = [head, body].concat().into_bytes();
            let expected = [head, joined].concat();
            assert_eq!(String::from_utf8(without_chunks(answer)).unwrap(), expected, "{body:?}");
        }
        for plain in ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n1\r\n", "HTTP/1.1 200 OK\r\n", ""] {
            assert_eq!(without_chunks(plain.as_bytes().to_vec()), plain.as_bytes());
        }
    }
}
