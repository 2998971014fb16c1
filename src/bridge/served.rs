//! The bridge of a served session: client codec, session and upstream dialect.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use super::{CodecReport, Input, Output};
use crate::{
    client::{Codec, ConnectQuery, IgnoredField},
    error::Error,
    session::{
        AudioTotals, BargeInStage, EndReason, Measurement, Observation, SampleCounts, Session, SessionReport,
        SessionSetup, UplinkCounts, outbox::Action,
    },
    spelling::upstream::Dialects,
    upstream::lane::{LaneCodecs, LaneEnd, LaneOpening},
    vocabulary::{
        ClientEvent, ClientRequest, CloseReason, Frame, Lane, LaneEvent, Message, MessageMeta, Mode,
    },
};

/// Codec, session and lane codecs of one client.
#[derive(Debug)]
pub(super) struct ServedBridge {
    codec: Codec,
    lanes: LaneCodecs,
    /// `None` for a rejected connection.
    session: Option<Session>,
    opened_at: Instant,
    /// Instant of the last input.
    last_input_at: Instant,
    /// Instant of the last message to the client.
    last_message_at: Instant,
    ready_outputs: VecDeque<Output>,
    is_client_open: bool,
    /// The client takes events, not their messages.
    takes_events: bool,
    /// Settings without effect that operators know about already.
    noted_no_effect: BTreeSet<String>,
}

impl ServedBridge {
    /// Opens a session for an accepted connection.
    pub(super) fn open(
        now: Instant,
        mut codec: Codec,
        connect: ConnectQuery,
        dialects: Dialects,
        setup: SessionSetup,
    ) -> Self {
        let is_fatal = |problem: &&Error| codec.error_close_frame(problem).is_some();
        if let Some(problem) = connect.problems.iter().find(is_fatal) {
            let problem = problem.clone();
            return Self::reject(now, codec, dialects, &problem);
        }
        if setup.profile.answers.is_none() {
            codec.set_full_duplex(setup.profile.mode == Mode::Video);
        }
        if !setup.profile.calls_tools() {
            codec.refuse_tools();
        }
        codec.set_transcribes(setup.can_transcribe || setup.profile.transcribes_user());
        codec.set_voices(setup.voice_catalog.voices_and_models().0.keys().map(String::as_str));
        let model = connect.model.unwrap_or_default();
        let seed = setup.seed;
        let mut session = setup.open(now, connect.settings);
        codec.set_session(session.id(), &model, seed);
        connect.problems.into_iter().for_each(|problem| session.report_error(problem));
        let mut served = Self::new(now, codec, dialects, Some(session));
        served.report_ignored_fields();
        served
    }

    /// Answers a connection that cannot be served: sends the error, then the protocol's close frame for it.
    pub(super) fn reject(now: Instant, codec: Codec, dialects: Dialects, error: &Error) -> Self {
        let mut served = Self::new(now, codec, dialects, None);
        served.ready_outputs.push_back(Output::Observe(Observation::ErrorTold(error.clone())));
        served.encode(ClientEvent::Error(error.clone()), 0.0);
        let close = served.codec.error_close_frame(error).unwrap_or(Message::Close(1008, String::new()));
        served.ready_outputs.push_back(Output::ToClient(close, None));
        served
    }

    fn new(now: Instant, codec: Codec, dialects: Dialects, session: Option<Session>) -> Self {
        Self {
            codec,
            lanes: LaneCodecs::new(dialects),
            is_client_open: session.is_some(),
            session,
            opened_at: now,
            last_input_at: now,
            last_message_at: now,
            ready_outputs: VecDeque::new(),
            takes_events: false,
            noted_no_effect: BTreeSet::new(),
        }
    }

    /// Gives the client events in place of messages.
    pub(super) const fn give_events(&mut self) {
        self.takes_events = true;
    }

    /// The session's id; empty for a rejected connection.
    pub(super) fn session_id(&self) -> &str {
        self.session.as_ref().map_or("", Session::id)
    }

    /// Counts of the client's samples by destination, and the sample groups dropped as too far ahead of the clock.
    pub(super) fn sample_counts(&self) -> (SampleCounts, u64) {
        self.session.as_ref().map_or_else(Default::default, Session::sample_counts)
    }

