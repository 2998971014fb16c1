//! Upstream session in use: its units, their answers, and the use of its context.

use std::time::{Duration, Instant};

use super::reply_tracker::{ReplyKind, ReplyTracker, UNIT_DURATION, UnitInFlight, UplinkUnit};
use super::rollover_limits::{ContextUsage, RolloverLimits};
use crate::{
    session::{
        lanes::{LaneId, Lanes},
        measurement::Measurement,
        millis,
        outbox::Observation,
    },
    spelling::profile::LaneTimeouts,
    vocabulary::{LaneEvent, LaneRequest, MessageMeta, RolloverReason, UnitInput},
};

/// Answered units after which an upstream session counts as healthy.
const HEALTHY_UNITS: u64 = 10;

/// Upstream session in use.
#[derive(Debug)]
pub(super) struct UpstreamSession {
    pub(super) id: LaneId,
    pub(super) ready_at: Instant,
    pub(super) tracker: ReplyTracker,
    pub(super) context_usage: ContextUsage,
    pub(super) frame_since_answer: bool,
    /// Consecutive units that the upstream failed to process.
    pub(super) unit_errors: u32,
    /// The next unit goes without a picture, because the upstream refused the last one.
    pub(super) leaves_picture_out: bool,
    /// The last unit was answered so late that the audio after it is kept.
    pub(super) has_stalled: bool,
    /// Samples that the upstream holds back until it gets the next unit.
    held_samples: usize,
    /// The last answered unit, whose end the upstream may hold back.
    last_answered: Option<UplinkUnit>,
    /// Rollover that follows as soon as the unit in flight is answered.
    pub(super) pending_rollover: Option<RolloverReason>,
}

impl UpstreamSession {
    pub(super) fn new(now: Instant, id: LaneId) -> Self {
        Self {
            id,
            ready_at: now,
            tracker: ReplyTracker::default(),
            context_usage: ContextUsage::default(),
            frame_since_answer: false,
            unit_errors: 0,
            leaves_picture_out: false,
            has_stalled: false,
            held_samples: 0,
            last_answered: None,
            pending_rollover: None,
        }
    }

    /// Begins a unit. Returns the request that sends it.
    pub(super) fn begin_unit(&mut self, now: Instant, unit: UplinkUnit) -> LaneRequest {
        self.frame_since_answer |= unit.frame.is_some();
        let (audio, force_listen, frame) = (unit.audio.clone(), unit.force_listen, unit.frame.clone());
        let input_id = self.tracker.record_sent(now, unit);
        LaneRequest::Append(UnitInput { audio, input_id, force_listen, frame })
    }

    /// Handles output of the model. Returns the unit that it completed.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        limits: &RolloverLimits,
        lanes: &mut Lanes,
    ) -> Option<UnitInFlight> {
        if let LaneEvent::Ready { .. } = event {
            self.held_samples = meta.held_samples;
        }
        let kind = ReplyKind::of(event)?;
        self.unit_errors = 0;
        self.context_usage.report(meta.context_tokens);
        let unit = self.tracker.handle_reply(now, kind, meta)?;
        self.record_answer(now, &unit, limits, lanes);
        Some(unit)
    }

    /// Completes a unit whose end the upstream did not report in time.
    pub(super) fn end_reply(&mut self, now: Instant, limits: &RolloverLimits, lanes: &mut Lanes) {
        if let Some(unit) = self.tracker.complete_in_flight() {
            self.record_answer(now, &unit, limits, lanes);
        }
    }

    /// The last answered unit, and how many samples at its end the model has not heard.
    pub(super) fn take_unheard(&mut self) -> Option<(UplinkUnit, usize)> {
        self.last_answered.take().map(|unit| (unit, self.held_samples))
    }

    /// True if the session was useful, or lasted longer than all retries may take. Its loss then starts a new series of
    /// attempts.
    pub(super) fn was_healthy(&self, now: Instant, times: &LaneTimeouts) -> bool {
        let lived = now - self.ready_at;
        self.tracker.answered_count >= HEALTHY_UNITS || lived >= Duration::from_millis(times.retry_total_ms)
    }

    fn record_answer(
        &mut self,
        now: Instant,
        unit: &UnitInFlight,
        limits: &RolloverLimits,
        lanes: &mut Lanes,
    ) {
        self.context_usage.add_unit(
            unit.unit.has_speech,
            std::mem::take(&mut self.frame_since_answer),
            limits,
        );
        self.last_answered = (self.held_samples > 0).then(|| UplinkUnit { frame: None, ..unit.unit.clone() });
        let (took, lane) = (now - unit.sent_at, lanes.lane(self.id));
        self.has_stalled = self.tracker.note_reply_time(took);
        lanes.measure(Measurement::UnitProcessed { lane, took, unit: UNIT_DURATION });
        lanes.measure(Measurement::ContextUsage { lane, tokens: self.context_usage.tokens });
        if let Some(count) = self.tracker.count_slow_reply(took) {
            lanes.observe(Observation::SlowStep { step_ms: millis(took), count });
        }
    }
}
