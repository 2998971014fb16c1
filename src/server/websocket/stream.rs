//! A client's byte stream: as it is, or encrypted. Which of both is asked with every read and write, which costs nothing
//! beside them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::pausable_stream::{Clocked, ReadByClock};
use crate::net::Counted;
use crate::server::tls::names;

/// A client's byte stream.
pub(crate) enum ClientStream {
    /// As it is.
    Plain(Clocked),
    /// Encrypted.
    Tls(Box<TlsStream<Clocked>>),
}

impl ClientStream {
    /// The names in the certificate that the client has shown, which was checked.
    pub(crate) fn names(&self) -> Vec<String> {
        let Self::Tls(stream) = self else { return Vec::new() };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown.map(names::names).unwrap_or_default()
    }

    fn tcp(&self) -> &Clocked {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    fn tcp_mut(&mut self) -> &mut Clocked {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl ReadByClock for Counted<ClientStream> {
    fn by_clock(&mut self) {
        self.stream.tcp_mut().by_clock();
    }

    fn by_events(&mut self) {
        self.stream.tcp_mut().by_events();
    }

    fn is_by_clock(&self) -> bool {
        self.stream.tcp().is_by_clock()
    }

    fn look(&mut self) {
        self.stream.tcp_mut().look();
    }
}

/// The one of both, pinned.
macro_rules! inner {
    ($stream:ident => $inner:ident, $call:expr) => {
        match $stream.get_mut() {
            ClientStream::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            ClientStream::Tls(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inner!(self => stream, stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self => stream, stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self => stream, stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self => stream, stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self => stream, stream.poll_shutdown(cx))
    }
}
