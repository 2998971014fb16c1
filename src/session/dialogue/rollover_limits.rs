//! Limits of an upstream session: time and context, each with a soft and a hard limit.
//!
//! Between the two, the conversation waits for a quiet moment (mappings/notes/minicpm-o-duplex.md#rollover). The server
//! does not enforce the context limit (mappings/notes/minicpm-o-duplex.md#limits). The reported usage is therefore
//! watched, and estimated if the server reports none.

use std::time::{Duration, Instant};

use super::reply_tracker::UplinkUnit;
use crate::{
    audio::units::UNIT_SAMPLES,
    spelling::{profile::RolloverRules, upstream::DuplexLimits},
    vocabulary::{Mode, RolloverReason},
};

/// Reason for a rollover, and whether it can wait for a quiet moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RolloverDue {
    pub(super) reason: RolloverReason,
    pub(super) hard: bool,
}

/// Limits of one conversation's upstream sessions.
#[derive(Debug, Clone)]
pub(super) struct RolloverLimits {
    soft_time: Option<Duration>,
    hard_time: Option<Duration>,
    soft_tokens: u32,
    hard_tokens: u32,
    idle_unit_tokens: u32,
    busy_unit_tokens: u32,
    frame_tokens: u32,
}

/// Usage of the model's context.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ContextUsage {
    /// Used positions, as far as known.
    pub(super) tokens: u32,
    /// The upstream reported the usage since the last unit.
    reported: bool,
    /// Fraction of a token, in samples of a second.
    fraction: u64,
}

impl RolloverLimits {
    pub(super) fn new(mode: Mode, duplex: &DuplexLimits, rules: &RolloverRules) -> Self {
        let max = duplex.session_max_ms.get(&mode).map(|ms| Duration::from_millis((*ms).into()));
        let before = |ms: u64| max.map(|max| max.saturating_sub(Duration::from_millis(ms)));
        let hard_tokens = rules.hard_tokens.min(duplex.context_max_tokens);
        Self {
            soft_time: before(rules.soft_before_ms.max(rules.hard_before_ms)),
            hard_time: before(rules.hard_before_ms),
            soft_tokens: rules.soft_tokens.min(hard_tokens),
            hard_tokens,
            idle_unit_tokens: duplex.idle_unit_tokens,
            busy_unit_tokens: duplex.busy_unit_tokens,
            frame_tokens: duplex.frame_tokens,
        }
    }

    /// Limit reached by a session whose worker was assigned at `granted_at`.
    pub(super) fn rollover_due(
        &self,
        now: Instant,
        granted_at: Instant,
        usage: ContextUsage,
    ) -> Option<RolloverDue> {
        let past = |bound: Option<Duration>| bound.is_some_and(|bound| now >= granted_at + bound);
        let due = |reason, hard| Some(RolloverDue { reason, hard });
        if past(self.hard_time) {
            due(RolloverReason::TimeLimit, true)
        } else if usage.tokens >= self.hard_tokens {
            due(RolloverReason::ContextFull, true)
        } else if past(self.soft_time) {
            due(RolloverReason::TimeLimit, false)
        } else if usage.tokens >= self.soft_tokens {
            due(RolloverReason::ContextFull, false)
        } else {
            None
        }
    }

    /// Next time limit after `now`.
    pub(super) fn next_time_limit(&self, now: Instant, granted_at: Instant) -> Option<Instant> {
        let bounds = [self.soft_time, self.hard_time].into_iter().flatten().map(|bound| granted_at + bound);
        bounds.filter(|at| *at > now).min()
    }

    /// Time until a hard limit.
    pub(super) fn time_left(&self, now: Instant, granted_at: Instant, usage: ContextUsage) -> Duration {
        let time =
            self.hard_time.map_or(Duration::MAX, |hard| (granted_at + hard).saturating_duration_since(now));
        let tokens = self.hard_tokens.saturating_sub(usage.tokens);
        let units = tokens / self.busy_unit_tokens.max(1);
        time.min(Duration::from_secs(units.into()))
    }
}

