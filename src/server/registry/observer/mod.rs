//! What one session lets operators see: its metrics, its live view, its line in the access log.
//!
//! On the session's own task. A frame costs a plain addition; what is shared is written once a second, and when something
//! happens that has a name. It decides nothing.

mod record;

use std::sync::Arc;

use tokio::{
    sync::mpsc,
    time::{Duration, Instant},
};

use self::record::Notes;
use super::Live;
use crate::{
    bridge::Bridge,
    error::Error,
    event::{Lane, Why},
    net::Traffic,
    session::{Figure, Observation, Purpose, Reason, Tally},
    telemetry::{
        access_log::AccessLog,
        context::TraceContext,
        metrics::{
            Metrics,
            meters::{LaneMeters, Meters, Side, Wire},
        },
    },
};

/// What was counted is made known so often. An idle session has nothing new to say, and says it when it next wakes.
const EVERY: Duration = Duration::from_secs(1);

/// Which way a message went, seen from voxbridge.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    In,
    Out,
}

/// Where a session is observed.
pub(crate) struct Sinks {
    pub(crate) metrics: Metrics,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) trace: Arc<TraceContext>,
}

/// One session's observer.
pub(crate) struct Observer {
    live: Arc<Live>,
    meters: Meters,
    sinks: Sinks,
    client: Arc<Traffic>,
    lanes: Vec<SeenLane>,
    /// Bytes of lanes that are gone.
    gone: [u64; 2],
    counts: Counts,
    /// What the shared counters have of it.
    told: (Counts, Tally),
    due: Instant,
    notes: Notes,
}

/// What is counted in plain numbers: in and out.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    client_frames: [u64; 2],
    upstream_frames: [u64; 2],
    client_bytes: [u64; 2],
    upstream_bytes: [u64; 2],
}

struct SeenLane {
    lane: Lane,
    purpose: Purpose,
    /// Once it is connected.
    up: Option<(LaneMeters, Arc<Traffic>)>,
    context_peak: u32,
}

impl SeenLane {
    fn bytes(&self) -> [u64; 2] {
        self.up.as_ref().map_or([0; 2], |(_, traffic)| bytes(traffic))
    }
}

fn bytes(traffic: &Traffic) -> [u64; 2] {
    [traffic.read(), traffic.written()]
}

impl Observer {
    /// A session begins.
    pub(crate) fn begin(live: Arc<Live>, client: Arc<Traffic>, sinks: Sinks) -> Self {
        let meters = Meters::begin(&sinks.metrics, &live.who.client, &live.who.profile);
        live.facts.happened("opened");
        Self {
            live,
            meters,
            sinks,
            client,
            lanes: Vec::new(),
            gone: [0; 2],
            counts: Counts::default(),
            told: Default::default(),
            due: Instant::now(),
            notes: Notes::default(),
        }
    }

    /// A message passed between voxbridge and its client.
    pub(crate) const fn client_frames(&mut self, way: Way, count: u32) {
        self.counts.client_frames[way as usize] += count as u64;
    }

    /// A message passed between voxbridge and an upstream.
    pub(crate) const fn upstream_frame(&mut self, way: Way) {
        self.counts.upstream_frames[way as usize] += 1;
    }

    /// A lane is connected.
    pub(crate) fn connected(&mut self, lane: Lane, upstream: &str, traffic: Arc<Traffic>) {
        let upstream: Arc<str> = upstream.into();
        self.live.facts.set_upstream(upstream.clone());
        self.live.facts.happened("lane_connected");
        self.notes.connected(&upstream);
        if let Some(seen) = self.lanes.iter_mut().find(|seen| seen.lane == lane) {
            seen.up = Some((self.meters.lane(&upstream, seen.purpose), traffic));
        }
    }

    /// A lane is gone: by its upstream's doing, or by ours where there is no `why`.
    pub(crate) fn lane_gone(&mut self, lane: Lane, why: Option<&Why>) {
        let Some(at) = self.lanes.iter().position(|seen| seen.lane == lane) else { return };
        let seen = self.lanes.swap_remove(at);
        let Some((meters, traffic)) = &seen.up else { return };
        let [read, written] = bytes(traffic);
        self.gone = [self.gone[0] + read, self.gone[1] + written];
        if seen.context_peak > 0 {
            meters.context.observe(seen.context_peak.into());
        }
        let code = why.map_or(Some(1000), code_of);
        self.meters.closed(Side::Upstream, why.is_some(), code);
        self.notes.upstream_closed(why.is_some(), code);
        self.live.facts.set_queue_position(0);
        self.live.facts.set_context(0);
    }

