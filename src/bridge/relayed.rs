//! Bridge of a client that speaks the model's own protocol: client codec, relay session and upstream codec.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{
    CodecReport, Input, Output,
    relay::{Relay, RelayCodecs},
};
use crate::{
    client::relay::RelayCodec,
    error::{Error, ErrorKind},
    session::{RelaySetup, SessionReport, outbox::Action},
    spelling::{ClientMapping, upstream::Dialects},
    suggestion::quoted_list,
    upstream::{
        Dialect,
        lane::{LaneCodecs, LaneEnd, LaneOpening},
        relay::to_message,
    },
    vocabulary::{
        Frame, Lane, Message, MessageMeta, VoiceSample,
        relay::{QueuePosition, RelayEndReason, UpstreamMessage},
    },
};

/// Bound on the protocols that share a path.
const MAX_CANDIDATES: usize = 8;

/// Bridge of one relayed session.
#[derive(Debug)]
pub(super) struct RelayBridge {
    /// Other protocols that the connection may speak, until its first message decides.
    candidates: Vec<RelayCodec>,
    /// `None` if the client protocol or the profile does not relay.
    relay: Option<Relay>,
    lanes: LaneCodecs,
    ready_outputs: VecDeque<Output>,
    is_client_open: bool,
    /// Fields without effect that were already reported to operators.
    noted_no_effect: BTreeSet<String>,
}

impl RelayBridge {
    pub(super) fn open(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialects: Dialects,
        setup: RelaySetup,
    ) -> Self {
        let codec = |client: &Arc<ClientMapping>| RelayCodec::new(client.clone(), query, setup.unix_s);
        let mut candidates: Vec<_> = candidates.iter().filter_map(codec).take(MAX_CANDIDATES).collect();
        let matches_dialect = |codec: &RelayCodec| {
            codec.protocol().is_some_and(|relay| dialects.named(&relay.dialect).is_some())
        };
        let first = candidates.iter().position(matches_dialect).unwrap_or(0);
        let client = (first < candidates.len()).then(|| candidates.remove(first));
        let codecs = client.map(|client| {
            let can_serve = |dialect: &&Arc<_>| RelayCodecs::can_translate_to(&client, dialect);
            let dialect = dialects.iter().find(can_serve).unwrap_or(dialects.first()).clone();
            RelayCodecs { client, upstream: Dialect::new(dialect), default_voice: None }
        });
        let lanes = LaneCodecs::new(dialects);
        let relay = codecs.and_then(|codecs| Relay::open(now, &setup, codecs));
        let is_client_open = relay.is_some();
        let mut relayed = Self {
            candidates,
            relay,
            lanes,
            ready_outputs: VecDeque::new(),
            is_client_open,
            noted_no_effect: BTreeSet::new(),
        };
        relayed.check_mode(now);
        relayed
    }

    /// Sets the voice of sessions whose client names none.
    pub(super) fn set_default_voice(&mut self, voice: VoiceSample) {
        if let Some(relay) = &mut self.relay {
            relay.set_codecs(relay.codecs().with_default_voice(voice));
        }
    }

