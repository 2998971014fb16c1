//! REST: a recording in, its words out; a text in, its speech out; as in the APIs of OpenAI, Macaw and Deepgram.
//!
//! A request is served by a session like any other. [`session`] opens it by a port, with the client protocol `rest`
//! (`mappings/client/rest.toml`), so that routes, profiles, keys, limits, metrics and traces are those of WebSocket clients.
//!
//! - [`endpoint`]: the paths
//! - [`style`]: the API that a client expects, its defaults and its errors
//! - [`body`]: receives the body of a request; [`bodies`]: the bodies in progress
//! - [`upload`]: a recording with its fields; [`form`] and [`members`] read forms and JSON, [`parse`] outside of the sessions'
//!   threads
//! - [`local`] opens sessions for commands of this process
//! - [`transcribe`]: a recording to a transcript; [`transcript`] answers with it
//! - [`speak`]: a text to speech; [`speech_events`]: as server-sent events; [`character_times`]: with the times of its characters
//! - [`early_answer`] begins before its words are known; [`streamed_body`] is sent as it is made; [`super::codec_threads`] decodes and encodes
//! - [`deepgram`], [`elevenlabs`], [`cartesia`], [`speechmatics`] and [`assemblyai`]: requests and answers in the forms of these APIs; what they share
//!   is in [`query`] and [`speech_format`]
//! - [`calls`]: begins and ends calls by WebRTC; [`offers`]: as Pipecat's clients do; [`live_sessions`]: as OpenAI's Live clients do
//! - [`jobs`]: transcriptions that a client creates and asks for later, spelled by the mapping files; [`job_endpoint`]: their paths
//! - [`models`]: lists of models and voices, and the server's state

mod assemblyai;
pub(crate) mod bodies;
mod body;
mod calls;
mod cartesia;
mod character_times;
mod deepgram;
mod early_answer;
mod elevenlabs;
mod endpoint;
mod form;
pub(crate) mod fuzzing;
mod job_endpoint;
pub(in crate::server) mod jobs;
mod live_sessions;
pub(crate) mod local;
mod members;
mod models;
mod offers;
mod parse;
mod query;
pub(super) mod secret_request;
pub(crate) mod session;
mod speak;
mod speech_events;
mod speech_format;
mod speechmatics;
mod streamed_body;
mod style;
mod transcribe;
mod transcript;
mod upload;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, HeaderValue, LOCATION, ORIGIN, VARY,
    },
};
use serde_json::json;

pub(super) use self::endpoint::Endpoint;
use self::{
    session::Opening,
    speech_format::Delivery,
    streamed_body::StreamedBody,
    style::{Failure, Style},
};
use super::accept::{
    admission::{Caller, ClientPeer},
    host::{check_local_host, check_page, may_page_use_rest},
    http_error::{HttpError, HttpResponse, HttpResult, answer_with},
    request_body::{ReceivedRequest, RequestBody},
    request_stream::Answering,
};
use crate::{
    server::{
        ServerContext, ServiceConfig, Snapshot, access::handshakes::ServedRequests, memory::MemoryShare,
    },
    telemetry::metrics::RejectReason,
};

/// Body of an answer: complete, or as it is made.
pub(super) type Body = Either<Full<Bytes>, StreamedBody>;

/// The answer to a request, or why there is none.
type RestResult = Result<Response<Body>, Failure>;

/// Name of the client protocol that requests are served by.
pub(crate) const PROTOCOL: &str = "rest";

/// Counts a request as served while it lives, and keeps the next one of the connection waiting.
pub(super) struct ServedRequest {
    served: ServedRequests,
    /// `None` for work behind a request that was answered.
    _answering: Option<Answering>,
}

impl ServedRequest {
    /// A request of the connection that counts those that are served.
    pub(super) fn begin(served: &ServedRequests, answering: Answering) -> Self {
        served.send_modify(|count| *count += 1);
        Self { served: served.clone(), _answering: Some(answering) }
    }

    /// Work that goes on behind its request, and so holds no connection.
    fn in_background() -> Self {
        let served = ServedRequests::default();
        served.send_modify(|count| *count += 1);
        Self { served, _answering: None }
    }
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        self.served.send_modify(|count| *count -= 1);
    }
}

/// Answers a request at one of the REST paths.
pub(super) async fn answer(
    endpoint: Endpoint,
    request: ReceivedRequest,
    peer: &ClientPeer,
    snapshot: &Snapshot,
    served: ServedRequest,
) -> Response<Body> {
    let page = allowed_page(&snapshot.config, request.headers());
    let mut response = match answer_checked(endpoint, request, peer, snapshot, served).await {
        Ok(response) => response,
        Err(error) => {
            snapshot.server.metrics.record_rejection(error.reason);
            error.response.map(Either::Left)
        }
    };
    let_page_read(response.headers_mut(), page);
    response
}

/// The origin of the page that sent the request, if it may use REST.
pub(super) fn allowed_page(config: &ServiceConfig, headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ORIGIN).filter(|_| may_page_use_rest(config, headers)).cloned()
}

