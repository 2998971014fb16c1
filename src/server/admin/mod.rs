//! The admin listener: what operators, probes and scrapers ask, at an address apart from the clients'.
//!
//! Off unless an address is named. It has its own small bounds, so that nobody stuck here harms a session, and it goes on
//! answering until the last session is gone. What is changed by it is changed by others: [`Control`] holds them.
//!
//! - [`auth`] says who may; [`routes`] is what can be asked, [`views`] how it is answered

pub mod auth;
mod routes;
mod views;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tracing::{debug, warn};

use self::auth::{Guard, Peer};
use super::{
    Current, Room,
    access::handshakes::Handshakes,
    process::lifecycle::{Life, State},
    registry::Registry,
    tls::Acceptor,
};
use crate::{net::Transport, telemetry::metrics::Metrics};

/// Connections at a time. One more ends the oldest: probes come through whoever stalls.
const CONNECTIONS_MAX: usize = 32;
/// A connection asks one thing, and is over within this time.
const CONNECTION_WITHIN: Duration = Duration::from_secs(30);
/// A TLS handshake, and a request's head, within this.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// After the server's end, for answers that are on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Room for a head; hyper's least.
const HEAD_MAX_BYTES: usize = 8 * 1024;

/// What can be seen and done here.
#[derive(Clone)]
pub struct Control {
    /// The server's life.
    pub life: Life,
    /// Its sessions.
    pub registry: Registry,
    /// How many there may be.
    pub room: Room,
    /// What new ones are served with.
    pub current: Current,
    /// What is counted.
    pub metrics: Metrics,
    /// What the server was told to be.
    pub configuration: Arc<dyn Configuration>,
}

/// The configuration as operators see it and have it read again.
pub trait Configuration: Send + Sync {
    /// Reads it again: what changed, or why nothing did.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, String>>;
    /// What holds, without secrets.
    fn shown(&self) -> BoxFuture<'_, serde_json::Value>;
    /// How often it was read again.
    fn history(&self) -> Reloads;
}

/// What reading the configuration again has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// What holds for new sessions from now on.
    pub changed: Vec<String>,
    /// What holds only after a restart.
    pub after_restart: Vec<String>,
}

/// How often the configuration was read again since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reloads {
    /// It was good.
    pub succeeded: u64,
    /// It was not, and what held before still holds.
    pub failed: u64,
    /// Why, if that was the last time.
    pub last_failure: Option<String>,
}

/// How operators come in.
#[derive(Clone)]
pub struct Entrance {
    /// Who of them may.
    pub guard: Guard,
    /// How they are encrypted, if they are.
    pub tls: Option<Acceptor>,
}

/// The entrance, replaced as a whole when the configuration is read again: who may is asked by what a connection can show.
#[derive(Clone)]
pub struct Gate(Arc<RwLock<Arc<Entrance>>>);

impl Gate {
    /// Guarded like this.
    #[must_use]
    pub fn new(entrance: Entrance) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(entrance))))
    }

    /// From the next connection on, and who may from the next request.
    pub fn replace(&self, entrance: Entrance) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(entrance);
    }

    /// What holds.
    #[must_use]
    pub fn get(&self) -> Arc<Entrance> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An admin listener whose address is bound.
pub struct Admin {
    listener: TcpListener,
    gate: Gate,
}

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    /// The system's own, such as an address in use.
    pub async fn bind(listen: SocketAddr, entrance: Entrance) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(listen).await?, gate: Gate::new(entrance) })
    }

    /// Its entrance, to be replaced.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The address, with the port the system chose.
    ///
    /// # Errors
    /// The system's own.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until the server is stopped.
    pub async fn run(self, control: Control) {
        let life = control.life.clone();
        let connections = Handshakes::default();
        let (alive, mut none_left) = mpsc::channel::<()>(1);
        let admin = Arc::new((control, self.gate));
        let accepting = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        let (admin, alive) = (admin.clone(), alive.clone());
                        let task = tokio::spawn(async move {
                            connection(stream, peer, &admin).await;
                            drop(alive);
                        });
                        if connections.add(CONNECTIONS_MAX, task.abort_handle()) {
                            debug!("too many admin connections: the oldest is ended");
                        }
                    }
                    Err(error) => {
                        connections.end_oldest();
                        warn!(%error, "the admin listener cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = life.reached(State::Stopped) => {}
        }
        // Who has ordered the end is still answered.
        drop(alive);
        let _ = timeout(LAST_WORDS, none_left.recv()).await;
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, admin: &(Control, Gate)) {
    let served = timeout(CONNECTION_WITHIN, async {
        let (control, gate) = admin;
        let (stream, peer) = shaken(stream, gate.get().tls.as_ref()).await?;
        let answer = service_fn(|request| {
            let (now, peer) = (gate.get(), peer);
            async move { Ok::<_, Infallible>(routes::answer(request, peer, &now.guard, control).await) }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(HEAD_MAX_BYTES)
            .keep_alive(false)
            // An order holds even if who gave it hangs up.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), answer)
            .await
            .map_err(|error| error.to_string())
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%peer, error, "an admin connection failed"),
        Err(_) => debug!(%peer, "an admin connection took too long"),
    }
}

/// The stream requests come through, and who they come from.
async fn shaken(stream: TcpStream, tls: Option<&Acceptor>) -> Result<(Box<dyn Transport>, Peer), String> {
    let Some(tls) = tls else { return Ok((Box::new(stream), Peer::default())) };
    let shaken = timeout(HEAD_WITHIN, tls.accept::<TcpStream>(stream)).await;
    let stream = shaken.map_err(|_| "no TLS handshake in time")?.map_err(|error| error.to_string())?;
    let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    Ok((Box::new(stream), Peer { certified }))
}
