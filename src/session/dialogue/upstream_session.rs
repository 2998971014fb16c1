//! Upstream session in use: its units, their answers, and the use of its context.

use std::time::{Duration, Instant};

use super::reply_tracker::{ReplyKind, ReplyTracker, UnitInFlight, UplinkUnit};
use super::rollover_limits::{ContextUsage, RolloverLimits};
use crate::{
    audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES},
    session::{
        lanes::{LaneId, Lanes},
        measurement::Measurement,
        millis,
        outbox::Observation,
    },
    spelling::profile::LaneTimeouts,
    vocabulary::{LaneEvent, LaneRequest, MessageMeta, RolloverReason, UnitInput},
};

/// Answered audio after which an upstream session counts as healthy.
const HEALTHY_AUDIO: Duration = Duration::from_secs(10);

/// Upstream session in use.
#[derive(Debug)]
pub(super) struct UpstreamSession {
    pub(super) id: LaneId,
    pub(super) ready_at: Instant,
    pub(super) tracker: ReplyTracker,
    /// Length of the model's units, samples; at most a second.
    pub(super) unit_samples: usize,
    pub(super) context_usage: ContextUsage,
    pub(super) frame_since_answer: bool,
    /// Length of the audio that the upstream failed to process, since the last that it did process.
    pub(super) failed_audio: Duration,
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
            unit_samples: UNIT_SAMPLES,
            context_usage: ContextUsage::default(),
            frame_since_answer: false,
            failed_audio: Duration::ZERO,
            leaves_picture_out: false,
            has_stalled: false,
            held_samples: 0,
            last_answered: None,
            pending_rollover: None,
        }
    }

    /// True if the model's units are shorter than MiniCPM-o's.
    pub(super) const fn has_short_units(&self) -> bool {
        self.unit_samples < UNIT_SAMPLES
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
            self.unit_samples = unit_samples(meta.unit_ms);
        }
        let kind = ReplyKind::of(event)?;
        self.failed_audio = Duration::ZERO;
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
        self.tracker.answered >= HEALTHY_AUDIO || lived >= Duration::from_millis(times.retry_total_ms)
    }

    fn record_answer(
        &mut self,
        now: Instant,
        unit: &UnitInFlight,
        limits: &RolloverLimits,
        lanes: &mut Lanes,
    ) {
        self.context_usage.add_unit(&unit.unit, std::mem::take(&mut self.frame_since_answer), limits);
        self.last_answered = (self.held_samples > 0).then(|| UplinkUnit { frame: None, ..unit.unit.clone() });
        let (took, lane) = (now - unit.sent_at, lanes.lane(self.id));
        self.has_stalled = self.tracker.note_reply_time(took);
        lanes.measure(Measurement::UnitProcessed { lane, took, unit: unit.unit.length() });
        lanes.measure(Measurement::ContextUsage { lane, tokens: self.context_usage.tokens });
        if let Some(count) = self.tracker.count_slow_reply(took) {
            lanes.observe(Observation::SlowStep { step_ms: millis(took), count });
        }
    }
}

/// Samples of a unit with this length, for a model that names one. A longer one than MiniCPM-o's counts as that.
fn unit_samples(unit_ms: Option<u32>) -> usize {
    let samples = unit_ms.map_or(0, |ms| (u64::from(ms) * u64::from(SPEECH_RATE_HZ) / 1000) as usize);
    if (1..UNIT_SAMPLES).contains(&samples) { samples } else { UNIT_SAMPLES }
}