/// Adds the headers that the page needs to read the answer, errors included.
pub(super) fn let_page_read(headers: &mut HeaderMap, page: Option<HeaderValue>) {
    let Some(origin) = page else { return };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if headers.contains_key(LOCATION) {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location"));
    }
}

async fn answer_checked(
    endpoint: Endpoint,
    request: ReceivedRequest,
    peer: &ClientPeer,
    snapshot: &Snapshot,
    served: ServedRequest,
) -> HttpResult<Response<Body>> {
    let Snapshot { server, config } = snapshot;
    if request.method() == Method::OPTIONS && request.headers().contains_key(ORIGIN) {
        return Ok(complete(preflight_response(endpoint.methods())));
    }
    if !endpoint.allows(request.method()) {
        return Err(wrong_method(&endpoint));
    }
    check_page(config, request.headers())?;
    if matches!(endpoint, Endpoint::Health) {
        return Ok(complete(models::health(config, server)));
    }
    check_local_host(config, request.headers(), peer.address.ip())?;
    if let Endpoint::Job(endpoint) = endpoint {
        return jobs::answer(&endpoint, request, peer, snapshot, served).await.map(complete);
    }
    let keys_are_asked_for = config.access.keys.is_some();
    let style = Style::of(&endpoint, &config.library, request.headers(), keys_are_asked_for);
    let caller = Caller::identify(config, &request, peer, Some(&server.client_secrets))
        .map_err(|refusal| style.restyle(refusal))?;
    let opening = Opening {
        server: server.clone(),
        config: config.clone(),
        caller,
        path: request.uri().path().to_owned(),
        served,
    };
    answer_opened(endpoint, request, style, opening).await.map_err(|failure| failure.into_http_error(style))
}

/// Answers a request whose sender was identified.
async fn answer_opened(
    endpoint: Endpoint,
    request: ReceivedRequest,
    style: Style,
    opening: Opening,
) -> RestResult {
    let config = &opening.config;
    match endpoint {
        Endpoint::Transcribe(task) => transcribe::answer(task, request, style, opening).await,
        Endpoint::Speak => speak::answer(request, style, opening).await,
        Endpoint::Listen => deepgram::answer_listen(request, opening).await,
        Endpoint::DeepgramSpeak => deepgram::answer_speak(request, opening).await,
        Endpoint::ElevenLabsSpeak(voice, delivery) => {
            elevenlabs::answer_speak(&voice, delivery, request, opening).await
        }
        Endpoint::ElevenLabsListen => elevenlabs::answer_listen(request, opening).await,
        Endpoint::CartesiaSpeak => cartesia::answer_speak(Delivery::Bytes, request, opening).await,
        Endpoint::CartesiaEvents => cartesia::answer_speak(Delivery::Events, request, opening).await,
        Endpoint::AssemblyAiSpeak => assemblyai::answer_speak(request, opening).await,
        Endpoint::SpeechmaticsSpeak(voice) => speechmatics::answer_speak(&voice, request, opening).await,
        Endpoint::Call => calls::begin(request, opening).await,
        Endpoint::LiveSession => live_sessions::begin(request, opening).await,
        Endpoint::Offer(protocol) => offers::answer(&protocol, request, opening).await,
        Endpoint::HangUp(id) | Endpoint::DeleteCall(id) => calls::end(&id, &opening).map(complete),
        Endpoint::CancelTranscription(id) => Ok(complete(models::nothing_to_cancel(&id))),
        Endpoint::Models => Ok(complete(models::list(config, style))),
        Endpoint::Model(id) => models::one(config, style, &id).map(complete),
        Endpoint::Voices => Ok(complete(models::voices(config))),
        Endpoint::SpeechModels => Ok(complete(models::speech_models(config))),
        Endpoint::SpeechVoices => Ok(complete(models::speech_voices(config))),
        Endpoint::Health => Ok(complete(models::health(config, &opening.server))),
        // Answered above, in the form of its protocol.
        Endpoint::Job(_) => Err(Failure::invalid("no job")),
    }
}

/// Reads the short body of a request that is answered elsewhere, in OpenAI's form.
pub(super) async fn read_short_body(
    body: RequestBody,
    max_bytes: usize,
    server: &ServerContext,
) -> HttpResult<Bytes> {
    let mut memory = MemoryShare::new(server.memory.clone(), server.config().limits.memory_max_bytes);
    let read = body::read_body(body, max_bytes, &mut memory, &server.bodies).await;
    read.map_err(|failure| failure.into_http_error(Style::OpenAi))
}

/// A random id of a request.
fn request_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// A complete answer.
fn complete(response: HttpResponse) -> Response<Body> {
    response.map(Either::Left)
}

/// Answers a browser that asks whether a page may send the request (Fetch standard, "CORS-preflight fetch").
pub(super) fn preflight_response(methods: &'static str) -> HttpResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    // Browsers take `*` for every header but this one.
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, *"));
    response
}

fn wrong_method(endpoint: &Endpoint) -> Box<HttpError> {
    let body = json!({"detail": "Method Not Allowed"}).to_string();
    HttpError::with_body(RejectReason::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, body)
        .with_header(ALLOW, endpoint.methods())
}
