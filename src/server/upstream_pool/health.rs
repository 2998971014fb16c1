//! What is known of one upstream: how busy it is, and whether it is in service. Pure: instants and jitter come in.
//!
//! Two rows of failures are counted, because an upstream whose sessions open and then die opens sessions: what a lane that
//! gets ready clears, and what only a lane that ends in order clears.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which an upstream is left out: a worker that is still being cleaned up refuses the next session
/// with HTTP 403 (field notes §1.2), so one or two say little.
const FAILURES: u32 = 3;
/// An upstream is left out for so long at first, about.
const OUT_FIRST: Duration = Duration::from_secs(1);
/// And for so long at most.
const OUT_MAX: Duration = Duration::from_secs(30);
/// What a queue said counts for so long: the gateway repeats it every 3 s (field notes §1.2).
const TOLD_FOR: Duration = Duration::from_secs(10);
/// What takes nobody counts as a queue of this length: so many lanes are sent elsewhere first.
const FULL: u32 = 16;

/// How an upstream failed a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// No connection: name, TCP, TLS or time. Once is enough.
    Unreachable,
    /// No session: HTTP said no, or it ended before it was initialised.
    Refused,
    /// A session that died.
    Died,
}

/// How little an upstream should be chosen. Compares as it should be: who is in service comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Burden {
    /// It is left out, and probed then.
    pub out_until: Option<Instant>,
    /// Lanes it carries, and those its queue told of.
    pub lanes: u32,
}

/// What is known of one upstream.
#[derive(Debug, Default)]
pub(super) struct Health {
    lanes: u32,
    /// The longest queue it told of, and when.
    queue: Option<(u32, Instant)>,
    /// Lanes in a row that did not get ready.
    refusals: u32,
    /// Lanes in a row that died after that.
    deaths: u32,
    /// How often it was left out since it last served a lane to the end.
    times_out: u32,
    out_until: Option<Instant>,
}

impl Health {
    pub(super) fn burden(&self, now: Instant) -> Burden {
        Burden { out_until: self.out_until, lanes: self.lanes.saturating_add(self.queue_at(now)) }
    }

    /// When it is to be probed, if it is left out.
    pub(super) const fn out_until(&self) -> Option<Instant> {
        self.out_until
    }

    fn queue_at(&self, now: Instant) -> u32 {
        self.queue.filter(|(_, told_at)| now < *told_at + TOLD_FOR).map_or(0, |(position, _)| position)
    }

    /// It carries one more lane.
    pub(super) const fn taken(&mut self) {
        self.lanes += 1;
    }

    /// It carries one less.
    pub(super) const fn gone(&mut self) {
        self.lanes = self.lanes.saturating_sub(1);
    }

    /// A lane waits at this place; others may wait behind it.
    pub(super) fn queued(&mut self, now: Instant, position: u32) {
        if position >= self.queue_at(now) {
            self.queue = Some((position, now));
        }
    }

    /// It takes nobody for now, which is no failure.
    pub(super) fn busy(&mut self, now: Instant) {
        self.queued(now, FULL);
    }

    /// A lane was initialised; those that waited behind it moved up, and if it had not waited there is no queue. Whether it
    /// is back in service by that.
    pub(super) fn ready(&mut self, had_waited: bool) -> bool {
        self.refusals = 0;
        self.queue = self.queue.filter(|_| had_waited).map(|(position, at)| (position.saturating_sub(1), at));
        self.settle()
    }

    /// A lane that had been ready ended in order. Whether it is back in service by that.
    pub(super) fn served(&mut self) -> bool {
        self.deaths = 0;
        if self.out_until.is_none() {
            self.times_out = 0;
        }
        self.settle()
    }

    /// A lane failed; for how long the upstream is left out from now on, if it is. The end of an upstream is that of many
    /// lanes: what follows says nothing more.
    pub(super) fn failed(&mut self, now: Instant, how: Failing, jitter: f64) -> Option<Duration> {
        if self.out_until.is_some() {
            return None;
        }
        match how {
            Failing::Unreachable => self.refusals = FAILURES,
            Failing::Refused => self.refusals += 1,
            Failing::Died => self.deaths += 1,
        }
        self.is_failing().then(|| self.leave_out(now, jitter))
    }

    /// A probe found it; one failure more and it is left out again. Whether it was still left out.
    pub(super) fn found(&mut self) -> bool {
        if self.out_until.is_none() {
            return false;
        }
        (self.refusals, self.deaths) = (FAILURES - 1, FAILURES - 1);
        self.settle()
    }

    /// It may be reached where it was not. Whether it was left out.
    pub(super) fn forgive(&mut self) -> bool {
        (self.refusals, self.deaths, self.times_out) = (0, 0, 0);
        self.settle()
    }

