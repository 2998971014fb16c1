//! The client of a session: a socket, or a client within this process.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::{Instant, sleep},
};

use super::socket_poll::Wakeup;
use crate::{
    net::Traffic,
    server::{
        client_port::{PortEnd, PortForm, PortOutput},
        memory::MemoryShare,
        websocket::{
            WebSocket,
            pausable_stream::PausableRead,
            session_socket::{SessionSocket, SocketEvent},
        },
    },
    vocabulary::{ClientEvent, DisconnectReason, Message, SpeechId},
};

/// Time for a client to read the end of its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The client of a session.
#[allow(clippy::large_enum_variant, reason = "nearly every client has a socket")]
pub(in crate::server) enum ClientEnd<C> {
    /// A remote client, whose protocol the bridge decodes.
    Socket(SessionSocket<C>),
    /// A client within this process.
    Port(PortEnd),
}

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> ClientEnd<C> {
    pub(super) const fn socket_mut(&mut self) -> Option<&mut SessionSocket<C>> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Port(_) => None,
        }
    }

    /// The socket's WebSocket, for another session.
    pub(super) fn into_websocket(self) -> Option<WebSocket<C>> {
        match self {
            Self::Socket(socket) => Some(socket.into_websocket()),
            Self::Port(_) => None,
        }
    }

    /// True for a client within this process.
    pub(in crate::server) const fn is_port(&self) -> bool {
        matches!(self, Self::Port(_))
    }

    /// True for a client that takes events, not messages.
    pub(in crate::server) const fn takes_events(&self) -> bool {
        matches!(self, Self::Port(PortEnd { form: PortForm::Events | PortForm::ShownEvents, .. }))
    }

    /// True for a client that shows the messages that spell its events.
    pub(super) const fn shows_messages(&self) -> bool {
        matches!(self, Self::Port(PortEnd { form: PortForm::ShownEvents, .. }))
    }

    /// The bytes that came and went.
    pub(in crate::server) fn traffic(&self) -> Arc<Traffic> {
        match self {
            Self::Socket(socket) => socket.stream.traffic.clone(),
            Self::Port(port) => port.traffic.clone(),
        }
    }

    /// The client's share of the memory for messages in transit.
    pub(super) const fn memory(&self) -> &MemoryShare {
        match self {
            Self::Socket(socket) => &socket.stream.memory,
            Self::Port(port) => &port.memory,
        }
    }

    pub(super) const fn memory_mut(&mut self) -> &mut MemoryShare {
        match self {
            Self::Socket(socket) => &mut socket.stream.memory,
            Self::Port(port) => &mut port.memory,
        }
    }

    /// Memory of what waits for the client, bytes.
    pub(super) const fn outbox_bytes(&self) -> usize {
        match self {
            Self::Socket(socket) => socket.outbox.bytes(),
            Self::Port(port) => port.outbox.bytes(),
        }
    }

    /// The last text or turn: bytes of it that wait for the client, and of all of it.
    pub(super) fn unwritten(&self) -> Option<(SpeechId, u64, u64)> {
        match self {
            Self::Socket(socket) => socket.outbox.unwritten(),
            Self::Port(port) => port.outbox.unwritten(),
        }
    }

    /// Sends a message of the client's protocol.
    pub(super) fn send_tagged(&mut self, message: Message, turn: Option<SpeechId>) {
        match self {
            Self::Socket(socket) => socket.send_tagged(message, turn),
            Self::Port(port) => port.send(PortOutput::Message(message), turn),
        }
    }

    /// Sends an event, with the message that spells it, to a client within this process.
    pub(super) fn send_event(&mut self, event: ClientEvent, message: Option<String>) {
        if let Self::Port(port) = self {
            let turn = event.turn();
            port.send(PortOutput::Event(event, message), turn);
        }
    }

    /// Discards the unsent messages of a text or turn.
    pub(super) fn drop_turn(&mut self, turn: SpeechId) {
        match self {
            Self::Socket(socket) => socket.drop_turn(turn),
            Self::Port(port) => port.drop_turn(turn),
        }
    }

    /// Discards what waits for the client, so that only a close frame is left to send.
    pub(super) fn release_memory(&mut self) {
        match self {
            Self::Socket(socket) => socket.release_memory(),
            Self::Port(port) => port.outbox.clear(),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        match self {
            Self::Socket(socket) => socket.poll_write(cx),
            Self::Port(port) => port.poll_write(cx),
        }
    }

    /// Next input of the client, unless it is paused; or its end.
    pub(super) fn poll_read(&mut self, is_paused: bool, cx: &mut Context<'_>) -> Poll<Wakeup> {
        match self {
            Self::Socket(socket) if is_paused => {
                socket.reset_silence_timer();
                Poll::Pending
            }
            Self::Socket(socket) if socket.is_exhausted() => Poll::Pending,
            Self::Socket(socket) => socket.poll_read(cx).map(Wakeup::Client),
            Self::Port(port) => port.poll_read(is_paused, cx).map(|read| match read {
                Ok(input) => Wakeup::Request(input),
                Err(reason) => Wakeup::Client(SocketEvent::End(reason)),
            }),
        }
    }

    /// When to call [`ClientEnd::handle_timer`].
    pub(super) fn timer_deadline(&self) -> Option<Instant> {
        match self {
            Self::Socket(socket) => Some(socket.timer_deadline()),
            Self::Port(_) => None,
        }
    }

    /// Returns why the client is lost, if it is. One within this process cannot vanish unnoticed, and pauses while its own
    /// client does.
    pub(super) fn handle_timer(&mut self, now: Instant) -> Option<DisconnectReason> {
        self.socket_mut()?.handle_timer(now)
    }

    /// Ends the connection, which the session does not wait for. A client within this process gets the whole outbox first, as slowly
    /// as its own client reads: the rest of a speech may be in it. `eviction` completes when others need its memory.
    pub(super) fn close(self, eviction: Option<BoxFuture<'static, ()>>, drain_guard: mpsc::Sender<()>) {
        match self {
            Self::Socket(mut socket) => {
                socket.set_read_paused(false);
                socket.close_in_background(CLOSE_TIMEOUT, drain_guard);
            }
            Self::Port(port) => {
                let too_late = eviction.unwrap_or_else(|| Box::pin(sleep(CLOSE_TIMEOUT)));
                port.deliver_in_background(too_late, drain_guard);
            }
        }
    }
}
