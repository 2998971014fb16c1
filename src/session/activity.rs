//! Activity of the client: when it last sent something, and what it waits for. Closes sessions of clients that are idle.

use std::time::{Duration, Instant};

use super::{
    acknowledged_audio::AcknowledgedAudio, owners::Owners, timers::Timer, user_silence::UserSilence,
};
use crate::vocabulary::ClientRequest;

/// Longest playback to a client that sends nothing: longer than a client that reads at half the pace of playback takes for an
/// answer of ten minutes. Without this bound, a model that never stops would keep an abandoned session alive.
const UNATTENDED_TALK_MAX: Duration = Duration::from_secs(3600);

/// Last activity of the client, and whether it waits.
#[derive(Debug)]
pub(super) struct ClientActivity {
    /// The client may be silent for this long; `None` without a limit.
    idle_timeout: Option<Duration>,
    pub(super) idle_since: Instant,
    /// The client waited for a reply after the last input.
    was_awaiting_reply: bool,
    /// The client has sent audio.
    pub(super) has_sent_audio: bool,
    /// When the last pending reply was sent.
    pub(super) last_replied_at: Option<Instant>,
    /// The user's silence after an answer.
    pub(super) user_silence: UserSilence,
    /// Since when no audio has arrived, although the client was read.
    pub(super) silence_since: Instant,
    /// Length of the last audio frame.
    pub(super) last_frame_length: Duration,
    /// Audio that was acknowledged.
    pub(super) acknowledged: AcknowledgedAudio,
    /// The driver should not read from the client, as of the last input that may have changed that.
    pub(super) had_backpressure: bool,
}

impl ClientActivity {
    /// Activity of a client that has just connected, and may be silent for `idle_timeout`.
    pub(super) fn new(now: Instant, idle_timeout: Option<Duration>) -> Self {
        Self {
            idle_timeout,
            idle_since: now,
            was_awaiting_reply: false,
            has_sent_audio: false,
            last_replied_at: None,
            user_silence: UserSilence::default(),
            silence_since: now,
            last_frame_length: Duration::ZERO,
            acknowledged: AcknowledgedAudio::default(),
            had_backpressure: false,
        }
    }

    /// Notes a request other than audio. Some do not show that someone uses the client.
    pub(super) const fn note_request(&mut self, now: Instant, request: &ClientRequest<'_>) {
        if let ClientRequest::AppendText(..)
        | ClientRequest::Flush(_)
        | ClientRequest::SpeakAppended(_)
        | ClientRequest::Clear(_)
        | ClientRequest::CancelSpeech
        | ClientRequest::Complete
        | ClientRequest::Answer(_) = request
        {
            self.idle_since = now;
        }
    }

    /// Notes whether reading from the client is paused. Meanwhile, missing audio does not count as silence.
    pub(super) fn track_backpressure(&mut self, now: Instant, is_open: bool, owners: &mut Owners) {
        if self.had_backpressure {
            self.silence_since = now;
        }
        self.had_backpressure = is_open && owners.needs_backpressure();
        self.arm_stall(is_open, owners);
    }

    /// Arms [`Timer::Stall`] while an utterance is being received.
    pub(super) fn arm_stall(&self, is_open: bool, owners: &mut Owners) {
        let is_receiving = is_open && !self.had_backpressure && owners.is_user_speaking();
        let stall = Duration::from_millis(owners.setup.profile.listen.stall_ms.into());
        let at = is_receiving.then(|| self.silence_since + stall);
        owners.tools.timers.set_or_clear(Timer::Stall, at);
    }

    /// Notes whether the client waits for a reply. A client that has just got one, or listens, is not idle.
    pub(super) fn track_replies(&mut self, now: Instant, is_open: bool, owners: &mut Owners) {
        if self.had_backpressure {
            self.silence_since = now;
        }
        let awaits_reply = owners.awaits_reply();
        let is_listening = owners.is_floor_taken()
            || (owners.is_speaking() && now < self.silence_since + UNATTENDED_TALK_MAX);
        let was_answered = self.was_awaiting_reply && !awaits_reply;
        if was_answered {
            self.last_replied_at = Some(now);
        }
        if is_listening || was_answered {
            self.idle_since = now;
        }
        self.was_awaiting_reply = awaits_reply;
        self.arm_idle(is_open, owners);
    }

    /// Arms [`Timer::Idle`] for a client that sends nothing. A client that listens or waits for a transcript may stay
    /// silent longer: as long as playback lasts, or as an upstream's queue may take.
    pub(super) fn arm_idle(&self, is_open: bool, owners: &mut Owners) {
        let wanted = owners.tools.settings.idle_timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let shortest = self.idle_timeout.into_iter().chain(wanted).min();
        let idle = shortest.filter(|_| is_open && !owners.is_floor_taken());
        let at = idle.map(|idle| {
            let is_playing = owners.tools.floor.is_busy();
            let at =
                if is_playing { self.silence_since + UNATTENDED_TALK_MAX } else { self.idle_since + idle };
            let queue_max = Duration::from_millis(owners.setup.profile.lanes.queue_max_ms);
            if owners.transcriber.queue.is_settled() { at } else { at.max(self.silence_since + queue_max) }
        });
        owners.tools.timers.set_or_clear(Timer::Idle, at);
    }
}
