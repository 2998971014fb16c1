//! What a client sent that is held back: read for the sake of its pings and its goodbye, up to a bound.

use std::collections::VecDeque;

use tokio_tungstenite::tungstenite::Message as WsMessage;

/// A client that is held back is read up to so many bytes more.
const BACKLOG_MAX_BYTES: usize = 256 * 1024;

/// Messages in the order they came.
#[derive(Debug, Default)]
pub(crate) struct ReadBacklog {
    messages: VecDeque<WsMessage>,
    bytes: usize,
}

impl ReadBacklog {
    pub(crate) fn push(&mut self, message: WsMessage) {
        self.bytes += memory_bytes(&message);
        self.messages.push_back(message);
    }

    /// The one that came first.
    pub(crate) fn pop(&mut self) -> Option<WsMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= memory_bytes(&message);
        Some(message)
    }

    /// No more is to be read.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes > BACKLOG_MAX_BYTES
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What a message that is kept takes of memory.
fn memory_bytes(message: &WsMessage) -> usize {
    message.len() + 256
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
        assert!(count <= BACKLOG_MAX_BYTES / 256 + 1, "short messages weigh something: {count}");
        for expected in 0..count {
            assert_eq!(backlog.pop(), Some(WsMessage::text(expected.to_string())));
        }
        assert!(backlog.pop().is_none() && backlog.bytes == 0);
        backlog.push(WsMessage::text("x"));
        backlog.clear();
        assert!(backlog.pop().is_none() && backlog.bytes == 0);
    }
}
