//! The relay as a session of the bridge: its protocol, its inputs, its state and its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Relay, RelayCodecs, RelayPhase, RelayUpstream};
use crate::{
    bridge::{
        Input,
        exchange::{Output, Outputs},
        session::{BridgedSession, LaneMessage},
    },
    client::relay::RelayCodec,
    error::{Error, ErrorKind},
    session::{
        RelaySetup, SessionReport,
        drain_plan::TIME_LIMIT_GRACE,
        lanes::connection::UpstreamConnection,
        measurement::{EndReason, Measurement, SessionState},
        outbox::{Action, Observation},
        timers::Timer,
    },
    spelling::{ClientMapping, UpstreamMapping, upstream::Dialects},
    suggestion::quoted_list,
    upstream::Dialect,
    vocabulary::{DisconnectReason, Frame, Lane, Message, VoiceSample, relay::RelayEndReason},
};

/// Bound on the protocols that share a path.
const MAX_CANDIDATES: usize = 8;

impl Relay {
    /// Opens a session. `None` if the profile or none of the protocols relays.
    pub(in crate::bridge) fn open(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialects: &Dialects,
        setup: &RelaySetup,
    ) -> Option<Self> {
        let codec = |client: &Arc<ClientMapping>| RelayCodec::new(client.clone(), query, setup.unix_s);
        let mut candidates: Vec<_> = candidates.iter().filter_map(codec).take(MAX_CANDIDATES).collect();
        let matches_dialect = |codec: &RelayCodec| {
            codec.protocol().is_some_and(|relay| dialects.named(&relay.dialect).is_some())
        };
        let first = candidates.iter().position(matches_dialect).unwrap_or(0);
        let client = (first < candidates.len()).then(|| candidates.remove(first))?;
        let can_serve = |dialect: &&Arc<_>| RelayCodecs::can_translate_to(&client, dialect);
        let dialect = dialects.iter().find(can_serve).unwrap_or(dialects.first()).clone();
        let codecs = RelayCodecs { client, upstream: Dialect::new(dialect), default_voice: None };
        let mut relay = Self::new(now, setup, codecs, candidates)?;
        relay.check_mode(now);
        Some(relay)
    }

    /// Fails the session if the upstream lacks the messages or the mode that the client needs.
    fn check_mode(&mut self, now: Instant) {
        let codecs = Arc::clone(&self.client.codecs);
        let (dialect, mode) = (codecs.upstream.mapping(), codecs.client.mode());
        let error = match dialect.modes.contains_key(&mode) {
            _ if RelayCodecs::can_translate_to(&codecs.client, dialect) => return self.set_mode(now, mode),
            true => format!(
                "the mapping of the upstream's dialect ({}) cannot carry the messages of {}: `relay_open` or `relay_append` \
                 is missing, and so is `converse` or `append`",
                dialect.title,
                codecs.client.mapping().title,
            ),
            false => format!(
                "the upstream's dialect ({}) has no mode {}; it has {}",
                dialect.title,
                mode.name(),
                quoted_list(dialect.modes.values().map(String::as_str))
            ),
        };
        self.fail(now, &Error::new(ErrorKind::NoSuchMode, error));
    }

    /// Chooses the protocol by the first message that one of the candidates has. The upstream's own protocol, or else
    /// the first candidate, is the default.
    fn detect_protocol(&mut self, now: Instant, text: &str) {
        if self.candidates.is_empty() {
            return;
        }
        if self.client.codecs.client.can_begin_with(text) {
            return self.candidates.clear();
        }
        let Some(index) = self.candidates.iter().position(|codec| codec.can_begin_with(text)) else { return };
        let client = self.candidates.swap_remove(index);
        self.set_codecs(self.client.codecs.with_client(client));
        self.candidates.clear();
        self.check_mode(now);
    }

    fn handle_client_text(&mut self, now: Instant, text: &str) {
        let codecs = Arc::clone(&self.client.codecs);
        match codecs.client.decode(text, codecs.is_passthrough()) {
            Ok(message) => {
                let request = message.to_request();
                if !codecs.is_passthrough() {
                    let notes = message.ineffective_fields(|part| codecs.supports(part));
                    let lost = codecs.lost_settings(&request);
                    notes.into_iter().chain(lost).for_each(|note| self.report_no_effect(now, note));
                }
                self.handle_client_request(now, &request, text);
            }
            Err(error) => self.report_error(now, &error),
        }
    }

    /// State for operators. A relay detects no speech, so it is never listening.
    fn state(&self) -> SessionState {
        match self.lane.upstream {
            _ if self.phase != RelayPhase::Open => SessionState::Ending,
            RelayUpstream::Connected(_) if self.lane.is_open() => match self.client.turn {
                Some(_) => SessionState::Answering,
                None => SessionState::Idle,
            },
            _ if self.lane.lost_since.is_some() => SessionState::RollingOver,
            RelayUpstream::Connected(_)
                if self.lane.connection().is_some_and(UpstreamConnection::is_queued) =>
            {
                SessionState::Queued
            }
            RelayUpstream::Connected(_) | RelayUpstream::Scheduled | RelayUpstream::Stopped => {
                SessionState::Opening
            }
        }
    }

