//! When a conversation has to go on in another upstream session: time and context, each with a soft and a hard bound.
//!
//! Between the two a quiet moment is waited for (field notes §7.1, §7.3). Nobody enforces the context on the server's side
//! (§1.6), so what it says about it is watched, and estimated where it says nothing.

use std::time::{Duration, Instant};

use crate::{
    event::{Mode, RolloverReason},
    mapping::{profile::Rollover, upstream::Duplex},
};

/// Why, and whether there is time to wait for a quiet moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) reason: RolloverReason,
    pub(super) hard: bool,
}

/// The bounds of one conversation's upstream sessions.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    soft: Option<Duration>,
    hard: Option<Duration>,
    soft_tokens: u32,
    hard_tokens: u32,
    idle_unit_tokens: u32,
    busy_unit_tokens: u32,
    frame_tokens: u32,
}

/// How full the model's context is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
    tokens: u32,
    /// The upstream has said so since the last unit.
    reported: bool,
}

impl Context {
    /// Positions in use, as far as is known.
    pub(super) const fn tokens(self) -> u32 {
        self.tokens
    }
}

impl Limits {
    pub(super) fn new(mode: Mode, duplex: &Duplex, rules: &Rollover) -> Self {
        let max = duplex.session_max_ms.get(&mode).map(|ms| Duration::from_millis((*ms).into()));
        let before = |ms: u64| max.map(|max| max.saturating_sub(Duration::from_millis(ms)));
        let hard_tokens = rules.hard_tokens.min(duplex.context_max_tokens);
        Self {
            soft: before(rules.soft_before_ms.max(rules.hard_before_ms)),
            hard: before(rules.hard_before_ms),
            soft_tokens: rules.soft_tokens.min(hard_tokens),
            hard_tokens,
            idle_unit_tokens: duplex.idle_unit_tokens,
            busy_unit_tokens: duplex.busy_unit_tokens,
            frame_tokens: duplex.frame_tokens,
        }
    }

    /// Whether it is time, for a session whose worker was assigned at `granted_at`.
    pub(super) fn due(&self, now: Instant, granted_at: Instant, context: Context) -> Option<Due> {
        let past = |bound: Option<Duration>| bound.is_some_and(|bound| now >= granted_at + bound);
        let due = |reason, hard| Some(Due { reason, hard });
        if past(self.hard) {
            due(RolloverReason::Time, true)
        } else if context.tokens >= self.hard_tokens {
            due(RolloverReason::Context, true)
        } else if past(self.soft) {
            due(RolloverReason::Time, false)
        } else if context.tokens >= self.soft_tokens {
            due(RolloverReason::Context, false)
        } else {
            None
        }
    }

    /// The next instant at which [`Limits::due`] changes by itself.
    pub(super) fn next(&self, now: Instant, granted_at: Instant) -> Option<Instant> {
        let bounds = [self.soft, self.hard].into_iter().flatten().map(|bound| granted_at + bound);
        bounds.filter(|at| *at > now).min()
    }

    /// How much time is left until there is none to wait for a quiet moment.
    pub(super) fn left(&self, now: Instant, granted_at: Instant, context: Context) -> Duration {
        let time = self.hard.map_or(Duration::MAX, |hard| (granted_at + hard).saturating_duration_since(now));
        let tokens = self.hard_tokens.saturating_sub(context.tokens);
        let units = tokens / self.busy_unit_tokens.max(1);
        time.min(Duration::from_secs(units.into()))
    }
}

impl Context {
    /// The upstream says how full it is.
    pub(super) const fn report(&mut self, tokens: Option<u32>) {
        if let Some(tokens) = tokens {
            self.tokens = tokens;
            self.reported = true;
        }
    }

    /// A unit was answered; where the upstream did not say what it took, that is estimated.
    pub(super) fn count(&mut self, busy: bool, frame: bool, limits: &Limits) {
        if !std::mem::take(&mut self.reported) {
            let unit = if busy { limits.busy_unit_tokens } else { limits.idle_unit_tokens };
            self.tokens = self.tokens.saturating_add(unit + if frame { limits.frame_tokens } else { 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Library;

    fn limits(profile: &str) -> Limits {
        let library = Library::embedded().unwrap();
        let (profile, dialect) = (library.profile(profile).unwrap(), library.upstream("minicpm-o").unwrap());
        Limits::new(profile.mode, &dialect.duplex, &profile.talk.as_ref().unwrap().rollover)
    }

    #[test]
    fn time_is_soft_first_and_hard_then() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        for (profile, soft_s, hard_s) in [("conversation", 550, 580), ("video", 270, 290)] {
            let limits = limits(profile);
            let due = |s| limits.due(start + Duration::from_secs(s), start, Context::default());
            let time = |hard| Some(Due { reason: RolloverReason::Time, hard });
            assert_eq!(
                [due(soft_s - 1), due(soft_s), due(hard_s - 1), due(hard_s)],
                [None, time(false), time(false), time(true)]
            );
            assert_eq!(limits.next(start, start), Some(start + Duration::from_secs(soft_s)));
            assert_eq!(
                limits.next(start + Duration::from_secs(soft_s), start),
                Some(start + Duration::from_secs(hard_s))
            );
        }
    }

    #[test]
    fn context_is_what_the_upstream_says_or_else_an_estimate() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        let (limits, mut context) = (limits("conversation"), Context::default());
        context.report(Some(7000));
        context.count(true, true, &limits);
        assert_eq!(context.tokens, 7000, "said, and so not estimated");
        for _ in 0..10 {
            context.count(true, false, &limits);
        }
        assert_eq!(
            limits.due(start, start, context),
            Some(Due { reason: RolloverReason::Context, hard: false })
        );
        context.report(Some(8000));
        assert_eq!(
            limits.due(start, start, context),
            Some(Due { reason: RolloverReason::Context, hard: true })
        );
    }
}
