//! A stream of which nothing is read beyond the head of an HTTP answer, so that what follows it is not lost with whoever
//! reads the head.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Read at once: more than heads are long.
const ROOM_BYTES: usize = 1024;

/// A stream that begins with a head.
pub(crate) struct Headed<S> {
    io: S,
    /// What came with the head and is none of it.
    rest: Vec<u8>,
    /// The line has been empty so far, and is not the first.
    blank: bool,
    over: bool,
}

impl<S> Headed<S> {
    pub(crate) const fn new(io: S) -> Self {
        Self { io, rest: Vec::new(), blank: false, over: false }
    }

    /// The stream, and what was read of it beyond the head.
    pub(crate) fn into_parts(self) -> (S, Vec<u8>) {
        (self.io, self.rest)
    }

    /// How many of the bytes that came next are the head's. A head ends with an empty line; as for who reads it, LF will do
    /// for CRLF.
    fn of_head(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.blank => {
                    self.over = true;
                    return at + 1;
                }
                b'\n' => self.blank = true,
                b'\r' => {}
                _ => self.blank = false,
            }
        }
        bytes.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Headed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.over {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let mut room = [0; ROOM_BYTES];
        let mut read = ReadBuf::new(&mut room[..buf.remaining().min(ROOM_BYTES)]);
        ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
        let (head, rest) = read.filled().split_at(this.of_head(read.filled()));
        buf.put_slice(head);
        this.rest.extend_from_slice(rest);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Headed<S> {
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
    async fn what_follows_a_head_is_kept_apart() {
        for head in ["HTTP/1.1 101 Yes\r\nA: b\r\n\r\n", "HTTP/1.1 101 Yes\nA: b\n\n"] {
            for room in [1, 7, 4096] {
                let (near, mut far) = tokio::io::duplex(4096);
                far.write_all(format!("{head}more\r\n\r\n").as_bytes()).await.unwrap();
                let mut headed = Headed::new(near);
                let mut read = vec![0; room];
                let mut seen = Vec::new();
                while !headed.over {
                    let count = headed.read(&mut read).await.unwrap();
                    seen.extend_from_slice(&read[..count]);
                }
                let (mut rest_of, rest) = headed.into_parts();
                far.shutdown().await.unwrap();
                let mut more = rest;
                rest_of.read_to_end(&mut more).await.unwrap();
                assert_eq!((seen.as_slice(), more.as_slice()), (head.as_bytes(), &b"more\r\n\r\n"[..]));
            }
        }
    }
}
