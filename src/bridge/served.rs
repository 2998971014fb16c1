//! The bridge of a session that voxbridge leads itself: a codec, the session, a dialect.

use std::{collections::BTreeSet, collections::VecDeque, sync::Arc, time::Instant};

use super::{Input, Output};
use crate::{
    downstream::{Codec, Connect, Ignored},
    error::Error,
    event::{ClientCommand, CloseName, Message},
    mapping::UpstreamMapping,
    session::{
        Account, Figure, Lull, Observation, Reason, Session, Setup, Stage, State, Streamed, Tally,
        outbox::Action,
    },
    upstream::Dialect,
};

/// One session's codec, state and dialect.
#[derive(Debug)]
pub(super) struct Served {
    codec: Codec,
    dialect: Dialect,
    /// `None` for a connection that was refused.
    session: Option<Session>,
    opened_at: Instant,
    /// When the last input came.
    input_at: Instant,
    ready: VecDeque<Output>,
    client_open: bool,
    /// What operators were told that it has no effect, once each.
    noted: BTreeSet<String>,
}

impl Served {
    /// Opens a session for a connection that was accepted.
    pub(super) fn open(
        now: Instant,
        mut codec: Codec,
        connect: Connect,
        dialect: Arc<UpstreamMapping>,
        setup: Setup,
    ) -> Self {
        let fatal = |problem: &&Error| codec.close_after(problem).is_some();
        if let Some(problem) = connect.problems.iter().find(fatal) {
            let problem = problem.clone();
            return Self::refuse(now, codec, dialect, &problem);
        }
        let model = connect.model.unwrap_or_default();
        let mut session = Session::open(now, setup, model.clone(), connect.settings);
        codec.name(session.id(), &model);
        connect.problems.into_iter().for_each(|problem| session.refuse(problem));
        let mut served = Self::new(now, codec, dialect, Some(session));
        served.note_ignored();
        served
    }

    /// Answers a connection that cannot be served: the error, then the close frame the protocol has for it.
    pub(super) fn refuse(now: Instant, codec: Codec, dialect: Arc<UpstreamMapping>, error: &Error) -> Self {
        let mut served = Self::new(now, codec, dialect, None);
        let told = served.codec.encode(ClientCommand::Error(error.clone()), 0.0);
        served.ready.push_back(Output::Observe(Observation::ErrorTold(error.clone())));
        served.ready.extend(told.map(Output::ToClient));
        let close = served.codec.close_after(error).unwrap_or(Message::Close(1008, String::new()));
        served.ready.push_back(Output::ToClient(close));
        served
    }

    fn new(now: Instant, codec: Codec, dialect: Arc<UpstreamMapping>, session: Option<Session>) -> Self {
        Self {
            codec,
            dialect: Dialect::new(dialect),
            client_open: session.is_some(),
            session,
            opened_at: now,
            input_at: now,
            ready: VecDeque::new(),
            noted: BTreeSet::new(),
        }
    }

    /// The session's id; empty for a connection that was refused.
    pub(super) fn session_id(&self) -> &str {
        self.session.as_ref().map_or("", Session::id)
    }

    /// Where every audio sample went, and how many sample groups were dropped as too far ahead of the clock.
    pub(super) fn account(&self) -> (Account, u64) {
        self.session.as_ref().map_or_else(Default::default, Session::account)
    }

    /// Where the audio of a conversation went; none in a session without one.
    pub(super) fn streamed(&self) -> Option<Streamed> {
        self.session.as_ref().and_then(Session::streamed)
    }

    /// Where the session is.
    pub(super) fn state(&self) -> State {
        self.session.as_ref().map_or(State::Ending, Session::state)
    }

    /// Where the audio went so far.
    pub(super) fn tally(&self) -> Option<Tally> {
        self.session.as_ref().map(Session::tally)
    }

    /// Whether audio leaves for the client as it is heard. Then the session itself bounds what waits, and an upstream need
    /// not be made to wait for a slow client.
    pub(super) fn paces(&self) -> bool {
        self.session.as_ref().is_some_and(Session::paces)
    }

    /// Whether the client is to be read no further for now. What it sends all the same is taken.
    pub(super) fn holds_back(&self) -> bool {
        self.session.as_ref().is_some_and(Session::holds_back)
    }

