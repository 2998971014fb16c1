//! Adaptive reading: when to read a client that streams, instead of waking up for each of its frames.
//!
//! The rule: a client that streams in real time is read when the audio for the session's next decision should have
//! arrived, and after the read window's `max_delay` at the latest. Any other client is read on events, and so is one whose
//! urgent decision is overdue.
//!
//! The forecast is one number: how long after its place in the stream audio arrives. A read that finds too little moves the
//! forecast later, a read that finds enough moves it a little earlier, and an arrival seen on events corrects it. A client
//! that stops streaming is read on events after four futile reads. [`AdaptiveReader::next_poll`] and
//! [`AdaptiveReader::on_read`] are pure: instants come in.
//!
//! - [`wake_slots`]: the ticks on which sessions of a thread wake up together
//! - [`backlog`]: messages that the bridge does not take for now

pub(crate) mod backlog;
pub(crate) mod wake_slots;

use std::{
    task::{Context, Poll},
    time::Duration,
};

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
/// Step of the forecast after a read that found its audio, which may have been there earlier, μs.
const EARLIER_STEP_US: i64 = -350;
/// Largest correction by a single late arrival, μs. One late frame says little about the next, and an early read is cheap.
const LATE_MAX_US: i64 = 1_000;
/// Step of the forecast after a read that came too early, μs; doubled with each further one.
const LATER_STEP_US: i64 = 2_000;
/// Minimum time between two reads, so that other sessions get their turn.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Number of futile reads after which a client no longer counts as streaming.
const FUTILE_READS_MAX: u32 = 4;
/// Size limit for frames that are joined into one, bytes: 250 ms at 48 kHz.
const BATCH_MAX_BYTES: usize = 24 * 1024;
/// Messages read in a row before other events get their turn.
const CONSECUTIVE_READS_MAX: u32 = 16;

/// Decides when to read one client, and reads what has arrived.
#[derive(Debug)]
pub(crate) struct AdaptiveReader {
    start: Instant,
    /// The current read window; `None` while the client is read on events.
    window: Option<ReadWindow>,
    is_streaming: bool,
    /// Time of the last streaming check, and audio received by then.
    last_check: (Instant, Duration),
    /// The forecast: arrival of audio after `start`, less its place in the stream, μs.
    offset_us: i64,
    last_read: Instant,
    /// Audio received by the last read.
    audio_at_last_read: Duration,
    /// A scheduled read whose result is not known yet, and the audio it should find.
    pending_read: Option<Option<Duration>>,
    futile_reads: u32,
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
            start: now,
            window: None,
            is_streaming: false,
            last_check: (now, Duration::ZERO),
            offset_us: 0,
            last_read: now,
            audio_at_last_read: Duration::ZERO,
            pending_read: None,
            futile_reads: 0,
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
        if window.last_frame_length >= window.max_delay {
            return None;
        }
        self.check_streaming(now, &window);
        let is_overdue = window.urgent && self.decision_time(&window) <= now;
        let is_missed = is_overdue && (was_event_driven || self.pending_read.is_some());
        if was_event_driven {
            self.correct_forecast(now, &window);
        } else if let Some(awaited_audio) = self.pending_read.take().filter(|_| !is_missed) {
            self.adjust_forecast(now, &window, awaited_audio);
        }
        self.audio_at_last_read = window.received;
        if is_missed || !self.is_streaming {
            return None;
        }
        self.window = Some(window);
        let decision = self.decision_time(&window).max(self.last_read + READ_INTERVAL_MIN);
        let latest = self.last_read + window.max_delay;
        // A session that is awake anyway reads a little early, which saves a wake-up.
        let early = decision.min(latest - window.max_delay / 3);
        Some(match decision.min(latest) {
            _ if early <= now => now,
            at if window.urgent && at == decision => at,
            at => slots.slot_at_or_after(at),
        })
    }

    /// The client is read now, as scheduled.
    pub(crate) fn on_read(&mut self, now: Instant) {
        self.last_read = now;
        let expected = self.window.filter(|window| self.decision_time(window) <= now);
        self.pending_read = Some(expected.map(|window| window.received + window.until_decision));
    }

    /// Number of client frames in the message returned last.
    pub(crate) fn count_frames(&mut self, is_audio: bool) -> u32 {
        if is_audio {
            self.last_audio_frames = self.frames_in_message;
        }
        self.frames_in_message
    }

    /// Returns the next message that has arrived, or `None` if other events get their turn. While reads are scheduled, audio
    /// frames are joined, because frame boundaries carry no meaning (design §4.8).
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
        let mut batch = Vec::with_capacity(max_bytes);
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
        let has_read = count > 0 || self.pending_event.is_some();
        self.consecutive_reads = if has_read { self.consecutive_reads + 1 } else { 0 };
        if count == 0 {
            return self.pending_event.take();
        }
        self.frames_in_message = count;
        Some(SocketEvent::Message(WsMessage::Binary(batch.into())))
    }

    /// Corrects the forecast by an arrival that was seen when it came.
    fn correct_forecast(&mut self, now: Instant, window: &ReadWindow) {
        // Without new audio another event has woken the session.
        if window.received > self.audio_at_last_read {
            let late_us = self.offset_us_at(now, window.received) - self.offset_us;
            let is_slightly_late =
                self.is_streaming && (0..micros(window.last_frame_length)).contains(&late_us);
            self.offset_us += if is_slightly_late { late_us.min(LATE_MAX_US) } else { late_us };
        }
        (self.last_read, self.futile_reads, self.pending_read) = (now, 0, None);
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

    /// Adjusts the forecast by the result of a scheduled read.
    fn adjust_forecast(&mut self, now: Instant, window: &ReadWindow, awaited_audio: Option<Duration>) {
        let is_futile = window.received == self.audio_at_last_read
            || awaited_audio.is_some_and(|awaited_audio| window.received < awaited_audio);
        // Audio cannot have arrived after it was found.
        self.offset_us = self.offset_us.min(self.offset_us_at(now, window.received));
        if !is_futile {
            self.futile_reads = 0;
            self.offset_us += if awaited_audio.is_some() { EARLIER_STEP_US } else { 0 };
            return;
        }
        self.offset_us += LATER_STEP_US << self.futile_reads.min(FUTILE_READS_MAX);
        self.futile_reads += 1;
        if self.futile_reads >= FUTILE_READS_MAX {
            self.is_streaming = false;
            self.last_check = (now, window.received);
        }
    }

    /// Expected arrival of the frame that completes the next decision.
    fn decision_time(&self, window: &ReadWindow) -> Instant {
        let frame = window.last_frame_length.max(Duration::from_millis(1));
        let frames = window.until_decision.as_micros().div_ceil(frame.as_micros()).max(1);
        let audio_us = micros(window.received)
            + micros(frame) * i64::try_from(frames).unwrap_or(i64::MAX / 1_000_000_000);
        self.start
            + Duration::from_micros(
                u64::try_from(self.offset_us.saturating_add(audio_us)).unwrap_or_default(),
            )
    }

    fn offset_us_at(&self, now: Instant, received: Duration) -> i64 {
        micros(now - self.start) - micros(received)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests;
