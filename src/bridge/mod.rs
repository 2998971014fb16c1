//! One session, sans-IO: codec + session + dialect behind two methods.
//!
//! To change here: a new kind of input or output. Not here: a new client event or verb, which belongs to the codec
//! and to [`crate::session`].
//!
//! The contract: give [`Bridge::handle_input`] one input, then drain [`Bridge::poll_output`] until it says
//! [`Output::Wait`] or [`Output::Finished`]. It cannot fail: what goes wrong becomes outputs. The driver decides nothing;
//! it moves frames, dials lanes and waits. An audio frame's way up: [`Codec::decode`] → the speech input → an
//! utterance → [`LaneCodec::encode`]; its way down: [`LaneCodec::decode`] → the floor → [`Codec::encode`].
//!
//! The bridge serves a session of either kind. `served` has utterances, texts and conversations. `relay` passes messages
//! between a client of the model's own protocol and one upstream session.
//!
//! [`Codec::decode`]: crate::client::Codec::decode
//! [`Codec::encode`]: crate::client::Codec::encode
//! [`LaneCodec::decode`]: crate::upstream::lane::LaneCodec::decode
//! [`LaneCodec::encode`]: crate::upstream::lane::LaneCodec::encode

mod event_tap;
mod exchange;
mod relay;
mod served;
mod session;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

pub use self::{
    event_tap::EventTap,
    exchange::{EndlessOutputs, Input, Output},
};
use self::{
    exchange::{OUTPUTS_MAX, Outputs},
    relay::Relay,
    served::ServedSession,
    session::{BridgedSession, LaneMessage},
};
use crate::{
    client::{Codec, ConnectQuery},
    error::Error,
    session::{
        AudioTotals, Observation, RecordOptions, RelaySetup, SampleCounts, SessionReport, SessionSetup,
        UplinkCounts,
        outbox::{Action, lane_outbox::LaneAction},
    },
    spelling::{ClientMapping, upstream::Dialects},
    upstream::lane::{CodecAction, LaneCodecs, LaneEnd, LaneOpening},
    vocabulary::{
        ClientEvent, ClientRequest, Frame, Lane, LaneEvent, Message, MessageMeta, VoiceSample,
        relay::RelayEndReason,
    },
};

/// One session's bridge.
#[derive(Debug)]
pub struct Bridge {
    /// `None` for a connection that cannot be served.
    session: Option<Box<dyn BridgedSession>>,
    lanes: LaneCodecs,
    outputs: Outputs,
}

impl Bridge {
    /// Opens a session for an accepted connection.
    #[must_use]
    pub fn open(
        now: Instant,
        codec: Codec,
        connect: ConnectQuery,
        dialects: impl Into<Dialects>,
        setup: SessionSetup,
    ) -> Self {
        let is_fatal = |problem: &&Error| codec.error_close_frame(problem).is_some();
        if let Some(problem) = connect.problems.iter().find(is_fatal).cloned() {
            return Self::reject(now, codec, dialects, &problem);
        }
        Self::new(now, Some(Box::new(ServedSession::open(now, codec, connect, setup))), dialects.into())
    }

    /// Opens a relayed session. The first message chooses among `candidates`: the first protocol that has this command, or
    /// else the first candidate. Each candidate reads its mode from the query string. Candidates without a relay or without
    /// this mode are ignored.
    #[must_use]
    pub fn open_relay(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialects: impl Into<Dialects>,
        setup: RelaySetup,
    ) -> Self {
        let dialects = dialects.into();
        let relay = Relay::open(now, candidates, query, &dialects, &setup);
        Self::new(now, relay.map(|relay| Box::new(relay) as _), dialects)
    }

    /// Sets the voice of a relayed session whose client names none, for upstreams that get the commands of a conversation.
    #[must_use]
    pub fn with_default_voice(mut self, voice: VoiceSample) -> Self {
        if let Some(session) = &mut self.session {
            session.set_default_voice(voice);
        }
        self
    }

