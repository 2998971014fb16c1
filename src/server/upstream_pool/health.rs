//! Load and health of one upstream. Pure: instants and jitter are arguments.
//!
//! Two failure streaks are counted, because an upstream may open sessions that die later. A ready lane clears the
//! first; only a lane that ends cleanly clears the second. A death while the upstream answers other lanes does not count: the
//! question may have been the cause.

use std::time::Duration;

use tokio::time::Instant;

use super::probe::WorkerReport;
use crate::vocabulary::LanePurpose;

/// Number of consecutive failures that ejects an upstream. A worker in cleanup rejects the next session with HTTP 403
/// (mappings/notes/minicpm-o.md#queue), so one or two failures prove little.
const FAILURES_MAX: u32 = 3;
/// Approximate duration of the first ejection.
const EJECTION_FIRST: Duration = Duration::from_secs(1);
/// Maximum duration of an ejection.
const EJECTION_MAX: Duration = Duration::from_secs(30);
/// Validity of a queue report; the gateway repeats it every 3 s (mappings/notes/minicpm-o.md#queue).
const QUEUE_REPORT_VALID_FOR: Duration = Duration::from_secs(10);
/// Validity of a report of the workers: three times the interval of the probes that ask for it.
const WORKER_REPORT_VALID_FOR: Duration = Duration::from_secs(30);
/// Deaths of other lanes do not count for this long after an answer: a model answers most questions within this time.
const ANSWER_VALID_FOR: Duration = Duration::from_secs(10);
/// Time for which other upstreams are preferred to one that refused a request because of its configuration.
const MISCONFIGURED_FOR: Duration = Duration::from_secs(30);
/// Assumed queue length of an upstream that accepts no session: this many lanes go elsewhere first.
const FULL_QUEUE_LENGTH: u32 = 16;

/// Kind of a lane failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneFailure {
    /// Connection failed: name, TCP, TLS or timeout. One such failure ejects the upstream.
    Unreachable,
    /// Session refused: HTTP rejection, or an end before the initialisation.
    Refused,
    /// A session of this lane died.
    Died(LeaseId),
}

/// A lane of this upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseId(u64);

/// Load of an upstream. The least value is the best choice: upstreams in service come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpstreamLoad {
    /// Ejected until this instant, when it is probed.
    pub ejected_until: Option<Instant>,
    /// Open lanes plus the reported queue length.
    pub lanes: u32,
}

/// Load and failure counts of one upstream.
#[derive(Debug, Default)]
pub(super) struct Health {
    lanes: u32,
    /// Longest reported queue, and when it was reported.
    queue_report: Option<(u32, Instant)>,
    /// Reported workers, and when they were reported.
    workers: Option<(WorkerReport, Instant)>,
    /// Lanes that were opened since that report, less those that were closed.
    opened_since_report: i64,
    /// Consecutive lanes that did not become ready.
    refusals: u32,
    /// Consecutive lanes that died after becoming ready.
    deaths: u32,
    /// The two lanes that answered last, and when. Lanes that died are left out.
    answered: [Option<(LeaseId, Instant)>; 2],
    /// Lanes opened so far.
    next_id: u64,
    /// Purposes for which other upstreams are preferred, each until an instant.
    misconfigured: Vec<(LanePurpose, Instant)>,
    /// Ejections since the last lane that ended cleanly.
    ejections: u32,
    ejected_until: Option<Instant>,
}

/// True for a utilisation at which no worker is idle.
pub(super) const fn is_busy(utilisation: u32) -> bool {
    utilisation >= 1000
}

impl Health {
    pub(super) fn load(&self, now: Instant) -> UpstreamLoad {
        UpstreamLoad {
            ejected_until: self.ejected_until,
            lanes: self.lanes.saturating_add(self.queue_length_at(now)),
        }
    }

    /// Open lanes.
    pub(super) const fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Instant of the next probe, if ejected.
    pub(super) const fn ejected_until(&self) -> Option<Instant> {
        self.ejected_until
    }

    /// True if a lane is known to wait.
    pub(super) fn has_queue(&self, now: Instant) -> bool {
        self.queue_length_at(now) > 0
    }

