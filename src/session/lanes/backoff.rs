//! Retry policy: when the next attempt is due, and when to give up.

use std::time::{Duration, Instant};

use crate::{
    error::ErrorKind,
    spelling::profile::LaneTimeouts,
    vocabulary::{EndKind, LanePurpose},
};

/// Why a connection failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionFailure {
    /// Kind for the client. The owner of a connection in use reports a more precise one.
    pub(crate) kind: ErrorKind,
    /// Cause, in words.
    pub(crate) detail: String,
    /// The meaning of the session's end, if the connection was in use.
    in_use: Option<EndKind>,
    /// The upstream refuses every request, and another may serve this one.
    pub(super) may_move: bool,
    /// The answer had no end.
    pub(crate) is_endless: bool,
}

impl ConnectionFailure {
    /// Failure of a connection before it was used. Its attempts are over.
    pub(crate) const fn unused(kind: ErrorKind, detail: String) -> Self {
        Self { kind, detail, in_use: None, may_move: false, is_endless: false }
    }

    /// Failure of a connection in use.
    pub(crate) const fn in_use(end: EndKind, detail: String) -> Self {
        let kind = match end {
            EndKind::QueueFull => ErrorKind::QueueFull,
            EndKind::Refused | EndKind::RefusedForGood => ErrorKind::Refused,
            _ => ErrorKind::Unavailable,
        };
        Self { kind, detail, in_use: Some(end), may_move: false, is_endless: false }
    }

    /// The answer does not end. Its results so far are valid.
    pub(crate) fn endless(detail: String) -> Self {
        Self { is_endless: true, ..Self::in_use(EndKind::Other, detail) }
    }

    /// The session died instead of an answer. Only a transcript may be empty like that.
    pub(crate) fn empty_answer() -> Self {
        Self::in_use(EndKind::Other, "the upstream ended the session without an answer".to_owned())
    }

    /// The connection was in use.
    pub(crate) const fn was_in_use(&self) -> bool {
        self.in_use.is_some()
    }

    /// True if the server was too busy for the request.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_use == Some(EndKind::QueueFull)
    }

    /// True if the session ended because the model's context was used up. A time limit that comes unexpectedly is a loss.
    pub(crate) const fn is_context_full(&self) -> bool {
        matches!(self.in_use, Some(EndKind::LimitReached | EndKind::LimitReachedStillOpen))
    }

    /// True if the request in progress may succeed on another connection.
    pub(crate) fn may_repeat(&self) -> bool {
        self.may_move || self.in_use.is_some_and(|end| !end.is_refusal())
    }

    /// Kind and cause for the client: `used_kind` if the connection was in use, with the number of the attempts since the
    /// first request if there were several.
    pub(crate) fn after_attempts(
        self,
        used_kind: ErrorKind,
        attempts: u32,
        waited: Option<Duration>,
    ) -> (ErrorKind, String) {
        let is_precise = matches!(self.kind, ErrorKind::QueueFull | ErrorKind::Refused);
        let used_kind = if is_precise { self.kind } else { used_kind };
        if !self.was_in_use() {
            return (self.kind, self.detail);
        }
        match waited.filter(|_| attempts > 1) {
            Some(waited) => (used_kind, describe_attempts(&self.detail, attempts, waited)),
            None => (used_kind, self.detail),
        }
    }
}

/// Failed attempts since the last success.
#[derive(Debug)]
pub(crate) struct RetryState {
    since: Instant,
    attempts: u32,
    kind: ErrorKind,
    detail: String,
    /// Number of final refusals in a row, up to the last attempt.
    refusals: u32,
}

/// Number of final refusals in a row that end the attempts. The second attempt may reach another upstream.
const REFUSALS_MAX: u32 = 2;

impl RetryState {
    /// Counts a failed attempt. The limit of all attempts counts from `since` of the first: when it failed, or when it
    /// began to stall.
    pub(crate) fn record_failure(retry: &mut Option<Self>, since: Instant, kind: ErrorKind, detail: String) {
        let (since, attempts) = retry.as_ref().map_or((since, 0), |retry| (retry.since, retry.attempts));
        *retry = Some(Self { since, attempts: attempts + 1, kind, detail, refusals: 0 });
    }

    /// Counts an attempt that the upstream refused for a reason that another attempt does not change.
    pub(crate) fn record_refusal(retry: &mut Option<Self>, now: Instant, detail: String) {
        let earlier = retry.as_ref().map_or(0, |retry| retry.refusals);
        Self::record_failure(retry, now, ErrorKind::Unavailable, detail);
        if let Some(retry) = retry {
            retry.refusals = earlier + 1;
        }
    }

    /// Excludes time with a working upstream from the limit, which bounds time without one.
    pub(crate) fn exclude_uptime(&mut self, uptime: Duration) {
        self.since += uptime;
    }

    /// True if the upstream works, but had no place for the session.
    pub(crate) fn is_busy(&self) -> bool {
        self.kind == ErrorKind::QueueFull
    }

    /// True if there was one attempt, and the upstream had no place for the session.
    pub(crate) fn is_first_refusal(&self) -> bool {
        self.is_busy() && self.attempts == 1
    }

    /// Cause of the last failure.
    pub(crate) fn last_error(&self) -> &str {
        &self.detail
    }