    /// Answers a connection that cannot be served: sends the error, then the protocol's close frame for it.
    #[must_use]
    pub fn reject(now: Instant, mut codec: Codec, dialects: impl Into<Dialects>, error: &Error) -> Self {
        let mut bridge = Self::new(now, None, dialects.into());
        let ready = &mut bridge.outputs.ready;
        ready.push_back(Output::Observe(Observation::ErrorTold(error.clone())));
        codec.encode(&ClientEvent::Error(error.clone()), 0.0, |message, turn| {
            ready.push_back(Output::ToClient(message, turn));
        });
        let close = codec.error_close_frame(error).unwrap_or(Message::Close(1008, String::new()));
        ready.push_back(Output::ToClient(close, None));
        bridge
    }

    fn new(now: Instant, session: Option<Box<dyn BridgedSession>>, dialects: Dialects) -> Self {
        let is_client_open = session.is_some();
        let outputs = Outputs { ready: VecDeque::new(), is_client_open, last_input_at: now };
        Self { session, lanes: LaneCodecs::new(dialects), outputs }
    }

    /// Gives the client events in place of messages: it is a part of the same program, which calls [`Bridge::handle_request`]. Its
    /// protocol still says which events and requests there are, and how a trace spells them. Relayed sessions have messages only.
    #[must_use]
    pub fn give_events(mut self) -> Self {
        if let Some(session) = &mut self.session {
            session.give_events();
        }
        self
    }

    /// Gives the driver what is recorded, as [`Output::Record`]. A relayed session decodes no audio and records nothing.
    #[must_use]
    pub fn record(mut self, options: RecordOptions) -> Self {
        if let Some(session) = &mut self.session {
            session.record(options);
        }
        self
    }

    /// Shows this tap the requests and events of the session. Those of relayed sessions are not decoded, so it sees none of them.
    #[must_use]
    pub fn tap_events(mut self, tap: Box<dyn EventTap>) -> Self {
        if let Some(session) = &mut self.session {
            session.tap_events(tap);
        }
        self
    }

    /// The session's id; empty for a rejected connection.
    #[must_use]
    pub fn session_id(&self) -> &str {
        self.session.as_ref().map_or("", |session| session.id())
    }

    /// Counts of the client's samples by destination, and the sample groups dropped as too far ahead of the clock.
    #[must_use]
    pub fn sample_counts(&self) -> (SampleCounts, u64) {
        self.session.as_ref().map_or_else(Default::default, |session| session.sample_counts())
    }

    /// Name of the dialect that lanes have, unless [`Input::LaneDialect`] names another.
    #[must_use]
    pub fn dialect(&self) -> &str {
        self.lanes.dialect()
    }

    /// True if the lane is not over. A lane may outlast its transport.
    #[must_use]
    pub fn has_lane(&self, lane: Lane) -> bool {
        self.lanes.contains(lane)
    }