    fn queue_length_at(&self, now: Instant) -> u32 {
        self.queue_report
            .filter(|(_, reported_at)| now < *reported_at + QUEUE_REPORT_VALID_FOR)
            .map_or(0, |(position, _)| position)
    }

    /// Counts an opened lane.
    pub(super) const fn lane_opened(&mut self) -> LeaseId {
        self.lanes += 1;
        self.opened_since_report += 1;
        self.next_id += 1;
        LeaseId(self.next_id)
    }

    /// Counts a closed lane.
    pub(super) const fn lane_closed(&mut self) {
        self.lanes = self.lanes.saturating_sub(1);
        self.opened_since_report -= 1;
    }

    /// Records the upstream's own report of its workers.
    pub(super) const fn workers_reported(&mut self, now: Instant, report: WorkerReport) {
        self.workers = Some((report, now));
        self.opened_since_report = 0;
    }

    /// Sessions and queued clients of everyone, in thousandths of the workers; `None` without a report that is still valid.
    pub(super) fn utilisation(&self, now: Instant) -> Option<u32> {
        let (report, _) = self.workers.filter(|(_, at)| now < *at + WORKER_REPORT_VALID_FOR)?;
        let busy = i64::from(report.total.saturating_sub(report.idle)) + i64::from(report.queued);
        let clients = (busy + self.opened_since_report).max(0);
        let thousandths = clients.saturating_mul(1000).checked_div(i64::from(report.total));
        Some(thousandths.and_then(|it| u32::try_from(it).ok()).unwrap_or(u32::MAX))
    }

    /// Records the queue position of a lane; others may wait behind it.
    pub(super) fn lane_queued(&mut self, now: Instant, position: u32) {
        if position >= self.queue_length_at(now) {
            self.queue_report = Some((position, now));
        }
    }

    /// Records that the upstream accepts no session for now, which is not a failure.
    pub(super) fn mark_busy(&mut self, now: Instant) {
        self.lane_queued(now, FULL_QUEUE_LENGTH);
    }

    /// Records an initialised lane. The lanes behind it moved up; if it had not waited, there is no queue. Returns true
    /// if this readmits the upstream.
    pub(super) fn lane_ready(&mut self, had_waited: bool) -> bool {
        self.refusals = 0;
        self.queue_report =
            self.queue_report.filter(|_| had_waited).map(|(position, at)| (position.saturating_sub(1), at));
        self.readmit_if_healthy()
    }

    /// Records an answer of a lane.
    pub(super) fn lane_answered(&mut self, now: Instant, id: LeaseId, purpose: LanePurpose) {
        let [last, before] = self.answered;
        let is_known = last.is_some_and(|(known, _)| known == id);
        self.answered = [Some((id, now)), if is_known { before } else { last.or(before) }];
        self.misconfigured.retain(|(known, _)| *known != purpose);
    }

    /// Records a refusal because of the configuration. Such a refusal never ejects the upstream, so that the server's words
    /// reach the client.
    pub(super) fn lane_misconfigured(&mut self, now: Instant, purpose: LanePurpose) {
        self.misconfigured.retain(|(known, _)| *known != purpose);
        self.misconfigured.push((purpose, now + MISCONFIGURED_FOR));
    }

    /// True if it refused the last requests of this purpose because of its configuration.
    pub(super) fn is_misconfigured(&self, now: Instant, purpose: LanePurpose) -> bool {
        self.misconfigured.iter().any(|(known, until)| *known == purpose && now < *until)
    }

    /// Records the clean end of a ready lane. Returns true if this readmits the upstream.
    pub(super) fn lane_served(&mut self) -> bool {
        self.deaths = 0;
        if self.ejected_until.is_none() {
            self.ejections = 0;
        }
        self.readmit_if_healthy()
    }

