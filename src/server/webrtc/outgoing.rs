//! Texts on their way to the client: those that wait for the data channel, and those that it has not delivered yet. A client
//! with a new peer connection gets both, the latter perhaps twice.

use std::collections::VecDeque;

use str0m::{RtcError, channel::Channel};

/// Above this much undelivered text, nothing more is written.
pub(super) const UNDELIVERED_MAX_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<String>,
    waiting_bytes: usize,
    /// Written, and not all of it delivered.
    written: VecDeque<String>,
    written_bytes: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, text: String) {
        self.waiting_bytes += text.len();
        self.waiting.push_back(text);
    }

    /// True while further texts should be taken. Without a channel they gather.
    pub(super) fn has_room(&self, has_channel: bool) -> bool {
        if has_channel { self.waiting.is_empty() } else { self.waiting_bytes < UNDELIVERED_MAX_BYTES }
    }

    /// True once all texts are written.
    pub(super) fn is_written(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes what the channel has room for. Returns true if something was written.
    pub(super) fn write(&mut self, channel: &mut Channel<'_>) -> Result<bool, RtcError> {
        let mut has_written = false;
        while channel.buffered_amount() < UNDELIVERED_MAX_BYTES
            && let Some(text) = self.waiting.front()
            && channel.write(false, text.as_bytes())?
        {
            let text = self.waiting.pop_front().unwrap_or_default();
            self.waiting_bytes -= text.len();
            self.written_bytes += text.len();
            self.written.push_back(text);
            has_written = true;
        }
        self.forget_delivered(channel.buffered_amount());
        Ok(has_written)
    }

    /// Forgets what is delivered: all but the last `undelivered` bytes.
    fn forget_delivered(&mut self, undelivered: usize) {
        while let Some(text) = self.written.front()
            && self.written_bytes - text.len() >= undelivered
        {
            self.written_bytes -= text.len();
            self.written.pop_front();
        }
    }

    /// Has what was not delivered, the last bytes of all, written once more, to another channel.
    pub(super) fn restart(&mut self, undelivered: usize) {
        self.forget_delivered(undelivered);
        self.waiting_bytes += std::mem::take(&mut self.written_bytes);
        while let Some(text) = self.written.pop_back() {
            self.waiting.push_front(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_texts_are_written_again_in_their_order() {
        let mut outgoing = Outgoing::default();
        outgoing.written.extend(["one", "two", "three"].map(str::to_owned));
        outgoing.written_bytes = 11;
        outgoing.push("four".to_owned());
        // "two" is partly delivered.
        outgoing.restart(6);
        assert_eq!(outgoing.waiting, ["two", "three", "four"]);
        assert_eq!((outgoing.waiting_bytes, outgoing.written_bytes), (12, 0));
        assert!(!outgoing.is_written() && outgoing.has_room(false) && !outgoing.has_room(true));
        outgoing.push("x".repeat(UNDELIVERED_MAX_BYTES));
        assert!(!outgoing.has_room(false));
    }
}