    /// How long the client may be left unread; none if every message is to be read at once.
    pub(super) fn lull(&self, now: Instant) -> Option<Lull> {
        let lull = self.session.as_ref()?.lull(now)?;
        Some(Lull { frame_max_bytes: self.codec.frame_max_bytes(), ..lull })
    }

    /// Takes one input; drain [`Served::poll_output`] before the next.
    pub(super) fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        self.input_at = now;
        let Some(session) = &mut self.session else { return };
        match input {
            Input::Client(_) if !self.client_open => {}
            Input::Client(frame) => {
                match self.codec.decode(frame) {
                    Ok(event) => session.client(now, event),
                    Err(error) => session.refuse(error),
                }
                self.note_ignored();
            }
            Input::ClientClosed => {
                self.client_open = false;
                session.client_gone(now);
            }
            Input::LaneOpened(lane) => session.lane_opened(now, lane),
            Input::Lane(lane, frame) => {
                self.dialect.decode(frame, |event, mark| session.lane_event(now, lane, &event, mark));
            }
            Input::LaneClosed(lane, why) => session.lane_closed(now, lane, &why),
            Input::Timeout => session.timeout(now),
            Input::Drain(within) => session.drain(now, within, CloseName::Shutdown),
            Input::Close(within) => session.drain(now, within, CloseName::Operator),
            Input::Rollover => session.roll_over(now),
        }
    }

    /// The next thing to do.
    pub(super) fn poll_output(&mut self, now: Instant) -> Output {
        if let Some(output) = self.ready.pop_front() {
            return output;
        }
        let Some(session) = &mut self.session else { return Output::Finished };
        while let Some(action) = session.pop_action() {
            match action {
                // Encoded when it is taken out: audio that waits is not yet base64.
                Action::Client(command) if self.client_open => {
                    let at_s = (now - self.opened_at).as_secs_f64();
                    // An error that the protocol ends a connection with is its last word.
                    if let ClientCommand::Error(error) = &command
                        && let Some(close) = self.codec.close_after(error)
                    {
                        self.client_open = false;
                        self.ready.push_back(measured(Figure::Ending(Reason::ClientError)));
                        session.client_gone(now);
                        self.ready.extend(self.codec.encode(command, at_s).map(Output::ToClient));
                        self.ready.push_back(Output::ToClient(close));
                        return self.poll_output(now);
                    }
                    if matches!(command, ClientCommand::SpeakingEnded { cancelled: true, .. }) {
                        let (stage, after) = (Stage::Told, now - self.input_at);
                        self.ready.push_back(measured(Figure::BargeIn { stage, after }));
                    }
                    if let Some(message) = self.codec.encode(command, at_s) {
                        return Output::ToClient(message);
                    }
                }
                Action::EndClient(why) if std::mem::take(&mut self.client_open) => {
                    return Output::ToClient(self.codec.close(why));
                }
                Action::DropAudio(bytes) if self.client_open => return Output::DropAudio(bytes),
                Action::Tell(message) if self.client_open => return Output::ToClient(message),
                Action::Client(_) | Action::Tell(_) | Action::EndClient(_) | Action::DropAudio(_) => {}
                Action::OpenLane(lane, mode) => return Output::OpenLane(lane, mode),
                Action::ToLane(lane, command) => {
                    return Output::ToLane(lane, Message::Text(self.dialect.encode(&command)));
                }
                Action::DropLane(lane) => return Output::CloseLane(lane),
                Action::Observe(Observation::NoEffect(words)) if super::is_noted(&mut self.noted, &words) => {
                }
                Action::Observe(observation) => return Output::Observe(observation),
            }
        }
        if session.is_finished() { Output::Finished } else { Output::Wait(session.next_timeout(now)) }
    }

    /// Hands on what the codec accepted without effect.
    fn note_ignored(&mut self) {
        let Some(session) = &mut self.session else { return };
        for Ignored { command, field, because } in self.codec.take_ignored() {
            session.observe(Observation::NoEffect(format!("{command}.{field}: {because}")));
        }
    }
}

const fn measured(figure: Figure) -> Output {
    Output::Observe(Observation::Measured(figure))
}
