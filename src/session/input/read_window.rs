//! How long a client that streams may be left unread: until something could be decided by what it sends.
//!
//! Audio matters in units and in hops of the voice detector, not in frames, and waking up for every frame costs more than
//! all that is done with it (field notes libraries.md, "Gathering small frames before waking"). What wakes up whom, and
//! when a frame is expected, the driver knows; here is only what the session waits for.

use std::time::{Duration, Instant};

use crate::audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES};
use crate::session::{Session, SessionPhase};

/// Who was told words, or heard speech to its end, may have something to say to that: commands are read at once for so long.
const REPLY_WINDOW: Duration = Duration::from_secs(3);

/// A time in which nothing can be decided by what the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWindow {
    /// Length of all audio that has come so far.
    pub received: Duration,
    /// Length of the last frame of it.
    pub last_frame_length: Duration,
    /// How much more there must be before anything can be decided.
    pub until_decision: Duration,
    /// The model waits for what is decided then.
    pub urgent: bool,
    /// Frames that are read together may be told as one of so many bytes; no frame of the client's protocol is longer.
    pub frame_max_bytes: usize,
    /// How long it may lie unread in any case: there may be a command behind it.
    pub max_delay: Duration,
}

impl Session {
    /// The lull there is now; none if every message is to be read at once.
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
            // A unit that is whole waits for the model, not for the client.
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

    /// A command may come that is urgent. In a conversation the model answers, not the client.
    fn expects_urgent_command(&self, now: Instant) -> bool {
        let may_reply = self.last_replied_at.is_some_and(|at| now < at + REPLY_WINDOW);
        self.dialogue.is_none()
            && (may_reply
                || self.is_speaking()
                || self.tts_queue.has_waiting()
                || self.transcriber.backlog_ms() > 0)
    }
}