    /// When the next attempt is due: after a pause that doubles, with jitter, up to the limit.
    ///
    /// # Errors
    /// The failure to report when the limit is reached.
    pub(crate) fn next_attempt(
        &self,
        now: Instant,
        opened_at: Instant,
        times: &LaneTimeouts,
        rng: &mut fastrand::Rng,
    ) -> Result<Instant, ConnectionFailure> {
        let cap = Duration::from_millis(times.retry_total_ms);
        // A moving queue resets the attempts, but not without end.
        let total_cap = Duration::from_millis(times.queue_max_ms) + cap;
        let spent = now.saturating_duration_since(self.since);
        if spent >= cap || now - opened_at >= total_cap || self.refusals >= REFUSALS_MAX {
            let detail = describe_attempts(&self.detail, self.attempts, spent);
            return Err(ConnectionFailure::unused(self.kind, detail));
        }
        // The last attempt is made exactly at the limit.
        Ok((now + self.pause(times, rng)).min(self.since + cap))
    }

    /// A pause that doubles with each attempt, with jitter.
    fn pause(&self, times: &LaneTimeouts, rng: &mut fastrand::Rng) -> Duration {
        let doubled = times.retry_first_ms.saturating_mul(1 << (self.attempts - 1).min(16));
        let longest_pause = doubled.min(times.retry_max_ms) as f64;
        Duration::from_secs_f64(longest_pause * (0.5 + rng.f64() / 2.0) / 1000.0)
    }
}

/// Longest pause that a busy server may ask for, before a session asks again.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Answer of a server that is too busy for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusyAnswer<'a> {
    pub(super) detail: &'a str,
    /// The server wants the request again after this time.
    pub(super) retry_after: Option<Duration>,
}

/// Servers of requests that were too busy for the last one, one for each purpose. The request waits, and is sent again.
#[derive(Debug, Default)]
pub(crate) struct BusyServers(Vec<(LanePurpose, RetryState, Instant)>);

impl BusyServers {
    /// Counts a refused request. Its server may ask for a pause.
    pub(super) fn record_refusal(
        &mut self,
        now: Instant,
        purpose: LanePurpose,
        refusal: BusyAnswer<'_>,
        times: &LaneTimeouts,
        rng: &mut fastrand::Rng,
    ) {
        let mut retry = self.forget(purpose);
        RetryState::record_failure(&mut retry, now, ErrorKind::QueueFull, refusal.detail.to_owned());
        if let Some(retry) = retry {
            let asked_for = refusal.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
            let next_at = now + retry.pause(times, rng).max(asked_for);
            self.0.push((purpose, retry, next_at));
        }
    }

    /// Forgets refusals, because a request was served.
    pub(super) fn forget(&mut self, purpose: LanePurpose) -> Option<RetryState> {
        let at = self.0.iter().position(|(refused, ..)| *refused == purpose)?;
        Some(self.0.swap_remove(at).1)
    }

    /// When the next lane for this purpose may be dialled; `None` for at once.
    pub(super) fn next_at(&self, purpose: LanePurpose) -> Option<Instant> {
        self.0.iter().find(|(refused, ..)| *refused == purpose).map(|(.., at)| *at)
    }

    /// True if a request that was refused may be sent again, because it has waited no longer than a queue may last.
    pub(super) fn may_ask_again(&self, now: Instant, purpose: LanePurpose, times: &LaneTimeouts) -> bool {
        let longest_wait = Duration::from_millis(times.queue_max_ms);
        self.0.iter().any(|(refused, retry, _)| *refused == purpose && now < retry.since + longest_wait)
    }
}

/// A failure with the number of attempts and their total time.
fn describe_attempts(detail: &str, attempts: u32, spent: Duration) -> String {
    let s = if attempts == 1 { "" } else { "s" };
    format!("{detail} ({attempts} attempt{s} in {:.1} s)", spent.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    #[test]
    fn second_refusal_for_good_in_a_row_is_the_last_attempt() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let times = Library::embedded().unwrap().profile("conversation").unwrap().lanes;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut retry = None;
        let mut goes_on = |retry: &Option<RetryState>| {
            retry.as_ref().is_some_and(|retry| retry.next_attempt(now, now, &times, &mut rng).is_ok())
        };
        RetryState::record_refusal(&mut retry, now, "no voice".into());
        assert!(goes_on(&retry), "the next upstream may take the session");
        RetryState::record_failure(&mut retry, now, ErrorKind::QueueFull, "full".into());
        RetryState::record_refusal(&mut retry, now, "no voice".into());
        assert!(goes_on(&retry), "not in a row");
        RetryState::record_refusal(&mut retry, now, "no voice".into());
        assert!(!goes_on(&retry));
    }

    #[test]
    fn pauses_double_with_jitter_and_end_at_the_cap() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        let times = Library::embedded().unwrap().profile("speech").unwrap().lanes;
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut now, mut retry, mut pauses) = (start, None, Vec::new());
        let failure = loop {
            RetryState::record_failure(&mut retry, now, ErrorKind::QueueFull, "full".into());
            match retry.as_ref().unwrap().next_attempt(now, start, &times, &mut rng) {
                Ok(due) => pauses.push(due - now),
                Err(failure) => break failure,
            }
            now += *pauses.last().unwrap();
        };
        assert_eq!(
            now - start,
            Duration::from_millis(times.retry_total_ms),
            "the last attempt is at the cap"
        );
        for (attempt, pause) in pauses[..pauses.len() - 1].iter().enumerate() {
            let longest_pause = (times.retry_first_ms << attempt).min(times.retry_max_ms) as f64 / 1000.0;
            assert!(
                (longest_pause / 2.0..=longest_pause).contains(&pause.as_secs_f64()),
                "{attempt}: {pause:?}"
            );
        }
        assert_eq!((failure.kind, failure.was_in_use()), (ErrorKind::QueueFull, false));
        assert!(
            failure.detail.starts_with("full (") && failure.detail.ends_with("in 10.0 s)"),
            "{}",
            failure.detail
        );
    }
}