impl ContextUsage {
    /// Takes the usage that the upstream reports.
    pub(super) const fn report(&mut self, tokens: Option<u32>) {
        if let Some(tokens) = tokens {
            self.tokens = tokens;
            self.reported = true;
        }
    }

    /// Counts an answered unit. Estimates its usage unless the upstream reported it: the limits have the tokens of a second.
    pub(super) fn add_unit(&mut self, unit: &UplinkUnit, has_frame: bool, limits: &RolloverLimits) {
        if std::mem::take(&mut self.reported) {
            return;
        }
        let second = if unit.has_speech { limits.busy_unit_tokens } else { limits.idle_unit_tokens };
        let tokens = u64::from(second) * unit.audio.len() as u64 + self.fraction;
        self.fraction = tokens % UNIT_SAMPLES as u64;
        let whole = u32::try_from(tokens / UNIT_SAMPLES as u64).unwrap_or(u32::MAX);
        let frame = if has_frame { limits.frame_tokens } else { 0 };
        self.tokens = self.tokens.saturating_add(whole.saturating_add(frame));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spelling::Library;

    fn limits(profile: &str) -> RolloverLimits {
        let library = Library::embedded().unwrap();
        let (profile, dialect) = (library.profile(profile).unwrap(), library.upstream("minicpm-o").unwrap());
        RolloverLimits::new(profile.mode, &dialect.duplex, &profile.dialogue.as_ref().unwrap().rollover)
    }

    #[test]
    fn time_limit_is_soft_before_it_is_hard() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        for (profile, soft_s, hard_s) in [("conversation", 550, 580), ("video", 270, 290)] {
            let limits = limits(profile);
            let due = |s| limits.rollover_due(start + Duration::from_secs(s), start, ContextUsage::default());
            let time = |hard| Some(RolloverDue { reason: RolloverReason::TimeLimit, hard });
            assert_eq!(
                [due(soft_s - 1), due(soft_s), due(hard_s - 1), due(hard_s)],
                [None, time(false), time(false), time(true)]
            );
            assert_eq!(limits.next_time_limit(start, start), Some(start + Duration::from_secs(soft_s)));
            assert_eq!(
                limits.next_time_limit(start + Duration::from_secs(soft_s), start),
                Some(start + Duration::from_secs(hard_s))
            );
        }
    }

    #[test]
    fn context_usage_is_estimated_when_the_upstream_does_not_report_it() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        let (limits, mut usage) = (limits("conversation"), ContextUsage::default());
        usage.report(Some(7000));
        let unit = UplinkUnit { has_speech: true, ..UplinkUnit::silence() };
        usage.add_unit(&unit, true, &limits);
        assert_eq!(usage.tokens, 7000, "reported usage is not estimated");
        for _ in 0..10 {
            usage.add_unit(&unit, false, &limits);
        }
        assert_eq!(
            limits.rollover_due(start, start, usage),
            Some(RolloverDue { reason: RolloverReason::ContextFull, hard: false })
        );
        usage.report(Some(8000));
        assert_eq!(
            limits.rollover_due(start, start, usage),
            Some(RolloverDue { reason: RolloverReason::ContextFull, hard: true })
        );
    }

    #[test]
    fn short_units_use_as_much_of_the_context_in_a_second_as_long_ones() {
        let limits = limits("conversation");
        let used = |samples: usize, units: usize| {
            let mut usage = ContextUsage::default();
            let unit =
                UplinkUnit { has_speech: true, ..UplinkUnit::new(Arc::new(vec![0; samples]), samples) };
            (0..units).for_each(|_| usage.add_unit(&unit, false, &limits));
            usage.tokens
        };
        assert_eq!(used(1280, 100), used(UNIT_SAMPLES, 8));
    }
}
