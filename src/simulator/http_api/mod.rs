//! HTTP API of servers without a gateway: transcripts, speech and answers in turns, as vLLM-Omni 0.30, SGLang-Omni 0.1.9 and
//! speaches have it.
//!
//! A request becomes one chat session of the simulated gateway, whose deltas become the answer. So the text, the voice, the
//! engines and the faults are the same. A real server stops an answer when its client leaves; here its worker finishes it
//! unheard.
//!
//! - [`request`] reads requests as strictly as each server; [`answer`] writes answers

mod answer;
mod request;

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{CONTENT_TYPE, SERVER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    time::timeout,
};

use self::{answer::AnswerWriter, request::Question};
use super::{
    ConnId, HttpApi, HttpPage, SIMULATED_HEADER, SimMode,
    record::{InputRecorder, RecordedInput},
    transport::{ConnectionCommand, OwnerMessage},
};

/// Capacity of the channels of one request, above the length of the longest answer.
const CAPACITY: usize = 2048;

/// Longest wait for the end of a session whose answer is complete.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Model of the simulated servers.
const MODEL: &str = "openbmb/MiniCPM-o-4_5";

type Body = Either<Full<Bytes>, StreamBody<stream::BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// A piece of an answer.
#[derive(Debug)]
enum Piece {
    Text(String),
    /// float32 in base64, 24 kHz.
    Audio(String),
    Done,
    /// The server takes no request.
    Busy(String),
    Failed(String),
    /// The connection breaks.
    Aborted,
}

/// Context of one request.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) api: HttpApi,
    pub(super) conn: ConnId,
    pub(super) inbound: Sender<OwnerMessage>,
    pub(super) recorder: Option<InputRecorder>,
}

/// Serves one connection, which has one request.
pub(super) async fn serve_connection(stream: TcpStream, context: RequestContext) {
    let _unsupported = stream.set_nodelay(true);
    let service = service_fn(|request| answer_request(request, context.clone()));
    // A connection that breaks needs no more.
    let _broken =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer_request(request: Request<Incoming>, context: RequestContext) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path().to_owned();
    if let Some(recorder) = &context.recorder {
        recorder.push(RecordedInput::Request(context.conn, path.clone(), body.to_vec()));
    }
    if head.method == hyper::Method::GET {
        return Ok(page_response(match path.as_str() {
            "/health" => HttpPage { status: 200, json: String::new() },
            "/v1/models" => {
                let model = json!({"id": MODEL, "object": "model", "created": 0, "owned_by": "simulator"});
                HttpPage { status: 200, json: json!({"object": "list", "data": [model]}).to_string() }
            }
            _ => not_found(),
        }));
    }
    let content_type =
        head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let question = match request::read(context.api, &path, content_type, &body) {
        Ok(question) => question,
        Err(page) => return Ok(page_response(page)),
    };
    let (sender, mut pieces) = mpsc::channel(CAPACITY);
    let writer = AnswerWriter::new(context.api, question.form);
    tokio::spawn(ask_gateway(question, context, sender));
    // A failure before the first piece has a status of its own.
    match pieces.recv().await {
        Some(Piece::Busy(words)) => Ok(page_response(failure(503, &words))),
        Some(Piece::Failed(words)) => Ok(page_response(failure(500, &words))),
        Some(Piece::Aborted) | None => Err(io::ErrorKind::ConnectionAborted.into()),
        Some(first) if writer.is_stream() => Ok(stream_response(writer, first, pieces)),
        Some(first) => whole_response(writer, first, pieces).await,
    }
}

