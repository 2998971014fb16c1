//! Lists of models and voices, and the server's state.

use serde_json::{Value, json};

use super::{
    super::accept::http_error::HttpResponse,
    answer_with,
    style::{Failure, Style},
};
use crate::{
    server::{ServerContext, ServiceConfig, process::lifecycle::LifecycleState},
    session::DEFAULT_VOICE,
};
use hyper::StatusCode;

/// Name of the model behind every route.
const MODEL: &str = "minicpm-o";

/// Names of the models, without patterns: MiniCPM-o, and those that routes name.
fn names(config: &ServiceConfig) -> Vec<String> {
    let named = config.routes.iter().map(|route| route.model.clone());
    let mut names: Vec<_> = named.filter(|name| !name.contains(['*', '?'])).collect();
    names.insert(0, MODEL.to_owned());
    names.dedup();
    names
}

fn model(name: &str, style: Style) -> Value {
    let mut model = json!({"id": name, "object": "model", "created": 0, "owned_by": "openbmb"});
    if style == Style::Macaw {
        model["type"] = "stt".into();
        model["engine"] = MODEL.into();
    }
    model
}

fn json_answer(body: &Value) -> HttpResponse {
    answer_with("application/json", body.to_string())
}

/// `GET /v1/models`.
pub(super) fn list(config: &ServiceConfig, style: Style) -> HttpResponse {
    let data: Vec<_> = names(config).iter().map(|name| model(name, style)).collect();
    json_answer(&json!({"object": "list", "data": data}))
}

/// `GET /v1/models/{id}`: any model that a route serves.
pub(super) fn one(config: &ServiceConfig, style: Style, name: &str) -> Result<HttpResponse, Failure> {
    let is_served = names(config).iter().any(|known| known == name)
        || config.library.client(super::PROTOCOL).is_ok_and(|client| {
            config.routes.find("/v1/models", &client, name).is_some() && !name.is_empty()
        });
    if is_served { Ok(json_answer(&model(name, style))) } else { Err(not_found(name)) }
}

/// HTTP 404: no route serves the model.
pub(super) fn not_found(name: &str) -> Failure {
    let message = format!("Model '{name}' not found in the registry");
    Failure::new(StatusCode::NOT_FOUND, "model_not_found", message).about("model")
}

/// `GET /v1/voices`.
pub(super) fn voices(config: &ServiceConfig) -> HttpResponse {
    let voice = |name: &str| json!({"voice_id": name, "name": name, "language": null, "gender": null, "model": MODEL});
    let data: Vec<_> = config.voices.voices_and_models().0.keys().map(|name| voice(name)).collect();
    json_answer(&json!({"object": "list", "data": data}))
}

/// `GET /v1/audio/models`: the models that Open WebUI offers for speech.
pub(super) fn speech_models(config: &ServiceConfig) -> HttpResponse {
    let models: Vec<_> = names(config).iter().map(|name| json!({ "id": name })).collect();
    json_answer(&json!({ "models": models }))
}

/// `GET /v1/audio/voices`: the voices that Open WebUI offers. Without configured ones, it is the server's own.
pub(super) fn speech_voices(config: &ServiceConfig) -> HttpResponse {
    let configured = config.voices.voices_and_models().0;
    let own = configured.is_empty().then_some(DEFAULT_VOICE);
    let names = configured.keys().map(String::as_str).chain(own);
    let voices: Vec<_> = names.map(|name| json!({"id": name, "name": name})).collect();
    json_answer(&json!({ "voices": voices }))
}

/// `GET /health`.
pub(super) fn health(config: &ServiceConfig, server: &ServerContext) -> HttpResponse {
    let upstreams = config.pool.statuses();
    let ready = upstreams.iter().filter(|(_, status)| status.load.ejected_until.is_none()).count();
    let is_serving = server.lifecycle.state() == LifecycleState::Serving;
    let status = if is_serving && ready > 0 { "ok" } else { "degraded" };
    json_answer(&json!({
        "status": status, "version": env!("CARGO_PKG_VERSION"), "models_loaded": 1, "workers_ready": ready,
        "workers_total": upstreams.len(),
    }))
}

/// `POST /v1/audio/transcriptions/{id}/cancel`: a request ends when its client disconnects, so there is nothing to cancel by
/// id. The real server answers an unknown id in the same way (mappings/notes/macaw.md#rest).
pub(super) fn nothing_to_cancel(id: &str) -> HttpResponse {
    json_answer(&json!({"request_id": id, "cancelled": false}))
}
