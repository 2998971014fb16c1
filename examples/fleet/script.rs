//! A client's messages and their times: a conversation, or typed questions.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use voxbridge::{
    bridge::Bridge,
    client::Codec,
    session::{RelaySetup, SessionSetup},
};

use crate::{
    fleet::Protocols,
    options::{ClientKind, Options},
    session::Session,
};

/// Questions of a client.
pub(crate) const QUESTIONS: u32 = 8;
/// Mean pause between an answer and the next question, s.
pub(crate) const PAUSE_S: f64 = 15.0;

/// Wall clock of all sessions' starts, seconds since 1970.
const UNIX_S: f64 = 1_795_148_864.0;

const INIT: &str = r#"{"type":"session.init","payload":{"system_prompt":"You are a helpful assistant."}}"#;
const CLOSE: &str = r#"{"type":"session.close","reason":"user_stop"}"#;
const TEXT_ONLY: &str =
    r#"{"type":"session.update","session":{"type":"realtime","output_modalities":["text"]}}"#;
const QUESTION: &str = r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"What is a fleet?"}]}}"#;
const ASK: &str = r#"{"type":"response.create"}"#;

/// A client's part in its session. It outlives the session: another one continues it.
#[derive(Debug)]
pub(crate) struct Script {
    kind: ClientKind,
    rng: fastrand::Rng,
    /// Rest of the conversation, or of the questions.
    rest: Duration,
    questions: u32,
    /// Since when the client waits to be served; `None` while it is served, or thinks.
    pub(crate) waits_since: Option<Instant>,
    /// Its session was lost, and it waits for another one.
    pub(crate) is_interrupted: bool,
    served_since: Option<Instant>,
    /// When it acts next by itself.
    pub(crate) due: Option<Instant>,
    /// It has all it wanted.
    pub(crate) is_complete: bool,
}

/// Effect of a message on the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing.
    None,
    /// It is served now, after this wait.
    Served(Duration, WaitKind),
    /// voxbridge reported an error.
    Failed,
}

/// Service that a client waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// The begin of its conversation, or of an answer.
    First,
    /// Another session after it had lost one.
    Again,
}

impl Script {
    pub(crate) fn new(options: &Options, now: Instant, mut rng: fastrand::Rng) -> Self {
        let rest = Duration::from_secs_f64(options.conversation_s() * (1.0 / 3.0 + rng.f64() * 4.0 / 3.0));
        Self {
            kind: options.clients,
            rng,
            rest,
            questions: QUESTIONS,
            waits_since: Some(now),
            is_interrupted: false,
            served_since: None,
            due: None,
            is_complete: false,
        }
    }

    /// The bridge of the client's next session.
    pub(crate) fn open(&mut self, protocols: &Protocols) -> Bridge {
        let now = Instant::now().into_std();
        let (client, upstream) = (Arc::clone(&protocols.client), Arc::clone(&protocols.upstream));
        let (profile, seed) = (Arc::clone(&protocols.profile), self.rng.u64(..));
        match self.kind {
            ClientKind::Conversations => {
                let setup = RelaySetup { profile, idle_ms: None, session_max_ms: 0, unix_s: UNIX_S, seed };
                Bridge::open_relay(now, &[client], "mode=audio", upstream, setup)
            }
            ClientKind::Questions => {
                let setup = SessionSetup::new(&client, profile, &Arc::clone(&upstream).into(), seed);
                let mut codec = Codec::new(client, UNIX_S);
                let connect = codec.decode_query("model=gpt-realtime");
                Bridge::open(now, codec, connect, upstream, setup)
            }
        }
    }

    /// Says what a client says first.
    pub(crate) fn begin(&mut self, session: &mut Session) {
        self.due = None;
        match self.kind {
            ClientKind::Conversations => session.send(INIT),
            ClientKind::Questions => {
                session.send(TEXT_ONLY);
                self.ask(session);
            }
        }
    }

    fn ask(&mut self, session: &mut Session) {
        self.waits_since.get_or_insert_with(Instant::now);
        session.send(QUESTION);
        session.send(ASK);
    }

    /// Acts at `due`.
    pub(crate) fn act(&mut self, session: &mut Session) {
        self.due = None;
        match self.kind {
            ClientKind::Conversations => {
                self.is_complete = true;
                session.send(CLOSE);
            }
            ClientKind::Questions => self.ask(session),
        }
    }

    /// Takes a message of voxbridge.
    pub(crate) fn hear(&mut self, text: &str) -> Progress {
        let is = |kind: &str| text.contains(kind);
        match self.kind {
            ClientKind::Conversations if is("\"session.created\"") => self.serve(),
            ClientKind::Questions if is("\"response.output_text.delta\"") => self.serve(),
            ClientKind::Questions if is("\"response.done\"") => {
                let is_answered = is("\"status\":\"completed\"");
                self.questions -= u32::from(is_answered);
                self.is_complete = self.questions == 0;
                let pause = Duration::from_secs_f64(-PAUSE_S * (1.0 - self.rng.f64()).ln());
                self.due = Some(Instant::now() + pause);
                if is_answered { Progress::None } else { Progress::Failed }
            }
            _ => Progress::None,
        }
    }

    /// True if a client that asks has its last answer, so that it leaves.
    pub(crate) fn is_answered(&self) -> bool {
        self.kind == ClientKind::Questions && self.is_complete
    }

    fn serve(&mut self) -> Progress {
        let now = Instant::now();
        let Some(since) = self.waits_since.take() else { return Progress::None };
        let kind = if std::mem::take(&mut self.is_interrupted) { WaitKind::Again } else { WaitKind::First };
        if self.kind == ClientKind::Conversations {
            (self.served_since, self.due) = (Some(now), Some(now + self.rest));
        }
        Progress::Served(now - since, kind)
    }

    /// The client's lane, or its whole session, is lost. A conversation waits for another one.
    pub(crate) fn interrupt(&mut self) {
        if self.kind == ClientKind::Questions || self.is_complete {
            return;
        }
        let now = Instant::now();
        if let Some(since) = self.served_since.take() {
            self.rest = self.rest.saturating_sub(now - since).max(Duration::from_secs(1));
            self.is_interrupted = true;
            self.due = None;
        }
        self.waits_since.get_or_insert(now);
    }
}
