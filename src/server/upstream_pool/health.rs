//! What is known of one upstream: how busy it is, and whether it is in service. Pure: instants and jitter come in.
//!
//! Two rows of failures are counted, because an upstream whose sessions open and then die opens sessions: what a lane that
//! gets ready clears, and what only a lane that ends in order clears.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which an upstream is left out: a worker that is still being cleaned up refuses the next session
/// with HTTP 403 (field notes §1.2), so one or two say little.
const FAILURES_MAX: u32 = 3;
/// An upstream is left out for so long at first, about.
const EJECTION_FIRST: Duration = Duration::from_secs(1);
/// And for so long at most.
const EJECTION_MAX: Duration = Duration::from_secs(30);
/// What a queue said counts for so long: the gateway repeats it every 3 s (field notes §1.2).
const QUEUE_REPORT_VALID_FOR: Duration = Duration::from_secs(10);
/// What takes nobody counts as a queue of this length: so many lanes are sent elsewhere first.
const FULL_QUEUE_LENGTH: u32 = 16;

/// How an upstream failed a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneFailure {
    /// No connection: name, TCP, TLS or time. Once is enough.
    Unreachable,
    /// No session: HTTP said no, or it ended before it was initialised.
    Refused,
    /// A session that died.
    Died,
}

/// How little an upstream should be chosen. Compares as it should be: who is in service comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpstreamLoad {
    /// It is left out, and probed then.
    pub ejected_until: Option<Instant>,
    /// Lanes it carries, and those its queue told of.
    pub lanes: u32,
}

/// What is known of one upstream.
#[derive(Debug, Default)]
pub(super) struct Health {
    lanes: u32,
    /// The longest queue it told of, and when.
    queue_report: Option<(u32, Instant)>,
    /// Lanes in a row that did not get ready.
    refusals: u32,
    /// Lanes in a row that died after that.
    deaths: u32,
    /// How often it was left out since it last served a lane to the end.
    ejections: u32,
    ejected_until: Option<Instant>,
}

impl Health {
    pub(super) fn load(&self, now: Instant) -> UpstreamLoad {
        UpstreamLoad {
            ejected_until: self.ejected_until,
            lanes: self.lanes.saturating_add(self.queue_length_at(now)),
        }
    }

    /// When it is to be probed, if it is left out.
    pub(super) const fn ejected_until(&self) -> Option<Instant> {
        self.ejected_until
    }

    fn queue_length_at(&self, now: Instant) -> u32 {
        self.queue_report
            .filter(|(_, reported_at)| now < *reported_at + QUEUE_REPORT_VALID_FOR)
            .map_or(0, |(position, _)| position)
    }

    /// It carries one more lane.
    pub(super) const fn lane_opened(&mut self) {
        self.lanes += 1;
    }

    /// It carries one less.
    pub(super) const fn lane_closed(&mut self) {
        self.lanes = self.lanes.saturating_sub(1);
    }

    /// A lane waits at this place; others may wait behind it.
    pub(super) fn lane_queued(&mut self, now: Instant, position: u32) {
        if position >= self.queue_length_at(now) {
            self.queue_report = Some((position, now));
        }
    }

    /// It takes nobody for now, which is no failure.
    pub(super) fn mark_busy(&mut self, now: Instant) {
        self.lane_queued(now, FULL_QUEUE_LENGTH);
    }

    /// A lane was initialised; those that waited behind it moved up, and if it had not waited there is no queue. Whether it
    /// is back in service by that.
    pub(super) fn lane_ready(&mut self, had_waited: bool) -> bool {
        self.refusals = 0;
        self.queue_report =
            self.queue_report.filter(|_| had_waited).map(|(position, at)| (position.saturating_sub(1), at));
        self.readmit_if_healthy()
    }

    /// A lane that had been ready ended in order. Whether it is back in service by that.
    pub(super) fn lane_served(&mut self) -> bool {
        self.deaths = 0;
        if self.ejected_until.is_none() {
            self.ejections = 0;
        }
        self.readmit_if_healthy()
    }

    /// A lane failed; for how long the upstream is left out from now on, if it is. The end of an upstream is that of many
    /// lanes: what follows says nothing more.
    pub(super) fn lane_failed(
        &mut self,
        now: Instant,
        failure: LaneFailure,
        jitter: f64,
    ) -> Option<Duration> {
        if self.ejected_until.is_some() {
            return None;
        }
        match failure {
            LaneFailure::Unreachable => self.refusals = FAILURES_MAX,
            LaneFailure::Refused => self.refusals += 1,
            LaneFailure::Died => self.deaths += 1,
        }
        self.is_failing().then(|| self.eject(now, jitter))
    }

    /// A probe found it; one failure more and it is left out again. Whether it was still left out.
    pub(super) fn probe_succeeded(&mut self) -> bool {
        if self.ejected_until.is_none() {
            return false;
        }
        (self.refusals, self.deaths) = (FAILURES_MAX - 1, FAILURES_MAX - 1);
        self.readmit_if_healthy()
    }

    /// It may be reached where it was not. Whether it was left out.
    pub(super) fn reset_failures(&mut self) -> bool {
        (self.refusals, self.deaths, self.ejections) = (0, 0, 0);
        self.readmit_if_healthy()
    }

