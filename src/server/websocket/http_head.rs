//! A stream whose reader gets nothing beyond the head of an HTTP response, so that the bytes after it are not lost.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Read size; longer than usual heads.
const READ_BYTES: usize = 1024;

/// A stream that begins with an HTTP head.
pub(crate) struct HttpHeadStream<S> {
    io: S,
    /// Bytes read beyond the head.
    rest: Vec<u8>,
    /// The current line is blank so far, and is not the first.
    line_is_blank: bool,
    head_is_complete: bool,
}

impl<S> HttpHeadStream<S> {
    pub(crate) const fn new(io: S) -> Self {
        Self { io, rest: Vec::new(), line_is_blank: false, head_is_complete: false }
    }

    /// The stream, and the bytes read beyond the head.
    pub(crate) fn into_parts(self) -> (S, Vec<u8>) {
        (self.io, self.rest)
    }

    /// How many of the next bytes belong to the head. A head ends with an empty line; LF alone is accepted for CRLF.
    fn head_length(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.line_is_blank => {
                    self.head_is_complete = true;
                    return at + 1;
                }
                b'\n' => self.line_is_blank = true,
                b'\r' => {}
                _ => self.line_is_blank = false,
            }
        }
        bytes.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HttpHeadStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.head_is_complete {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let mut buffer = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut buffer[..buf.remaining().min(READ_BYTES)]);
        ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
        let (head, rest) = read.filled().split_at(this.head_length(read.filled()));
        buf.put_slice(head);
        this.rest.extend_from_slice(rest);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HttpHeadStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_after_head_are_not_consumed_by_head_reader() {
        for head in ["HTTP/1.1 101 Yes\r\nA: b\r\n\r\n", "HTTP/1.1 101 Yes\nA: b\n\n"] {
            for capacity in [1, 7, 4096] {
                let (near, mut far) = tokio::io::duplex(4096);
                far.write_all(format!("{head}more\r\n\r\n").as_bytes()).await.unwrap();
                let mut stream = HttpHeadStream::new(near);
                let mut read = vec![0; capacity];
                let mut head_read = Vec::new();
                while !stream.head_is_complete {
                    let count = stream.read(&mut read).await.unwrap();
                    head_read.extend_from_slice(&read[..count]);
                }
                let (mut stream, rest) = stream.into_parts();
                far.shutdown().await.unwrap();
                let mut more = rest;
                stream.read_to_end(&mut more).await.unwrap();
                assert_eq!((head_read.as_slice(), more.as_slice()), (head.as_bytes(), &b"more\r\n\r\n"[..]));
            }
        }
    }
}
