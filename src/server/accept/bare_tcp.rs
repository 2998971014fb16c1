//! Clients of protocols on bare TCP: each connection is a session, without a handshake. The address of a client is all that is
//! known of it, so a listener admits networks instead of keys.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use tracing::{debug, info};

use super::{
    admission::{Caller, spawn_session},
    client_signs::DetectedBy,
    session_opening::ConnectRequest,
    session_start::run_session_on,
};
use crate::{
    mapping::ClientMapping,
    server::{
        ServerContext, ServiceConfig,
        announcement::AnnouncedService,
        websocket::{
            WebSocket,
            pausable_stream::PausableStream,
            stream::{ClientStream, set_options},
        },
    },
    telemetry::metrics::RejectReason,
};

/// Time for a client that is turned away to take the reason.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// A listener for clients of bare TCP.
#[derive(Debug)]
pub struct TcpService {
    /// Name of the listener, which is that of a protocol.
    pub protocol: String,
    /// Networks whose clients are admitted.
    pub allow: Vec<IpNet>,
    /// Parameters of every session, as in a WebSocket's URL.
    pub query: String,
    /// How the listener is announced on the local network, if it is.
    pub announced_as: Option<AnnouncedService>,
}

impl TcpService {
    fn admits(&self, peer: SocketAddr) -> bool {
        let address = peer.ip().to_canonical();
        self.allow.iter().any(|network| network.contains(&address))
    }
}

/// Serves a connection as a session on a worker thread, where the stream is registered anew.
pub(in crate::server) fn spawn_bare_session(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<TcpService>,
    server: Arc<ServerContext>,
) {
    if !service.admits(peer) {
        server.metrics.record_rejection(RejectReason::Forbidden);
        info!(%peer, listener = service.protocol, "rejected: the address is in no network of `allow`");
        return;
    }
    set_options(&stream);
    let stream = stream.into_std();
    let workers = server.workers.clone();
    workers.spawn(async move {
        match stream.and_then(TcpStream::from_std) {
            Ok(stream) => serve(stream, peer, &service, server).await,
            Err(error) => debug!(%peer, %error, "connection lost before its session"),
        }
    });
}

async fn serve(stream: TcpStream, peer: SocketAddr, service: &TcpService, server: Arc<ServerContext>) {
    let config = server.config();
    let stream = ClientStream::Plain(PausableStream::from(stream));
    let candidates = candidates(&config, &service.protocol);
    let Some(likeliest) = candidates.first().cloned() else {
        server.metrics.record_rejection(RejectReason::NoRoute);
        info!(%peer, listener = service.protocol, "rejected: no route leads these clients anywhere");
        return;
    };
    let caller = Caller::at(peer);
    let admission = match caller.admit(&config, &server) {
        Ok(admission) => admission,
        Err(error) => {
            server.metrics.record_rejection(error.reason);
            return refuse(stream, &likeliest, error.reason).await;
        }
    };
    let detected_by = if candidates.len() == 1 { DetectedBy::Listener } else { DetectedBy::Default };
    let request = ConnectRequest {
        path: path(&service.protocol),
        query: service.query.clone(),
        peer,
        trace_context: caller.trace_context,
        candidates,
        detected_by,
        watch_name: None,
        is_bare_tcp: true,
    };
    let cut_off = server.cut_off.clone();
    spawn_session(
        Box::pin(run_session_on((stream, Vec::new()), request, (server, config), admission)),
        cut_off,
    );
}

/// The path of these sessions in routes and logs. No URL has one like it.
fn path(listener: &str) -> String {
    format!("tcp:{listener}")
}

/// The protocols of a listener that a route serves. The one that the listener is named after comes first.
fn candidates(config: &ServiceConfig, listener: &str) -> Vec<Arc<ClientMapping>> {
    let is_here = |client: &&Arc<ClientMapping>| {
        client.tcp.as_ref().is_some_and(|tcp| tcp.listener == listener) && config.routes.can_serve(client)
    };
    let mut found: Vec<_> = config.library.clients().filter(is_here).cloned().collect();
    found.sort_by_key(|client| client.name != listener);
    found
}

/// Tells a client in its protocol's form why it is turned away.
async fn refuse(stream: ClientStream, client: &ClientMapping, reason: RejectReason) {
    let Some(protocol) = client.tcp.clone() else { return };
    let text = match reason {
        RejectReason::Stopping => "voxbridge is stopping",
        RejectReason::AddressLimit => "too many sessions of this address",
        _ => "too many sessions",
    };
    let mut client = WebSocket::bare(stream, protocol, 0);
    let frame = CloseFrame { code: CloseCode::Again, reason: text.into() };
    let farewell = async {
        let is_told = client.close(frame).await.is_ok() && client.io.shutdown().await.is_ok();
        // Unread bytes must not turn the reason into a reset.
        let mut rest = [0; 4096];
        while is_told && matches!(client.io.read(&mut rest).await, Ok(1..)) {}
    };
    // A client that does not read is dropped.
    let _ = timeout(REFUSAL_MAX, farewell).await;
}
