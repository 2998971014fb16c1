//! One client's WebSocket: handshake, incoming and outgoing frames, the ways to end.

use std::{io, pin::pin, time::Duration};

use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Error, Message, Utf8Bytes,
        handshake::server::{ErrorResponse, Request, Response},
        http::StatusCode,
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    ConnId, EngineAnswer, Fault, HandshakeRejected, HttpPage, JobId, SIMULATED_HEADER, SimDialect, SimMode,
};

/// Capacity of the channel to one client, above the length of the longest answer. The owner never waits: it drops a
/// client whose channel is full.
const OUTBOUND_CAPACITY: usize = 2048;

/// Maximum message size of the gateway (mappings/notes/minicpm-o.md#connect).
const MAX_MESSAGE_BYTES: usize = 128 << 20;

/// Small buffers keep idle connections cheap.
const BUFFER_BYTES: usize = 8 << 10;

/// Timeout of the handshake, of one write, and of the client's answer to a close.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest request head.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// Pause before the rest of an incomplete request head is looked for. A head usually arrives at once.
const HEAD_PAUSE: Duration = Duration::from_millis(2);

type ServerSocket = WebSocketStream<TcpStream>;

/// Message from the connection tasks and the engines to the owner.
#[derive(Debug)]
pub(super) enum OwnerMessage {
    Connected(ConnId, SimMode, Sender<ConnectionCommand>),
    Text(ConnId, Utf8Bytes),
    Binary(ConnId),
    Disconnected(ConnId),
    /// An HTTP request, by method and path, and where its answer goes.
    Http(String, String, oneshot::Sender<HttpPage>),
    EngineDone(JobId, EngineAnswer),
    AddFault(Fault),
    ClearFaults,
}

/// Command from the owner to a connection.
#[derive(Debug)]
pub(super) enum ConnectionCommand {
    Text(String),
    Close(u16, String),
    Abort,
    /// Answers the handshake; only the first command.
    Refuse(HttpPage),
}

/// Reason why writing ended.
enum WriteEnd {
    Closed,
    Aborted,
    Failed,
}

/// Reason why reading ended.
enum ReadEnd {
    Disconnected,
    MessageTooBig,
}

/// Serves one connection from handshake to end.
pub(super) async fn serve_connection(
    mut stream: TcpStream,
    dialect: SimDialect,
    conn: ConnId,
    inbound: Sender<OwnerMessage>,
) {
    // Deltas are small; on a broken socket the handshake fails anyway.
    let _unsupported = stream.set_nodelay(true);
    let head = match timeout(IO_TIMEOUT, peek_head(&stream)).await {
        Ok(Ok(Some(head))) if !is_handshake(&head) => {
            // The client gets no answer if it leaves, or if the simulator stops.
            let _gone = timeout(IO_TIMEOUT, answer_http(&mut stream, &head, dialect, &inbound)).await;
            return;
        }
        Ok(Ok(head)) => head.unwrap_or_default(),
        Ok(Err(_)) | Err(_) => return,
    };
    let (outgoing, mut receiver) = mpsc::channel(OUTBOUND_CAPACITY);
    let early_mode = requested_mode(&head, dialect).filter(|_| dialect.admits_at_handshake());
    let mut first = None;
    if let Some(mode) = early_mode {
        if inbound.send(OwnerMessage::Connected(conn, mode, outgoing.clone())).await.is_err() {
            return;
        }
        first = receiver.recv().await;
        if let Some(ConnectionCommand::Refuse(page)) = first {
            let _gone = timeout(IO_TIMEOUT, write_page(&mut stream, &head, dialect, &page)).await;
            return;
        }
    }
    if let Ok(Some((socket, mode))) = timeout(IO_TIMEOUT, accept_handshake(stream, dialect)).await {
        if early_mode.is_none()
            && inbound.send(OwnerMessage::Connected(conn, mode, outgoing.clone())).await.is_err()
        {
            return;
        }
        // The owner drops a client by dropping its sender.
        drop(outgoing);
        relay_frames(socket, conn, &inbound, first, receiver).await;
    } else if early_mode.is_none() {
        return;
    }
    // The send fails only at shutdown.
    let _gone = inbound.send(OwnerMessage::Disconnected(conn)).await;
}

/// Waits for a complete request head, and leaves it unread; `None` if it is too long or no HTTP, such as TLS.
async fn peek_head(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut buffer = vec![0; HEAD_MAX_BYTES];
    loop {
        let length = stream.peek(&mut buffer).await?;
        let head = String::from_utf8_lossy(&buffer[..length]);
        if let Some((head, _)) = head.split_once("\r\n\r\n") {
            return Ok(Some(head.to_owned()));
        }
        match buffer[..length].first() {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(b'A'..=b'Z') if length < HEAD_MAX_BYTES => tokio::time::sleep(HEAD_PAUSE).await,
            Some(_) => return Ok(None),
        }
    }
}

/// True if the request asks for a WebSocket (RFC 6455 §4.1).
fn is_handshake(head: &str) -> bool {
    head.lines().skip(1).any(|line| {
        let is_upgrade = |(name, _): (&str, &str)| name.trim().eq_ignore_ascii_case("upgrade");
        line.split_once(':').is_some_and(is_upgrade)
    })
}

/// The mode for which a handshake asks; `None` if it will be rejected.
fn requested_mode(head: &str, dialect: SimDialect) -> Option<SimMode> {
    let target = head.split(' ').nth(1)?;
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    if path == dialect.path() { dialect.parse_mode(query).ok() } else { None }
}

