//! Pause of an idle conversation, for clients that ask for it (OpenAI's `idle_timeout_s` with `wake_policy`).
//!
//! When no one has spoken for that long, the upstream session is left, and its worker is free for others. The user's speech
//! resumes the conversation in another upstream session, with the history in its prompt. Meanwhile the user's audio is silence, of
//! which the last second is kept for the model.

use std::time::{Duration, Instant};

use super::{Dialogue, rollover::DialogueUpstream};
use crate::{
    session::{floor::Floor, timers::Timer, tools::Tools},
    vocabulary::ClientEvent,
};

impl Dialogue {
    /// True while the conversation is paused.
    pub(crate) const fn is_paused(&self) -> bool {
        matches!(self.upstream, DialogueUpstream::Paused { .. })
    }

    /// Pauses an idle conversation ([`Timer::IdlePause`]), and resumes a paused one when the user speaks.
    pub(super) fn check_idle_pause(&mut self, now: Instant, tools: &mut Tools) {
        if let DialogueUpstream::Paused { after } = self.upstream {
            if self.user.in_speech {
                self.uplink.restore_held();
                self.is_resuming = true;
                self.upstream = DialogueUpstream::Scheduled { at: now, after };
            }
            return;
        }
        let pause = tools.settings.idle_pause;
        let due = pause.and_then(|pause| Some(self.idle_from(now, &tools.floor)? + pause));
        tools.timers.set_or_clear(Timer::IdlePause, due);
        if tools.timers.take_expired(Timer::IdlePause, now) {
            self.standby.retire(now, &mut tools.lanes);
            let after = self.leave_upstream(now, false, tools);
            self.upstream = DialogueUpstream::Paused { after };
            self.idle_since = None;
            tools.floor.out.push_client(ClientEvent::ConversationPaused);
        }
    }

    /// Since when the conversation is idle; `None` while someone speaks, and without a model. The user's speech is given the time in
    /// which a model answers.
    fn idle_from(&mut self, now: Instant, floor: &Floor) -> Option<Instant> {
        let is_idle = matches!(self.upstream, DialogueUpstream::Active(_))
            && self.turns.open.is_none()
            && self.turns.fence.is_none()
            && !floor.is_busy()
            && !self.user.in_speech;
        if !is_idle {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert(now);
        let Some(voice_at) = self.user.voice_at else { return Some(since) };
        let is_answered = self.turns.ended_at.is_some_and(|ended| ended >= voice_at);
        let wait = if is_answered { Duration::ZERO } else { self.rules.converse.trailing_silence };
        Some(since.max(voice_at + wait))
    }
}
