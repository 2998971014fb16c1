//! The client's messages on their way to the upstream: sent at once, or kept while no upstream session is open.

use std::time::Instant;

use super::{ClientMessage, Opening, Relay, RelayPhase, RelayStart};
use crate::{
    event::{LaneCommand, Mode},
    session::outbox::Action,
};

impl Relay {
    /// Sends a message to the upstream, or queues it.
    pub(super) fn send_or_queue(&mut self, now: Instant, message: ClientMessage) {
        if self.is_open() {
            return self.send_upstream(message);
        }
        if self.opening.start == RelayStart::Unknown {
            self.opening.start = RelayStart::FirstMessage;
        }
        self.messages.pending.push(message);
        self.init_with_first_message(now);
        self.send_early();
        self.limit_pending();
    }

    pub(super) fn send_upstream(&mut self, message: ClientMessage) {
        let Some(connection) = self.connection() else { return };
        let lane = connection.lane;
        let ClientMessage { text, append } = message;
        match append {
            Some(append) => self.messages.in_flight.push(&text, append),
            None => self.messages.sent_unchecked = true,
        }
        self.out.push(Action::ToLane(lane, LaneCommand::RawText(text)));
    }

    /// Drops the oldest messages of a conversation whose upstream is being replaced.
    fn limit_pending(&mut self) {
        if self.can_drop_pending() {
            self.messages.pending.drop_oldest(self.rules.buffer_max_bytes, self.rules.outage_audio_max_ms);
        }
    }

    fn can_drop_pending(&self) -> bool {
        self.reported.opened && self.mode != Mode::Chat
    }

    /// True while the driver should stop reading from the client: too much waits for an upstream.
    pub(crate) fn needs_backpressure(&self) -> bool {
        let is_waiting = !self.is_open()
            && !self.can_drop_pending()
            && matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..));
        is_waiting && self.messages.pending.bytes() > self.rules.buffer_max_bytes
    }

    /// Memory of the client's messages that wait for the upstream or for its answer, bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let Opening { start, first_message, .. } = &self.opening;
        let openings = if let RelayStart::Init(variants) = start { variants.as_slice() } else { &[] };
        let texts = openings.iter().chain(first_message.iter().map(|first| &first.text));
        let opening_bytes: usize = texts.map(String::len).sum();
        opening_bytes + self.messages.pending.bytes() + self.messages.in_flight.bytes()
    }
}
