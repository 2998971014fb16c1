//! A client's TCP stream that is read on events or, while paused, only when the scheduler allows a read.
//!
//! A streaming client wakes its session fifty times a second, and a wake-up costs more than processing a frame
//! (mappings/notes/libraries.md#gathering-small-frames). While paused, the stream is not registered with the runtime's
//! poller: data gathers in the socket buffer and wakes no task. [`crate::server::adaptive_read`] decides when to read.

use std::{
    io::{self, IoSlice, Read as _, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A stream that may have read events to pause.
pub(crate) trait PausableRead {
    /// True while read events are paused.
    fn is_read_paused(&self) -> bool;
    /// The TCP stream under it, if there is one.
    fn tcp_mut(&mut self) -> Option<&mut PausableStream>;
}

/// A client in a test.
#[cfg(test)]
impl PausableRead for tokio::io::DuplexStream {
    fn is_read_paused(&self) -> bool {
        false
    }

    fn tcp_mut(&mut self) -> Option<&mut PausableStream> {
        None
    }
}

/// A TCP stream with pausable read events.
pub(crate) struct PausableStream {
    tcp: TcpRegistration,
    /// A paused stream was read to its last byte, so that nothing is read until this is cleared.
    pub(super) is_exhausted: bool,
}

enum TcpRegistration {
    /// Registered with the runtime's poller.
    Registered(TcpStream),
    /// Not registered; no events.
    Unregistered(std::net::TcpStream),
    /// Registration failed with this error.
    Failed(io::ErrorKind),
}

impl From<TcpStream> for PausableStream {
    fn from(stream: TcpStream) -> Self {
        Self { tcp: TcpRegistration::Registered(stream), is_exhausted: false }
    }
}

impl PausableStream {
    /// The registered stream, on which a task can wait.
    fn register(&mut self) -> io::Result<&mut TcpStream> {
        if self.is_paused() {
            self.resume();
        }
        match &mut self.tcp {
            TcpRegistration::Registered(stream) => Ok(stream),
            TcpRegistration::Failed(kind) => Err((*kind).into()),
            TcpRegistration::Unregistered(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes without registration as long as the stream takes data.
    fn write_or_wait(
        &mut self,
        cx: &mut Context<'_>,
        write_now: impl FnOnce(&mut std::net::TcpStream) -> io::Result<usize>,
        write_when_ready: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let TcpRegistration::Unregistered(stream) = &mut self.tcp {
            match write_now(stream) {
                Err(error) if is_temporary(&error) => {}
                written => return Poll::Ready(written),
            }
        }
        write_when_ready(Pin::new(self.register()?), cx)
    }
}

impl PausableStream {
    /// Stops read events. Data is read only after `is_exhausted` is cleared, and pending reads are not woken.
    pub(crate) fn pause(&mut self) {
        self.transition(|stream| match stream {
            TcpRegistration::Registered(stream) => stream.into_std().map(TcpRegistration::Unregistered),
            other => Ok(other),
        });
        self.is_exhausted = true;
    }

    /// Reads on events again.
    pub(crate) fn resume(&mut self) {
        self.transition(|stream| match stream {
            TcpRegistration::Unregistered(stream) => {
                TcpStream::from_std(stream).map(TcpRegistration::Registered)
            }
            other => Ok(other),
        });
    }

    /// True while read events are paused. Writing to a full stream resumes them.
    pub(crate) const fn is_paused(&self) -> bool {
        matches!(self.tcp, TcpRegistration::Unregistered(_))
    }

    fn transition(&mut self, to: impl FnOnce(TcpRegistration) -> io::Result<TcpRegistration>) {
        let stream = std::mem::replace(&mut self.tcp, TcpRegistration::Failed(io::ErrorKind::NotConnected));
        self.tcp = to(stream).unwrap_or_else(|error| TcpRegistration::Failed(error.kind()));
    }
}

/// True for a signal or a full buffer, which are no failures.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsyncRead for PausableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let stream = match &mut this.tcp {
            TcpRegistration::Registered(stream) => return Pin::new(stream).poll_read(cx, buf),
            TcpRegistration::Failed(kind) => return Poll::Ready(Err((*kind).into())),
            TcpRegistration::Unregistered(_) if this.is_exhausted => return Poll::Pending,
            TcpRegistration::Unregistered(stream) => stream,
        };
        let buffer = buf.initialize_unfilled();
        let capacity = buffer.len();
        match stream.read(buffer) {
            Ok(count) => {
                // A short read has emptied the socket buffer. Reading 0 bytes is the end of the stream, which a later
                // read must find again.
                this.is_exhausted = count < capacity && count > 0;
                buf.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) if is_temporary(&error) => {
                this.is_exhausted = true;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for PausableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_or_wait(cx, |stream| stream.write(bytes), |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write_when_ready =
            |stream: Pin<&mut TcpStream>, cx: &mut Context<'_>| stream.poll_write_vectored(cx, slices);
        self.write_or_wait(cx, |stream| stream.write_vectored(slices), write_when_ready)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TCP has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.register()?).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