    /// Fails the session if the upstream lacks the messages or the mode that the client needs.
    fn check_mode(&mut self, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let codecs = Arc::clone(relay.codecs());
        let (dialect, mode) = (codecs.upstream.mapping(), codecs.client.mode());
        let error = match dialect.modes.contains_key(&mode) {
            _ if RelayCodecs::can_translate_to(&codecs.client, dialect) => return relay.set_mode(now, mode),
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
        relay.fail(now, &Error::new(ErrorKind::NoSuchMode, error));
    }

    /// Name of the dialect of the first upstream.
    pub(super) fn dialect(&self) -> &str {
        self.lanes.dialect()
    }

    /// True if the lane is not over.
    pub(super) fn has_lane(&self, lane: Lane) -> bool {
        self.lanes.contains(lane)
    }

    /// True for a lane that is not read for now.
    pub(super) fn is_lane_held(&self, lane: Lane) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.is_lane_held(lane))
    }

    pub(super) fn session_id(&self) -> &str {
        self.relay.as_ref().map_or("", Relay::id)
    }

    /// The session's state, and what the driver takes into account.
    pub(super) fn report(&self) -> SessionReport {
        let Some(relay) = &self.relay else { return SessionReport::ended() };
        SessionReport {
            state: relay.state(),
            is_paced: false,
            is_far_ahead: false,
            unsent_bytes: 0,
            needs_backpressure: relay.needs_backpressure(),
            waits_for_lanes: true,
            only_waits_in_queue: relay.only_waits_in_queue(),
            kept_bytes: relay.kept_bytes(),
            read_window: None,
        }
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Client(Frame::Text(text)) = &input {
            self.detect_protocol(now, text);
        }
        let Self { relay: Some(relay), lanes, noted_no_effect, .. } = self else { return };
        // Reports an event of a lane that the upstream sent no message about.
        let report = |relay: &mut Relay, event: &UpstreamMessage<'_>, lane| {
            relay.handle_upstream_message(now, lane, (event, MessageMeta::default()), "");
        };
        match input {
            Input::Client(_) if !self.is_client_open => {}
            Input::Client(Frame::Text(text)) => handle_client_text(now, text, relay, noted_no_effect),
            Input::Client(Frame::Binary(_)) => {
                let error = Error::new(ErrorKind::BinaryFrame, "a binary frame; text frames only");
                relay.report_error(now, &error);
            }
            Input::ClientClosed => {
                self.is_client_open = false;
                relay.handle_client_gone(now);
            }
            Input::LaneQueued(lane, position) => {
                relay.handle_lane_opened(now, lane);
                let place = QueuePosition { position: Some(position), ..QueuePosition::default() };
                report(relay, &UpstreamMessage::Queued(place), lane);
            }
            Input::LaneDialect(lane, name) => lanes.set_dialect(lane, name),
            Input::LaneOpened(lane) => {
                if let Some(codec) = lanes.get_mut(lane) {
                    relay.set_dialect(now, lane, codec.mapping());
                }
                let opening = lanes.get_mut(lane).map(|codec| codec.handle_opened(now));
                if opening != Some(LaneOpening::Resumed) {
                    relay.handle_lane_opened(now, lane);
                }
                if opening == Some(LaneOpening::Granted) {
                    report(relay, &UpstreamMessage::Granted, lane);
                }
            }
            Input::Lane(lane, frame) => {
                let text = if let Frame::Text(text) = frame { text } else { "" };
                let is_passthrough = relay.codecs().is_passthrough();
                let handle = |event: &UpstreamMessage<'_>, meta: MessageMeta<'_>| {
                    relay.handle_upstream_message(now, lane, (event, meta), text);
                };
                match lanes.get_mut(lane) {
                    Some(codec) if is_passthrough => codec.decode_message(frame, handle),
                    Some(codec) => codec.decode_for_relay(now, frame, handle),
                    None => {}
                }
            }
            // An upstream that is reached by HTTP has no messages to relay.
            Input::Answer(..) => {}
            Input::LaneClosed(lane, reason) => {
                if let LaneEnd::Over(end) = lanes.handle_end(now, lane, &reason) {
                    if let Some(end) = end {
                        report(relay, &UpstreamMessage::Ended(RelayEndReason::Failed, end), lane);
                    }
                    relay.handle_lane_closed(now, lane, &reason);
                }
            }
            Input::Flow(flow) => relay.hold_lanes(now, flow.are_lanes_held),
            Input::Timeout => {
                lanes.handle_timeout(now);
                relay.handle_timeout(now);
            }
            Input::Drain(within) => relay.drain(now, within, RelayEndReason::Shutdown),
            Input::Close(within) => relay.drain(now, within, RelayEndReason::Operator),
            // A relay finds no pauses.
            Input::TurnJudged(..)
            | Input::WorkerFound(_)
            | Input::PlaceFound(_)
            | Input::Unwritten(..)
            | Input::LaneReplaceable(_) => {}
            Input::Rollover => relay.reject_rollover(),
        }
        relay.arm_idle();
        self.follow_codecs(now);
    }

    /// Does what the lanes' codecs want by themselves.
    fn follow_codecs(&mut self, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        super::push_codec_outputs(&mut self.lanes, &mut self.ready_outputs, |lane, report| match report {
            CodecReport::Event(event) => {
                let codecs = Arc::clone(relay.codecs());
                let mut base64 = String::new();
                let message = to_message(codecs.upstream.mapping(), &event, true, &mut base64);
                relay.handle_upstream_message(now, lane, (&message, MessageMeta::default()), "");
            }
            CodecReport::GivenUp(reason) => relay.handle_lane_closed(now, lane, &reason),
        });
    }

    pub(super) fn poll_output(&mut self, now: Instant) -> Output {
        if let Some(output) = self.ready_outputs.pop_front() {
            return output;
        }
        while let Some(action) = self.relay.as_mut().and_then(Relay::pop_action) {
            match action {
                Action::RawToClient(message) if self.is_client_open => {
                    self.is_client_open = !matches!(message, Message::Close(..));
                    return Output::ToClient(message, None);
                }
                Action::Lane(action) => {
                    super::push_lane_output(now, &mut self.lanes, action, &mut self.ready_outputs);
                    self.follow_codecs(now);
                    if let Some(output) = self.ready_outputs.pop_front() {
                        return output;
                    }
                }
                Action::Observe(observation) => return Output::Observe(observation),
                Action::RawToClient(_)
                | Action::JudgeTurn(..)
                | Action::WithdrawJudgement
                | Action::FindWorker(..)
                | Action::ToClient(_)
                | Action::CloseClient(_)
                | Action::DropTurn(..) => {}
            }
        }
        match &self.relay {
            Some(relay) if !relay.is_finished() => {
                Output::Wait(relay.next_timeout().into_iter().chain(self.lanes.deadline()).min())
            }
            _ => Output::Finished,
        }
    }

    /// Chooses the protocol by the first message that one of the candidates has. The upstream's own protocol, or else
    /// the first candidate, is the default.
    fn detect_protocol(&mut self, now: Instant, text: &str) {
        let Some(relay) = self.relay.as_mut().filter(|_| !self.candidates.is_empty()) else { return };
        if relay.codecs().client.can_begin_with(text) {
            return self.candidates.clear();
        }
        let Some(index) = self.candidates.iter().position(|codec| codec.can_begin_with(text)) else { return };
        let client = self.candidates.swap_remove(index);
        relay.set_codecs(relay.codecs().with_client(client));
        self.candidates.clear();
        self.check_mode(now);
    }
}

fn handle_client_text(now: Instant, text: &str, relay: &mut Relay, noted_no_effect: &mut BTreeSet<String>) {
    let codecs = Arc::clone(relay.codecs());
    match codecs.client.decode(text, codecs.is_passthrough()) {
        Ok(message) => {
            if !codecs.is_passthrough() {
                let notes = message.ineffective_fields(|part| codecs.supports(part));
                let lost = codecs.lost_settings(&message.to_client_request());
                let unreported =
                    notes.into_iter().chain(lost).filter(|note| super::mark_noted(noted_no_effect, note));
                unreported.for_each(|note| relay.report_no_effect(now, note));
            }
            relay.handle_client_message(now, &message.to_client_request(), text);
        }
        Err(error) => relay.report_error(now, &error),
    }
}
