//! Polling a session's sockets: what can be written is written, then the first thing that came is found.
//!
//! Who may be read is decided here: nobody for whom the client has fallen too far behind.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use crate::server::{
    registry::OperatorOrder,
    upstream_pool::{DialledLane, dial::UpstreamSocket},
    websocket::outbox::{SessionSocket, SocketEvent},
};
use crate::{
    event::{DisconnectReason, Lane},
    net::Transport,
};

/// Above this many bytes on their way to the client its lanes are not read: the upstream waits, not our memory.
const CLIENT_OUTBOX_PAUSES_LANES_BYTES: usize = 1024 * 1024;
/// Above this many the client is not read either: who asks and does not read the answers has to wait for them.
const CLIENT_OUTBOX_PAUSES_CLIENT_BYTES: usize = 2 * CLIENT_OUTBOX_PAUSES_LANES_BYTES;
/// Above this many bytes on their way to a lane the client is not read: who sends faster than its upstream takes has to wait
/// for it, as it would without a bridge between.
const LANE_OUTBOX_PAUSES_CLIENT_BYTES: usize = 1024 * 1024;
/// Above this many a client that is sent audio as it is heard is minutes behind, and is given up.
pub(crate) const CLIENT_OUTBOX_MAX_BYTES: usize = 8 * CLIENT_OUTBOX_PAUSES_LANES_BYTES;

/// One lane's transport.
pub(crate) enum LaneSocket {
    Dialling(BoxFuture<'static, Result<DialledLane<UpstreamSocket>, DisconnectReason>>),
    Connected(Box<SessionSocket<Box<dyn Transport>>>),
}

/// One thing that happened.
pub(crate) enum Wakeup {
    Client(SocketEvent),
    Lane(Lane, SocketEvent),
    Dialled(Lane, Result<Box<DialledLane<UpstreamSocket>>, DisconnectReason>),
    /// To finish within this time.
    Drain(Duration),
    /// An operator's order to this session alone.
    OperatorOrder(OperatorOrder),
    Timer,
    /// A lane has caught up with what it was sent.
    LaneDrained,
}

/// What the session says about who may be read.
#[derive(Clone, Copy)]
pub(crate) struct ReadGate {
    /// The client is sent audio as it is heard.
    pub(crate) is_paced: bool,
    /// The client has sent enough for now.
    pub(crate) is_client_held: bool,
}

impl LaneSocket {
    /// Its upstream takes less than it is sent.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self, Self::Connected(socket) if socket.outbox_bytes() > LANE_OUTBOX_PAUSES_CLIENT_BYTES)
    }

    pub(crate) fn timer_deadline(&self) -> Option<Instant> {
        match self {
            Self::Dialling(_) => None,
            Self::Connected(socket) => Some(socket.timer_deadline()),
        }
    }

    pub(crate) fn handle_timer(&mut self, now: Instant) -> Option<DisconnectReason> {
        match self {
            Self::Dialling(_) => None,
            Self::Connected(socket) => socket.handle_timer(now),
        }
    }
}

/// Writes what can be written, then finds the first thing that came.
pub(crate) fn poll_sockets<C: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    client: &mut Option<SessionSocket<C>>,
    lanes: &mut [(Lane, LaneSocket)],
    lanes_first: bool,
    gate: ReadGate,
    cx: &mut Context<'_>,
) -> Poll<Wakeup> {
    let (mut pause_lanes, mut pause_client) = (false, gate.is_client_held);
    if let Some(client) = client {
        if let Poll::Ready(Err(reason)) = client.poll_write(cx) {
            return Poll::Ready(Wakeup::Client(SocketEvent::End(reason)));
        }
        // A conversation's upstream must not be made to wait: it would look as if it had stopped answering.
        pause_lanes = !gate.is_paced && client.outbox_bytes() > CLIENT_OUTBOX_PAUSES_LANES_BYTES;
        pause_client |= client.outbox_bytes() > CLIENT_OUTBOX_PAUSES_CLIENT_BYTES;
    }
    if lanes_first && let Poll::Ready(wakeup) = poll_lanes(lanes, pause_lanes, cx) {
        return Poll::Ready(wakeup);
    }
    if let Some(client) = client.as_mut().filter(|_| pause_client) {
        client.reset_silence_timer();
    } else if let Some(client) = client
        && let Poll::Ready(event) = client.poll_read(cx)
    {
        return Poll::Ready(Wakeup::Client(event));
    }
    if lanes_first { Poll::Pending } else { poll_lanes(lanes, pause_lanes, cx) }
}

fn poll_lanes(lanes: &mut [(Lane, LaneSocket)], pause_lanes: bool, cx: &mut Context<'_>) -> Poll<Wakeup> {
    for (lane, lane_socket) in lanes {
        match lane_socket {
            LaneSocket::Dialling(dial) => {
                if let Poll::Ready(dialled) = dial.as_mut().poll(cx) {
                    return Poll::Ready(Wakeup::Dialled(*lane, dialled.map(Box::new)));
                }
            }
            LaneSocket::Connected(socket) => {
                if let Poll::Ready(Err(reason)) = socket.poll_write(cx) {
                    return Poll::Ready(Wakeup::Lane(*lane, SocketEvent::End(reason)));
                }
                if pause_lanes {
                    socket.reset_silence_timer();
                } else if let Poll::Ready(event) = socket.poll_read(cx) {
                    return Poll::Ready(Wakeup::Lane(*lane, event));
                }
            }
        }
    }
    Poll::Pending
}
