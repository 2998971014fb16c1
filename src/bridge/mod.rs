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
//! There are two kinds. `served` runs a session: utterances, texts, conversations. `relayed` passes messages between a client
//! of the model's own protocol and one upstream session.
//!
//! [`Codec::decode`]: crate::client::Codec::decode
//! [`Codec::encode`]: crate::client::Codec::encode
//! [`LaneCodec::decode`]: crate::upstream::lane::LaneCodec::decode
//! [`LaneCodec::encode`]: crate::upstream::lane::LaneCodec::encode

mod relay;
mod relayed;
mod served;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use self::{relayed::RelayBridge, served::ServedBridge};
use crate::{
    client::{Codec, ConnectQuery},
    error::Error,
    session::{
        AudioTotals, Observation, RelaySetup, SampleCounts, SessionReport, SessionSetup, UplinkCounts,
        outbox::Action,
    },
    spelling::{ClientMapping, upstream::Dialects},
    upstream::lane::{CodecAction, LaneCodecs},
    vocabulary::{
        AnswerPart, ClientEvent, ClientRequest, DisconnectReason, FlowControl, Frame, HttpRequest, Lane,
        LaneEvent, LanePurpose, Message, Mode, PauseId, SpeechId, VoiceSample,
    },
};

/// An input of a session: a frame, a change of a connection, an order, or the passing of time.
#[derive(Debug)]
pub enum Input<'a> {
    /// A frame from the client.
    Client(Frame<'a>),
    /// The client's transport is gone.
    ClientClosed,
    /// A lane waits at this position for a place at an upstream that has no queue of its own.
    LaneQueued(Lane, u32),
    /// A lane waits in its upstream's queue, and another upstream has room. The next [`Output::OpenLane`] goes there. Ignored if
    /// the session no longer needs the lane.
    PlaceFound(Lane),
    /// A lane goes to an upstream of this dialect, and not of the first of its session's. Comes before it opens.
    LaneDialect(Lane, &'a str),
    /// If the lane's upstream refuses every request because of its configuration, another upstream may serve them. Comes before
    /// the lane opens.
    LaneReplaceable(Lane),
    /// A lane's transport is up.
    LaneOpened(Lane),
    /// A frame from an upstream: a message, or a piece of the answer to an HTTP request.
    Lane(Lane, Frame<'a>),
    /// The beginning or the end of the answer to an HTTP request.
    Answer(Lane, AnswerPart),
    /// A lane's transport is gone, or never came up.
    LaneClosed(Lane, DisconnectReason),
    /// The driver's flow control has changed.
    Flow(FlowControl),
    /// Of the messages with this tag, so many bytes wait to be written to the client, of so many in all.
    Unwritten(SpeechId, u64, u64),
    /// The instant of the last [`Output::Wait`] has come.
    Timeout,
    /// voxbridge stops: finishes running utterances and turns within this time, and begins nothing new.
    Drain(Duration),
    /// An operator ends this session: finishes as for [`Input::Drain`].
    Close(Duration),
    /// The verdict on a pause in the user's speech: the probability that the user has finished, or `None` if the model is too
    /// busy or has failed.
    TurnJudged(PauseId, Option<f32>),
    /// The answer to [`Output::FindWorker`]: the lane may be used in this pause.
    WorkerFound(PauseId),
    /// An operator replaces the conversation's upstream session at the next quiet moment. Ignored without a conversation.
    Rollover,
}

/// An output of a session: one thing for the driver to do.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Send this to the client; nothing follows a close frame. Audio is tagged with its text or turn.
    ToClient(Message, Option<SpeechId>),
    /// Give this to a client that takes events ([`Bridge::give_events`]). [`Bridge::spell_event`] has its messages for a trace.
    Event(ClientEvent),
    /// Discard what is still queued for the client with this tag.
    DropTurn {
        /// The cancelled text or turn.
        turn: SpeechId,
        /// Bytes of its audio that were given out, before base64: for the trace.
        audio_bytes: u64,
    },
    /// Connect to an upstream that serves this purpose, in this mode.
    OpenLane(Lane, Mode, LanePurpose),
    /// Connect a lane whose transport is gone to the same upstream again.
    ReopenLane(Lane, Mode, LanePurpose),
    /// Send this to an upstream.
    ToLane(Lane, Message),
    /// Send this request to an upstream that is reached by HTTP. It takes the place of a request that is not answered.
    Request(Lane, HttpRequest),
    /// Close the transport. Frames of this lane are no longer expected.
    CloseLane(Lane),
    /// Judge whether the user has finished, from the newest 8 s of this audio, int16 mono at 16 kHz, which ends in the pause.
    /// [`Input::TurnJudged`] is the answer. Another pause makes the question obsolete.
    JudgeTurn(PauseId, Arc<Vec<i16>>),
    /// Withdraw the last [`Output::JudgeTurn`]: nothing waits for the verdict.
    WithdrawJudgement,
    /// Answer with [`Input::WorkerFound`] if no one waits for the worker of this lane, and an upstream has a free worker for
    /// another answer.
    FindWorker(PauseId, Lane),
    /// For the log and the metrics.
    Observe(Observation),
    /// No more output. Call again after the next input or at this instant.
    Wait(Option<Instant>),
    /// The session is over and every lane is gone.
    Finished,
}

/// Outputs of one input above which the bridge is in an endless loop. The longest burst makes far fewer.
const OUTPUTS_MAX: usize = 20_000;

/// The bridge gives outputs without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session produces outputs without end")]
pub struct EndlessOutputs;

/// Queues what an action about a lane gives the driver to do: a command may take several messages.
fn push_lane_output(now: Instant, lanes: &mut LaneCodecs, action: Action, ready: &mut VecDeque<Output>) {
    match action {
        Action::OpenLane(lane, mode, purpose) => {
            lanes.open(lane, mode, purpose);
            ready.push_back(Output::OpenLane(lane, mode, purpose));
        }
        Action::ToLane(lane, command) => {
            if let Some(codec) = lanes.get_mut(lane) {
                codec.encode(now, command, |message| ready.push_back(Output::ToLane(lane, message)));
            }
        }
        Action::DropLane(lane) => {
            lanes.close(lane);
            ready.push_back(Output::CloseLane(lane));
        }
        _ => {}
    }
}

/// A report of a lane's codec by itself.
enum CodecReport {
    /// An event that no message of the upstream stands for.
    Event(LaneEvent<'static>),
    /// The lane is given up, for this reason.
    GivenUp(DisconnectReason),
}

/// Queues what the lanes' codecs do by themselves, and passes on what they report.
fn push_codec_outputs(
    lanes: &mut LaneCodecs,
    ready: &mut VecDeque<Output>,
    mut report: impl FnMut(Lane, CodecReport),
) {
    while let Some((lane, (mode, purpose), action)) = lanes.pop_action() {
        match action {
            CodecAction::Send(message) => ready.push_back(Output::ToLane(lane, message)),
            CodecAction::Request(request) => ready.push_back(Output::Request(lane, request)),
            CodecAction::Event(event) => report(lane, CodecReport::Event(event)),
            CodecAction::Redial => ready.push_back(Output::ReopenLane(lane, mode, purpose)),
            CodecAction::End(reason) => {
                lanes.close(lane);
                ready.push_back(Output::CloseLane(lane));
                report(lane, CodecReport::GivenUp(reason));
            }
        }
    }
}

/// One session's bridge.
#[derive(Debug)]
pub struct Bridge(BridgeKind);

#[derive(Debug)]
enum BridgeKind {
    Served(Box<ServedBridge>),
    Relayed(Box<RelayBridge>),
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
        Self(BridgeKind::Served(Box::new(ServedBridge::open(now, codec, connect, dialects.into(), setup))))
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
        Self(BridgeKind::Relayed(Box::new(RelayBridge::open(now, candidates, query, dialects.into(), setup))))
    }

    /// Sets the voice of a relayed session whose client names none, for upstreams that get the commands of a conversation.
    #[must_use]
    pub fn with_default_voice(mut self, voice: VoiceSample) -> Self {
        if let BridgeKind::Relayed(relayed) = &mut self.0 {
            relayed.set_default_voice(voice);
        }
        self
    }

    /// Answers a connection that cannot be served: sends the error, then the protocol's close frame for it.
    #[must_use]
    pub fn reject(now: Instant, codec: Codec, dialects: impl Into<Dialects>, error: &Error) -> Self {
        Self(BridgeKind::Served(Box::new(ServedBridge::reject(now, codec, dialects.into(), error))))
    }

    /// Gives the client events in place of messages: it is a part of the same program, which calls [`Bridge::handle_request`]. Its
    /// protocol still says which events and requests there are, and how a trace spells them. Relayed sessions have messages only.
    #[must_use]
    pub fn give_events(mut self) -> Self {
        if let BridgeKind::Served(served) = &mut self.0 {
            served.give_events();
        }
        self
    }

    /// The session's id; empty for a rejected connection.
    #[must_use]
    pub fn session_id(&self) -> &str {
        match &self.0 {
            BridgeKind::Served(served) => served.session_id(),
            BridgeKind::Relayed(relayed) => relayed.session_id(),
        }
    }

    /// Counts of the client's samples by destination, and the sample groups dropped as too far ahead of the clock.
    #[must_use]
    pub fn sample_counts(&self) -> (SampleCounts, u64) {
        match &self.0 {
            BridgeKind::Served(served) => served.sample_counts(),
            BridgeKind::Relayed(_) => Default::default(),
        }
    }

    /// Name of the dialect that lanes have, unless [`Input::LaneDialect`] names another.
    #[must_use]
    pub fn dialect(&self) -> &str {
        match &self.0 {
            BridgeKind::Served(served) => served.dialect(),
            BridgeKind::Relayed(relayed) => relayed.dialect(),
        }
    }

    /// True if the lane is not over. A lane may outlast its transport.
    #[must_use]
    pub fn has_lane(&self, lane: Lane) -> bool {
        match &self.0 {
            BridgeKind::Served(served) => served.has_lane(lane),
            BridgeKind::Relayed(relayed) => relayed.has_lane(lane),
        }
    }

    /// True for a lane that the driver must not read for now, after the last [`Input::Flow`].
    #[must_use]
    pub fn is_lane_held(&self, lane: Lane) -> bool {
        match &self.0 {
            BridgeKind::Served(served) => served.is_lane_held(lane),
            BridgeKind::Relayed(relayed) => relayed.is_lane_held(lane),
        }
    }

    /// True for a session with a conversation. Only a conversation can be rolled over.
    #[must_use]
    pub fn has_conversation(&self) -> bool {
        self.uplink_counts().is_some()
    }

    /// Counts of the conversation's samples by destination; `None` without a conversation.
    #[must_use]
    pub fn uplink_counts(&self) -> Option<UplinkCounts> {
        match &self.0 {
            BridgeKind::Served(served) => served.uplink_counts(),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// Durations of the client's audio by destination so far; `None` for a relayed session.
    #[must_use]
    pub fn audio_totals(&self) -> Option<AudioTotals> {
        match &self.0 {
            BridgeKind::Served(served) => served.audio_totals(),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// The session's state, and what the driver takes into account. Valid until the next input.
    #[must_use]
    pub fn report(&self, now: Instant) -> SessionReport {
        match &self.0 {
            BridgeKind::Served(served) => served.report(now),
            BridgeKind::Relayed(relayed) => relayed.report(),
        }
    }

    /// Takes one input; drain [`Bridge::poll_output`] before the next.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match &mut self.0 {
            BridgeKind::Served(served) => served.handle_input(now, input),
            BridgeKind::Relayed(relayed) => relayed.handle_input(now, input),
        }
    }

    /// Takes a request of a client that needs no codec; drain [`Bridge::poll_output`] before the next input. A request that breaks a
    /// limit of the protocol is answered by an error. Relayed sessions ignore requests.
    pub fn handle_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        if let BridgeKind::Served(served) = &mut self.0 {
            served.handle_request(now, request);
        }
    }

    /// The message that asks for the same in the client's protocol, for traces and taps. `None` for audio, and for a request that the
    /// protocol does not have.
    #[must_use]
    pub fn spell_request(&self, request: &ClientRequest<'_>) -> Option<String> {
        match &self.0 {
            BridgeKind::Served(served) => served.spell_request(request),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// The messages of an event in the client's protocol, for traces and taps. Call it once for each [`Output::Event`].
    #[must_use]
    pub fn spell_event(&mut self, now: Instant, event: &ClientEvent) -> Vec<Message> {
        match &mut self.0 {
            BridgeKind::Served(served) => served.spell_event(now, event),
            BridgeKind::Relayed(_) => Vec::new(),
        }
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
        match &mut self.0 {
            BridgeKind::Served(served) => served.poll_output(now),
            BridgeKind::Relayed(relayed) => relayed.poll_output(now),
        }
    }
}

/// Marks a note as reported; true the first time.
fn mark_noted(noted: &mut BTreeSet<String>, note: &str) -> bool {
    // Bounds the memory for clients that name a new voice in every request.
    const MAX_NOTED: usize = 64;
    !noted.contains(note) && noted.len() < MAX_NOTED && noted.insert(note.to_owned())
}
