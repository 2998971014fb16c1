//! Messages of a client that the bridge does not take for now. The client is still read, up to a bound, to see its
//! pings and its close frame.

use std::collections::VecDeque;

use tokio_tungstenite::tungstenite::Message as WsMessage;

use crate::server::websocket::outbox::memory_bytes;

/// Above this size, bytes, the client is no longer read.
const BACKLOG_MAX_BYTES: usize = 256 * 1024;

/// Messages in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct ReadBacklog {
    messages: VecDeque<WsMessage>,
    /// Memory of the messages, bytes.
    pub(crate) bytes: usize,
}

impl ReadBacklog {
    pub(crate) fn push(&mut self, message: WsMessage) {
        self.bytes += memory_bytes(&message);
        self.messages.push_back(message);
    }

    /// The oldest message.
    pub(crate) fn pop(&mut self) -> Option<WsMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= memory_bytes(&message);
        Some(message)
    }

    /// True if the client must not be read any further.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes > BACKLOG_MAX_BYTES
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_keeps_order_and_is_bounded() {
        let mut backlog = ReadBacklog::default();
        let mut count = 0;
        while !backlog.is_full() {
            backlog.push(WsMessage::text(count.to_string()));
            count += 1;
        }
        assert!(count <= BACKLOG_MAX_BYTES / 256 + 1, "each message counts at least 256 bytes: {count}");
        for expected in 0..count {
            assert_eq!(backlog.pop(), Some(WsMessage::text(expected.to_string())));
        }
        assert!(backlog.pop().is_none() && backlog.bytes == 0);
        backlog.push(WsMessage::text("x"));
        backlog.clear();
        assert!(backlog.pop().is_none() && backlog.bytes == 0);
    }
}
