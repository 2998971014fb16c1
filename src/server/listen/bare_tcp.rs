//! Clients of protocols on bare TCP: each connection that sends a message is a session, without a handshake. A client is known
//! only by its address, so a listener admits networks instead of keys.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use ipnet::IpNet;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::coop::consume_budget,
    time::{sleep, timeout},
};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tracing::{debug, info};

use crate::server::accept::{
    admission::{Caller, refusal_words, spawn_session},
    http_error::HttpError,
    session_opening::ConnectRequest,
    session_start::{GreetedClient, run_greeted_session},
};
use crate::{
    server::{
        ServerContext, Snapshot,
        access::handshakes::ServedRequests,
        announcement::AnnouncedService,
        identify,
        memory::MemoryShare,
        session_task::wait_for_drain_order,
        websocket::{
            WebSocket,
            pausable_stream::PausableStream,
            session_socket::OUT_OF_MEMORY,
            stream::{ClientStream, set_options},
            tcp_framing::FramingProblem,
        },
    },
    telemetry::metrics::RejectReason,
};

/// Time for a client that is turned away to take the reason.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// Time for the first message of a client whose protocol bounds no silence.
const FIRST_MESSAGE_MAX: Duration = Duration::from_secs(60);

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
    let context = server.clone();
    let task = server.workers.spawn(async move {
        match stream.and_then(TcpStream::from_std) {
            Ok(stream) => serve(stream, peer, &service, context).await,
            Err(error) => debug!(%peer, %error, "connection lost before its session"),
        }
    });
    server.add_handshake(task, ServedRequests::default(), peer);
}

/// Waits for the client's first message, and then serves a session in a task of its own. Until then the client is a connection
/// without a session, and holds no session slot and no upstream.
async fn serve(stream: TcpStream, peer: SocketAddr, service: &TcpService, server: Arc<ServerContext>) {
    let config = server.config();
    let stream = ClientStream::Plain(PausableStream::from(stream));
    let client_of = identify::place::at_listener(&config, &service.protocol);
    let Some((identified, protocol)) =
        client_of.and_then(|client| client.likeliest().tcp.clone().map(|protocol| (client, protocol)))
    else {
        server.metrics.record_rejection(RejectReason::NoRoute);
        info!(%peer, listener = service.protocol, "rejected: no route leads these clients anywhere");
        return;
    };
    let message_max = identified.message_max(config.limits).bytes;
    let (memory, eviction) = MemoryShare::evictable(server.memory.clone(), config.limits.memory_max_bytes);
    let mut client = WebSocket::bare(stream, protocol, message_max);
    client.memory = memory;
    let caller = Caller::at(peer);
    let refusal = |error: Box<HttpError>| {
        server.metrics.record_rejection(error.reason);
        Some((CloseCode::Again, refusal_words(error.reason).to_owned()))
    };
    let patience = config.idle_ms.unwrap_or(identified.likeliest().audio_in.idle_ms);
    let patience = Some(patience).filter(|ms| *ms > 0).map_or(FIRST_MESSAGE_MAX, Duration::from_millis);
    let waiting = async {
        // A full server says so at once.
        caller.check_room(&config, &server).map_err(refusal)?;
        tokio::select! {
            first = first_message(&mut client) => first,
            () = sleep(patience) => Err(Some((CloseCode::Policy, "no message came".to_owned()))),
            _ = wait_for_drain_order(server.drain.clone()) => {
                Err(Some((CloseCode::Restart, "voxbridge is stopping".to_owned())))
            }
            () = eviction.clone().wait() => Err(Some((CloseCode::Again, OUT_OF_MEMORY.to_owned()))),
        }
    };
    let admitted = waiting.await.and_then(|message| {
        let admission = caller.admit(&config, &server).map_err(refusal)?;
        Ok((message, admission))
    });
    let (first_message, admission) = match admitted {
        Ok(admitted) => admitted,
        Err(Some((code, reason))) => return refuse(client, code, reason).await,
        Err(None) => return,
    };
    let request = ConnectRequest {
        path: path(&service.protocol),
        query: service.query.clone(),
        peer,
        trace_context: caller.trace_context,
        client: identified,
        is_bridge: false,
        watch_name: None,
        seed: fastrand::u64(..),
    };
    let cut_off = server.cut_off.clone();
    let greeted = GreetedClient { client, eviction, first_message };
    spawn_session(
        Box::pin(run_greeted_session(greeted, request, Snapshot { server, config }, admission)),
        cut_off,
    );
}

/// The client's first message, or else the close to send if the client is still connected.
async fn first_message(client: &mut WebSocket<ClientStream>) -> Result<Message, Option<(CloseCode, String)>> {
    loop {
        match client.next().await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => return Ok(message),
            Some(Ok(Message::Close(_))) | None => return Err(None),
            Some(Ok(_)) => consume_budget().await,
            Some(Err(WsError::Io(error))) => return Err(FramingProblem::find(&error)),
            Some(Err(_)) => return Err(None),
        }
    }
}

/// The path of these sessions in routes and logs. No URL has one like it.
fn path(listener: &str) -> String {
    format!("tcp:{listener}")
}

/// Tells a client in its protocol's form why it is turned away.
async fn refuse(mut client: WebSocket<ClientStream>, code: CloseCode, reason: String) {
    client.stop_reading();
    let frame = CloseFrame { code, reason: reason.into() };
    let farewell = async {
        let is_told = client.close(frame).await.is_ok() && client.io.shutdown().await.is_ok();
        // Unread bytes must not turn the reason into a reset.
        let mut rest = [0; 4096];
        while is_told && matches!(client.io.read(&mut rest).await, Ok(1..)) {}
    };
    // A client that does not read is dropped.
    let _ = timeout(REFUSAL_MAX, farewell).await;
}