    /// Counts of the conversation's samples by destination; `None` without a conversation.
    pub(super) fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.session.as_ref().and_then(Session::uplink_counts)
    }

    /// Durations of the client's audio by destination so far.
    pub(super) fn audio_totals(&self) -> Option<AudioTotals> {
        self.session.as_ref().map(Session::audio_totals)
    }

    /// The session's state, and what the driver takes into account.
    pub(super) fn report(&self, now: Instant) -> SessionReport {
        let Some(session) = &self.session else { return SessionReport::ended() };
        let mut report = SessionReport::of(session, now);
        report.kept_bytes += self.codec.kept_bytes();
        // A frame with a header ends where its header says, and a command is a frame of its own.
        if self.codec.has_binary_commands()
            && let Some(window) = &mut report.read_window
        {
            window.frame_max_bytes = 0;
        }
        report
    }

    /// Takes one input; drain [`ServedBridge::poll_output`] before the next.
    pub(super) fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        self.last_input_at = now;
        let Some(session) = &mut self.session else { return };
        match input {
            Input::Client(_) if !self.is_client_open => {}
            Input::Client(frame) => {
                let has_fields = matches!(frame, Frame::Text(_)) || self.codec.has_binary_commands();
                let decoded = self.codec.decode(frame, |event| session.handle_client_request(now, event));
                if let Err(error) = decoded {
                    session.report_error(error);
                }
                if has_fields {
                    let replies = self.codec.take_replies();
                    self.ready_outputs.extend(replies.into_iter().map(|reply| Output::ToClient(reply, None)));
                    self.report_ignored_fields();
                }
            }
            Input::ClientClosed => {
                self.is_client_open = false;
                self.codec.forget();
                session.handle_client_gone(now);
            }
            Input::LaneQueued(lane, position) => {
                session.handle_lane_opened(now, lane);
                let event = LaneEvent::Queued { position: Some(position), length: None, wait_s: None };
                session.handle_lane_event(now, lane, &event, MessageMeta::default());
            }
            Input::PlaceFound(lane) => session.handle_place(now, lane),
            Input::LaneDialect(lane, name) => self.lanes.set_dialect(lane, name),
            Input::LaneReplaceable(lane) => session.handle_replaceable(lane),
            Input::LaneOpened(lane) => {
                let opening = self.lanes.get_mut(lane).map(|codec| codec.handle_opened(now));
                if opening != Some(LaneOpening::Resumed) {
                    session.handle_lane_opened(now, lane);
                }
                if opening == Some(LaneOpening::Granted) {
                    session.handle_lane_event(now, lane, &LaneEvent::Granted, MessageMeta::default());
                }
            }
            Input::Lane(lane, frame) => {
                if let Some(codec) = self.lanes.get_mut(lane) {
                    codec
                        .decode(now, frame, |event, meta| session.handle_lane_event(now, lane, &event, meta));
                }
            }
            Input::Answer(lane, part) => {
                if let Some(codec) = self.lanes.get_mut(lane) {
                    codec.handle_answer(part, |event, meta| {
                        session.handle_lane_event(now, lane, &event, meta);
                    });
                }
            }
            Input::LaneClosed(lane, reason) => {
                if let LaneEnd::Over(end) = self.lanes.handle_end(now, lane, &reason) {
                    if let Some(end) = end {
                        session.handle_lane_event(now, lane, &LaneEvent::Closed(end), MessageMeta::default());
                    }
                    session.handle_lane_closed(now, lane, &reason);
                }
            }
            Input::Unwritten(turn, waiting, total) => session.handle_unwritten(turn, (waiting, total)),
            Input::Flow(flow) => session.handle_flow(now, flow),
            Input::Timeout => {
                self.lanes.handle_timeout(now);
                session.handle_timeout(now);
            }
            Input::Drain(within) => session.drain(now, within, CloseReason::Shutdown),
            Input::Close(within) => session.drain(now, within, CloseReason::Operator),
            Input::TurnJudged(pause, probability) => session.handle_verdict(now, pause, probability),
            Input::WorkerFound(pause) => session.handle_free_worker(now, pause),
            Input::Rollover => session.request_rollover(now),
        }
        self.follow_codecs(now);
    }

    /// Takes a request of a client that needs no codec; drain [`ServedBridge::poll_output`] before the next input.
    pub(super) fn handle_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        self.last_input_at = now;
        let Some(session) = self.session.as_mut().filter(|_| self.is_client_open) else { return };
        match self.codec.check_request(&request) {
            Ok(()) => session.handle_client_request(now, request),
            Err(error) => session.report_error(error),
        }
        self.follow_codecs(now);
    }

    /// The message that asks for the same in the client's protocol.
    pub(super) fn spell_request(&self, request: &ClientRequest<'_>) -> Option<String> {
        self.codec.spell_request(request)
    }

    /// The messages of an event in the client's protocol.
    pub(super) fn spell_event(&mut self, now: Instant, event: &ClientEvent) -> Vec<Message> {
        let mut messages = Vec::new();
        let at_s = (now - self.opened_at).as_secs_f64();
        self.codec.encode(event, at_s, |message, _| messages.push(message));
        messages
    }

    /// Gives the next output.
    pub(super) fn poll_output(&mut self, now: Instant) -> Output {
        if let Some(output) = self.ready_outputs.pop_front() {
            return output;
        }
        while let Some(action) = self.session.as_mut().and_then(|session| session.tools.out.pop()) {
            match action {
                // Encodes on the way out, so that waiting audio is not yet base64.
                Action::ToClient(event) if self.is_client_open => {
                    self.send_event(now, event);
                    if let Some(output) = self.ready_outputs.pop_front() {
                        return output;
                    }
                }
                Action::CloseClient(reason) if std::mem::take(&mut self.is_client_open) => {
                    return Output::ToClient(self.codec.close_frame(reason), None);
                }
                Action::DropTurn(turn, audio_bytes) if self.is_client_open => {
                    // The notice of the end follows in the same poll.
                    let (stage, after) = (BargeInStage::ClientNotified, now - self.last_input_at);
                    self.ready_outputs.push_back(measurement_output(Measurement::BargeIn { stage, after }));
                    return Output::DropTurn { turn, audio_bytes };
                }
                Action::RawToClient(message) if self.is_client_open => {
                    return Output::ToClient(message, None);
                }
                Action::ToClient(_)
                | Action::RawToClient(_)
                | Action::CloseClient(_)
                | Action::DropTurn(..) => {}
                Action::OpenLane(..) | Action::ToLane(..) | Action::DropLane(_) => {
                    super::push_lane_output(now, &mut self.lanes, action, &mut self.ready_outputs);
                    self.follow_codecs(now);
                    if let Some(output) = self.ready_outputs.pop_front() {
                        return output;
                    }
                }
                Action::JudgeTurn(pause, audio) => return Output::JudgeTurn(pause, audio),
                Action::WithdrawJudgement => return Output::WithdrawJudgement,
                Action::FindWorker(pause, lane) => return Output::FindWorker(pause, lane),
                Action::Observe(
                    Observation::NoEffect(note) | Observation::Note(note) | Observation::Unsupported(note),
                ) if !super::mark_noted(&mut self.noted_no_effect, &note) => {}
                Action::Observe(observation) => return Output::Observe(observation),
            }
        }
        if self.still_here_at().is_some_and(|at| at <= now) {
            self.last_message_at = now;
            self.send_event(now, ClientEvent::StillHere);
            if let Some(output) = self.ready_outputs.pop_front() {
                return output;
            }
        }
        match &self.session {
            Some(session) if !session.is_finished() => {
                let deadlines = [session.tools.timers.next(), self.lanes.deadline(), self.still_here_at()];
                Output::Wait(deadlines.into_iter().flatten().min())
            }
            _ => Output::Finished,
        }
    }

    /// When the client gets a message although there is nothing to say.
    fn still_here_at(&self) -> Option<Instant> {
        let wait = Duration::from_millis(self.codec.mapping().idle_event_ms);
        Some(self.last_message_at + wait).filter(|_| !wait.is_zero() && self.is_client_open)
    }

    /// Does what the lanes' codecs want by themselves.
    fn follow_codecs(&mut self, now: Instant) {
        let Some(session) = &mut self.session else { return };
        super::push_codec_outputs(&mut self.lanes, &mut self.ready_outputs, |lane, report| match report {
            CodecReport::Event(event) => session.handle_lane_event(now, lane, &event, MessageMeta::default()),
            CodecReport::GivenUp(reason) => session.handle_lane_closed(now, lane, &reason),
        });
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
        self.session.as_ref().is_some_and(|session| session.tools.lanes.is_held(lane))
    }

    /// Queues an event for the client, and what follows from it.
    fn send_event(&mut self, now: Instant, event: ClientEvent) {
        let at_s = (now - self.opened_at).as_secs_f64();
        let queued = self.ready_outputs.len();
        let close =
            if let ClientEvent::Error(error) = &event { self.codec.error_close_frame(error) } else { None };
        if close.is_some() {
            // A fatal error of the protocol is the last event before the close frame.
            self.is_client_open = false;
            self.ready_outputs
                .push_back(measurement_output(Measurement::SessionEnding(EndReason::ClientError)));
            if let Some(session) = &mut self.session {
                session.handle_client_gone(now);
            }
        }
        self.encode(event, at_s);
        self.ready_outputs.extend(close.map(|close| Output::ToClient(close, None)));
        // Many protocols have no message for some events.
        if self.ready_outputs.len() > queued {
            self.last_message_at = now;
        }
    }

    /// Queues an event: itself, or its messages.
    fn encode(&mut self, event: ClientEvent, at_s: f64) {
        if self.takes_events {
            if self.codec.has_event(&event) {
                self.ready_outputs.push_back(Output::Event(event));
            }
            return;
        }
        self.codec.encode(&event, at_s, |message, turn| {
            self.ready_outputs.push_back(Output::ToClient(message, turn));
        });
    }

    /// Reports fields that the codec accepted without effect.
    fn report_ignored_fields(&mut self) {
        let Some(session) = &mut self.session else { return };
        for IgnoredField { command, field, because, is_needed } in self.codec.take_ignored_fields() {
            let words = format!("{command}.{field}: {because}");
            session.observe(match is_needed {
                true => Observation::Unsupported(words),
                false => Observation::NoEffect(words),
            });
        }
    }
}

const fn measurement_output(measurement: Measurement) -> Output {
    Output::Observe(Observation::Measured(measurement))
}
