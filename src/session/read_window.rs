//! Read window: how long a streaming client may stay unread, because no decision depends on its next frames.
//!
//! Audio matters in units and in hops of the voice detector, not in frames, and a wake-up per frame costs more than
//! processing it (mappings/notes/libraries.md#gathering-small-frames). The session says what it waits
//! for; the server schedules the reads.

use std::time::{Duration, Instant};

use super::{Session, lifecycle::SessionPhase, owners::Owners};
use crate::audio::SPEECH_RATE_HZ;

/// After words or the end of speech the client may answer with a command, so every message is read at once for this
/// time.
const REPLY_WINDOW: Duration = Duration::from_secs(3);

/// A time in which no decision depends on the client's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWindow {
    /// Length of all audio received so far.
    pub received: Duration,
    /// Length of the last frame.
    pub last_frame_length: Duration,
    /// How much more audio the next decision needs.
    pub until_decision: Duration,
    /// Size limit for frames that are joined into one, bytes; no frame of the client protocol is longer. 0 if frames may
    /// not be joined.
    pub frame_max_bytes: usize,
    /// Longest time the client may stay unread, because a command may follow the audio.
    pub max_delay: Duration,
}

impl ReadWindow {
    /// The current read window; `None` if every message must be read at once.
    pub(super) fn of(session: &Session, now: Instant) -> Option<Self> {
        let Owners { setup, intake, dialogue, tools, .. } = &session.owners;
        let gather = setup.profile.read_window;
        let max_delay_ms = if tools.floor.is_audible() { gather.playing_ms } else { gather.quiet_ms };
        let max_delay = Duration::from_millis(max_delay_ms.into());
        if max_delay.is_zero()
            || session.lifecycle.phase != SessionPhase::Open
            || setup.answers_frames
            || expects_urgent_command(session, now)
        {
            return None;
        }
        let until_unit = dialogue.as_ref().map_or(Duration::MAX, |dialogue| {
            // A complete unit waits for the model, so only the current one counts.
            let unit = dialogue.unit_samples();
            let missing = unit - dialogue.uplink.units.len() % unit;
            Duration::from_micros(missing as u64 * 1_000_000 / u64::from(SPEECH_RATE_HZ))
        });
        let until_edge = intake.speech_input.time_to_decision();
        Some(Self {
            received: intake.audio_totals.received,
            last_frame_length: session.activity.last_frame_length,
            until_decision: until_edge.min(until_unit),
            frame_max_bytes: match intake.speech_input.converter.can_join_frames() {
                true => setup.audio_in.frame_max_bytes,
                false => 0,
            },
            max_delay,
        })
    }
}

/// True if an urgent command may come. In a conversation the model answers, not the client.
fn expects_urgent_command(session: &Session, now: Instant) -> bool {
    let may_reply = session.activity.last_replied_at.is_some_and(|at| now < at + REPLY_WINDOW);
    let owners = &session.owners;
    owners.dialogue.is_none()
        && (may_reply
            || owners.is_speaking()
            || owners.tts_queue.has_waiting()
            || owners.transcriber.queue.backlog_ms() > 0)
}
