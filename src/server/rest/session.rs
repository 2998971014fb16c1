//! A session that serves one request, or a command of this process: requests go in by a port, and events come out. It has the client
//! protocol `rest`.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tracing::{debug, warn};

use super::{PROTOCOL, ServedRequest, models, style::Failure};
pub(super) use crate::media::transcript::{Segment, Word};
use crate::{
    audio::{pcm::s16le_bytes, word_times::WordTime},
    error::ErrorKind,
    server::{
        ServerContext, ServiceConfig, Snapshot,
        accept::{
            admission::{Caller, authorize, spawn_session},
            session_opening::ConnectRequest,
            session_start::{Admission, run_port_session},
        },
        client_port::{ClientPort, PortForm, PortInput, PortOutput, client_port},
        identify::{DetectedBy, Identified},
        memory::MemoryShare,
    },
    spelling::ClientMapping,
    vocabulary::{ClientEvent, ClientRequest, CloseReason, Message},
};

/// Everything that a request needs to open its session.
pub(super) struct Opening {
    pub(super) server: Arc<ServerContext>,
    pub(super) config: Arc<ServiceConfig>,
    pub(super) caller: Caller,
    pub(super) path: String,
    /// Held until the answer is complete.
    pub(super) served: ServedRequest,
}

impl Opening {
    /// Takes a session slot. The body is complete by then, so that slow uploads hold none.
    pub(super) fn admit(&self) -> Result<Admission, Failure> {
        self.caller.admit(&self.config, &self.server).map_err(Failure::from)
    }

    /// Fails if the server is full, a quota is used up, or too many offers of calls come from the address. Takes no session.
    pub(super) fn check_offer(&self) -> Result<(), Failure> {
        self.caller.check_room(&self.config, &self.server)?;
        self.count_offer()
    }

    /// Counts an offer of a call.
    pub(super) fn count_offer(&self) -> Result<(), Failure> {
        Ok(self.caller.count_offer(&self.server)?)
    }

    /// The request's share of the memory for messages in transit.
    pub(super) fn memory_share(&self) -> MemoryShare {
        let max_bytes = self.config.limits.for_key(self.caller.key.as_deref()).memory_max_bytes;
        MemoryShare::new(self.server.memory.clone(), max_bytes)
    }

    /// Fails if the key may not use this model, or no route serves it. Returns the protocol of the session.
    pub(super) fn check_model(&self, model: &str) -> Result<Arc<ClientMapping>, Failure> {
        let Self { config, caller, path, .. } = self;
        let client = config.library.client(PROTOCOL).map_err(Failure::invalid)?;
        let mut identified = Identified::certain(client.clone(), DetectedBy::Path);
        authorize(config, caller.key.as_deref(), path, &query(model), &mut identified)?;
        match config.routes.find(path, &client, model) {
            Some(_) => Ok(client),
            None => Err(models::not_found(model)),
        }
    }

    /// Opens a session with this model.
    pub(super) fn open(
        self,
        model: &str,
        admission: Admission,
    ) -> Result<(RestSession, ServedRequest), Failure> {
        let client = self.check_model(model)?;
        let Self { server, config, caller, path, served } = self;
        let snapshot = Snapshot { server, config };
        Ok((RestSession::open(snapshot, caller, path, model, client, admission, PortForm::Events), served))
    }
}

fn query(model: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("model", model).finish()
}

/// How far the session of a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Opened,
    /// It waits for a worker of the model.
    Queued,
    /// The first words or audio have come.
    Answering,
}

/// An open session. Dropping it ends the session and frees its workers.
pub(crate) struct RestSession {
    pub(crate) requests: Requests,
    pub(crate) events: Events,
}

impl RestSession {
    /// Opens a session for a caller that was admitted.
    pub(super) fn open(
        snapshot: Snapshot,
        caller: Caller,
        path: String,
        model: &str,
        client: Arc<ClientMapping>,
        admission: Admission,
        form: PortForm,
    ) -> Self {
        let (ClientPort { requests, events }, port) = client_port(form);
        let request = ConnectRequest {
            path,
            query: query(model),
            peer: caller.address,
            trace_context: caller.trace_context,
            client: Identified::certain(client, DetectedBy::Path),
            is_bridge: false,
            watch_name: None,
            seed: fastrand::u64(..),
        };
        let cut_off = snapshot.server.cut_off.clone();
        let session = Box::pin(run_port_session(port, request, snapshot, admission));
        let task = spawn_session(session, cut_off);
        let stage = watch::Sender::new(Stage::Opened);
        Self { requests: Requests(requests), events: Events { events, task, stage } }
    }
}

