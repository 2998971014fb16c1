//! What a client sent that is held back: read for the sake of its pings and its goodbye, up to a bound.

use std::collections::VecDeque;

use tokio_tungstenite::tungstenite::Message as WsMessage;

/// A client that is held back is read up to so many bytes more.
const KEPT_BYTES: usize = 256 * 1024;

/// Messages in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    messages: VecDeque<WsMessage>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn push(&mut self, message: WsMessage) {
        self.bytes += weight(&message);
        self.messages.push_back(message);
    }

    /// The one that came first.
    pub(crate) fn pop(&mut self) -> Option<WsMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= weight(&message);
        Some(message)
    }

    /// No more is to be read.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes > KEPT_BYTES
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What a message that is kept takes of memory.
fn weight(message: &WsMessage) -> usize {
    message.len() + 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_in_order_and_has_a_bound() {
        let mut kept = Kept::default();
        let mut count = 0;
        while !kept.is_full() {
            kept.push(WsMessage::text(count.to_string()));
            count += 1;
        }
        assert!(count <= KEPT_BYTES / 256 + 1, "short messages weigh something: {count}");
        for expected in 0..count {
            assert_eq!(kept.pop(), Some(WsMessage::text(expected.to_string())));
        }
        assert!(kept.pop().is_none() && kept.bytes == 0);
        kept.push(WsMessage::text("x"));
        kept.clear();
        assert!(kept.pop().is_none() && kept.bytes == 0);
    }
}
