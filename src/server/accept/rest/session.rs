//! A session that serves one request, or a command of this process: it is opened on a stream in memory, and speaks the client
//! protocol `rest`.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _, stream::SplitSink, stream::SplitStream};
use serde_json::Value;
use tokio::{io::DuplexStream, sync::watch, task::JoinHandle};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};
use tracing::{debug, warn};

pub(crate) use super::event::Event;
use super::{PROTOCOL, ServedRequest, models, style::Failure};
pub(super) use crate::media::transcript::{Segment, Word};
use crate::server::{
    ServerContext, ServiceConfig,
    accept::{
        admission::{Caller, authorize, spawn_session},
        client_signs::DetectedBy,
        session_opening::ConnectRequest,
        session_start::{Admission, run_session_on},
    },
    memory::MemoryShare,
    websocket::stream::ClientStream,
};
use crate::spelling::ClientMapping;

/// Room in each direction between a request and its session, bytes. Less than a message of audio, so that a message that was
/// sent is nearly processed.
const STREAM_BYTES: usize = 4 * 1024;

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
        authorize(config, caller.key.as_deref(), path, &query(model), vec![client.clone()])?;
        match config.routes.find(path, &client, model) {
            Some(_) => Ok(client),
            None => Err(models::not_found(model)),
        }
    }

    /// Opens a session with this model.
    pub(super) async fn open(
        self,
        model: &str,
        admission: Admission,
    ) -> Result<(RestSession, ServedRequest), Failure> {
        let client = self.check_model(model)?;
        let Self { server, config, caller, path, served } = self;
        let context = (server, config);
        Ok((RestSession::open(context, caller, path, model, client, admission).await, served))
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
    pub(crate) commands: Commands,
    pub(crate) events: Events,
}

impl RestSession {
    /// Opens a session for a caller that was admitted.
    pub(super) async fn open(
        (server, config): (Arc<ServerContext>, Arc<ServiceConfig>),
        caller: Caller,
        path: String,
        model: &str,
        client: Arc<ClientMapping>,
        admission: Admission,
    ) -> Self {
        let (near, far) = tokio::io::duplex(STREAM_BYTES);
        let request = ConnectRequest {
            path,
            query: query(model),
            peer: caller.address,
            trace_context: caller.trace_context,
            candidates: vec![client],
            detected_by: DetectedBy::Path,
            watch_name: None,
            seed: fastrand::u64(..),
        };
        let (stream, cut_off) = ((ClientStream::Memory(far), Vec::new()), server.cut_off.clone());
        let session = Box::pin(run_session_on(stream, request, (server, config), admission));
        let task = spawn_session(session, cut_off);
        let socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        let (commands, events) = socket.split();
        let stage = watch::Sender::new(Stage::Opened);
        Self { commands: Commands(commands), events: Events { events, task, stage } }
    }
}

/// The direction to the session.
pub(crate) struct Commands(SplitSink<WebSocketStream<DuplexStream>, Message>);

impl Commands {
    /// Sends a command. Fails silently if the session has ended; its events say why.
    pub(crate) async fn send(&mut self, command: &Value) {
        self.send_message(Message::text(command.to_string())).await;
    }

    /// Sends audio: int16 mono at 16 kHz. False if the session has ended.
    pub(crate) async fn send_audio(&mut self, samples: &[i16]) -> bool {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.send_message(Message::binary(bytes)).await
    }

    async fn send_message(&mut self, message: Message) -> bool {
        let sent = self.0.send(message).await;
        sent.inspect_err(|error| debug!(%error, "the session of a request has ended")).is_ok()
    }
}

/// The direction from the session.
pub(crate) struct Events {
    events: SplitStream<WebSocketStream<DuplexStream>>,
    task: JoinHandle<()>,
    stage: watch::Sender<Stage>,
}

impl Events {
    /// How far the session has come, as far as its events were read.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// The next message, whatever it says.
    ///
    /// # Errors
    /// The session ended without a message about it, in words.
    pub(crate) async fn next_message(&mut self) -> Result<Message, String> {
        let message = self.events.next().await.ok_or("no end was reported")?;
        message.map_err(|error| error.to_string())
    }

    /// The next transcript or audio; `None` after the last.
    ///
    /// # Errors
    /// The session failed.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            let message = self.next_message().await;
            match message.and_then(Event::read).map_err(|problem| lost(&problem))? {
                // After all replies; other reasons leave something out.
                Event::Closed { reason } if reason == "finished" => {
                    // The client may send its next request at once, so the slot must be free by then.
                    let _ = (&mut self.task).await;
                    return Ok(None);
                }
                Event::Closed { reason } => return Err(lost(&reason)),
                Event::QueueStuck { message } => {
                    self.stage.send_replace(Stage::Queued);
                    warn!(message, "request waits");
                }
                Event::Error { code, message, .. } => return Err(Failure::of_session(&code, message)),
                Event::Other => {}
                event => {
                    self.note(&event);
                    return Ok(Some(event));
                }
            }
        }
    }

    fn note(&self, event: &Event) {
        let stage = match event {
            Event::Queued { .. } => Stage::Queued,
            Event::Transcript(_) | Event::Audio(_) => Stage::Answering,
            _ => return,
        };
        self.stage.send_if_modified(|now| std::mem::replace(now, stage) != stage);
    }
}

fn lost(reason: &str) -> Failure {
    Failure::of_session("unavailable", format!("The session ended early: {reason}"))
}