/// The answer in chunks, as they come.
fn stream_response(writer: AnswerWriter, first: Piece, pieces: Receiver<Piece>) -> Response<Body> {
    let content_type = writer.content_type();
    let state = (writer, Some(first), Some(pieces));
    let chunks = stream::unfold(state, |(mut writer, first, pieces)| async {
        let mut pieces = pieces?;
        let piece = match first {
            Some(first) => Some(first),
            None => pieces.recv().await,
        };
        let is_last = !matches!(piece, Some(Piece::Text(_) | Piece::Audio(_)));
        let chunk = match piece {
            None | Some(Piece::Aborted) => Err(io::ErrorKind::ConnectionAborted.into()),
            Some(piece) => Ok(Frame::data(writer.chunk(piece).into())),
        };
        Some((chunk, (writer, None, (!is_last).then_some(pieces))))
    });
    let body = StreamBody::new(Box::pin(chunks) as stream::BoxStream<'static, _>);
    response(200, content_type, Either::Right(body))
}

/// The answer once it is complete.
async fn whole_response(
    mut writer: AnswerWriter,
    first: Piece,
    mut pieces: Receiver<Piece>,
) -> io::Result<Response<Body>> {
    let mut next = Some(first);
    loop {
        match next {
            Some(piece @ (Piece::Text(_) | Piece::Audio(_))) => writer.keep(piece),
            Some(Piece::Done) => {
                let (content_type, body) = writer.whole();
                return Ok(response(200, content_type, Either::Left(body.into())));
            }
            Some(Piece::Busy(words) | Piece::Failed(words)) => {
                return Ok(page_response(failure(500, &words)));
            }
            Some(Piece::Aborted) | None => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        next = pieces.recv().await;
    }
}

fn page_response(page: HttpPage) -> Response<Body> {
    response(page.status, "application/json", Either::Left(page.json.into()))
}

fn response(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response.headers_mut().insert(SERVER, hyper::header::HeaderValue::from_static("uvicorn"));
    let simulated = hyper::header::HeaderValue::from_static("voxbridge");
    response.headers_mut().insert(SIMULATED_HEADER, simulated);
    response
}

/// The page of a failure, as OpenAI's API has it.
fn failure(status: u16, words: &str) -> HttpPage {
    let kind = if status < 500 { "BadRequestError" } else { "server_error" };
    let error = json!({"message": words, "type": kind, "param": null, "code": status});
    HttpPage { status, json: json!({"error": error}).to_string() }
}

/// FastAPI's page for an unknown path.
fn not_found() -> HttpPage {
    HttpPage { status: 404, json: json!({"detail": "Not Found"}).to_string() }
}

/// The piece of an answer in a message of the session; `None` for other messages.
fn piece_of(message: &Value) -> Option<Piece> {
    let failure = message.pointer("/diagnostic/message").and_then(Value::as_str);
    match message["type"].as_str()? {
        "response.output.delta" => match (message["text"].as_str(), message["audio"].as_str()) {
            (_, Some(audio)) => Some(Piece::Audio(audio.to_owned())),
            (text, None) => Some(Piece::Text(text.unwrap_or_default().to_owned())),
        },
        "response.done" => Some(Piece::Done),
        // These servers have no answer that is an error because it is empty.
        "session.closed" if failure.is_some_and(|words| words.starts_with("torch.cat")) => Some(Piece::Done),
        "session.closed" => Some(Piece::Failed(failure.unwrap_or("the engine is gone").to_owned())),
        "error" if message["error"]["code"] == "queue_full" => Some(Piece::Busy("Queue is full".to_owned())),
        "error" => Some(Piece::Failed(message["error"]["message"].to_string())),
        _ => None,
    }
}

/// Has the gateway answer a question in a chat session. The question opens the session, as any first append does.
async fn ask_gateway(question: Question, context: RequestContext, pieces: Sender<Piece>) {
    let RequestContext { conn, inbound, recorder, .. } = context;
    let (outgoing, mut received) = mpsc::channel(CAPACITY);
    let send = |message| async { inbound.send(message).await };
    let text = |json: Value| OwnerMessage::Text(conn, json.to_string().into());
    // Sending fails only at shutdown.
    let _ = send(OwnerMessage::Connected(conn, SimMode::Chat, outgoing)).await;
    let _ = send(text(json!({"type": "input.append", "input": question.input}))).await;
    let mut has_left = false;
    loop {
        let command = tokio::select! {
            command = received.recv() => command,
            () = pieces.closed(), if !has_left => {
                has_left = true;
                if let Some(recorder) = &recorder {
                    recorder.push(RecordedInput::Disconnected(conn));
                }
                continue;
            }
        };
        let Some(ConnectionCommand::Text(message)) = command else { break };
        let message = serde_json::from_str(&message).unwrap_or_default();
        let Some(piece) = piece_of(&message) else { continue };
        let is_last = !matches!(piece, Piece::Text(_) | Piece::Audio(_));
        let _gone = pieces.send(piece).await;
        if is_last {
            break;
        }
    }
    let _gone = pieces.send(Piece::Aborted).await;
    drop(pieces);
    let _ = send(text(json!({"type": "session.close", "reason": "turn_done"}))).await;
    let _late = timeout(CLOSE_TIMEOUT, async {
        while let Some(ConnectionCommand::Text(_)) = received.recv().await {}
    })
    .await;
    let _ = send(OwnerMessage::Disconnected(conn)).await;
}
