//! One client's WebSocket: the handshake, frames in, frames out, the ways to end.

use std::{pin::pin, time::Duration};

use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Error, Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::StatusCode,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{ConnId, Dialect, Mode, Refused, socket::Incoming};

/// Messages on their way to one client. More than the longest answer has, because the owner never waits for a client: one
/// that lets this fill is dropped.
const OUTBOUND: usize = 2048;

/// The gateway's limit on a message (field notes §1.1).
const MAX_MESSAGE_BYTES: usize = 128 << 20;

/// Idle connections should be cheap.
const BUFFER_BYTES: usize = 8 << 10;

/// For the handshake, for one write, and for the client's answer to a close.
const PATIENCE: Duration = Duration::from_secs(10);

/// The only path there is.
const PATH: &str = "/v1/realtime";

type Socket = WebSocketStream<TcpStream>;

/// What the owner tells a connection.
#[derive(Debug)]
pub(super) enum Outgoing {
    Text(String),
    Close(u16, String),
    Abort,
}

/// Why a connection's writing ended.
enum Written {
    Closed,
    Aborted,
    Failed,
}

/// Why a connection's reading ended.
enum Read {
    Gone,
    TooBig,
}

/// Serves one connection from handshake to end.
pub(super) async fn serve(stream: TcpStream, dialect: Dialect, conn: ConnId, inbound: Sender<Incoming>) {
    // Deltas are small; on a broken socket the handshake fails anyway.
    let _unsupported = stream.set_nodelay(true);
    let Ok(Some((socket, mode))) = timeout(PATIENCE, accept(stream, dialect)).await else { return };
    let (outgoing, receiver) = mpsc::channel(OUTBOUND);
    if inbound.send(Incoming::Connected(conn, mode, outgoing)).await.is_err() {
        return;
    }
    converse(socket, conn, &inbound, receiver).await;
    // The owner is gone only when everything ends.
    let _gone = inbound.send(Incoming::Gone(conn)).await;
}

async fn accept(stream: TcpStream, dialect: Dialect) -> Option<(Socket, Mode)> {
    let mut accepted = None;
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let judge = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let uri = request.uri();
        let mode =
            if uri.path() == PATH { dialect.decide(uri.query()) } else { Err(Refused { status: 403 }) };
        match mode {
            Ok(mode) => {
                accepted = Some(mode);
                Ok(response)
            }
            Err(refused) => Err(refusal(refused)),
        }
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = accept_hdr_async_with_config(stream, judge, Some(config)).await.ok()?;
    Some((socket, accepted?))
}

fn refusal(refused: Refused) -> ErrorResponse {
    let mut response = ErrorResponse::new(None);
    *response.status_mut() = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::FORBIDDEN);
    response
}

/// Reads and writes at the same time, so that two sides that both write do not wait for each other.
async fn converse(
    socket: Socket,
    conn: ConnId,
    inbound: &Sender<Incoming>,
    mut outgoing: Receiver<Outgoing>,
) {
    let (mut sink, mut stream) = socket.split();
    let written = {
        let mut reading = pin!(read(&mut stream, conn, inbound));
        let written = tokio::select! {
            read = &mut reading => Err(read),
            written = write(&mut sink, &mut outgoing) => Ok(written),
        };
        if matches!(written, Ok(Written::Closed)) {
            // The client's answer to the close, or its silence.
            let _late = timeout(PATIENCE, reading).await;
        }
        written
    };
    match written {
        Err(Read::TooBig) => {
            let _late = timeout(PATIENCE, sink.send(close(CloseCode::Size.into(), "message too big"))).await;
        }
        Ok(Written::Aborted) => {
            if let Ok(socket) = stream.reunite(sink) {
                // Without lingering the drop is a reset.
                let _unsupported = socket.get_ref().set_zero_linger();
            }
        }
        Err(Read::Gone) | Ok(Written::Closed | Written::Failed) => {}
    }
}

async fn read(stream: &mut SplitStream<Socket>, conn: ConnId, inbound: &Sender<Incoming>) -> Read {
    loop {
        let incoming = match stream.next().await {
            Some(Ok(Message::Text(text))) => Incoming::Text(conn, text),
            Some(Ok(Message::Binary(_))) => Incoming::Binary(conn),
            // Pings are answered below this level; after a close frame the stream ends by itself.
            Some(Ok(_)) => continue,
            Some(Err(Error::Capacity(_))) => return Read::TooBig,
            Some(Err(_)) | None => return Read::Gone,
        };
        if inbound.send(incoming).await.is_err() {
            return Read::Gone;
        }
    }
}

async fn write(sink: &mut SplitSink<Socket, Message>, outgoing: &mut Receiver<Outgoing>) -> Written {
    while let Some(next) = outgoing.recv().await {
        let (message, last) = match next {
            Outgoing::Text(text) => (Message::text(text), false),
            Outgoing::Close(code, reason) => (close(code, &reason), true),
            Outgoing::Abort => return Written::Aborted,
        };
        match timeout(PATIENCE, sink.send(message)).await {
            Ok(Ok(())) if last => return Written::Closed,
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Written::Failed,
        }
    }
    // The owner gave up on this client.
    Written::Aborted
}

fn close(code: u16, reason: &str) -> Message {
    Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))
}
