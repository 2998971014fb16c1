//! When a client that streams is looked at, instead of being listened to all the time.
//!
//! Audio that streams in real time can be foretold: when the last frame is there without which nothing can be decided is
//! when to look. The forecast learns from every look: one that came in vain moves it later, one that found what it was for
//! a little sooner. What somebody waits for is listened for if a look for it came in vain, and tells exactly when frames
//! come. Who streams no more, or not at real time, is listened to again. Pure: instants come in.

use std::time::Duration;

use tokio::time::Instant;

use crate::{server::adaptive_read::wake_slots::WakeSlots, session::ReadWindow};

/// Over so long it is judged whether a client streams in real time.
const STREAMING_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A look that finds what it was for was this much too late, maybe, μs.
const EARLIER_STEP_US: i64 = -350;
/// A frame that was listened for was this much late at most, μs: one that is late says little of those after it, and to look
/// too soon for one costs next to nothing.
const LATE_MAX_US: i64 = 1_000;
/// A look in vain is taken again so much later, μs, and twice that after another one.
const LATER_STEP_US: i64 = 2_000;
/// Between two looks there is this at least, whatever is foretold: others have their turn.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Looks in vain after which it streams no more.
const FUTILE_READS_MAX: u32 = 4;

/// The looks at one client.
#[derive(Debug)]
pub(crate) struct ReadScheduler {
    start: Instant,
    is_streaming: bool,
    /// When that was last judged, and how much audio had come by then.
    last_check: (Instant, Duration),
    /// How long after `start` audio comes, less its place in the stream, μs; as far as is known.
    offset_us: i64,
    last_read: Instant,
    /// How much audio had come at the last look.
    audio_at_last_read: Duration,
    /// What the look that was taken was for, until it is known whether it found it.
    pending_read: Option<Option<Duration>>,
    futile_reads: u32,
}

impl ReadScheduler {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            start: now,
            is_streaming: false,
            last_check: (now, Duration::ZERO),
            offset_us: 0,
            last_read: now,
            audio_at_last_read: Duration::ZERO,
            pending_read: None,
            futile_reads: 0,
        }
    }

    /// When the client is to be looked at, which may be now; none if it is to be listened to. To be asked when all it had
    /// sent was read; `was_event_driven` says that that was so up to now.
    pub(crate) fn next_read(
        &mut self,
        now: Instant,
        slots: WakeSlots,
        window: Option<ReadWindow>,
        was_event_driven: bool,
    ) -> Option<Instant> {
        let window = window.filter(|window| window.last_frame_length < window.max_delay)?;
        self.check_streaming(now, &window);
        let is_overdue = window.urgent && self.decision_time(&window) <= now;
        let is_missed = is_overdue && (was_event_driven || self.pending_read.is_some());
        if was_event_driven {
            // Nothing new says nothing: something else has woken up who asks.
            if window.received > self.audio_at_last_read {
                let late_us = self.offset_us_at(now, window.received) - self.offset_us;
                let is_slightly_late =
                    self.is_streaming && (0..micros(window.last_frame_length)).contains(&late_us);
                self.offset_us += if is_slightly_late { late_us.min(LATE_MAX_US) } else { late_us };
            }
            (self.last_read, self.futile_reads, self.pending_read) = (now, 0, None);
        } else if let Some(awaited_audio) = self.pending_read.take().filter(|_| !is_missed) {
            self.adjust_forecast(now, &window, awaited_audio);
        }
        self.audio_at_last_read = window.received;
        if is_missed || !self.is_streaming {
            return None;
        }
        let decision = self.decision_time(&window).max(self.last_read + READ_INTERVAL_MIN);
        let latest = self.last_read + window.max_delay;
        // Who is awake anyway looks a little sooner, rather than waking up again.
        let early = decision.min(latest - window.max_delay / 3);
        Some(match decision.min(latest) {
            _ if early <= now => now,
            at if window.urgent && at == decision => at,
            at => slots.slot_at_or_after(at),
        })
    }

    /// It is looked at now.
    pub(crate) fn on_read(&mut self, now: Instant, window: Option<ReadWindow>) {
        self.last_read = now;
        let expected = window.filter(|window| self.decision_time(window) <= now);
        self.pending_read = Some(expected.map(|window| window.received + window.until_decision));
    }

    /// Whether it streams in real time.
    fn check_streaming(&mut self, now: Instant, window: &ReadWindow) {
        let (checked_at, audio_before) = self.last_check;
        let (passed, received) = (now - checked_at, window.received.saturating_sub(audio_before));
        if passed >= STREAMING_CHECK_INTERVAL {
            self.is_streaming = received * 2 > passed && received < passed * 3 / 2;
            self.last_check = (now, window.received);
        }
    }

    fn adjust_forecast(&mut self, now: Instant, window: &ReadWindow, awaited_audio: Option<Duration>) {
        // What was decided already is no reason to look again.
        let is_futile = window.received == self.audio_at_last_read
            || awaited_audio.is_some_and(|awaited_audio| window.received < awaited_audio);
        // It cannot have come later than it was found.
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

    /// When the frame comes, as far as can be foretold, without which nothing is decided.
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
