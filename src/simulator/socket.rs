//! Sockets around the [`Gateway`]: one task owns it, one task serves each connection, bounded channels connect them.
//!
//! This module decides nothing: `parse_mode` validates path and query, and the core handles the rest.

use std::{collections::HashMap, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::Instant,
};

pub use super::record::{InputRecorder, RecordedInput};
use super::{
    ConnId, EngineAnswer, EngineRequest, Fault, Gateway, HttpApi, JobId, SimDialect, SimInput, SimOutput,
    SimulatorConfig,
    engines::SpeechEngines,
    http_api::{self, RequestContext},
    transport::{self, ConnectionCommand, OwnerMessage},
};
use crate::audio::SPEECH_RATE_HZ;

/// Capacity of the channel to the owner; a full channel stops reading from the sockets.
const INBOUND_CAPACITY: usize = 64;

/// Pause after a failed accept, usually caused by exhausted file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound simulator that is not running yet.
pub struct Simulator {
    listener: TcpListener,
    address: SocketAddr,
    cfg: SimulatorConfig,
    engines: Option<Arc<dyn SpeechEngines>>,
    recorder: InputRecorder,
    inbound: Sender<OwnerMessage>,
    incoming: Receiver<OwnerMessage>,
}

/// Handle that injects faults while the simulator runs.
#[derive(Debug, Clone)]
pub struct FaultInjector(Sender<OwnerMessage>);

impl FaultInjector {
    /// Adds a fault to the active ones.
    pub async fn inject(&self, fault: Fault) {
        self.send(OwnerMessage::AddFault(fault)).await;
    }

    /// Removes all faults; effects of faults that already triggered continue.
    pub async fn clear_faults(&self) {
        self.send(OwnerMessage::ClearFaults).await;
    }

    async fn send(&self, incoming: OwnerMessage) {
        // The send fails only after the simulator has stopped.
        let _over = self.0.send(incoming).await;
    }
}

/// Binds the address. Only [`Simulator::with_engines`] enables [`SimulatorConfig::use_engines`].
///
/// # Errors
/// The operating system's error for the address.
pub async fn bind(address: impl ToSocketAddrs, cfg: SimulatorConfig) -> io::Result<Simulator> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let (inbound, incoming) = mpsc::channel(INBOUND_CAPACITY);
    Ok(Simulator {
        listener,
        address,
        cfg,
        engines: None,
        recorder: InputRecorder::default(),
        inbound,
        incoming,
    })
}

impl Simulator {
    /// Bound address.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Uses these engines for transcripts and speech.
    #[must_use]
    pub fn with_engines(self, engines: Arc<dyn SpeechEngines>) -> Self {
        Self { engines: Some(engines), ..self }
    }

    /// Handle to the recorded input; stays empty without [`SimulatorConfig::record`].
    pub fn recorder(&self) -> InputRecorder {
        self.recorder.clone()
    }

    /// Handle that injects faults.
    pub fn fault_injector(&self) -> FaultInjector {
        FaultInjector(self.inbound.clone())
    }

    /// Serves until `shutdown` completes, then drops every connection.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        #[expect(clippy::disallowed_methods, reason = "the time of day, taken once, for server_send_ts")]
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut cfg = SimulatorConfig { use_engines: self.engines.is_some(), ..self.cfg };
        if cfg.http_api.is_some() {
            // Requests have no worker that cleans up after a session.
            cfg.timing.cleanup = Duration::ZERO;
        }
        let owner = GatewayTask {
            record: cfg.record,
            dialect: cfg.dialect,
            http_api: cfg.http_api,
            gateway: Gateway::new(cfg, Instant::now().into_std(), unix),
            engines: self.engines,
            recorder: self.recorder,
            clients: HashMap::new(),
            tasks: JoinSet::new(),
            inbound: self.inbound,
        };
        owner.run(&self.listener, self.incoming, shutdown).await;
    }
}

/// The task that owns the gateway.
struct GatewayTask {
    gateway: Gateway,
    record: bool,
    dialect: SimDialect,
    http_api: Option<HttpApi>,
    engines: Option<Arc<dyn SpeechEngines>>,
    recorder: InputRecorder,
    clients: HashMap<ConnId, Sender<ConnectionCommand>>,
    tasks: JoinSet<()>,
    inbound: Sender<OwnerMessage>,
}

