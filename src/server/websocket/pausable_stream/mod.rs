//! A client's TCP stream that is read when the system says that something came, or only when it is looked at.
//!
//! A client that streams wakes up its session fifty times a second, and being woken up costs more than all that is done
//! with a frame (field notes libraries.md). Read by the clock, the stream is not registered with the runtime's poller at
//! all: what comes gathers in the system's buffer, and wakes up nobody. When to look is for [`crate::server::session_task`] to say.

use std::{
    io::{self, IoSlice, Read as _, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// What can be read by the clock.
pub(crate) trait ReadByClock {
    /// From now on it is read only when it is looked at. It wakes up nobody who waits to read.
    fn by_clock(&mut self);
    /// From now on it is read when something comes.
    fn by_events(&mut self);
    /// Whether it is read by the clock now. Writing to a stream that is full ends that.
    fn is_by_clock(&self) -> bool;
    /// It is read once more until there is nothing left.
    fn look(&mut self);
}

/// A TCP stream.
pub(crate) struct Clocked {
    stream: Stream,
    /// It was read to the last byte since it was looked at.
    dry: bool,
}

enum Stream {
    /// Known to the runtime's poller.
    Events(TcpStream),
    /// Known to nobody else.
    Clock(std::net::TcpStream),
    /// The system would not have it, for this reason.
    Lost(io::ErrorKind),
}

impl From<TcpStream> for Clocked {
    fn from(stream: TcpStream) -> Self {
        Self { stream: Stream::Events(stream), dry: false }
    }
}

impl Clocked {
    /// The registered stream, to wait on.
    fn events(&mut self) -> io::Result<&mut TcpStream> {
        self.by_events();
        match &mut self.stream {
            Stream::Events(stream) => Ok(stream),
            Stream::Lost(kind) => Err((*kind).into()),
            Stream::Clock(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes by the clock, too, as long as nothing has to be waited for.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        at_once: impl FnOnce(&mut std::net::TcpStream) -> io::Result<usize>,
        waiting: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Stream::Clock(stream) = &mut self.stream {
            match at_once(stream) {
                Err(error) if is_not_now(&error) => {}
                written => return Poll::Ready(written),
            }
        }
        waiting(Pin::new(self.events()?), cx)
    }
}

impl ReadByClock for Clocked {
    fn by_clock(&mut self) {
        self.replace(|stream| match stream {
            Stream::Events(stream) => stream.into_std().map(Stream::Clock),
            other => Ok(other),
        });
        self.dry = true;
    }

    fn by_events(&mut self) {
        self.replace(|stream| match stream {
            Stream::Clock(stream) => TcpStream::from_std(stream).map(Stream::Events),
            other => Ok(other),
        });
    }

    fn is_by_clock(&self) -> bool {
        matches!(self.stream, Stream::Clock(_))
    }

    fn look(&mut self) {
        self.dry = false;
    }
}

impl Clocked {
    fn replace(&mut self, other: impl FnOnce(Stream) -> io::Result<Stream>) {
        let stream = std::mem::replace(&mut self.stream, Stream::Lost(io::ErrorKind::NotConnected));
        self.stream = other(stream).unwrap_or_else(|error| Stream::Lost(error.kind()));
    }
}

/// A signal or a full buffer: no failure.
fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsyncRead for Clocked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let stream = match &mut this.stream {
            Stream::Events(stream) => return Pin::new(stream).poll_read(cx, buf),
            Stream::Lost(kind) => return Poll::Ready(Err((*kind).into())),
            Stream::Clock(_) if this.dry => return Poll::Pending,
            Stream::Clock(stream) => stream,
        };
        let room = buf.initialize_unfilled();
        let most = room.len();
        match stream.read(room) {
            Ok(count) => {
                // Less than there was room for is all there was; but the end is still to be found.
                this.dry = count < most && count > 0;
                buf.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) if is_not_now(&error) => {
                this.dry = true;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Clocked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream| stream.write(bytes), |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let waiting =
            |stream: Pin<&mut TcpStream>, cx: &mut Context<'_>| stream.poll_write_vectored(cx, slices);
        self.write(cx, |stream| stream.write_vectored(slices), waiting)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TCP has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.events()?).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
