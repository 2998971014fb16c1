//! A client's byte stream: plain TCP or TLS.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::pausable_stream::{PausableRead, PausableStream};
use crate::server::tls::names;

/// Most unsent bytes in the socket's buffer. A socket that buffers megabytes accepts nothing for minutes while the client reads
/// at the pace of playback, which looks like a client that does not read. Bytes on the network are not bounded by this.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNSENT_MAX_BYTES: u32 = 64 * 1024;

/// A client that has vanished, and is sent nothing, counts as gone after a minute, where its protocol has no pings of its own:
/// silence before the first probe, time between probes, and their number. A connection that is sent data has no probes.
const PROBES_AFTER: Duration = Duration::from_secs(20);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 4;

/// Sets the options of a client's socket. A socket without them still works.
pub(crate) fn set_options(stream: &TcpStream) {
    // Small frames must leave at once.
    let _ = stream.set_nodelay(true);
    let probes =
        TcpKeepalive::new().with_time(PROBES_AFTER).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_MAX_BYTES);
}

/// A client's byte stream.
pub(crate) enum ClientStream {
    /// Plain TCP.
    Plain(PausableStream),
    /// Encrypted.
    Tls(Box<TlsStream<PausableStream>>),
}

impl ClientStream {
    /// The names in the client's certificate, which TLS has verified.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        let Self::Tls(stream) = self else { return Vec::new() };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown.map(names::certificate_names).unwrap_or_default()
    }
}

impl PausableRead for ClientStream {
    fn is_read_paused(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_paused(),
            Self::Tls(stream) => stream.get_ref().0.is_paused(),
        }
    }

    fn tcp_mut(&mut self) -> Option<&mut PausableStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_mut().0),
        }
    }
}

/// Calls the active variant, pinned.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_socket_is_probed_while_nothing_is_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_options(&client);
        let socket = SockRef::from(&client);
        assert!(socket.keepalive().unwrap() && client.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        {
            let gone_after =
                socket.tcp_keepalive_time().unwrap() + PROBES * socket.tcp_keepalive_interval().unwrap();
            assert_eq!(
                (gone_after, socket.tcp_keepalive_retries().unwrap()),
                (Duration::from_secs(60), PROBES)
            );
        }
    }
}
