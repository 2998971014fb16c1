//! A served session: utterances, texts and conversations, in the client's own protocol.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    EventTap, Input,
    exchange::{Output, Outputs},
    session::{BridgedSession, LaneMessage},
};
use crate::{
    client::{Abilities, Codec, ConnectQuery, IgnoredField, ToolOrder, check_request, spell_request},
    session::{
        AudioTotals, BargeInStage, EndReason, Measurement, Observation, RecordOptions, RecordedItem,
        SampleCounts, Session, SessionReport, SessionSetup, UplinkCounts,
        outbox::{Action, recorded::is_recorded},
    },
    spelling::UpstreamMapping,
    vocabulary::{
        ClientEvent, ClientRequest, CloseReason, DisconnectReason, Frame, Lane, LaneRequest, Message, Mode,
    },
};

/// Codec and session of one client.
#[derive(Debug)]
pub(super) struct ServedSession {
    codec: Codec,
    session: Box<Session>,
    opened_at: Instant,
    /// Instant of the last message to the client.
    last_message_at: Instant,
    /// Time without one after which the client gets a message although there is nothing to say.
    idle_event: Option<Duration>,
    /// The client takes events, not their messages.
    takes_events: bool,
    /// Events are recorded.
    records_events: bool,
    /// Settings without effect that operators know about already.
    noted_no_effect: BTreeSet<String>,
    /// Sees requests and events.
    tap: Option<Box<dyn EventTap>>,
}

impl ServedSession {
    /// Opens a session for an accepted connection.
    pub(super) fn open(now: Instant, mut codec: Codec, connect: ConnectQuery, setup: SessionSetup) -> Self {
        codec.set_abilities(Abilities {
            takes_turns: setup.profile.answers.is_some(),
            sees: setup.profile.mode == Mode::Video,
            transcribes: setup.can_transcribe || setup.profile.transcribes_user(),
            calls_tools: setup.profile.calls_tools(),
        });
        codec.set_voices(setup.voice_catalog.voices_and_models().0.keys().map(String::as_str));
        let model = connect.model.unwrap_or_default();
        let seed = setup.seed;
        let mut session = setup.open(now, connect.settings);
        codec.set_session(session.id(), &model, seed);
        connect.problems.into_iter().for_each(|problem| session.report_error(problem));
        let idle_event = Some(codec.mapping().idle_event_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        let mut served = Self {
            idle_event,
            codec,
            session,
            opened_at: now,
            last_message_at: now,
            takes_events: false,
            records_events: false,
            noted_no_effect: BTreeSet::new(),
            tap: None,
        };
        served.report_ignored_fields();
        served
    }

    /// When the client gets a message although there is nothing to say.
    fn still_here_at(&self, outputs: &Outputs) -> Option<Instant> {
        self.idle_event.filter(|_| outputs.is_client_open).map(|wait| self.last_message_at + wait)
    }

    /// Queues the messages for an event, and what follows from it.
    fn send_event(&mut self, now: Instant, event: ClientEvent, outputs: &mut Outputs) {
        if let Some(tap) = &mut self.tap {
            tap.client_event(now, &event);
        }
        let at_s = (now - self.opened_at).as_secs_f64();
        let queued = outputs.ready.len();
        let close =
            if let ClientEvent::Error(error) = &event { self.codec.error_close_frame(error) } else { None };
        if close.is_some() {
            // A fatal error of the protocol is the last event before the close frame.
            outputs.is_client_open = false;
            let ending = Measurement::SessionEnding(EndReason::ClientError);
            outputs.ready.push_back(measurement_output(ending));
            self.session.handle_client_gone(now);
        }
        self.encode(event, at_s, outputs);
        outputs.ready.extend(close.map(|close| Output::ToClient(close, None)));
        // Many protocols have no message for some events.
        if outputs.ready.len() > queued {
            self.last_message_at = now;
        }
    }

    /// Queues an event: itself, or its messages.
    fn encode(&mut self, event: ClientEvent, at_s: f64, outputs: &mut Outputs) {
        if self.takes_events {
            if self.codec.has_event(&event) {
                outputs.ready.push_back(Output::Event(event));
            }
            return;
        }
        self.codec.encode(&event, at_s, |message, turn| {
            outputs.ready.push_back(Output::ToClient(message, turn));
        });
        if matches!(event, ClientEvent::SessionCreated { .. } | ClientEvent::AnswerEnded { .. }) {
            self.codec.collect_notes();
            self.pass_tool_orders(outputs);
        }
    }

    /// Passes on what the codec has beside requests.
    fn pass_notes(&mut self, outputs: &mut Outputs) {
        let replies = self.codec.take_replies();
        outputs.ready.extend(replies.into_iter().map(|reply| Output::ToClient(reply, None)));
        self.pass_tool_orders(outputs);
        self.report_ignored_fields();
    }

    /// Passes on what the driver does on tool servers of the client.
    fn pass_tool_orders(&mut self, outputs: &mut Outputs) {
        let output = |order| match order {
            ToolOrder::Connect(number, server) => Output::ConnectTools(number, server),
            ToolOrder::Leave(number) => Output::LeaveTools(number),
            ToolOrder::Call(call) => Output::CallTool(call),
        };
        outputs.ready.extend(self.codec.take_tool_orders().into_iter().map(output));
    }

    /// Reports fields that the codec accepted without effect.
    fn report_ignored_fields(&mut self) {
        for IgnoredField { command, field, because, is_needed } in self.codec.take_ignored_fields() {
            let words = format!("{command}.{field}: {because}");
            self.session.observe(match is_needed {
                true => Observation::Unsupported(words),
                false => Observation::NoEffect(words),
            });
        }
    }
}

impl BridgedSession for ServedSession {
    fn id(&self) -> &str {
        self.session.id()
    }

