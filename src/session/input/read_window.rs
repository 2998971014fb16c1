//! Read window: how much more of a client's audio can arrive before the session has anything to decide.
//!
//! The session acts on units and on hops of the voice detector, not on frames. Waking up for every frame costs more than
//! processing the audio (field notes libraries.md, "Gathering small frames before waking"). The driver schedules the
//! reads; this module only states what the session needs.

use std::time::{Duration, Instant};

use crate::audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES};
use crate::session::{Session, SessionPhase};

/// Time after a reply in which a client is read at once: a command often follows a transcript or the end of speech.
const REPLY_WINDOW: Duration = Duration::from_secs(3);

/// Audio that can arrive without any decision of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWindow {
    /// Length of all audio received so far.
    pub received: Duration,
    /// Length of the last frame.
    pub last_frame_length: Duration,
    /// Length of further audio before the session can decide anything.
    pub until_decision: Duration,
    /// True if the model waits for that decision.
    pub urgent: bool,
    /// Longest frame that gathered frames may be joined into, bytes: the limit of the client's protocol.
    pub frame_max_bytes: usize,
    /// Longest time that the client may stay unread: a command may follow the audio.
    pub max_delay: Duration,
}

impl Session {
    /// The current read window; `None` if every message has to be read at once.
    pub(crate) fn read_window(&self, now: Instant) -> Option<ReadWindow> {
        let gather = self.setup.profile.read_window;
        let max_delay_ms = if self.context.player.is_audible() { gather.playing_ms } else { gather.quiet_ms };
        let max_delay = Duration::from_millis(max_delay_ms.into());
        if max_delay.is_zero()
            || self.phase != SessionPhase::Open
            || self.setup.lock_step
            || self.expects_urgent_command(now)
        {
            return None;
        }
        let until_unit = self.dialogue.as_ref().map_or(Duration::MAX, |dialogue| {
            // A complete unit waits for the model, not for more audio.
            let missing = UNIT_SAMPLES - dialogue.waiting_samples() % UNIT_SAMPLES;
            Duration::from_micros(missing as u64 * 1_000_000 / u64::from(SPEECH_RATE_HZ))
        });
        let until_edge = self.speech_input.time_to_decision();
        Some(ReadWindow {
            received: self.audio_totals.received,
            last_frame_length: self.last_frame_length,
            until_decision: until_edge.min(until_unit),
            urgent: until_unit <= until_edge,
            frame_max_bytes: usize::MAX,
            max_delay,
        })
    }

    /// True if an urgent command may arrive. In a conversation the model answers, so no client command is urgent.
    fn expects_urgent_command(&self, now: Instant) -> bool {
        let may_reply = self.last_replied_at.is_some_and(|at| now < at + REPLY_WINDOW);
        self.dialogue.is_none()
            && (may_reply
                || self.is_speaking()
                || self.tts_queue.has_waiting()
                || self.transcriber.backlog_ms() > 0)
    }
}
