//! One session's and one lane's way into the metrics. What is added once a second goes through handles that were looked up
//! when it began; what happens now and then is looked up when it happens.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

use super::{
    Metrics, OfSession,
    families::Seconds,
    labels::{AskedFor, AtStage, Because, Closed, Ended, OfLane, OfUpstream, Told, Way},
};
use crate::{
    error::{Error, Origin},
    session::{Asked, Purpose, Reason, Stage},
};

/// Whose connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Upstream,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        }
    }
}

/// One session's.
#[derive(Debug)]
pub(crate) struct Meters {
    metrics: Metrics,
    of: OfSession,
    pub(crate) audio_in: Seconds,
    pub(crate) audio_out: Seconds,
    pub(crate) audio_appended: Seconds,
    pub(crate) dropped_fast: Seconds,
    pub(crate) dropped_late: Seconds,
    pub(crate) muted: Seconds,
    pub(crate) hushed: Seconds,
    pub(crate) client: Wire,
    pub(crate) upstream: Wire,
}

/// Bytes and messages of one side, in and out.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) bytes: [Counter; 2],
    pub(crate) frames: [Counter; 2],
}

impl Wire {
    fn new(metrics: &Metrics, side: Side) -> Self {
        let way = |direction| Way { side: side.name(), direction };
        let families = metrics.families();
        Self {
            bytes: ["in", "out"].map(|direction| families.bytes.get_or_create_owned(&way(direction))),
            frames: ["in", "out"].map(|direction| families.frames.get_or_create_owned(&way(direction))),
        }
    }
}

impl Meters {
    /// A session of this protocol and profile begins.
    pub(crate) fn begin(metrics: &Metrics, protocol: &str, profile: &str) -> Self {
        let families = metrics.families();
        let of = OfSession { protocol: protocol.into(), profile: profile.into() };
        let because = |reason| (of.clone(), Because { reason });
        families.opened.get_or_create(&of).inc();
        Self {
            metrics: metrics.clone(),
            audio_in: families.audio_in.get_or_create_owned(&of),
            audio_out: families.audio_out.get_or_create_owned(&of),
            audio_appended: families.audio_appended.get_or_create_owned(&of),
            dropped_fast: families.audio_dropped.get_or_create_owned(&because("too_fast")),
            dropped_late: families.audio_dropped.get_or_create_owned(&because("too_late")),
            muted: families.audio_muted.get_or_create_owned(&because("microphone")),
            hushed: families.audio_muted.get_or_create_owned(&because("text")),
            client: Wire::new(metrics, Side::Client),
            upstream: Wire::new(metrics, Side::Upstream),
            of,
        }
    }

    pub(crate) fn ended(&self, reason: Reason, lasted: Duration) {
        let families = self.metrics.families();
        let ended = Ended { reason: reason.name(), side: reason.side() };
        families.ended.get_or_create(&(self.of.clone(), ended)).inc();
        families.lasted.get_or_create(&self.of).observe(lasted.as_secs_f64());
    }

    pub(crate) fn first_transcript(&self, after: Duration) {
        self.metrics.families().first_transcript.get_or_create(&self.of).observe(after.as_secs_f64());
    }

    pub(crate) fn first_audio(&self, asked: Asked, after: Duration) {
        let of = (self.of.clone(), AskedFor { asked: asked.name() });
        self.metrics.families().first_audio.get_or_create(&of).observe(after.as_secs_f64());
    }

    pub(crate) fn barge_in(&self, stage: Stage, after: Duration) {
        let of = (self.of.clone(), AtStage { stage: stage.name() });
        self.metrics.families().barge_in.get_or_create(&of).observe(after.as_secs_f64());
    }

    pub(crate) fn interrupted(&self) {
        self.metrics.families().interruptions.get_or_create(&self.of).inc();
    }

    pub(crate) fn underrun(&self) {
        self.metrics.families().underruns.get_or_create(&self.of).inc();
    }

    pub(crate) fn rolled_over(&self, reason: &'static str, gap: Duration) {
        let (of, families) = ((self.of.clone(), Because { reason }), self.metrics.families());
        families.rollovers.get_or_create(&of).inc();
        families.rollover_gap.get_or_create(&of).observe(gap.as_secs_f64());
    }

    pub(crate) fn lane_retried(&self) {
        self.metrics.families().lane_retries.get_or_create(&self.of).inc();
    }

    pub(crate) fn told(&self, error: &Error) {
        let origin = match error.kind.origin() {
            Origin::Client => "client",
            Origin::Bridge => "bridge",
            Origin::Upstream => "upstream",
        };
        let told = Told { kind: error.kind.name(), origin };
        self.metrics.families().errors.get_or_create(&(self.of.clone(), told)).inc();
    }

    /// A connection was closed, by its peer or by voxbridge; `None` for no close frame.
    pub(crate) fn closed(&self, side: Side, by_peer: bool, code: Option<u16>) {
        let by = if by_peer { "peer" } else { "bridge" };
        let closed = Closed { side: side.name(), by, code: code_name(code) };
        self.metrics.families().closes.get_or_create(&closed).inc();
    }

    /// A lane is connected to this upstream.
    pub(crate) fn lane(&self, upstream: &Arc<str>, purpose: Purpose) -> LaneMeters {
        let families = self.metrics.families();
        let of = OfLane { upstream: upstream.clone(), purpose: purpose.name() };
        let upstream = OfUpstream { upstream: upstream.clone() };
        families.lanes_connected.get_or_create(&of).inc();
        let connected = families.lanes.get_or_create_owned(&of);
        connected.inc();
        LaneMeters {
            connected,
            queue: families.lane_queue.get_or_create_owned(&of),
            init: families.lane_init.get_or_create_owned(&of),
            step: families.step.get_or_create_owned(&upstream),
            context: families.context.get_or_create_owned(&upstream),
        }
    }
}

/// One lane's; dropped when it is gone.
#[derive(Debug)]
pub(crate) struct LaneMeters {
    connected: Gauge,
    pub(crate) queue: Histogram,
    pub(crate) init: Histogram,
    pub(crate) step: Histogram,
    pub(crate) context: Histogram,
}

impl Drop for LaneMeters {
    fn drop(&mut self) {
        self.connected.dec();
    }
}

/// A close code as a label: a closed set, whatever peers make up.
pub(crate) const fn code_name(code: Option<u16>) -> &'static str {
    match code {
        None => "lost",
        Some(1000) => "1000",
        Some(1001) => "1001",
        Some(1002) => "1002",
        Some(1003) => "1003",
        Some(1005) => "1005",
        Some(1007) => "1007",
        Some(1008) => "1008",
        Some(1009) => "1009",
        Some(1011) => "1011",
        Some(1012) => "1012",
        Some(1013) => "1013",
        Some(_) => "other",
    }
}
