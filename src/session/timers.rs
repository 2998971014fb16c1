//! Timer table of a session or a relay: each deadline is armed and cleared here by the code that causes it.
//!
//! Each lane keeps its own deadline, because the number of lanes varies ([`super::lanes::connection`]). The earliest of
//! them stands here. The design is that of quinn's `connection/timer.rs`.

use std::time::Instant;

/// A deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Armed with the earliest deadline of all lanes. Expiry lets each lane handle its own.
    Lanes,
    /// Armed when an utterance starts and by each interim decode. Expiry transcribes the unfinished utterance.
    Interim,
    /// Armed while the oldest utterance waits for its transcript. Expiry reports the end of its speech before that.
    SpeechEnd,
    /// Armed when an utterance is complete whose answer the client asks for. Expiry transcribes it before that.
    AnswerRequest,
    /// Armed while an utterance is being received. Expiry ends an utterance whose audio has stopped arriving.
    Stall,
    /// Armed while the client is expected to send. Expiry closes a session whose client has sent nothing.
    Idle,
    /// Armed while the user is silent after an answer, if the client wants the silence answered. On expiry, the model answers.
    UserSilence,
    /// Armed when the session opens. Expiry drains a session that has reached its longest permitted duration.
    TimeLimit,
    /// Armed by each change of the floor. Expiry sends the next audio frame, or ends a text that was played.
    Playout,
    /// Armed by output of the model. Expiry ends an answer whose end the upstream did not report.
    ReplyEnd,
    /// Armed when the model has listened after an interruption. Expiry lets its output be heard again.
    FenceLift,
    /// Armed by the first unit that forces the model to listen. Expiry replaces a session that keeps talking.
    Yield,
    /// Armed by a unit. Expiry replaces a session that has not answered the unit.
    Reply,
    /// Armed for the next limit of an upstream session, or the next quiet moment after it. Expiry rolls over.
    Limits,
    /// Armed by each unit of the standby and its answer. Expiry sends the next unit, or gives the standby up.
    Standby,
    /// Armed after the end of an upstream session. Expiry dials the next one.
    Redial,
    /// Armed while a conversation waits in an upstream's queue. Expiry informs the client.
    QueueNotice,
    /// Armed by audio, silence and answers of a conversation. Expiry sends the next unit.
    Unit,
    /// Armed while no one speaks in a conversation, if the client wants pauses. Expiry pauses the conversation.
    IdlePause,
    /// Armed by audio that is dropped soon after a report of dropped audio. Expiry sends the next report.
    DropReport,
    /// Armed while the session drains, for its next quiet moment. Expiry starts to close the session.
    Drain,
    /// Armed when the session starts to close. Expiry closes it although replies are pending.
    Finish,
    /// Armed by calls on tool servers. Expiry ends calls that take too long, or has the user hear that they go on.
    ToolCalls,
    /// Armed by the loss of a relay's upstream. Expiry ends a session that found no other upstream.
    Resume,
}

/// Instants of all armed timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: [Option<Instant>; Timer::Resume as usize + 1],
    /// Earliest armed instant. It is asked for more often than it changes.
    pub(crate) next: Option<Instant>,
}

impl Timers {
    /// Arms a timer, or moves it.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.set_or_clear(timer, Some(at));
    }

    /// Arms a timer at this instant; clears it for `None`.
    pub(crate) fn set_or_clear(&mut self, timer: Timer, at: Option<Instant>) {
        let before = std::mem::replace(&mut self.armed[timer as usize], at);
        if before == at {
            return;
        }
        self.next = match before {
            // Another timer may be the earliest now.
            Some(_) if before == self.next => self.armed.iter().flatten().min().copied(),
            _ => self.next.into_iter().chain(at).min(),
        };
    }

    /// Arms a timer that is not armed.
    pub(crate) fn set_if_clear(&mut self, timer: Timer, at: Instant) {
        if self.armed[timer as usize].is_none() {
            self.set(timer, at);
        }
    }

    /// Arms a timer, or moves it to an earlier instant.
    pub(crate) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        if self.armed[timer as usize].is_none_or(|armed| at < armed) {
            self.set(timer, at);
        }
    }

    /// Clears these timers.
    pub(crate) fn clear(&mut self, timers: &[Timer]) {
        timers.iter().for_each(|timer| self.set_or_clear(*timer, None));
    }

    /// Clears a timer that has expired; returns false for any other.
    pub(crate) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let has_expired = self.armed[timer as usize].is_some_and(|at| at <= now);
        if has_expired {
            self.set_or_clear(timer, None);
        }
        has_expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn expired_timers_are_taken_once_and_the_earliest_is_next() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut timers = Timers::default();
        timers.set(Timer::Finish, later);
        timers.set(Timer::Idle, now);
        assert_eq!(timers.next, Some(now));
        assert!(timers.take_expired(Timer::Idle, now) && !timers.take_expired(Timer::Idle, now));
        assert!(!timers.take_expired(Timer::Finish, now));
        timers.set_earlier(Timer::Finish, later + Duration::from_secs(1));
        assert_eq!(timers.next, Some(later));
        timers.set(Timer::Unit, later + Duration::from_secs(1));
        timers.set(Timer::Finish, later + Duration::from_secs(2));
        assert_eq!(timers.next, Some(later + Duration::from_secs(1)), "the earliest was moved");
        timers.clear(&[Timer::Finish, Timer::Unit]);
        assert_eq!(timers.next, None);
    }
}
