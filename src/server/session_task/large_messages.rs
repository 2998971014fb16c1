//! Large messages: a session whose peer sends one moves to another thread until it is handled, so that the other sessions of its
//! own thread run meanwhile. Nothing is shared: the session is moved as a whole.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::Message as WsMessage;
use tracing::Span;

use super::{SessionTask, socket_poll::Wakeup};
use crate::server::{
    codec_threads::CodecThreads,
    websocket::{pausable_stream::PausableRead, session_socket::SocketEvent},
};

/// Longest message of a client that is handled on the session's own thread, bytes: a second of 16 kHz audio, or a quarter of that
/// as 24 kHz in base64.
const CLIENT_MAX_BYTES: usize = 32 * 1024;
/// Longest such message of a lane, bytes: more than a second of the model's speech.
const LANE_MAX_BYTES: usize = 192 * 1024;
/// Messages longer than this, bytes, wait only for each other: messages that take milliseconds must not wait for those that take
/// a second.
const LARGE_MAX_BYTES: usize = 1024 * 1024;

/// The threads for large messages, and those for very large ones.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct MessageThreads {
    large: CodecThreads,
    very_large: CodecThreads,
}

impl MessageThreads {
    fn for_length(&self, bytes: usize) -> &CodecThreads {
        if bytes > LARGE_MAX_BYTES { &self.very_large } else { &self.large }
    }

    /// Inspects a message of a client, on another thread if it is large. `None` if the inspection panics.
    pub(in crate::server) async fn examine<T: Send + 'static>(
        &self,
        message: WsMessage,
        examine: impl FnOnce(&WsMessage) -> T + Send + 'static,
    ) -> Option<T> {
        match message.len() {
            0..=CLIENT_MAX_BYTES => Some(examine(&message)),
            bytes => self.for_length(bytes).run(move || examine(&message)).await,
        }
    }
}

/// Length of the message in an event, if it is large.
fn large_length(wakeup: &Wakeup) -> Option<usize> {
    let (length, max) = match wakeup {
        Wakeup::Client(SocketEvent::Message(message)) | Wakeup::HeldBack(message) => {
            (message.len(), CLIENT_MAX_BYTES)
        }
        Wakeup::Request(input) => (input.bytes(), CLIENT_MAX_BYTES),
        Wakeup::Lane(_, SocketEvent::Message(message)) => (message.len(), LANE_MAX_BYTES),
        _ => return None,
    };
    Some(length).filter(|length| *length > max)
}

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    /// Handles an event and its consequences: on this thread in the session's turn, or on another thread for a large message.
    /// `None` if the session has panicked there.
    pub(super) async fn handle_event(mut self: Box<Self>, wakeup: Wakeup) -> Option<Box<Self>> {
        let Some(length) = large_length(&wakeup) else {
            self.slice.take_turn().await;
            self.handle_wakeup(wakeup);
            return Some(self);
        };
        // The session's turn on this thread is over.
        self.slice.end();
        let (threads, span) = (self.message_threads.clone(), Span::current());
        let handle = move || {
            let _in = span.enter();
            self.handle_wakeup(wakeup);
            self.drain_bridge();
            self
        };
        let mut task = threads.for_length(length).run(handle).await?;
        task.slice.end();
        Some(task)
    }
}
