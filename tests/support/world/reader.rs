//! A client that reads at its own rate, with the flow control that the driver of a session derives from what waits for it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use voxbridge::{
    session::SessionReport,
    vocabulary::{FlowControl, Message, SpeechId},
};

/// Above this many bytes that the client has not read, it is behind, as for the driver.
const BEHIND_ABOVE_BYTES: usize = 256 * 1024;
/// A client that reads nothing for this long is gone, as for the driver.
const STALLED_MAX: Duration = Duration::from_secs(120);
/// This much waits for a client by default, bytes.
const WAITS_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Frames that wait for the client.
pub struct Reader {
    /// Bytes a second; `None` for a client that reads at once.
    rate: Option<u64>,
    outbox: VecDeque<(Message, Option<SpeechId>)>,
    outbox_bytes: usize,
    /// The instant at which the client will have read the first message.
    read_at: Option<Instant>,
    /// The instant since which messages wait for a client that pauses.
    stalled_since: Option<Instant>,
    /// Flow control as last reported to the bridge.
    flow: FlowControl,
    /// This much may wait before lanes are held, bytes.
    pub waits_max_bytes: usize,
    /// The most that has waited, bytes.
    pub waited_bytes: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A client that reads at once.
    pub fn new() -> Self {
        Self {
            rate: None,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            read_at: None,
            stalled_since: None,
            flow: FlowControl::default(),
            waits_max_bytes: WAITS_MAX_BYTES,
            waited_bytes: 0,
        }
    }

    /// The client reads this fast from now on, bytes a second; 0 for a client that pauses.
    pub fn set_rate(&mut self, now: Instant, bytes_per_second: u64) {
        self.rate = Some(bytes_per_second);
        self.schedule_read(now);
    }

    /// The server sends a message. Returns it if the client reads it at once.
    pub fn send(&mut self, now: Instant, message: Message, turn: Option<SpeechId>) -> Option<Message> {
        if self.rate.is_none() {
            return Some(message);
        }
        self.outbox_bytes += message_bytes(&message);
        self.outbox.push_back((message, turn));
        if self.outbox.len() == 1 {
            self.schedule_read(now);
        }
        None
    }

    /// The server discards what the client has not begun to read of this turn. Returns how many bytes.
    pub fn drop_turn(&mut self, turn: SpeechId) -> usize {
        let first = self.outbox.pop_front();
        self.outbox.retain(|(_, tag)| *tag != Some(turn));
        if let Some(being_read) = first {
            self.outbox.push_front(being_read);
        }
        let left_bytes = self.outbox.iter().map(|(message, _)| message_bytes(message)).sum();
        std::mem::replace(&mut self.outbox_bytes, left_bytes) - left_bytes
    }

    /// The client's connection is gone.
    pub fn leave(&mut self) {
        *self = Self { waited_bytes: self.waited_bytes, ..Self::new() };
    }

    /// The instant at which the client will have read the first message that waits.
    pub fn next_read(&self) -> Option<Instant> {
        self.read_at
    }

    /// The instant at which the driver takes a client that pauses for gone.
    pub fn gone_at(&self) -> Option<Instant> {
        self.stalled_since.map(|since| since + STALLED_MAX)
    }

    /// The message that the client has read by now.
    pub fn read(&mut self, now: Instant) -> Option<Message> {
        self.read_at.filter(|at| *at <= now)?;
        let (message, _) = self.outbox.pop_front()?;
        self.outbox_bytes -= message_bytes(&message);
        self.schedule_read(now);
        Some(message)
    }

    /// The flow control to report to the bridge, if it has changed.
    pub fn changed_flow(&mut self, report: &SessionReport) -> Option<FlowControl> {
        let waiting_bytes = self.outbox_bytes + report.unsent_bytes;
        self.waited_bytes = self.waited_bytes.max(waiting_bytes);
        let flow = FlowControl {
            is_client_behind: self.outbox_bytes > BEHIND_ABOVE_BYTES,
            are_lanes_held: report.is_far_ahead || waiting_bytes > self.waits_max_bytes,
        };
        (std::mem::replace(&mut self.flow, flow) != flow).then_some(flow)
    }

    /// True if the driver reads no lane that the bridge holds.
    pub fn are_lanes_held(&self) -> bool {
        self.flow.are_lanes_held
    }

    fn schedule_read(&mut self, now: Instant) {
        let rate = self.rate.filter(|rate| *rate > 0);
        let first = self.outbox.front().map(|(message, _)| message_bytes(message) as u64);
        self.read_at =
            first.zip(rate).map(|(bytes, rate)| now + Duration::from_nanos(bytes * 1_000_000_000 / rate));
        let is_stalled = self.read_at.is_none() && !self.outbox.is_empty();
        self.stalled_since = is_stalled.then(|| self.stalled_since.unwrap_or(now));
    }
}

const fn message_bytes(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
        Message::Close(..) => 0,
    }
}