    /// Records a failed lane; returns the duration of the ejection if this ejects the upstream. The death of an
    /// upstream fails many lanes at once, so failures during an ejection are ignored.
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
            LaneFailure::Died(id) => self.deaths += u32::from(!self.answers_others(now, id)),
        }
        self.is_failing().then(|| self.eject(now, jitter))
    }

    /// True if a lane other than this one, which died, was answered not long before.
    fn answers_others(&mut self, now: Instant, died: LeaseId) -> bool {
        for answer in &mut self.answered {
            *answer = answer.filter(|(id, at)| *id != died && now < *at + ANSWER_VALID_FOR);
        }
        self.answered.iter().any(Option::is_some)
    }

    /// Records a successful probe; one more failure ejects the upstream again. Returns true if this readmits the
    /// upstream.
    pub(super) fn probe_succeeded(&mut self) -> bool {
        if self.ejected_until.is_none() {
            return false;
        }
        (self.refusals, self.deaths) = (FAILURES_MAX - 1, FAILURES_MAX - 1);
        self.readmit_if_healthy()
    }

    /// Clears all failures after the dial settings changed. Returns true if this readmits the upstream.
    pub(super) fn reset_failures(&mut self) -> bool {
        (self.refusals, self.deaths, self.ejections) = (0, 0, 0);
        // Those of other settings.
        (self.workers, self.queue_report) = (None, None);
        self.misconfigured.clear();
        self.readmit_if_healthy()
    }

    /// Records a failed probe; returns the duration of the new ejection.
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
        // An ejection makes the report obsolete.
        self.queue_report = None;
        self.workers = None;
        pause
    }

    fn readmit_if_healthy(&mut self) -> bool {
        !self.is_failing() && self.ejected_until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The death of a lane that answered nothing.
    const DIED: LaneFailure = LaneFailure::Died(LeaseId(0));

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
        assert_eq!(lanes(&health, now), 4, "the last queue position is the queue length");
        health.lane_ready(true);
        assert_eq!(lanes(&health, now), 3, "all lanes moved up");
        health.lane_queued(after(now, 9), 1);
        assert_eq!(lanes(&health, after(now, 9)), 3);
        assert_eq!(lanes(&health, after(now, 10)), 1, "an old report expires");
        health.lane_queued(after(now, 10), 1);
        assert_eq!(lanes(&health, after(now, 10)), 2);
        health.lane_ready(false);
        assert_eq!(lanes(&health, after(now, 10)), 1, "a lane that did not wait clears the queue");
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
        for failure in [LaneFailure::Refused, DIED] {
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
            assert_eq!(health.lane_failed(now, failure, 0.0), None, "already ejected");
        }
    }

    #[tokio::test]
    async fn sessions_that_open_and_die_eject_the_upstream() {
        let (mut health, now) = (Health::default(), Instant::now());
        for _ in 0..2 {
            health.lane_ready(false);
            assert_eq!(health.lane_failed(now, DIED, 0.0), None);
        }
        health.lane_ready(false);
        assert!(health.lane_failed(now, DIED, 0.0).is_some());
        assert!(!health.lane_ready(false), "another ready lane does not readmit");
        assert!(health.lane_served(), "a clean end readmits");
        assert_eq!(health.ejected_until(), None);
    }

    #[tokio::test]
    async fn deaths_beside_answers_of_others_do_not_count() {
        let (mut health, now) = (Health::default(), Instant::now());
        let [good, other] = [(); 2].map(|()| health.lane_opened());
        for second in 0..100 {
            health.lane_answered(after(now, second), good, LanePurpose::Answer);
            for _ in 0..3 {
                let poisoned = health.lane_opened();
                health.lane_answered(after(now, second), poisoned, LanePurpose::Answer);
                assert_eq!(health.lane_failed(after(now, second), LaneFailure::Died(poisoned), 0.0), None);
            }
        }
        health.lane_answered(after(now, 99), other, LanePurpose::Answer);
        assert_eq!(health.lane_failed(after(now, 100), LaneFailure::Died(good), 0.0), None);
        assert_eq!(
            health.lane_failed(after(now, 100), LaneFailure::Died(other), 0.0),
            None,
            "the first to count"
        );
        assert_eq!(health.lane_failed(after(now, 100), DIED, 0.0), None);
        assert!(health.lane_failed(after(now, 100), DIED, 0.0).is_some(), "no lane that lives was answered");
    }

    #[tokio::test]
    async fn answer_excuses_deaths_for_ten_seconds() {
        let (mut health, now) = (Health::default(), Instant::now());
        let good = health.lane_opened();
        health.lane_answered(now, good, LanePurpose::Answer);
        for _ in 0..9 {
            assert_eq!(health.lane_failed(after(now, 9), DIED, 0.0), None);
        }
        let ejections: Vec<_> =
            (0..3).map(|_| health.lane_failed(after(now, 10), DIED, 0.0).is_some()).collect();
        assert_eq!(ejections, [false, false, true]);
    }

    #[tokio::test]
    async fn misconfigured_upstream_stays_in_service_and_others_go_first() {
        let (mut health, now) = (Health::default(), Instant::now());
        let is_misconfigured = |health: &Health, at| {
            [LanePurpose::Speak, LanePurpose::Transcribe].map(|purpose| health.is_misconfigured(at, purpose))
        };
        for _ in 0..9 {
            health.lane_misconfigured(now, LanePurpose::Speak);
        }
        assert_eq!((health.ejected_until(), is_misconfigured(&health, now)), (None, [true, false]));
        assert_eq!(is_misconfigured(&health, after(now, 30)), [false; 2], "it is tried again");
        let id = health.lane_opened();
        health.lane_answered(now, id, LanePurpose::Transcribe);
        assert_eq!(is_misconfigured(&health, now), [true, false], "an answer for another purpose");
        health.lane_answered(now, id, LanePurpose::Speak);
        assert_eq!(is_misconfigured(&health, now), [false; 2], "an answer clears it");
    }

    #[tokio::test]
    async fn readmitted_upstream_has_no_failure_allowance() {
        let (mut health, now) = (Health::default(), Instant::now());
        let mut pauses = vec![health.lane_failed(now, LaneFailure::Unreachable, 1.0).unwrap()];
        for failure in [LaneFailure::Refused, DIED, LaneFailure::Unreachable] {
            assert!(health.probe_succeeded() && health.ejected_until().is_none());
            pauses.push(health.lane_failed(now, failure, 1.0).unwrap());
        }
        pauses.extend((0..3).map(|_| health.probe_failed(now, 1.0).unwrap()));
        assert_eq!(pauses.iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30]);
        // A lane that becomes ready and ends cleanly clears all failures.
        assert!(health.probe_succeeded());
        health.lane_ready(false);
        health.lane_served();
        assert_eq!(health.lane_failed(now, DIED, 0.0), None);
        assert_eq!(health.lane_failed(now, LaneFailure::Unreachable, 0.0), Some(Duration::from_millis(750)));
    }

    #[tokio::test]
    async fn ready_lane_readmits_like_a_probe() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.lane_failed(now, LaneFailure::Unreachable, 0.0);
        assert!(health.lane_ready(false));
        assert_eq!(health.probe_failed(now, 0.0), None, "a late probe result is ignored");
    }

    #[tokio::test]
    async fn utilisation_is_what_the_upstream_reports_and_the_own_lanes_since() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.lane_opened();
        assert_eq!(health.utilisation(now), None);
        health.workers_reported(now, WorkerReport { total: 8, idle: 6, queued: 0 });
        assert_eq!(health.utilisation(now), Some(250), "the report counts the lane");
        health.lane_opened();
        health.lane_opened();
        assert_eq!(health.utilisation(now), Some(500));
        health.lane_closed();
        assert_eq!(health.utilisation(after(now, 29)), Some(375));
        assert_eq!(health.utilisation(after(now, 30)), None, "an old report expires");
        health.workers_reported(now, WorkerReport { total: 8, idle: 0, queued: 4 });
        assert_eq!(health.utilisation(now), Some(1500));
        health.workers_reported(now, WorkerReport { total: 0, idle: 0, queued: 0 });
        assert_eq!(health.utilisation(now), Some(u32::MAX), "an upstream without workers is the last choice");
    }

    #[test]
    fn load_orders_upstreams_in_service_first() {
        let now = Instant::now();
        let load = |ejected_until, lanes| UpstreamLoad { ejected_until, lanes };
        let sorted = [load(None, 1), load(None, 9), load(Some(now), 0), load(Some(after(now, 1)), 0)];
        assert!(sorted.is_sorted());
    }
}