    /// A probe did not find it; for how long it is left out from now on.
    pub(super) fn probe_failed(&mut self, now: Instant, jitter: f64) -> Option<Duration> {
        self.ejected_until.is_some().then(|| self.eject(now, jitter))
    }

    const fn is_failing(&self) -> bool {
        self.refusals >= FAILURES_MAX || self.deaths >= FAILURES_MAX
    }

    fn eject(&mut self, now: Instant, jitter: f64) -> Duration {
        let doubled = EJECTION_FIRST * (1 << self.ejections.min(8));
        self.ejections = self.ejections.saturating_add(1);
        let pause = doubled.min(EJECTION_MAX).mul_f64(0.75 + jitter / 4.0);
        self.ejected_until = Some(now + pause);
        // Whatever its queue was, it is another one afterwards.
        self.queue_report = None;
        pause
    }

    fn readmit_if_healthy(&mut self) -> bool {
        !self.is_failing() && self.ejected_until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(health: &Health, now: Instant) -> u32 {
        health.load(now).lanes
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn load_is_open_lanes_plus_reported_queue() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.lane_opened();
        health.lane_queued(now, 3);
        health.lane_queued(now, 1);
        assert_eq!(lanes(&health, now), 4, "the last in the queue tells its length");
        health.lane_ready(true);
        assert_eq!(lanes(&health, now), 3, "all moved up");
        health.lane_queued(after(now, 9), 1);
        assert_eq!(lanes(&health, after(now, 9)), 3);
        assert_eq!(lanes(&health, after(now, 10)), 1, "what was said long ago counts no more");
        health.lane_queued(after(now, 10), 1);
        assert_eq!(lanes(&health, after(now, 10)), 2);
        health.lane_ready(false);
        assert_eq!(lanes(&health, after(now, 10)), 1, "who does not wait meets no queue");
        health.mark_busy(after(now, 10));
        assert_eq!(lanes(&health, after(now, 10)), 17);
        health.lane_closed();
        health.lane_closed();
        assert_eq!(lanes(&health, after(now, 20)), 0);
    }

    #[tokio::test]
    async fn one_unreachable_ejects_other_failures_need_three_in_a_row() {
        let now = Instant::now();
        assert!(Health::default().lane_failed(now, LaneFailure::Unreachable, 0.0).is_some());
        for failure in [LaneFailure::Refused, LaneFailure::Died] {
            let mut health = Health::default();
            for _ in 0..2 {
                assert_eq!(health.lane_failed(now, failure, 0.0), None);
                assert_eq!(health.lane_failed(now, failure, 0.0), None);
                health.lane_ready(false);
                health.lane_served();
            }
            assert_eq!(health.lane_failed(now, failure, 0.0), None);
            assert_eq!(health.lane_failed(now, failure, 0.0), None);
            assert!(health.lane_failed(now, failure, 0.0).is_some(), "{failure:?}");
            assert_eq!(health.lane_failed(now, failure, 0.0), None, "it is left out already");
        }
    }

    #[tokio::test]
    async fn sessions_that_open_and_die_eject_the_upstream() {
        let (mut health, now) = (Health::default(), Instant::now());
        for _ in 0..2 {
            health.lane_ready(false);
            assert_eq!(health.lane_failed(now, LaneFailure::Died, 0.0), None);
        }
        health.lane_ready(false);
        assert!(health.lane_failed(now, LaneFailure::Died, 0.0).is_some());
        assert!(!health.lane_ready(false), "that it opens one more is not enough");
        assert!(health.lane_served(), "that one ends in order is");
        assert_eq!(health.ejected_until(), None);
    }

    #[tokio::test]
    async fn readmitted_upstream_has_no_failure_allowance() {
        let (mut health, now) = (Health::default(), Instant::now());
        let mut pauses = vec![health.lane_failed(now, LaneFailure::Unreachable, 1.0).unwrap()];
        for failure in [LaneFailure::Refused, LaneFailure::Died, LaneFailure::Unreachable] {
            assert!(health.probe_succeeded() && health.ejected_until().is_none());
            pauses.push(health.lane_failed(now, failure, 1.0).unwrap());
        }
        pauses.extend((0..3).map(|_| health.probe_failed(now, 1.0).unwrap()));
        assert_eq!(pauses.iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30]);
        // A lane that gets ready and ends in order clears all of it.
        assert!(health.probe_succeeded());
        health.lane_ready(false);
        health.lane_served();
        assert_eq!(health.lane_failed(now, LaneFailure::Died, 0.0), None);
        assert_eq!(health.lane_failed(now, LaneFailure::Unreachable, 0.0), Some(Duration::from_millis(750)));
    }

    #[tokio::test]
    async fn ready_lane_readmits_like_a_probe() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.lane_failed(now, LaneFailure::Unreachable, 0.0);
        assert!(health.lane_ready(false));
        assert_eq!(health.probe_failed(now, 0.0), None, "a probe that was under way comes too late");
    }

    #[test]
    fn load_orders_upstreams_in_service_first() {
        let now = Instant::now();
        let load = |ejected_until, lanes| UpstreamLoad { ejected_until, lanes };
        let sorted = [load(None, 1), load(None, 9), load(Some(now), 0), load(Some(after(now, 1)), 0)];
        assert!(sorted.is_sorted());
    }
}
