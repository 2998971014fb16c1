//! The admin listener: what operators, probes and scrapers ask, at an address apart from the clients'.
//!
//! Off unless an address is named. It has its own small bounds, so that nobody stuck here harms a session, and it goes on
//! answering until the last session is gone. What is changed by it is changed by others: [`AdminContext`] holds them.
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

use self::auth::{AdminAuth, AdminPeer};
use super::{
    ActiveConfig, SessionSlots,
    access::handshakes::Handshakes,
    process::lifecycle::{Lifecycle, LifecycleState},
    registry::SessionRegistry,
    tls::ReloadableAcceptor,
};
use crate::{net::Transport, telemetry::metrics::Metrics};

/// Connections at a time. One more ends the oldest: probes come through whoever stalls.
const CONNECTIONS_MAX: usize = 32;
/// A connection asks one thing, and is over within this time.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// A TLS handshake, and a request's head, within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// After the server's end, for answers that are on their way.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Room for a head; hyper's least.
const HEAD_MAX_BYTES: usize = 8 * 1024;

/// What can be seen and done here.
#[derive(Clone)]
pub struct AdminContext {
    /// The server's life.
    pub life: Lifecycle,
    /// Its sessions.
    pub registry: SessionRegistry,
    /// How many there may be.
    pub room: SessionSlots,
    /// What new ones are served with.
    pub current: ActiveConfig,
    /// What is counted.
    pub metrics: Metrics,
    /// What the server was told to be.
    pub configuration: Arc<dyn ReloadableConfig>,
}

/// The configuration as operators see it and have it read again.
pub trait ReloadableConfig: Send + Sync {
    /// Reads it again: what changed, or why nothing did.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadOutcome, String>>;
    /// What holds, without secrets.
    fn to_redacted_json(&self) -> BoxFuture<'_, serde_json::Value>;
    /// How often it was read again.
    fn reload_stats(&self) -> ReloadStats;
}

/// What reading the configuration again has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadOutcome {
    /// What holds for new sessions from now on.
    pub changed: Vec<String>,
    /// What holds only after a restart.
    pub after_restart: Vec<String>,
}

/// How often the configuration was read again since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadStats {
    /// It was good.
    pub succeeded: u64,
    /// It was not, and what held before still holds.
    pub failed: u64,
    /// Why, if that was the last time.
    pub last_failure: Option<String>,
}

/// How operators come in.
#[derive(Clone)]
pub struct AdminSecurity {
    /// Who of them may.
    pub auth: AdminAuth,
    /// How they are encrypted, if they are.
    pub tls: Option<ReloadableAcceptor>,
}

/// The security, replaced as a whole when the configuration is read again: who may is asked by what a connection can show.
#[derive(Clone)]
pub struct SharedAdminSecurity(Arc<RwLock<Arc<AdminSecurity>>>);

impl SharedAdminSecurity {
    /// Guarded like this.
    #[must_use]
    pub fn new(security: AdminSecurity) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(security))))
    }

    /// From the next connection on, and who may from the next request.
    pub fn replace(&self, security: AdminSecurity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(security);
    }

    /// What holds.
    #[must_use]
    pub fn get(&self) -> Arc<AdminSecurity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An admin listener whose address is bound.
pub struct AdminListener {
    listener: TcpListener,
    security: SharedAdminSecurity,
}

impl AdminListener {
    /// Binds the address.
    ///
    /// # Errors
    /// The system's own, such as an address in use.
    pub async fn bind(listen: SocketAddr, security: AdminSecurity) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(listen).await?, security: SharedAdminSecurity::new(security) })
    }

    /// Its security, to be replaced.
    #[must_use]
    pub fn security(&self) -> SharedAdminSecurity {
        self.security.clone()
    }

    /// The address, with the port the system chose.
    ///
    /// # Errors
    /// The system's own.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until the server is stopped.
    pub async fn run(self, context: AdminContext) {
        let life = context.life.clone();
        let connections = Handshakes::default();
        let (open_guard, mut all_closed) = mpsc::channel::<()>(1);
        let shared = Arc::new((context, self.security));
        let accepting = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        let (shared, open_guard) = (shared.clone(), open_guard.clone());
                        let task = tokio::spawn(async move {
                            serve_connection(stream, peer, &shared).await;
                            drop(open_guard);
                        });
                        if connections.add(CONNECTIONS_MAX, task.abort_handle()) {
                            debug!("too many admin connections: the oldest is ended");
                        }
                    }
                    Err(error) => {
                        connections.abort_oldest();
                        warn!(%error, "the admin listener cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = life.wait_for(LifecycleState::Stopped) => {}
        }
        // Who has ordered the end is still answered.
        drop(open_guard);
        let _ = timeout(SHUTDOWN_GRACE, all_closed.recv()).await;
    }
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, shared: &(AdminContext, SharedAdminSecurity)) {
    let outcome = timeout(CONNECTION_TIMEOUT, async {
        let (context, security) = shared;
        let (stream, peer) = accept_tls(stream, security.get().tls.as_ref()).await?;
        let service = service_fn(|request| {
            let (current, peer) = (security.get(), peer);
            async move { Ok::<_, Infallible>(routes::handle_request(request, peer, &current.auth, context).await) }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_MAX_BYTES)
            .keep_alive(false)
            // An order holds even if who gave it hangs up.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|error| error.to_string())
    });
    match outcome.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%peer, error, "an admin connection failed"),
        Err(_) => debug!(%peer, "an admin connection took too long"),
    }
}

/// The stream requests come through, and who they come from.
async fn accept_tls(
    stream: TcpStream,
    tls: Option<&ReloadableAcceptor>,
) -> Result<(Box<dyn Transport>, AdminPeer), String> {
    let Some(tls) = tls else { return Ok((Box::new(stream), AdminPeer::default())) };
    let handshake = timeout(HEAD_TIMEOUT, tls.accept::<TcpStream>(stream)).await;
    let stream = handshake.map_err(|_| "no TLS handshake in time")?.map_err(|error| error.to_string())?;
    let has_certificate = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    Ok((Box::new(stream), AdminPeer { has_certificate }))
}
