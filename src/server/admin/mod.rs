//! Admin listener: HTTP endpoints for operators, probes and scrapers, at an address separate from the clients'.
//!
//! It is off unless an address is configured. It has small limits of its own, so that a stalled admin connection never
//! affects a session. It answers until the last session has ended. State is owned by other modules; [`AdminContext`]
//! holds the handles.
//!
//! - [`auth`] authorizes requests; [`routes`] dispatches them; [`views`] builds the responses

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
    access::handshakes::{Handshakes, ServedRequests},
    process::lifecycle::{Lifecycle, LifecycleState},
    registry::SessionRegistry,
    tls::ReloadableAcceptor,
    tool_servers::ToolServers,
};
use crate::{net::Transport, telemetry::metrics::Metrics};

/// Maximum number of connections. Beyond it the oldest is aborted, so that probes always get through.
const CONNECTIONS_MAX: usize = 32;
/// Maximum duration of a connection, which serves one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time of the TLS handshake, and of reading a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for pending answers after the server has stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Size of the read buffer for a head: hyper's minimum.
const HEAD_MAX_BYTES: usize = 8 * 1024;

/// Handles that the admin endpoints use.
#[derive(Clone)]
pub struct AdminContext {
    /// Lifecycle of the server.
    pub life: Lifecycle,
    /// Registry of live sessions.
    pub registry: SessionRegistry,
    /// Session slots.
    pub room: SessionSlots,
    /// Configuration of new sessions.
    pub current: ActiveConfig,
    /// Metrics registry.
    pub metrics: Metrics,
    /// Servers of tools that voxbridge calls.
    pub tool_servers: ToolServers,
    /// The loaded configuration.
    pub configuration: Arc<dyn ReloadableConfig>,
}

/// Access to the configuration for operators.
pub trait ReloadableConfig: Send + Sync {
    /// Reloads the configuration; returns the changes, or why the reload failed.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadOutcome, String>>;
    /// Returns the active configuration without secrets.
    fn to_redacted_json(&self) -> BoxFuture<'_, serde_json::Value>;
    /// Returns the number of reloads.
    fn reload_stats(&self) -> ReloadStats;
}

/// Changes made by a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadOutcome {
    /// Settings that apply to new sessions from now on.
    pub changed: Vec<String>,
    /// Settings that apply only after a restart.
    pub after_restart: Vec<String>,
}

/// Reloads since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReloadStats {
    /// Successful reloads.
    pub succeeded: u64,
    /// Failed reloads; the previous configuration stays active.
    pub failed: u64,
    /// Error of the last reload, if it failed.
    pub last_failure: Option<String>,
}

/// Security of the admin listener.
#[derive(Clone)]
pub struct AdminSecurity {
    /// Required authentication.
    pub auth: AdminAuth,
    /// TLS acceptor, if TLS is on.
    pub tls: Option<ReloadableAcceptor>,
}

/// Shared security settings, replaced as a whole on reload. Authentication and TLS change together, because
/// authentication depends on the certificates that a connection can present.
#[derive(Clone)]
pub struct SharedAdminSecurity(Arc<RwLock<Arc<AdminSecurity>>>);

impl SharedAdminSecurity {
    /// Wraps the settings.
    pub fn new(security: AdminSecurity) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(security))))
    }

    /// Replaces the settings: TLS for new connections, authentication for new requests.
    pub fn replace(&self, security: AdminSecurity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(security);
    }

    /// Returns the active settings.
    pub fn get(&self) -> Arc<AdminSecurity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A bound admin listener.
pub struct AdminListener {
    listener: TcpListener,
    security: SharedAdminSecurity,
}

impl AdminListener {
    /// Binds the address.
    ///
    /// # Errors
    /// The operating system's error, such as an address in use.
    pub async fn bind(listen: SocketAddr, security: AdminSecurity) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(listen).await?, security: SharedAdminSecurity::new(security) })
    }

    /// Handle to replace the security settings.
    pub fn security(&self) -> SharedAdminSecurity {
        self.security.clone()
    }

    /// The bound address, with the port chosen by the system.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the server is stopped.
    pub async fn run(self, context: AdminContext) {
        let life = context.life.clone();
        let connections = Handshakes::default();
        let (open_guard, mut all_closed) = mpsc::channel::<()>(1);
        let service = Arc::new(AdminService { context, security: self.security });
        let accepting = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        let (service, open_guard) = (service.clone(), open_guard.clone());
                        let task = tokio::spawn(async move {
                            serve_connection(stream, peer, &service).await;
                            drop(open_guard);
                        });
                        if connections.add(
                            CONNECTIONS_MAX,
                            task.abort_handle(),
                            ServedRequests::default(),
                            peer.ip(),
                        ) {
                            debug!("too many admin connections: aborted the oldest");
                        }
                    }
                    Err(error) => {
                        connections.abort_one();
                        warn!(%error, "admin listener failed to accept a connection; retrying in 100 ms");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = life.wait_for(LifecycleState::Stopped) => {}
        }
        // The request that stopped the server is still answered.
        drop(open_guard);
        let _ = timeout(SHUTDOWN_GRACE, all_closed.recv()).await;
    }
}

/// What the connections of an admin listener share.
struct AdminService {
    context: AdminContext,
    security: SharedAdminSecurity,
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, service: &AdminService) {
    let outcome = timeout(CONNECTION_TIMEOUT, async {
        let AdminService { context, security } = service;
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
            // An order is carried out even if the client hangs up.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|error| error.to_string())
    });
    match outcome.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%peer, error, "admin connection failed"),
        Err(_) => debug!(%peer, "admin connection timed out"),
    }
}

/// Accepts TLS if configured; returns the stream and whether the client presented a certificate.
async fn accept_tls(
    stream: TcpStream,
    tls: Option<&ReloadableAcceptor>,
) -> Result<(Box<dyn Transport>, AdminPeer), String> {
    let Some(tls) = tls else { return Ok((Box::new(stream), AdminPeer::default())) };
    let handshake = timeout(HEAD_TIMEOUT, tls.accept::<TcpStream>(stream)).await;
    let stream = handshake.map_err(|_| "TLS handshake timed out")?.map_err(|error| error.to_string())?;
    let has_certificate = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    Ok((Box::new(stream), AdminPeer { has_certificate }))
}