    /// When the session ends because a worker waits for the client.
    fn idle_at(&self) -> Option<Instant> {
        let connection = self.lane.connection()?;
        let worker_since =
            connection.granted_at.filter(|_| self.phase == RelayPhase::Open && connection.holds_worker());
        // A client that waits in the queue need not send anything.
        let granted_at = worker_since?;
        let silent_since =
            if self.reported.opened { self.client_heard_at } else { self.client_heard_at.max(granted_at) };
        let idle = self.idle_limit.map(|idle| silent_since + idle);
        let granted_max = Duration::from_millis(self.rules.open_wait_max_ms);
        let unopened = (!self.reported.opened && self.opening.is_missing()).then(|| granted_at + granted_max);
        [idle, unopened].into_iter().flatten().min()
    }

    fn is_over(&self) -> bool {
        let has_lane = self.lane.upstream != RelayUpstream::Stopped;
        self.phase == RelayPhase::Over
            && !has_lane
            && self.client.out.is_empty()
            && self.lane.lanes.shared.out.is_empty()
    }
}

impl BridgedSession for Relay {
    fn id(&self) -> &str {
        &self.id
    }

    fn report(&self, _now: Instant) -> SessionReport {
        SessionReport {
            state: self.state(),
            is_paced: false,
            is_far_ahead: false,
            unsent_bytes: 0,
            needs_backpressure: self.needs_backpressure(),
            waits_for_lanes: true,
            only_waits_in_queue: self.is_over() && self.lane.lanes.only_wait_in_queue(),
            kept_bytes: self.kept_bytes(),
            read_window: None,
        }
    }

    fn set_default_voice(&mut self, voice: VoiceSample) {
        self.set_codecs(self.client.codecs.with_default_voice(voice));
    }

    fn handle_client_frame(&mut self, now: Instant, frame: Frame<'_>, _outputs: &mut Outputs) {
        match frame {
            Frame::Text(text) => {
                self.detect_protocol(now, text);
                self.handle_client_text(now, text);
            }
            Frame::Binary(_) => {
                let error = Error::new(ErrorKind::BinaryFrame, "a binary frame; text frames only");
                self.report_error(now, &error);
            }
        }
    }

    fn handle_client_gone(&mut self, now: Instant) {
        if self.phase != RelayPhase::Over {
            self.client.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.stop(now);
        }
    }

    fn set_lane_dialect(&mut self, now: Instant, lane: Lane, dialect: &Arc<UpstreamMapping>) {
        if self.lane.is(lane) && self.client.codecs.upstream.mapping().name != dialect.name {
            self.set_dialect(now, dialect);
        }
    }

    fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        self.lane.lanes.handle_opened(now, lane);
    }

    fn takes_as_sent(&self, dialect: &UpstreamMapping) -> bool {
        self.client.codecs.takes_as_sent(dialect)
    }

    fn handle_lane_event(&mut self, now: Instant, lane: Lane, message: LaneMessage<'_>) {
        if self.lane.is(lane) {
            self.handle_upstream_event(now, lane, message);
        } else {
            self.lane.handle_event(now, lane, message.event);
        }
    }

    fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        if self.lane.is(lane) {
            self.handle_upstream_closed(now, lane, reason);
        } else {
            self.lane.lanes.handle_closed(now, lane, reason);
        }
    }

    fn is_lane_held(&self, lane: Lane) -> bool {
        self.lane.lanes.is_held(lane)
    }

    fn handle_order(&mut self, now: Instant, order: Input<'_>) {
        match order {
            Input::Flow(flow) => self.lane.lanes.set_held(now, flow.are_lanes_held),
            Input::Drain(within) => self.drain(now, within, RelayEndReason::Shutdown),
            Input::Close(within) => self.drain(now, within, RelayEndReason::Operator),
            Input::Rollover => {
                let detail =
                    "a relayed session has no rollover: only its client knows the conversation so far";
                self.client.out.observe(Observation::NoEffect(detail.to_owned()));
            }
            // A relay finds no pauses, and its audio is not discarded.
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
        self.handle_lane_timeouts(now);
        self.finish_if_answered(now);
        if self.idle_at().is_some_and(|at| at <= now) {
            self.end(now, RelayEndReason::Idle, None);
        }
        if self.timers.take_expired(Timer::TimeLimit, now) {
            self.drain(now, TIME_LIMIT_GRACE, RelayEndReason::Timeout);
        }
    }

    fn pop_action(&mut self) -> Option<Action> {
        let Self { client, lane, .. } = self;
        client.out.pop(&mut lane.lanes.shared.out)
    }

    fn to_output(&mut self, _now: Instant, action: Action, outputs: &mut Outputs) -> Option<Output> {
        match action {
            Action::RawToClient(message) if outputs.is_client_open => {
                outputs.is_client_open = !matches!(message, Message::Close(..));
                Some(Output::ToClient(message, None))
            }
            Action::Observe(observation) => Some(Output::Observe(observation)),
            _ => None,
        }
    }

    fn next_timeout(&self, _outputs: &Outputs) -> Option<Instant> {
        let held_until = self.client.merger.flush_at().filter(|_| self.phase != RelayPhase::Over);
        let deadlines = [self.lane.lanes.deadline(), self.timers.next, self.idle_at(), held_until];
        deadlines.into_iter().flatten().min()
    }

    fn is_finished(&self) -> bool {
        self.is_over() && self.lane.lanes.are_gone()
    }
}
