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
    registry::Order,
    upstream_pool::{Dialled, dial::UpstreamSocket},
    websocket::outbox::{Came, Socket},
};
use crate::{
    event::{Lane, Why},
    net::Transport,
};

/// Above this many bytes on their way to the client its lanes are not read: the upstream waits, not our memory.
const CLIENT_BEHIND_BYTES: usize = 1024 * 1024;
/// Above this many the client is not read either: who asks and does not read the answers has to wait for them.
const CLIENT_DEAF_BYTES: usize = 2 * CLIENT_BEHIND_BYTES;
/// Above this many bytes on their way to a lane the client is not read: who sends faster than its upstream takes has to wait
/// for it, as it would without a bridge between.
const LANE_BEHIND_BYTES: usize = 1024 * 1024;
/// Above this many a client that is sent audio as it is heard is minutes behind, and is given up.
pub(crate) const CLIENT_LOST_BYTES: usize = 8 * CLIENT_BEHIND_BYTES;

/// One lane's transport.
pub(crate) enum Line {
    Dialling(BoxFuture<'static, Result<Dialled<UpstreamSocket>, Why>>),
    Up(Box<Socket<Box<dyn Transport>>>),
}

/// One thing that happened.
pub(crate) enum Happened {
    Client(Came),
    Lane(Lane, Came),
    Dialled(Lane, Result<Box<Dialled<UpstreamSocket>>, Why>),
    /// To finish within this time.
    Drain(Duration),
    /// An operator's order to this session alone.
    Ordered(Order),
    Due,
    /// A lane has caught up with what it was sent.
    Relieved,
}

/// What the session says about who may be read.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// The client is sent audio as it is heard.
    pub(crate) paced: bool,
    /// The client has sent enough for now.
    pub(crate) held: bool,
}

impl Line {
    /// Its upstream takes less than it is sent.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self, Self::Up(socket) if socket.outbox_bytes() > LANE_BEHIND_BYTES)
    }

    pub(crate) fn next_tick(&self) -> Option<Instant> {
        match self {
            Self::Dialling(_) => None,
            Self::Up(socket) => Some(socket.next_tick()),
        }
    }

    pub(crate) fn tick(&mut self, now: Instant) -> Option<Why> {
        match self {
            Self::Dialling(_) => None,
            Self::Up(socket) => socket.tick(now),
        }
    }
}

/// Writes what can be written, then finds the first thing that came.
pub(crate) fn poll_sockets<C: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    client: &mut Option<Socket<C>>,
    lanes: &mut [(Lane, Line)],
    lanes_first: bool,
    patience: Patience,
    cx: &mut Context<'_>,
) -> Poll<Happened> {
    let (mut behind, mut deaf) = (false, patience.held);
    if let Some(client) = client {
        if let Poll::Ready(Err(why)) = client.poll_write(cx) {
            return Poll::Ready(Happened::Client(Came::End(why)));
        }
        // A conversation's upstream must not be made to wait: it would look as if it had stopped answering.
        behind = !patience.paced && client.outbox_bytes() > CLIENT_BEHIND_BYTES;
        deaf |= client.outbox_bytes() > CLIENT_DEAF_BYTES;
    }
    if lanes_first && let Poll::Ready(happened) = poll_lanes(lanes, behind, cx) {
        return Poll::Ready(happened);
    }
    if let Some(client) = client.as_mut().filter(|_| deaf) {
        client.unread();
    } else if let Some(client) = client
        && let Poll::Ready(came) = client.poll_read(cx)
    {
        return Poll::Ready(Happened::Client(came));
    }
    if lanes_first { Poll::Pending } else { poll_lanes(lanes, behind, cx) }
}

fn poll_lanes(lanes: &mut [(Lane, Line)], behind: bool, cx: &mut Context<'_>) -> Poll<Happened> {
    for (lane, line) in lanes {
        match line {
            Line::Dialling(dial) => {
                if let Poll::Ready(dialled) = dial.as_mut().poll(cx) {
                    return Poll::Ready(Happened::Dialled(*lane, dialled.map(Box::new)));
                }
            }
            Line::Up(socket) => {
                if let Poll::Ready(Err(why)) = socket.poll_write(cx) {
                    return Poll::Ready(Happened::Lane(*lane, Came::End(why)));
                }
                if behind {
                    socket.unread();
                } else if let Poll::Ready(came) = socket.poll_read(cx) {
                    return Poll::Ready(Happened::Lane(*lane, came));
                }
            }
        }
    }
    Poll::Pending
}