/// The direction to the session.
pub(crate) struct Requests(mpsc::Sender<PortInput>);

impl Requests {
    /// Sends a request. Fails silently if the session has ended; its events say why.
    pub(crate) async fn send(&self, request: ClientRequest<'static>) {
        self.send_input(PortInput::Request(request)).await;
    }

    /// Sends audio: int16 mono at 16 kHz. Returns once the session takes it; false if the session has ended.
    pub(crate) async fn send_audio(&self, samples: &[i16]) -> bool {
        self.send_input(PortInput::Audio(s16le_bytes(samples).into())).await && self.0.reserve().await.is_ok()
    }

    async fn send_input(&self, input: PortInput) -> bool {
        let sent = self.0.send(input).await;
        sent.inspect_err(|_| debug!("the session of a request has ended")).is_ok()
    }
}

/// The direction from the session.
pub(crate) struct Events {
    events: mpsc::Receiver<PortOutput>,
    task: JoinHandle<()>,
    stage: watch::Sender<Stage>,
}

impl Events {
    /// How far the session has come, as far as its events were read.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// The next event, and the message that spells it.
    ///
    /// # Errors
    /// The session ended without an event about it, in words.
    pub(crate) async fn next_shown(&mut self) -> Result<(ClientEvent, Option<String>), String> {
        loop {
            match self.events.recv().await.ok_or("no end was reported")? {
                PortOutput::Event(event, message) => return Ok((event, message)),
                PortOutput::Message(Message::Close(_, reason)) if reason.is_empty() => {
                    return Err("it was closed".to_owned());
                }
                PortOutput::Message(Message::Close(_, reason)) => return Err(reason),
                PortOutput::Message(_) | PortOutput::DropTurn => {}
            }
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The session ended without an event about it, in words.
    pub(crate) async fn next_event(&mut self) -> Result<ClientEvent, String> {
        Ok(self.next_shown().await?.0)
    }

    /// The next event of a session that goes on; `None` after the last.
    ///
    /// # Errors
    /// The session failed.
    pub(super) async fn next(&mut self) -> Result<Option<ClientEvent>, Failure> {
        match self.next_event().await.map_err(|problem| lost(&problem))? {
            // After all replies; other reasons leave something out.
            ClientEvent::SessionClosed { reason: CloseReason::ClientClose, .. } => {
                // The client may send its next request at once, so the slot must be free by then.
                let _ = (&mut self.task).await;
                Ok(None)
            }
            ClientEvent::SessionClosed { reason, .. } => Err(lost(reason.name())),
            ClientEvent::Error(error) if error.kind != ErrorKind::QueueStuck => Err(error.into()),
            event => {
                self.note(&event);
                Ok(Some(event))
            }
        }
    }

    fn note(&self, event: &ClientEvent) {
        let stage = match event {
            ClientEvent::Error(notice) => {
                warn!(message = notice.detail, "request waits");
                Stage::Queued
            }
            ClientEvent::Queued { .. } => Stage::Queued,
            ClientEvent::TranscriptFinal { .. } | ClientEvent::Audio(_) => Stage::Answering,
            _ => return,
        };
        self.stage.send_if_modified(|now| std::mem::replace(now, stage) != stage);
    }
}

fn lost(reason: &str) -> Failure {
    Failure::of_session(ErrorKind::Unavailable, format!("The session ended early: {reason}"))
}

/// The transcript of an utterance as a segment of its recording; `None` for another event.
pub(crate) fn segment_of(event: ClientEvent) -> Option<Segment> {
    let ClientEvent::TranscriptFinal { text, speech_ms: (start_ms, end_ms), language, words, .. } = event
    else {
        return None;
    };
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let word = |word: WordTime| Word {
        word: word.word,
        start: seconds(word.start_ms),
        end: seconds(word.end_ms),
        estimated: true,
    };
    let words = Some(words.into_iter().map(word).collect::<Vec<_>>()).filter(|words| !words.is_empty());
    Some(Segment { text, start_ms, end_ms, language, words })
}
