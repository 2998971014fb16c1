//! Polls a session's sockets: writes the outboxes, then returns the first event.
//!
//! Back-pressure is applied here: held lanes are not read, nor is the client while it reads no answers.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use super::ClientEnd;
use crate::server::{
    client_port::PortInput,
    registry::OperatorOrder,
    tool_servers::ToolNews,
    upstream_pool::{
        Dial, DialledLane,
        dial::DialledUpstream,
        http_socket::{HttpEvent, HttpSocket},
    },
    websocket::{
        pausable_stream::PausableRead,
        session_socket::{SessionSocket, SocketEvent},
    },
};
use crate::{
    net::Transport,
    vocabulary::{AnswerPart, DisconnectReason, FlowControl, Lane, PauseId},
};

/// Above this many bytes in its outbox the client is not read, because it does not read the answers to its requests.
const CLIENT_OUTBOX_PAUSES_CLIENT_BYTES: usize = 2 * 1024 * 1024;
/// Above this many bytes in a lane's outbox the client is not read, so that it waits for its upstream as without a bridge.
const LANE_OUTBOX_PAUSES_CLIENT_BYTES: usize = 1024 * 1024;
/// A client with paced audio that leaves more bytes than this unread is dropped.
pub(crate) const CLIENT_OUTBOX_MAX_BYTES: usize = 4 * CLIENT_OUTBOX_PAUSES_CLIENT_BYTES;

/// One lane's transport.
pub(crate) enum LaneSocket {
    Dialling(Dial<DialledUpstream>),
    /// Connecting again, for a session that the upstream keeps.
    Redialling(BoxFuture<'static, Result<DialledUpstream, DisconnectReason>>),
    Connected(Box<SessionSocket<Box<dyn Transport>>>),
    Http(Box<HttpSocket>),
}

/// One event of a session.
pub(crate) enum Wakeup {
    Client(SocketEvent),
    /// A request, audio or message of a client within this process.
    Request(PortInput),
    /// The client's oldest message that was held back.
    HeldBack(WsMessage),
    Lane(Lane, SocketEvent),
    /// The beginning or the end of an answer.
    Answer(Lane, AnswerPart),
    /// The lane waits at this position for a place at its upstream.
    InLine(Lane, u32),
    Dialled(Lane, Result<Box<DialledLane<DialledUpstream>>, DisconnectReason>),
    Redialled(Lane, Result<Box<DialledUpstream>, DisconnectReason>),
    /// The order to finish within this time.
    Drain(Duration),
    /// Others need the memory that the client holds.
    OutOfMemory,
    /// An operator's order.
    OperatorOrder(OperatorOrder),
    /// The end-of-turn model's verdict on a pause.
    TurnJudged(PauseId, Option<f32>),
    /// A tool's result, or other tools.
    ToolNews(ToolNews),
    Timer,
    /// The flow control has changed.
    Flow(FlowControl),
    /// Every lane's outbox is below its limit again.
    LaneDrained,
}

/// Which sockets the session allows to read.
#[derive(Clone, Copy)]
pub(crate) struct ReadGate<'a> {
    /// True for a lane that is not read.
    pub(crate) is_lane_held: &'a dyn Fn(Lane) -> bool,
    /// The client's messages find no room, so the client is not read.
    pub(crate) is_client_paused: bool,
}

impl LaneSocket {
    /// True if the upstream takes less than it is sent.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self, Self::Connected(socket) if socket.outbox.bytes() > LANE_OUTBOX_PAUSES_CLIENT_BYTES)
    }

    /// When a busy server of HTTP requests wants the request again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Http(socket) = self { socket.retry_after } else { None }
    }

    pub(crate) fn handle_timer(&mut self, now: Instant) -> Option<DisconnectReason> {
        match self {
            Self::Dialling(_) | Self::Redialling(_) | Self::Http(_) => None,
            Self::Connected(socket) => socket.handle_timer(now),
        }
    }
}

/// Writes the outboxes, then returns the first event.
pub(in crate::server) fn poll_sockets<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static>(
    client: &mut Option<ClientEnd<C>>,
    lanes: &mut [(Lane, LaneSocket)],
    lanes_first: bool,
    gate: ReadGate<'_>,
    cx: &mut Context<'_>,
) -> Poll<Wakeup> {
    let mut pause_client = gate.is_client_paused;
    if let Some(client) = client {
        if let Poll::Ready(Err(reason)) = client.poll_write(cx) {
            return Poll::Ready(Wakeup::Client(SocketEvent::End(reason)));
        }
        pause_client |= reads_no_answers(client.outbox_bytes());
    }
    if lanes_first && let Poll::Ready(wakeup) = poll_lanes(lanes, gate, cx) {
        return Poll::Ready(wakeup);
    }
    if let Some(client) = client
        && let Poll::Ready(wakeup) = client.poll_read(pause_client, cx)
    {
        return Poll::Ready(wakeup);
    }
    if lanes_first { Poll::Pending } else { poll_lanes(lanes, gate, cx) }
}

/// True if a client with this much in its outbox does not read the answers to its requests.
pub(crate) const fn reads_no_answers(outbox_bytes: usize) -> bool {
    outbox_bytes > CLIENT_OUTBOX_PAUSES_CLIENT_BYTES
}

fn poll_lanes(lanes: &mut [(Lane, LaneSocket)], gate: ReadGate<'_>, cx: &mut Context<'_>) -> Poll<Wakeup> {
    for (lane, lane_socket) in lanes {
        match lane_socket {
            LaneSocket::Dialling(dial) => {
                if let Some(position) = dial.poll_position(cx) {
                    return Poll::Ready(Wakeup::InLine(*lane, position));
                }
                if let Poll::Ready(dialled) = dial.poll_unpin(cx) {
                    return Poll::Ready(Wakeup::Dialled(*lane, dialled.map(Box::new)));
                }
            }
            LaneSocket::Redialling(dial) => {
                if let Poll::Ready(dialled) = dial.poll_unpin(cx) {
                    return Poll::Ready(Wakeup::Redialled(*lane, dialled.map(Box::new)));
                }
            }
            LaneSocket::Http(_) if (gate.is_lane_held)(*lane) => {}
            LaneSocket::Http(socket) => {
                if let Poll::Ready(event) = socket.poll_event(cx) {
                    return Poll::Ready(match event {
                        HttpEvent::Part(part) => Wakeup::Answer(*lane, part),
                        HttpEvent::Message(message) => Wakeup::Lane(*lane, SocketEvent::Message(message)),
                        HttpEvent::Broken(reason) => Wakeup::Lane(*lane, SocketEvent::End(reason)),
                    });
                }
            }
            LaneSocket::Connected(socket) => {
                if let Poll::Ready(Err(reason)) = socket.poll_write(cx) {
                    return Poll::Ready(Wakeup::Lane(*lane, SocketEvent::End(reason)));
                }
                if (gate.is_lane_held)(*lane) {
                    socket.reset_silence_timer();
                } else if let Poll::Ready(event) = socket.poll_read(cx) {
                    return Poll::Ready(Wakeup::Lane(*lane, event));
                }
            }
        }
    }
    Poll::Pending
}