    /// The client's connection is closed: by the client's doing, or by ours with this code.
    pub(crate) fn client_closed(&mut self, by_client: bool, code: Option<u16>) {
        if self.notes.client_closed(by_client, code) {
            self.meters.closed(Side::Client, by_client, code);
        }
    }

    /// The session said something.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        let facts = &self.live.facts;
        match observation {
            Observation::Measured(figure) => self.measured(*figure),
            Observation::LaneQueued { position, .. } => {
                facts.set_queue_position(position.unwrap_or(0));
                facts.happened("queued");
            }
            Observation::LaneReady { session_id, .. } => {
                facts.set_queue_position(0);
                facts.happened("lane_ready");
                if let Some(id) = session_id {
                    facts.set_upstream_session(id.clone());
                    self.notes.upstream_session(id);
                }
            }
            Observation::LaneRetry { .. } => {
                facts.happened("lane_retried");
                self.meters.lane_retried();
            }
            Observation::LaneFailed { .. } | Observation::LaneTrouble { .. } => facts.happened("lane_failed"),
            Observation::RolledOver { reason, gap_ms, .. } => self.rolled_over(reason.name(), *gap_ms),
            Observation::RelayResumed { gap_ms, .. } => self.rolled_over("upstream_lost", *gap_ms),
            Observation::Interrupted => {
                facts.happened("interrupted");
                self.notes.barge_ins += 1;
                self.meters.interrupted();
            }
            Observation::Underrun => {
                self.notes.underruns += 1;
                self.meters.underrun();
            }
            Observation::ErrorTold(error) => self.error(error),
            Observation::SlowStep { .. }
            | Observation::UnknownFromLane { .. }
            | Observation::AskedAgain(_)
            | Observation::NoEffect(_) => {}
        }
    }

    fn measured(&mut self, figure: Figure) {
        let facts = &self.live.facts;
        match figure {
            Figure::LaneDialled { lane, purpose } => {
                self.lanes.push(SeenLane { lane, purpose, up: None, context_peak: 0 });
            }
            Figure::LaneGranted { lane, after } => {
                self.notes.queued(after);
                self.with_lane(lane, |meters| meters.queue.observe(after.as_secs_f64()));
            }
            Figure::LaneInitialised { lane, after } => {
                self.with_lane(lane, |meters| meters.init.observe(after.as_secs_f64()));
            }
            Figure::FirstTranscript { after } => {
                facts.happened("first_transcript");
                self.notes.first_transcript.get_or_insert(after);
                self.meters.first_transcript(after);
            }
            Figure::FirstAudio { asked, after } => {
                facts.happened("first_audio");
                self.notes.first_audio.get_or_insert(after);
                self.meters.first_audio(asked, after);
            }
            Figure::Step { lane, took, unit } => {
                self.with_lane(lane, |meters| meters.step.observe(took.div_duration_f64(unit)));
            }
            Figure::Context { lane, tokens } => {
                facts.set_context(tokens);
                self.notes.context(tokens);
                if let Some(seen) = self.lanes.iter_mut().find(|seen| seen.lane == lane) {
                    seen.context_peak = seen.context_peak.max(tokens);
                }
            }
            Figure::BargeIn { stage, after } => self.meters.barge_in(stage, after),
            Figure::Ending(reason) => {
                facts.happened("ending");
                self.notes.reason.get_or_insert(reason);
            }
        }
    }

    fn with_lane(&self, lane: Lane, act: impl FnOnce(&LaneMeters)) {
        let seen = self.lanes.iter().find(|seen| seen.lane == lane);
        if let Some((meters, _)) = seen.and_then(|seen| seen.up.as_ref()) {
            act(meters);
        }
    }

    fn rolled_over(&mut self, reason: &'static str, gap_ms: u64) {
        self.live.facts.happened("rolled_over");
        self.live.facts.count_rollover();
        self.notes.rolled_over(gap_ms);
        self.meters.rolled_over(reason, Duration::from_millis(gap_ms));
    }

    fn error(&mut self, error: &Error) {
        self.live.facts.happened("error");
        self.live.facts.count_error();
        self.notes.error(error.kind);
        self.meters.told(error);
    }

    /// To be called when the bridge has nothing more to do for now.
    pub(crate) fn rest(&mut self, now: Instant, bridge: &Bridge) {
        self.live.facts.set_state(bridge.state());
        if now >= self.due {
            self.due = now + EVERY;
            self.make_known(bridge);
        }
    }

    fn make_known(&mut self, bridge: &Bridge) {
        let lanes = self.lanes.iter().map(SeenLane::bytes);
        self.counts.client_bytes = bytes(&self.client);
        self.counts.upstream_bytes =
            lanes.fold(self.gone, |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        let ([a, b], [c, d]) = (self.counts.client_bytes, self.counts.upstream_bytes);
        self.live.facts.set_bytes([a, b, c, d]);
        let (counts, before) = (self.counts, self.told.0);
        add(
            &self.meters.client,
            (counts.client_bytes, before.client_bytes),
            (counts.client_frames, before.client_frames),
        );
        add(
            &self.meters.upstream,
            (counts.upstream_bytes, before.upstream_bytes),
            (counts.upstream_frames, before.upstream_frames),
        );
        self.told.0 = counts;
        if let Some(tally) = bridge.tally() {
            self.live.facts.set_tally(&tally);
            self.add_audio(&tally);
        }
    }

    fn add_audio(&mut self, now: &Tally) {
        let (meters, told) = (&self.meters, &mut self.told.1);
        for (meter, now, told) in [
            (&meters.audio_in, now.came, &mut told.came),
            (&meters.audio_out, now.sent, &mut told.sent),
            (&meters.audio_appended, now.appended, &mut told.appended),
            (&meters.dropped_fast, now.dropped_fast, &mut told.dropped_fast),
            (&meters.dropped_late, now.dropped_late, &mut told.dropped_late),
            (&meters.muted, now.muted, &mut told.muted),
            (&meters.hushed, now.hushed, &mut told.hushed),
        ] {
            // What a model was spared may be given to it after all: that goes back, and counters do not.
            if now > *told {
                meter.inc_by((now - *told).as_secs_f64());
                *told = now;
            }
        }
    }

    /// The session goes no further, whatever it was about to do.
    pub(crate) fn cut_off(&mut self) {
        self.notes.reason.get_or_insert(Reason::CutOff);
        self.client_closed(false, None);
    }

    /// The session is over; `alive` is held until its line is written.
    pub(crate) fn end(mut self, bridge: &Bridge, alive: mpsc::Sender<()>) {
        for lane in self.lanes.iter().map(|seen| seen.lane).collect::<Vec<_>>() {
            self.lane_gone(lane, None);
        }
        self.make_known(bridge);
        let reason = self.notes.reason.unwrap_or(Reason::ClientGone);
        self.meters.ended(reason, self.live.opened.elapsed());
        let Some(log) = &self.sinks.access_log else { return };
        let mut record = self.notes.record(&self.live, reason);
        record.trace_id = Some(self.sinks.trace.trace_id.to_string());
        (
            [record.client_in_bytes, record.client_out_bytes],
            [record.upstream_in_bytes, record.upstream_out_bytes],
        ) = (self.counts.client_bytes, self.counts.upstream_bytes);
        if let Some(tally) = bridge.tally() {
            record.audio_in_s = Some(tally.came.as_secs_f64());
            record.audio_out_s = Some(tally.sent.as_secs_f64());
            record.dropped_s = Some((tally.dropped_fast + tally.dropped_late).as_secs_f64());
            record.muted_s = Some((tally.muted + tally.hushed).as_secs_f64());
        }
        if !log.write(&record, alive) {
            self.sinks.metrics.access_log_lost();
        }
    }
}

/// Now and before, in and out.
type Change = ([u64; 2], [u64; 2]);

fn add(wire: &Wire, bytes: Change, frames: Change) {
    for (counters, (now, before)) in [(&wire.bytes, bytes), (&wire.frames, frames)] {
        for (counter, (now, before)) in counters.iter().zip(now.into_iter().zip(before)) {
            counter.inc_by(now.saturating_sub(before));
        }
    }
}

/// The close code a peer sent; `None` where it sent none.
pub(crate) const fn code_of(why: &Why) -> Option<u16> {
    match why {
        Why::Closed(code, _) => Some(*code),
        _ => None,
    }
}
