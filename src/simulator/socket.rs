//! The sockets around the [`Gateway`]: one task owns it, one task per connection, bounded channels between them.
//!
//! Nothing here decides anything; path and query are judged by `decide`, everything else by the core.

use std::{collections::HashMap, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, ToSocketAddrs},
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::Instant,
};

pub use super::record::{Received, Recorder};
use super::{
    ConnId, Dialect, EngineAnswer, EngineRequest, Fault, Gateway, JobId, Mode, SimInput, SimOutput,
    SimulatorConfig,
    engines::Engines,
    transport::{self, Outgoing},
};

/// Messages on their way to the owner; a full channel stops reading from the sockets.
const INBOUND: usize = 64;

/// How long to wait after a failed accept, which usually means that descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound simulator that is not running yet.
pub struct Simulator {
    listener: TcpListener,
    address: SocketAddr,
    cfg: SimulatorConfig,
    engines: Option<Arc<dyn Engines>>,
    recorder: Recorder,
    inbound: Sender<Incoming>,
    incoming: Receiver<Incoming>,
}

/// A handle that makes things go wrong while the simulator runs.
#[derive(Debug, Clone)]
pub struct Breaker(Sender<Incoming>);

impl Breaker {
    /// This goes wrong from now on, besides what already does.
    pub async fn begin(&self, fault: Fault) {
        self.tell(Incoming::Break(fault)).await;
    }

    /// Nothing goes wrong any more; what a fault has begun goes on.
    pub async fn mend(&self) {
        self.tell(Incoming::Mend).await;
    }

    async fn tell(&self, incoming: Incoming) {
        // A simulator that is over has no more faults.
        let _over = self.0.send(incoming).await;
    }
}

/// What the connection tasks and the engines tell the owner.
#[derive(Debug)]
pub(super) enum Incoming {
    Connected(ConnId, Mode, Sender<Outgoing>),
    Text(ConnId, tokio_tungstenite::tungstenite::Utf8Bytes),
    Binary(ConnId),
    Gone(ConnId),
    Engine(JobId, EngineAnswer),
    Break(Fault),
    Mend,
}

/// Binds the address. [`SimulatorConfig::engines`] is set by [`Simulator::with_engines`] and by nothing else.
///
/// # Errors
/// Whatever the operating system says about the address.
pub async fn bind(address: impl ToSocketAddrs, cfg: SimulatorConfig) -> io::Result<Simulator> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let (inbound, incoming) = mpsc::channel(INBOUND);
    Ok(Simulator { listener, address, cfg, engines: None, recorder: Recorder::default(), inbound, incoming })
}

impl Simulator {
    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Takes transcripts and speech from these engines.
    #[must_use]
    pub fn with_engines(self, engines: Arc<dyn Engines>) -> Self {
        Self { engines: Some(engines), ..self }
    }

    /// The handle on what is received; it stays empty without [`SimulatorConfig::record`].
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The handle that makes things go wrong.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(self.inbound.clone())
    }

    /// Serves until `shutdown` is ready, then drops every connection.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        #[expect(clippy::disallowed_methods, reason = "the time of day, taken once, for server_send_ts")]
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let cfg = SimulatorConfig { engines: self.engines.is_some(), ..self.cfg };
        let owner = Owner {
            record: cfg.record,
            dialect: cfg.dialect,
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
struct Owner {
    gateway: Gateway,
    record: bool,
    dialect: Dialect,
    engines: Option<Arc<dyn Engines>>,
    recorder: Recorder,
    clients: HashMap<ConnId, Sender<Outgoing>>,
    tasks: JoinSet<()>,
    inbound: Sender<Incoming>,
}

impl Owner {
    async fn run(
        mut self,
        listener: &TcpListener,
        mut incoming: Receiver<Incoming>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let mut connections = 0;
        loop {
            let deadline = self.flush();
            tokio::select! {
                () = &mut shutdown => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections += 1;
                        self.tasks.spawn(transport::serve(stream, self.dialect, ConnId(connections), self.inbound.clone()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(incoming) = incoming.recv() => self.take(incoming),
                () = sleep_until(deadline) => self.input(SimInput::Timeout),
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Connected(conn, mode, outgoing) => {
                self.clients.insert(conn, outgoing);
                self.input(SimInput::Connected(conn, mode));
            }
            Incoming::Text(conn, text) => {
                self.keep(|| Received::Message(conn, text.to_string()));
                self.input(SimInput::Text(conn, text.as_str()));
            }
            Incoming::Binary(conn) => {
                self.keep(|| Received::Binary(conn));
                self.input(SimInput::Binary(conn));
            }
            Incoming::Gone(conn) => {
                if self.clients.remove(&conn).is_some() {
                    self.keep(|| Received::Gone(conn));
                }
                self.input(SimInput::Closed(conn));
            }
            Incoming::Engine(job, answer) => self.input(SimInput::EngineDone(job, answer)),
            Incoming::Break(fault) => self.input(SimInput::Break(fault)),
            Incoming::Mend => self.input(SimInput::Mend),
        }
    }

    fn input(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(Instant::now().into_std(), input);
    }

    fn keep(&self, received: impl FnOnce() -> Received) {
        if self.record {
            self.recorder.push(received());
        }
    }

    /// Carries out what the gateway wants; returns when it wants to be woken.
    fn flush(&mut self) -> Option<std::time::Instant> {
        loop {
            match self.gateway.poll_output(Instant::now().into_std()) {
                SimOutput::Text(conn, text) => self.send(conn, Outgoing::Text(text)),
                SimOutput::Close(conn, code, reason) => {
                    self.send(conn, Outgoing::Close(code, reason));
                    self.clients.remove(&conn);
                }
                SimOutput::Drop(conn) => {
                    self.send(conn, Outgoing::Abort);
                    self.clients.remove(&conn);
                }
                SimOutput::Engine(job, request) => self.ask(job, request),
                SimOutput::Heard(conn, samples) => self.keep(|| Received::Audio(conn, samples)),
                SimOutput::Opened(conn, opening) => self.keep(|| Received::Opened(conn, opening)),
                SimOutput::Unit(conn, unit) => self.keep(|| Received::Unit(conn, unit)),
                SimOutput::Wait(until) => return until,
            }
        }
    }

    /// Never waits: a client that does not read is gone, and its task ends with the channel.
    fn send(&mut self, conn: ConnId, outgoing: Outgoing) {
        let sent = self.clients.get(&conn).is_none_or(|client| client.try_send(outgoing).is_ok());
        if !sent {
            self.clients.remove(&conn);
            self.input(SimInput::Closed(conn));
        }
    }

    /// The gateway asks only if there are engines.
    fn ask(&mut self, job: JobId, request: EngineRequest) {
        let Some(engines) = self.engines.clone() else { return };
        let inbound = self.inbound.clone();
        self.tasks.spawn(async move {
            let answer = match request {
                EngineRequest::Recognise(samples) => {
                    EngineAnswer::Transcript(engines.recognise(samples).await)
                }
                EngineRequest::Speak(text) => EngineAnswer::Speech(engines.speak(text).await),
            };
            // The owner is gone only when everything ends.
            let _gone = inbound.send(Incoming::Engine(job, answer)).await;
        });
    }
}

async fn sleep_until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
