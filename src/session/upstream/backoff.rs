//! Attempts that fail: when the next one is due, and when it is enough.

use std::time::{Duration, Instant};

use crate::{error::ErrorKind, mapping::profile::LaneTimes};

/// Why a link failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What it is to the client; for a link that had been asked, the owner knows better.
    pub(crate) kind: ErrorKind,
    /// In words.
    pub(crate) words: String,
    /// It had been asked.
    pub(crate) asked: bool,
}

/// Attempts that failed since the last progress.
#[derive(Debug)]
pub(crate) struct Trouble {
    since: Instant,
    attempts: u32,
    kind: ErrorKind,
    words: String,
}

impl Trouble {
    /// Another attempt failed.
    pub(crate) fn note(trouble: &mut Option<Self>, now: Instant, kind: ErrorKind, words: String) {
        let (since, attempts) =
            trouble.as_ref().map_or((now, 0), |trouble| (trouble.since, trouble.attempts));
        *trouble = Some(Self { since, attempts: attempts + 1, kind, words });
    }

    /// For so long there was no trouble: the cap is about the time without an upstream.
    pub(crate) fn rest(&mut self, rested: Duration) {
        self.since += rested;
    }

    /// The last attempt's failure.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// When the next attempt is due: after a pause that doubles, with jitter, until the lifetime cap.
    ///
    /// # Errors
    /// The failure of them all, when the cap is reached.
    pub(crate) fn next_attempt(
        &self,
        now: Instant,
        opened_at: Instant,
        times: &LaneTimes,
        rng: &mut fastrand::Rng,
    ) -> Result<Instant, Failure> {
        let cap = Duration::from_millis(times.retry_total_ms);
        // Progress in the queue forgives trouble, but not for ever.
        let worst = Duration::from_millis(times.queue_max_ms) + cap;
        let spent = now.saturating_duration_since(self.since);
        if spent >= cap || now - opened_at >= worst {
            let words =
                format!("{} ({} attempts in {:.1} s)", self.words, self.attempts, spent.as_secs_f64());
            return Err(Failure { kind: self.kind, words, asked: false });
        }
        let doubled = times.retry_first_ms.saturating_mul(1 << (self.attempts - 1).min(16));
        let longest = doubled.min(times.retry_max_ms) as f64;
        let pause = Duration::from_secs_f64(longest * (0.5 + rng.f64() / 2.0) / 1000.0);
        // Never past the cap: the last attempt is worth making at its end.
        Ok((now + pause).min(self.since + cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Library;

    #[test]
    fn pauses_double_with_jitter_and_end_at_the_cap() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        let times = Library::embedded().unwrap().profile("speech").unwrap().lanes;
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut now, mut trouble, mut pauses) = (start, None, Vec::new());
        let failure = loop {
            Trouble::note(&mut trouble, now, ErrorKind::QueueFull, "full".into());
            match trouble.as_ref().unwrap().next_attempt(now, start, &times, &mut rng) {
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
            let longest = (times.retry_first_ms << attempt).min(times.retry_max_ms) as f64 / 1000.0;
            assert!((longest / 2.0..=longest).contains(&pause.as_secs_f64()), "{attempt}: {pause:?}");
        }
        assert_eq!((failure.kind, failure.asked), (ErrorKind::QueueFull, false));
        assert!(
            failure.words.starts_with("full (") && failure.words.ends_with("in 10.0 s)"),
            "{}",
            failure.words
        );
    }
}