    /// A probe did not find it; for how long it is left out from now on.
    pub(super) fn not_found(&mut self, now: Instant, jitter: f64) -> Option<Duration> {
        self.out_until.is_some().then(|| self.leave_out(now, jitter))
    }

    const fn is_failing(&self) -> bool {
        self.refusals >= FAILURES || self.deaths >= FAILURES
    }

    fn leave_out(&mut self, now: Instant, jitter: f64) -> Duration {
        let doubled = OUT_FIRST * (1 << self.times_out.min(8));
        self.times_out = self.times_out.saturating_add(1);
        let out = doubled.min(OUT_MAX).mul_f64(0.75 + jitter / 4.0);
        self.out_until = Some(now + out);
        // Whatever its queue was, it is another one afterwards.
        self.queue = None;
        out
    }

    fn settle(&mut self) -> bool {
        !self.is_failing() && self.out_until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(health: &Health, now: Instant) -> u32 {
        health.burden(now).lanes
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn load_is_lanes_and_what_the_queue_said() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.taken();
        health.queued(now, 3);
        health.queued(now, 1);
        assert_eq!(lanes(&health, now), 4, "the last in the queue tells its length");
        health.ready(true);
        assert_eq!(lanes(&health, now), 3, "all moved up");
        health.queued(after(now, 9), 1);
        assert_eq!(lanes(&health, after(now, 9)), 3);
        assert_eq!(lanes(&health, after(now, 10)), 1, "what was said long ago counts no more");
        health.queued(after(now, 10), 1);
        assert_eq!(lanes(&health, after(now, 10)), 2);
        health.ready(false);
        assert_eq!(lanes(&health, after(now, 10)), 1, "who does not wait meets no queue");
        health.busy(after(now, 10));
        assert_eq!(lanes(&health, after(now, 10)), 17);
        health.gone();
        health.gone();
        assert_eq!(lanes(&health, after(now, 20)), 0);
    }

    #[tokio::test]
    async fn unreachable_once_is_enough_and_other_failures_count_in_a_row() {
        let now = Instant::now();
        assert!(Health::default().failed(now, Failing::Unreachable, 0.0).is_some());
        for how in [Failing::Refused, Failing::Died] {
            let mut health = Health::default();
            for _ in 0..2 {
                assert_eq!(health.failed(now, how, 0.0), None);
                assert_eq!(health.failed(now, how, 0.0), None);
                health.ready(false);
                health.served();
            }
            assert_eq!(health.failed(now, how, 0.0), None);
            assert_eq!(health.failed(now, how, 0.0), None);
            assert!(health.failed(now, how, 0.0).is_some(), "{how:?}");
            assert_eq!(health.failed(now, how, 0.0), None, "it is left out already");
        }
    }

    #[tokio::test]
    async fn sessions_that_open_and_die_are_no_health() {
        let (mut health, now) = (Health::default(), Instant::now());
        for _ in 0..2 {
            health.ready(false);
            assert_eq!(health.failed(now, Failing::Died, 0.0), None);
        }
        health.ready(false);
        assert!(health.failed(now, Failing::Died, 0.0).is_some());
        assert!(!health.ready(false), "that it opens one more is not enough");
        assert!(health.served(), "that one ends in order is");
        assert_eq!(health.out_until(), None);
    }

    #[tokio::test]
    async fn who_was_found_again_may_fail_no_more() {
        let (mut health, now) = (Health::default(), Instant::now());
        let mut outs = vec![health.failed(now, Failing::Unreachable, 1.0).unwrap()];
        for how in [Failing::Refused, Failing::Died, Failing::Unreachable] {
            assert!(health.found() && health.out_until().is_none());
            outs.push(health.failed(now, how, 1.0).unwrap());
        }
        outs.extend((0..3).map(|_| health.not_found(now, 1.0).unwrap()));
        assert_eq!(outs.iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30]);
        // A lane that gets ready and ends in order clears all of it.
        assert!(health.found());
        health.ready(false);
        health.served();
        assert_eq!(health.failed(now, Failing::Died, 0.0), None);
        assert_eq!(health.failed(now, Failing::Unreachable, 0.0), Some(Duration::from_millis(750)));
    }

    #[tokio::test]
    async fn a_lane_that_gets_ready_is_as_good_as_a_probe() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.failed(now, Failing::Unreachable, 0.0);
        assert!(health.ready(false));
        assert_eq!(health.not_found(now, 0.0), None, "a probe that was under way comes too late");
    }

    #[test]
    fn who_is_in_service_comes_first() {
        let now = Instant::now();
        let burden = |out_until, lanes| Burden { out_until, lanes };
        let sorted = [burden(None, 1), burden(None, 9), burden(Some(now), 0), burden(Some(after(now, 1)), 0)];
        assert!(sorted.is_sorted());
    }
}
