//! Adaptive reading: when to read a client that streams, instead of waking up for each of its frames.
//!
//! The rule: after its audio was read, a client that streams in real time is left unread for the read window's `max_delay`,
//! or until one frame before the session's next decision can be due, whichever is earlier. Then it is read; the frames just
//! before a decision, and any other client, are read on events.
//!
//! Nothing is forecast: audio that arrives in real time cannot complete the decision earlier. A scheduled read that finds no
//! audio leaves the client to events until audio comes. [`AdaptiveReader::next_poll`] and [`AdaptiveReader::on_read`] are
//! pure: instants come in.
//!
//! - [`wake_slots`]: the ticks on which sessions of a thread wake up together
//! - [`backlog`]: messages that the bridge does not take for now

pub(crate) mod backlog;
pub(crate) mod wake_slots;

use std::{
    cell::Cell,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use self::wake_slots::WakeSlots;
use super::websocket::session_socket::{SessionSocket, SocketEvent};
use crate::session::ReadWindow;

/// How often the reader checks whether a client streams in real time.
const STREAMING_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Size limit for frames that are joined into one, bytes: 250 ms at 48 kHz.
const BATCH_MAX_BYTES: usize = 24 * 1024;
/// Messages read in a row before other events get their turn.
const CONSECUTIVE_READS_MAX: u32 = 16;

thread_local! {
    /// Memory for joined frames. It is used again once the message before is gone.
    static BATCH: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Decides when to read one client, and reads what has arrived.
#[derive(Debug)]
pub(crate) struct AdaptiveReader {
    /// The current read window; `None` while the client is read on events.
    window: Option<ReadWindow>,
    is_streaming: bool,
    /// Time of the last streaming check, and audio received by then.
    last_check: (Instant, Duration),
    /// When audio was last read, or the client as scheduled.
    last_read: Instant,
    /// Audio received by then.
    audio_at_last_read: Duration,
    /// No audio has come since the last scheduled read.
    awaits_audio: bool,
    /// Frames joined into the last message.
    frames_in_message: u32,
    /// Frames joined into the last audio message.
    last_audio_frames: u32,
    /// The event that followed the joined frames.
    pending_event: Option<SocketEvent>,
    consecutive_reads: u32,
}

impl AdaptiveReader {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            window: None,
            is_streaming: false,
            last_check: (now, Duration::ZERO),
            last_read: now,
            audio_at_last_read: Duration::ZERO,
            awaits_audio: false,
            frames_in_message: 1,
            last_audio_frames: 1,
            pending_event: None,
            consecutive_reads: 0,
        }
    }

    /// When to read the client next, which may be now; `None` to read it on events. Called when everything received was
    /// read; `was_event_driven` says how it was read.
    pub(crate) fn next_poll(
        &mut self,
        now: Instant,
        slots: WakeSlots,
        window: Option<ReadWindow>,
        was_event_driven: bool,
    ) -> Option<Instant> {
        self.window = None;
        let mut window = window?;
        window.last_frame_length /= self.last_audio_frames;
        self.check_streaming(now, &window);
        if window.received > self.audio_at_last_read {
            (self.audio_at_last_read, self.awaits_audio) = (window.received, false);
            if was_event_driven {
                self.last_read = now;
            }
        }
        if !self.is_streaming || self.awaits_audio {
            return None;
        }
        let until_decision = quiet_time(&window)?;
        self.window = Some(window);
        let decision = self.last_read + until_decision.min(window.max_delay);
        // A session that is awake anyway reads a little early, which saves a wake-up.
        let early = decision.min(self.last_read + window.max_delay * 2 / 3);
        if early <= now {
            return Some(now);
        }
        // A read before a decision may be early, but not late: its frame may come at once.
        let is_before_decision = until_decision <= window.max_delay;
        let slot = if is_before_decision {
            slots.slot_at_or_before(decision)
        } else {
            slots.slot_at_or_after(decision)
        };
        Some(slot.max(now))
    }

    /// The client is read now, as scheduled.
    pub(crate) fn on_read(&mut self, now: Instant) {
        (self.last_read, self.awaits_audio) = (now, true);
    }

    /// Number of client frames in the message returned last.
    pub(crate) fn count_frames(&mut self, is_audio: bool) -> u32 {
        if is_audio {
            self.last_audio_frames = self.frames_in_message;
        }
        self.frames_in_message
    }

    /// Returns the next message that has arrived, or `None` if other events get their turn. While reads are scheduled, audio
    /// frames are joined, because frame boundaries carry no meaning.
    pub(crate) fn read<S>(
        &mut self,
        client: Option<&mut SessionSocket<S>>,
        cx: &mut Context<'_>,
    ) -> Option<SocketEvent>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.frames_in_message = 1;
        if let Some(event) = self.pending_event.take() {
            return Some(event);
        }
        if self.consecutive_reads == CONSECUTIVE_READS_MAX {
            self.consecutive_reads = 0;
            return None;
        }
        let client = client?;
        let max_bytes = self.window.map_or(0, |window| window.frame_max_bytes.min(BATCH_MAX_BYTES));
        let mut batch = BATCH.take();
        batch.reserve(max_bytes);
        let mut count = 0;
        while let Poll::Ready(event) = client.poll_read(cx) {
            match event {
                // An empty frame has a meaning in protocols that allow it.
                SocketEvent::Message(WsMessage::Binary(frame))
                    if !frame.is_empty() && batch.len() + frame.len() <= max_bytes =>
                {
                    batch.extend_from_slice(&frame);
                    count += 1;
                }
                other => {
                    self.pending_event = Some(other);
                    break;
                }
            }
        }
        let joined = batch.split().freeze();
        BATCH.set(batch);
        let has_read = count > 0 || self.pending_event.is_some();
        self.consecutive_reads = if has_read { self.consecutive_reads + 1 } else { 0 };
        if count == 0 {
            return self.pending_event.take();
        }
        self.frames_in_message = count;
        Some(SocketEvent::Message(WsMessage::Binary(joined)))
    }

    /// Checks whether the client streams in real time.
    fn check_streaming(&mut self, now: Instant, window: &ReadWindow) {
        let (checked_at, audio_before) = self.last_check;
        let (passed, received) = (now - checked_at, window.received.saturating_sub(audio_before));
        if passed >= STREAMING_CHECK_INTERVAL {
            self.is_streaming = received * 2 > passed && received < passed * 3 / 2;
            self.last_check = (now, window.received);
        }
    }
}

/// How long no decision can be due after the last read; `None` if it may be due with the next frames.
fn quiet_time(window: &ReadWindow) -> Option<Duration> {
    let frame = window.last_frame_length.max(Duration::from_millis(1));
    let quiet = window.until_decision.checked_sub(frame)?;
    // Leaving a single frame unread saves nothing.
    (quiet.min(window.max_delay) > frame).then_some(quiet)
}

#[cfg(test)]
mod tests;
