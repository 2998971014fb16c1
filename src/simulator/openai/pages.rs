//! The server before a session: its pages, the models, and refusals.

use serde_json::json;

use super::wire::Rejected;
use crate::{ConnId, HttpPage, RealtimeRefusal, RealtimeServer, SimMode, SimOutput};

/// Model of a simulated OpenAI, and of a simulated deployment.
pub(super) const OPENAI_MODEL: &str = "gpt-realtime";
pub(super) const VLLM_MODEL: &str = "openbmb/MiniCPM-o-4_5";

impl RealtimeServer {
    /// Reads the model, or the purpose, of a handshake's query.
    pub(crate) fn parse_mode(self, query: Option<&str>) -> SimMode {
        let value = |name: &str| {
            let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
            pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).last()
        };
        let model = value("model").filter(|model| !model.is_empty());
        match (self, model) {
            (Self::VllmOmni, Some(model)) if model != VLLM_MODEL => {
                SimMode::Refused(RealtimeRefusal::UnknownModel)
            }
            (Self::VllmOmni, _) => SimMode::Video,
            (Self::Openai, Some(model)) if is_openai_model(&model) => SimMode::Video,
            (Self::Openai, Some(_)) => SimMode::Refused(RealtimeRefusal::UnknownModel),
            (Self::Openai, None) if value("intent").as_deref() == Some("transcription") => {
                SimMode::Transcription
            }
            (Self::Openai, None) => SimMode::Refused(RealtimeRefusal::NoModel),
        }
    }

    /// Answers a request; `None` if there is no such page.
    pub(crate) fn page(self, method: &str, path: &str) -> Option<HttpPage> {
        let json = match (self, method, path) {
            (Self::Openai, "GET", "/v1/models") => {
                let model = |name: &str| {
                    json!({
                        "id": name, "object": "model", "created": 1_756_271_701, "owned_by": "system",
                    })
                };
                json!({"object": "list", "data": [model(OPENAI_MODEL), model("gpt-4o-transcribe")]})
                    .to_string()
            }
            (Self::VllmOmni, "GET", "/v1/models") => json!({
                "object": "list", "data": [{"id": VLLM_MODEL, "object": "model", "owned_by": "vllm"}],
            })
            .to_string(),
            (Self::VllmOmni, "GET", "/health") => String::new(),
            _ => return None,
        };
        Some(HttpPage { status: 200, json })
    }

    /// Answer to a handshake that finds no free session: OpenAI's limit of requests, or the web server's of connections.
    pub(crate) fn unavailable(self) -> HttpPage {
        match self {
            Self::Openai => {
                let error = json!({
                    "message": "Rate limit reached for requests", "type": "requests", "param": null,
                    "code": "rate_limit_exceeded",
                });
                HttpPage { status: 429, json: json!({"error": error}).to_string() }
            }
            Self::VllmOmni => HttpPage { status: 503, json: "Service Unavailable".to_owned() },
        }
    }

    /// How a connection for another model, or for none, ends.
    pub(crate) fn refuse(self, refusal: RealtimeRefusal, conn: ConnId) -> [SimOutput; 2] {
        let (code, words) = match (self, refusal) {
            (Self::VllmOmni, _) => ("unsupported_model", "The model is not available"),
            (Self::Openai, RealtimeRefusal::NoModel) => {
                ("missing_model", "You must provide a model parameter.")
            }
            (Self::Openai, RealtimeRefusal::UnknownModel) => {
                ("model_not_found", "The model does not exist or you do not have access to it.")
            }
        };
        let error = Rejected::new(code, words).at("model").to_json(None);
        // This event is the same in every connection.
        let event = json!({"type": "error", "event_id": "event_refused", "error": error});
        let close = match self {
            Self::Openai => SimOutput::Close(conn, 4000, format!("invalid_request_error.{code}")),
            Self::VllmOmni => SimOutput::Close(conn, 1008, String::new()),
        };
        [SimOutput::Text(conn, event.to_string()), close]
    }
}

/// True for names of OpenAI's realtime models.
fn is_openai_model(name: &str) -> bool {
    name.starts_with("gpt-") && ["realtime", "audio"].iter().any(|part| name.contains(part))
}