    /// True for a lane that the driver must not read for now, after the last [`Input::Flow`].
    #[must_use]
    pub fn is_lane_held(&self, lane: Lane) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_lane_held(lane))
    }

    /// True for a session with a conversation. Only a conversation can be rolled over.
    #[must_use]
    pub fn has_conversation(&self) -> bool {
        self.uplink_counts().is_some()
    }

    /// Counts of the conversation's samples by destination; `None` without a conversation.
    #[must_use]
    pub fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.session.as_ref().and_then(|session| session.uplink_counts())
    }

    /// Durations of the client's audio by destination so far; `None` for a relayed session.
    #[must_use]
    pub fn audio_totals(&self) -> Option<AudioTotals> {
        self.session.as_ref().and_then(|session| session.audio_totals())
    }

    /// The session's state, and what the driver takes into account. Valid until the next input.
    #[must_use]
    pub fn report(&self, now: Instant) -> SessionReport {
        self.session.as_ref().map_or_else(SessionReport::ended, |session| session.report(now))
    }

    /// Takes one input; drain [`Bridge::poll_output`] before the next.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        let Self { session: Some(session), lanes, outputs } = self else { return };
        outputs.last_input_at = now;
        match input {
            Input::Client(_) if !outputs.is_client_open => {}
            Input::Client(frame) => session.handle_client_frame(now, frame, outputs),
            Input::ClientClosed => {
                outputs.is_client_open = false;
                session.handle_client_gone(now);
            }
            Input::LaneDialect(lane, name) => lanes.set_dialect(lane, name),
            Input::LaneQueued(lane, position) => {
                session.handle_lane_opened(now, lane);
                let event =
                    LaneEvent::Queued { position: Some(position), length: None, wait_s: None, ticket: None };
                session.handle_lane_event(now, lane, LaneMessage::unsaid(&event));
            }
            Input::LaneOpened(lane) => self.handle_lane_opened(now, lane),
            Input::Lane(lane, frame) => self.handle_lane_frame(now, lane, frame),
            Input::Answer(lane, part) => {
                if let Some(codec) = lanes.get_mut(lane) {
                    codec.handle_answer(part, |event, meta| {
                        session.handle_lane_event(now, lane, LaneMessage { event: &event, meta, text: "" });
                    });
                }
            }
            Input::LaneClosed(lane, reason) => {
                if let LaneEnd::Over(end) = lanes.handle_end(now, lane, &reason) {
                    if let Some(end) = end {
                        let end_reason = Some(RelayEndReason::Failed);
                        let meta = MessageMeta { end_reason, ..MessageMeta::default() };
                        let event = &LaneEvent::Closed(end);
                        session.handle_lane_event(now, lane, LaneMessage { event, meta, text: "" });
                    }
                    session.handle_lane_closed(now, lane, &reason);
                }
            }
            Input::Timeout => {
                lanes.handle_timeout(now);
                session.handle_timeout(now);
            }
            Input::ToolResult(..) | Input::ToolList(..) => session.handle_tools(now, input, outputs),
            order => session.handle_order(now, order),
        }
        self.follow_codecs(now);
    }

    /// A lane's transport is up.
    fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        let (Some(session), Some(codec)) = (&mut self.session, self.lanes.get_mut(lane)) else { return };
        session.set_lane_dialect(now, lane, codec.mapping());
        let opening = codec.handle_opened(now);
        if opening != LaneOpening::Resumed {
            session.handle_lane_opened(now, lane);
        }
        if opening == LaneOpening::Granted {
            session.handle_lane_event(now, lane, LaneMessage::unsaid(&LaneEvent::Granted));
        }
    }

    /// Handles a frame of an upstream.
    fn handle_lane_frame(&mut self, now: Instant, lane: Lane, frame: Frame<'_>) {
        let (Some(session), Some(codec)) = (&mut self.session, self.lanes.get_mut(lane)) else { return };
        let text = if let Frame::Text(text) = frame { text } else { "" };
        let takes_as_sent = session.takes_as_sent(codec.mapping());
        let handle = |event: LaneEvent<'_>, meta: MessageMeta<'_>| {
            session.handle_lane_event(now, lane, LaneMessage { event: &event, meta, text });
        };
        match takes_as_sent {
            true => codec.decode_as_sent(frame, handle),
            false => codec.decode(now, frame, handle),
        }
    }

    /// Does what the lanes' codecs want by themselves.
    fn follow_codecs(&mut self, now: Instant) {
        let Self { session: Some(session), lanes, outputs } = self else { return };
        while let Some((lane, (mode, purpose), action)) = lanes.pop_action() {
            match action {
                CodecAction::Send(message) => outputs.ready.push_back(Output::ToLane(lane, message)),
                CodecAction::Request(request) => outputs.ready.push_back(Output::Request(lane, request)),
                CodecAction::Event(event) => {
                    session.handle_lane_event(now, lane, LaneMessage::unsaid(&event));
                }
                CodecAction::Redial => outputs.ready.push_back(Output::ReopenLane(lane, mode, purpose)),
                CodecAction::End(reason) => {
                    lanes.close(lane);
                    outputs.ready.push_back(Output::CloseLane(lane));
                    session.handle_lane_closed(now, lane, &reason);
                }
            }
        }
    }

    /// Takes a request of a client that needs no codec; drain [`Bridge::poll_output`] before the next input. A request that breaks a
    /// limit of the protocol is answered by an error. Relayed sessions ignore requests.
    pub fn handle_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        let Self { session: Some(session), outputs, .. } = self else { return };
        outputs.last_input_at = now;
        if outputs.is_client_open {
            session.handle_client_request(now, request);
        }
        self.follow_codecs(now);
    }

    /// The message that asks for the same in the client's protocol, for traces and taps. `None` for audio, and for a request that the
    /// protocol does not have.
    #[must_use]
    pub fn spell_request(&self, request: &ClientRequest<'_>) -> Option<String> {
        self.session.as_ref().and_then(|session| session.spell_request(request))
    }

    /// The messages of an event in the client's protocol, for traces and taps. Call it once for each [`Output::Event`].
    #[must_use]
    pub fn spell_event(&mut self, now: Instant, event: &ClientEvent) -> Vec<Message> {
        self.session.as_mut().map_or_else(Vec::new, |session| session.spell_event(now, event))
    }

    /// Takes one input and appends all its outputs; the last one is [`Output::Wait`] or [`Output::Finished`]. Without an input
    /// it appends the outputs that are ready, as after the opening. For drivers in virtual time, in which no time passes
    /// between the outputs of an input.
    ///
    /// # Errors
    /// If the bridge gives more than 20 000 outputs without waiting: it is in an endless loop.
    pub fn step(
        &mut self,
        now: Instant,
        input: Option<Input<'_>>,
        outputs: &mut Vec<Output>,
    ) -> Result<(), EndlessOutputs> {
        if let Some(input) = input {
            self.handle_input(now, input);
        }
        for _ in 0..OUTPUTS_MAX {
            let output = self.poll_output(now);
            let is_last = matches!(output, Output::Wait(_) | Output::Finished);
            outputs.push(output);
            if is_last {
                return Ok(());
            }
        }
        Err(EndlessOutputs)
    }

    /// Gives the next output.
    pub fn poll_output(&mut self, now: Instant) -> Output {
        loop {
            if let Some(output) = self.outputs.ready.pop_front() {
                return output;
            }
            let Some(session) = &mut self.session else { return Output::Finished };
            let output = match session.pop_action() {
                Some(Action::Lane(action)) => {
                    self.push_lane_outputs(now, action);
                    None
                }
                Some(action) => session.to_output(now, action, &mut self.outputs),
                None => {
                    session.push_idle_event(now, &mut self.outputs);
                    Some(self.outputs.ready.pop_front().unwrap_or_else(|| self.wait()))
                }
            };
            if let Some(output) = output {
                return output;
            }
        }
    }

    /// Queues what an action on a lane gives the driver to do: a request may take several messages.
    fn push_lane_outputs(&mut self, now: Instant, action: LaneAction) {
        let Self { session, lanes, outputs: Outputs { ready, .. } } = self;
        match action {
            LaneAction::Open(lane, mode, purpose) => {
                lanes.open(lane, mode, purpose);
                ready.push_back(Output::OpenLane(lane, mode, purpose));
            }
            LaneAction::Send(lane, request) => {
                if let Some(session) = session {
                    session.note_lane_request(now, lane, &request);
                }
                if let Some(codec) = lanes.get_mut(lane) {
                    codec.encode(now, request, |message| ready.push_back(Output::ToLane(lane, message)));
                }
            }
            LaneAction::Drop(lane) => {
                lanes.close(lane);
                ready.push_back(Output::CloseLane(lane));
            }
            LaneAction::Observe(observation) => ready.push_back(Output::Observe(observation)),
        }
        self.follow_codecs(now);
    }

    /// The output after which there is nothing to do for now.
    fn wait(&mut self) -> Output {
        if self.outputs.ready.capacity() > 0 {
            // Most of the time there is nothing to do, and an output is large.
            self.outputs.ready = VecDeque::new();
        }
        match &self.session {
            Some(session) if !session.is_finished() => {
                let deadlines = [session.next_timeout(&self.outputs), self.lanes.deadline()];
                Output::Wait(deadlines.into_iter().flatten().min())
            }
            _ => Output::Finished,
        }
    }
}

/// Marks a note as reported; true the first time.
fn mark_noted(noted: &mut BTreeSet<String>, note: &str) -> bool {
    // Bounds the memory for clients that name a new voice in every request.
    const MAX_NOTED: usize = 64;
    !noted.contains(note) && noted.len() < MAX_NOTED && noted.insert(note.to_owned())
}