    fn report(&self, now: Instant) -> SessionReport {
        let mut report = SessionReport::of(&self.session, now);
        report.kept_bytes += self.codec.kept_bytes();
        // A frame with a header ends where its header says, and a command is a frame of its own.
        if self.codec.has_binary_commands()
            && let Some(window) = &mut report.read_window
        {
            window.frame_max_bytes = 0;
        }
        report
    }

    fn sample_counts(&self) -> (SampleCounts, u64) {
        self.session.sample_counts()
    }

    fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.session.uplink_counts()
    }

    fn audio_totals(&self) -> Option<AudioTotals> {
        Some(self.session.audio_totals())
    }

    fn give_events(&mut self) {
        self.takes_events = true;
    }

    fn record(&mut self, options: RecordOptions) {
        self.records_events = options.events;
        if options.audio {
            self.session.record_audio();
        }
    }

    fn tap_events(&mut self, tap: Box<dyn EventTap>) {
        self.tap = Some(tap);
    }

    fn note_lane_request(&mut self, now: Instant, lane: Lane, request: &LaneRequest) {
        if let Some(tap) = &mut self.tap {
            tap.lane_request(now, lane, request);
        }
    }

    fn handle_client_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.client_request(now, &request);
        }
        match check_request(self.codec.mapping(), &request) {
            Ok(()) => self.session.handle_client_request(now, request),
            Err(error) => self.session.report_error(error),
        }
    }

    fn spell_request(&self, request: &ClientRequest<'_>) -> Option<String> {
        spell_request(self.codec.mapping(), request)
    }

    fn spell_event(&mut self, now: Instant, event: &ClientEvent) -> Vec<Message> {
        let mut messages = Vec::new();
        let at_s = (now - self.opened_at).as_secs_f64();
        self.codec.encode(event, at_s, |message, _| messages.push(message));
        messages
    }

    fn handle_client_frame(&mut self, now: Instant, frame: Frame<'_>, outputs: &mut Outputs) {
        let has_fields = matches!(frame, Frame::Text(_)) || self.codec.has_binary_commands();
        let decoded = self.codec.decode(frame, |request| {
            if let Some(tap) = &mut self.tap {
                tap.client_request(now, &request);
            }
            self.session.handle_client_request(now, request);
        });
        if let Err(error) = decoded {
            self.session.report_error(error);
        }
        if has_fields {
            self.pass_notes(outputs);
        }
    }

    fn handle_tools(&mut self, now: Instant, input: Input<'_>, outputs: &mut Outputs) {
        let session = &mut self.session;
        let handle = &mut |request: ClientRequest<'_>| session.handle_client_request(now, request);
        match input {
            Input::ToolList(number, list) => self.codec.take_tool_list(number, list, handle),
            Input::ToolResult(call, result) => {
                if let Some(result) = self.codec.take_tool_result(call, result, handle) {
                    self.session.handle_tool_result(now, call, result);
                }
            }
            _ => {}
        }
        if outputs.is_client_open {
            self.pass_notes(outputs);
        }
    }

    fn handle_client_gone(&mut self, now: Instant) {
        self.codec.forget();
        self.session.handle_client_gone(now);
    }

    fn set_lane_dialect(&mut self, _now: Instant, lane: Lane, dialect: &Arc<UpstreamMapping>) {
        self.session.handle_tool_support(lane, dialect.calls_tools());
    }

    fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        self.session.handle_lane_opened(now, lane);
    }

    fn handle_lane_event(&mut self, now: Instant, lane: Lane, message: LaneMessage<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.lane_event(now, lane, message.event, &message.meta);
        }
        self.session.handle_lane_event(now, lane, message.event, message.meta);
    }

    fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        self.session.handle_lane_closed(now, lane, reason);
    }

    fn is_lane_held(&self, lane: Lane) -> bool {
        self.session.is_lane_held(lane)
    }

    fn handle_order(&mut self, now: Instant, order: Input<'_>) {
        if let (Some(tap), Input::ToolResult(call, result)) = (&mut self.tap, &order) {
            tap.tool_ended(now, *call, result);
        }
        let session = &mut self.session;
        match order {
            Input::PlaceFound(lane) => session.handle_place(now, lane),
            Input::LaneReplaceable(lane) => session.handle_replaceable(lane),
            Input::Unwritten(turn, waiting, total) => session.handle_unwritten(turn, waiting, total),
            Input::Flow(flow) => session.handle_flow(now, flow),
            Input::Drain(within) => session.drain(now, within, CloseReason::Shutdown),
            Input::Close(within) => session.drain(now, within, CloseReason::Operator),
            Input::TurnJudged(pause, probability) => session.handle_verdict(now, pause, probability),
            Input::WorkerFound(pause) => session.handle_free_worker(now, pause),
            Input::Rollover => session.request_rollover(now),
            Input::ToolServers(servers) => session.set_tool_servers(now, servers),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }

    fn pop_action(&mut self) -> Option<Action> {
        self.session.pop_action()
    }

    fn to_output(&mut self, now: Instant, action: Action, outputs: &mut Outputs) -> Option<Output> {
        Some(match action {
            // Encodes on the way out, so that waiting audio is not yet base64.
            Action::ToClient(event) if outputs.is_client_open => {
                if self.records_events && is_recorded(&event) {
                    let item = RecordedItem::Event(event.clone());
                    outputs.ready.push_back(Output::Record(Box::new(item)));
                }
                self.send_event(now, event, outputs);
                return None;
            }
            Action::CloseClient(reason) if std::mem::take(&mut outputs.is_client_open) => {
                Output::ToClient(self.codec.close_frame(reason), None)
            }
            Action::DropTurn(turn, audio_bytes) if outputs.is_client_open => {
                // The notice of the end follows in the same poll.
                let (stage, after) = (BargeInStage::ClientNotified, now - outputs.last_input_at);
                outputs.ready.push_back(measurement_output(Measurement::BargeIn { stage, after }));
                Output::DropTurn { turn, audio_bytes }
            }
            Action::JudgeTurn(pause, audio) => Output::JudgeTurn(pause, audio),
            Action::WithdrawJudgement => Output::WithdrawJudgement,
            Action::CallTool(call) => {
                if let Some(tap) = &mut self.tap {
                    tap.tool_called(now, &call);
                }
                Output::CallTool(call)
            }
            Action::Record(item) => Output::Record(item),
            Action::FindWorker(pause, lane) => Output::FindWorker(pause, lane),
            Action::Observe(
                Observation::NoEffect(note) | Observation::Note(note) | Observation::Unsupported(note),
            ) if !super::mark_noted(&mut self.noted_no_effect, &note) => return None,
            Action::Observe(observation) => Output::Observe(observation),
            _ => return None,
        })
    }

    fn push_idle_event(&mut self, now: Instant, outputs: &mut Outputs) {
        if self.still_here_at(outputs).is_some_and(|at| at <= now) {
            self.last_message_at = now;
            self.send_event(now, ClientEvent::StillHere, outputs);
        }
    }

    fn next_timeout(&self, outputs: &Outputs) -> Option<Instant> {
        let deadlines = [self.session.next_timeout(), self.still_here_at(outputs)];
        deadlines.into_iter().flatten().min()
    }

    fn is_finished(&self) -> bool {
        self.session.is_finished()
    }
}

const fn measurement_output(measurement: Measurement) -> Output {
    Output::Observe(Observation::Measured(measurement))
}