impl GatewayTask {
    async fn run(
        mut self,
        listener: &TcpListener,
        mut incoming: Receiver<OwnerMessage>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let mut connections = 0;
        loop {
            let deadline = self.carry_out_outputs();
            tokio::select! {
                () = &mut shutdown => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections += 1;
                        self.serve_connection(stream, ConnId(connections));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(incoming) = incoming.recv() => self.handle_message(incoming),
                () = sleep_until(deadline) => self.handle_input(SimInput::Timeout),
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    fn serve_connection(&mut self, stream: TcpStream, conn: ConnId) {
        let inbound = self.inbound.clone();
        match self.http_api {
            Some(api) => {
                let recorder = self.record.then(|| self.recorder.clone());
                let context = RequestContext { api, conn, inbound, recorder };
                self.tasks.spawn(http_api::serve_connection(stream, context))
            }
            None => self.tasks.spawn(transport::serve_connection(stream, self.dialect, conn, inbound)),
        };
    }

    fn handle_message(&mut self, incoming: OwnerMessage) {
        match incoming {
            OwnerMessage::Connected(conn, mode, outgoing) => {
                self.clients.insert(conn, outgoing);
                self.handle_input(SimInput::Connected(conn, mode));
            }
            OwnerMessage::Text(conn, text) => {
                self.record_input(|| RecordedInput::Message(conn, text.to_string()));
                self.handle_input(SimInput::Text(conn, text.as_str()));
            }
            OwnerMessage::Binary(conn) => {
                self.record_input(|| RecordedInput::Binary(conn));
                self.handle_input(SimInput::Binary(conn));
            }
            OwnerMessage::Disconnected(conn) => {
                if self.clients.remove(&conn).is_some() {
                    self.record_input(|| RecordedInput::Disconnected(conn));
                }
                self.handle_input(SimInput::Closed(conn));
            }
            OwnerMessage::Http(method, path, reply) => {
                let page = self.gateway.handle_http(Instant::now().into_std(), &method, &path);
                // The send fails only if the client is gone.
                let _gone = reply.send(page);
            }
            OwnerMessage::EngineDone(job, answer) => self.handle_input(SimInput::EngineDone(job, answer)),
            OwnerMessage::AddFault(fault) => self.handle_input(SimInput::AddFault(fault)),
            OwnerMessage::ClearFaults => self.handle_input(SimInput::ClearFaults),
        }
    }

    fn handle_input(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(Instant::now().into_std(), input);
    }

    fn record_input(&self, recorded: impl FnOnce() -> RecordedInput) {
        if self.record {
            self.recorder.push(recorded());
        }
    }

    /// Carries out the gateway's outputs; returns the instant of the next wake-up.
    fn carry_out_outputs(&mut self) -> Option<std::time::Instant> {
        loop {
            match self.gateway.poll_output(Instant::now().into_std()) {
                SimOutput::Text(conn, text) => self.send(conn, ConnectionCommand::Text(text)),
                SimOutput::Close(conn, code, reason) => {
                    self.send(conn, ConnectionCommand::Close(code, reason));
                    self.clients.remove(&conn);
                }
                SimOutput::Abort(conn) => {
                    self.send(conn, ConnectionCommand::Abort);
                    self.clients.remove(&conn);
                }
                SimOutput::Refuse(conn, page) => {
                    self.send(conn, ConnectionCommand::Refuse(page));
                    self.clients.remove(&conn);
                }
                SimOutput::AskEngines(job, request) => self.ask_engines(job, request),
                SimOutput::AsrAudio(conn, samples) => {
                    self.record_input(|| RecordedInput::AsrAudio(conn, samples));
                }
                SimOutput::DuplexOpened(conn, opening) => {
                    self.record_input(|| RecordedInput::DuplexOpened(conn, opening));
                }
                SimOutput::DuplexUnit(conn, unit) => {
                    self.record_input(|| RecordedInput::DuplexUnit(conn, unit));
                }
                SimOutput::Wait(until) => return until,
            }
        }
    }

    /// Sends without waiting. A client whose channel is full is dropped, and its task ends with the channel.
    fn send(&mut self, conn: ConnId, outgoing: ConnectionCommand) {
        let was_sent = self.clients.get(&conn).is_none_or(|client| client.try_send(outgoing).is_ok());
        if !was_sent {
            self.clients.remove(&conn);
            self.handle_input(SimInput::Closed(conn));
        }
    }

    /// Sends a request to the engines. The gateway does so only if they exist.
    fn ask_engines(&mut self, job: JobId, request: EngineRequest) {
        let Some(engines) = self.engines.clone() else { return };
        let inbound = self.inbound.clone();
        self.tasks.spawn(async move {
            let answer = match request {
                EngineRequest::Recognise(samples) => {
                    let audio_s = samples.len() as f64 / f64::from(SPEECH_RATE_HZ);
                    let transcript = engines.recognise(samples).await;
                    if transcript.as_ref().is_ok_and(|text| text.trim().is_empty()) {
                        tracing::warn!(audio_s, "speech engines recognised no words");
                    }
                    EngineAnswer::Transcript(transcript)
                }
                EngineRequest::Speak(text) => {
                    let chars = text.chars().count();
                    let speech = engines.speak(text).await;
                    if speech.as_ref().is_ok_and(Vec::is_empty) {
                        tracing::warn!(chars, "speech engines spoke nothing");
                    }
                    EngineAnswer::Speech(speech)
                }
            };
            // The send fails only at shutdown.
            let _gone = inbound.send(OwnerMessage::EngineDone(job, answer)).await;
        });
    }
}

async fn sleep_until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
