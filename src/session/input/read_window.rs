//! How long a client that streams may be left unread: until something could be decided by what it sends.
//!
//! Audio matters in units and in hops of the voice detector, not in frames, and waking up for every frame costs more than
//! all that is done with it (field notes libraries.md, "Gathering small frames before waking"). What wakes up whom, and
//! when a frame is expected, the driver knows; here is only what the session waits for.

use std::time::{Duration, Instant};

use crate::audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES};
use crate::session::{Phase, Session};

/// Who was told words, or heard speech to its end, may have something to say to that: commands are read at once for so long.
const REPLY_WITHIN: Duration = Duration::from_secs(3);

/// A time in which nothing can be decided by what the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lull {
    /// Length of all audio that has come so far.
    pub came: Duration,
    /// Length of the last frame of it.
    pub frame: Duration,
    /// How much more there must be before anything can be decided.
    pub undecided: Duration,
    /// The model waits for what is decided then.
    pub prompt: bool,
    /// Frames that are read together may be told as one of so many bytes; no frame of the client's protocol is longer.
    pub frame_max_bytes: usize,
    /// How long it may lie unread in any case: there may be a command behind it.
    pub within: Duration,
}

impl Session {
    /// The lull there is now; none if every message is to be read at once.
    pub(crate) fn lull(&self, now: Instant) -> Option<Lull> {
        let gather = self.setup.profile.gather;
        let within_ms = if self.host.mouth.is_audible() { gather.heard_ms } else { gather.quiet_ms };
        let within = Duration::from_millis(within_ms.into());
        if within.is_zero() || self.phase != Phase::Open || self.setup.lock_step || self.attends(now) {
            return None;
        }
        let to_unit = self.converse.as_ref().map_or(Duration::MAX, |converse| {
            // A unit that is whole waits for the model, not for the client.
            let missing = UNIT_SAMPLES - converse.collected() % UNIT_SAMPLES;
            Duration::from_micros(missing as u64 * 1_000_000 / u64::from(SPEECH_RATE_HZ))
        });
        let to_edge = self.ear.undecided();
        Some(Lull {
            came: self.tally.came,
            frame: self.frame,
            undecided: to_edge.min(to_unit),
            prompt: to_unit <= to_edge,
            frame_max_bytes: usize::MAX,
            within,
        })
    }

    /// A command may come that is urgent. In a conversation the model answers, not the client.
    fn attends(&self, now: Instant) -> bool {
        let replies = self.answered_at.is_some_and(|at| now < at + REPLY_WITHIN);
        self.converse.is_none()
            && (replies || self.speaks() || self.texts.is_waiting() || self.hear.backlog_ms() > 0)
    }
}