async fn answer_http(
    stream: &mut TcpStream,
    head: &str,
    dialect: SimDialect,
    inbound: &Sender<OwnerMessage>,
) -> Option<()> {
    let mut request = head.split([' ', '\r']);
    let (method, target) = (request.next()?, request.next()?);
    let path = target.split('?').next()?;
    let (reply, page) = oneshot::channel();
    inbound.send(OwnerMessage::Http(method.to_owned(), path.to_owned(), reply)).await.ok()?;
    write_page(stream, head, dialect, &page.await.ok()?).await
}

/// Answers a request whose head is unread.
async fn write_page(stream: &mut TcpStream, head: &str, dialect: SimDialect, page: &HttpPage) -> Option<()> {
    let HttpPage { status, json } = page;
    let reason = StatusCode::from_u16(*status).ok()?.canonical_reason().unwrap_or_default();
    let server = if dialect == SimDialect::LlamaCppOmni { "X-Engine: comni" } else { "server: uvicorn" };
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\n{server}\r\n{SIMULATED_HEADER}: voxbridge\r\ncontent-length: {}\r\ncontent-type: application/json\r\n\
         connection: close\r\n\r\n{json}",
        json.len()
    );
    // Closing with unread data would reset the connection.
    let mut unread = vec![0; head.len() + "\r\n\r\n".len()];
    stream.read_exact(&mut unread).await.ok()?;
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

async fn accept_handshake(stream: TcpStream, dialect: SimDialect) -> Option<(ServerSocket, SimMode)> {
    let mut accepted = None;
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let check_request = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let uri = request.uri();
        let mode = if uri.path() == dialect.path() {
            dialect.parse_mode(uri.query())
        } else {
            Err(HandshakeRejected { status: 403 })
        };
        match mode {
            Ok(mode) => {
                accepted = Some(mode);
                Ok(response)
            }
            Err(rejected) => Err(rejection_response(rejected)),
        }
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = accept_hdr_async_with_config(stream, check_request, Some(config)).await.ok()?;
    Some((socket, accepted?))
}

fn rejection_response(rejected: HandshakeRejected) -> ErrorResponse {
    let mut response = ErrorResponse::new(None);
    *response.status_mut() = StatusCode::from_u16(rejected.status).unwrap_or(StatusCode::FORBIDDEN);
    response
}

/// Reads and writes concurrently, so that two peers that both write do not block each other.
async fn relay_frames(
    socket: ServerSocket,
    conn: ConnId,
    inbound: &Sender<OwnerMessage>,
    first: Option<ConnectionCommand>,
    mut outgoing: Receiver<ConnectionCommand>,
) {
    let (mut sink, mut stream) = socket.split();
    let written = {
        let mut reading = pin!(read_frames(&mut stream, conn, inbound));
        let written = tokio::select! {
            read = &mut reading => Err(read),
            written = write_frames(&mut sink, first, &mut outgoing) => Ok(written),
        };
        if matches!(written, Ok(WriteEnd::Closed)) {
            // Waits for the client's answer to the close, up to the timeout.
            let _late = timeout(IO_TIMEOUT, reading).await;
        }
        written
    };
    match written {
        Err(ReadEnd::MessageTooBig) => {
            let _late =
                timeout(IO_TIMEOUT, sink.send(close_message(CloseCode::Size.into(), "message too big")))
                    .await;
        }
        Ok(WriteEnd::Aborted) => {
            if let Ok(socket) = stream.reunite(sink) {
                // Without lingering, the drop sends a reset.
                let _unsupported = socket.get_ref().set_zero_linger();
            }
        }
        Err(ReadEnd::Disconnected) | Ok(WriteEnd::Closed | WriteEnd::Failed) => {}
    }
}

async fn read_frames(
    stream: &mut SplitStream<ServerSocket>,
    conn: ConnId,
    inbound: &Sender<OwnerMessage>,
) -> ReadEnd {
    loop {
        let incoming = match stream.next().await {
            Some(Ok(Message::Text(text))) => OwnerMessage::Text(conn, text),
            Some(Ok(Message::Binary(_))) => OwnerMessage::Binary(conn),
            // Pings are answered below this level; after a close frame the stream ends by itself.
            Some(Ok(_)) => continue,
            Some(Err(Error::Capacity(_))) => return ReadEnd::MessageTooBig,
            Some(Err(_)) | None => return ReadEnd::Disconnected,
        };
        if inbound.send(incoming).await.is_err() {
            return ReadEnd::Disconnected;
        }
    }
}

async fn write_frames(
    sink: &mut SplitSink<ServerSocket, Message>,
    mut first: Option<ConnectionCommand>,
    outgoing: &mut Receiver<ConnectionCommand>,
) -> WriteEnd {
    while let Some(next) = match first.take() {
        Some(first) => Some(first),
        None => outgoing.recv().await,
    } {
        let (message, is_last) = match next {
            ConnectionCommand::Text(text) => (Message::text(text), false),
            ConnectionCommand::Close(code, reason) => (close_message(code, &reason), true),
            ConnectionCommand::Abort | ConnectionCommand::Refuse(_) => return WriteEnd::Aborted,
        };
        match timeout(IO_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) if is_last => return WriteEnd::Closed,
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return WriteEnd::Failed,
        }
    }
    // The owner dropped this client.
    WriteEnd::Aborted
}

fn close_message(code: u16, reason: &str) -> Message {
    Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))
}
