//! Outbox of a client or an upstream: messages that wait to be taken. Those of a turn that are still there can be discarded.

use std::{
    collections::VecDeque,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::{Error as WsError, Message as WsMessage};

use super::{JOINED_WRITE_BYTES, WebSocket};
use crate::vocabulary::SpeechId;

/// A message of an outbox.
pub(crate) trait Content {
    /// Length of its contents, bytes.
    fn bytes(&self) -> usize;
}

impl Content for WsMessage {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A message that waits to be written.
pub(super) struct QueuedMessage<M> {
    message: M,
    /// The text or turn that the message is discarded with.
    turn: Option<SpeechId>,
}

/// Messages in the order of sending.
pub(crate) struct Outbox<M = WsMessage> {
    /// Those that the peer has not taken.
    pub(super) messages: VecDeque<QueuedMessage<M>>,
    bytes: usize,
    /// Memory of the messages that the stream is writing, bytes.
    writing_bytes: usize,
    /// Every message has left the stream's buffer.
    pub(super) is_flushed: bool,
    /// The last text or turn: bytes of its messages that were queued, and of those that the peer has taken or that were
    /// discarded.
    last_turn: Option<(SpeechId, u64, u64)>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), bytes: 0, writing_bytes: 0, is_flushed: true, last_turn: None }
    }
}

impl<M: Content> Outbox<M> {
    pub(crate) fn push(&mut self, message: M, turn: Option<SpeechId>) {
        self.bytes += memory_bytes(&message);
        self.is_flushed = false;
        if let Some(turn) = turn {
            let (queued, taken) = match self.last_turn {
                Some((last, queued, taken)) if last == turn => (queued, taken),
                _ => (0, 0),
            };
            self.last_turn = Some((turn, queued + message.bytes() as u64, taken));
        }
        self.messages.push_back(QueuedMessage { message, turn });
    }

    /// Discards the messages of a text or turn.
    pub(crate) fn drop_turn(&mut self, turn: SpeechId) {
        self.messages.retain(|queued| queued.turn != Some(turn));
        if let Some((_, queued, taken)) = self.last_turn.as_mut().filter(|(last, ..)| *last == turn) {
            *taken = *queued;
        }
        self.bytes = self.messages.iter().map(|queued| memory_bytes(&queued.message)).sum();
    }

    /// Discards every message that the peer has not taken.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.last_turn = None;
        self.bytes = 0;
    }

    /// The last text or turn: bytes of its messages that the peer has not taken, and of all of them.
    pub(crate) fn unwritten(&self) -> Option<(SpeechId, u64, u64)> {
        self.last_turn.map(|(turn, queued, taken)| (turn, queued.saturating_sub(taken), queued))
    }

    /// True if every message was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Memory of the messages, those that are being written included, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes + self.writing_bytes
    }

    /// The oldest message, which the peer takes now.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let QueuedMessage { message, turn } = self.messages.pop_front()?;
        if let Some((_, _, taken)) = self.last_turn.as_mut().filter(|(last, ..)| Some(*last) == turn) {
            *taken += message.bytes() as u64;
        }
        self.bytes = self.bytes.saturating_sub(memory_bytes(&message));
        Some(message)
    }
}

impl Outbox {
    /// Writes as much as the stream takes; ready when everything is written and flushed.
    pub(crate) fn poll_flush<S>(
        &mut self,
        stream: &mut WebSocket<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), WsError>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut joined_bytes = 0;
        while !self.messages.is_empty() {
            ready!(stream.poll_ready(cx))?;
            if let Some(message) = self.pop() {
                joined_bytes += memory_bytes(&message);
                self.writing_bytes = joined_bytes;
                let waits = !self.messages.is_empty() && joined_bytes <= JOINED_WRITE_BYTES;
                stream.start_send(cx, message, waits)?;
                if !waits {
                    joined_bytes = 0;
                }
            }
        }
        if !self.is_flushed {
            ready!(stream.poll_flush(cx))?;
            (self.is_flushed, self.writing_bytes) = (true, 0);
        }
        Poll::Ready(Ok(()))
    }
}

/// Memory of a queued message, bytes: short ones are mostly overhead.
pub(crate) fn memory_bytes(message: &impl Content) -> usize {
    message.bytes() + 256
}
