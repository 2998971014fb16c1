//! The paths of the REST APIs.

use std::sync::Arc;

use hyper::{Method, Request};

use super::{
    job_endpoint::JobEndpoint,
    speech_format::{Delivery, TimedForm},
};
pub(crate) use crate::media::transcript::Task;
use crate::{
    server::ServiceConfig,
    spelling::{ClientMapping, client::decode_percent},
};

/// One path of an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// OpenAI and Macaw: `POST /v1/audio/transcriptions` and `/v1/audio/translations`.
    Transcribe(Task),
    /// OpenAI and Macaw: `POST /v1/audio/speech`.
    Speak,
    /// Macaw: `POST /v1/audio/transcriptions/{id}/cancel`.
    CancelTranscription(String),
    /// OpenAI and Macaw: `GET /v1/models`.
    Models,
    /// OpenAI: `GET /v1/models/{id}`.
    Model(String),
    /// Macaw: `GET /v1/voices`.
    Voices,
    /// Open WebUI: `GET /v1/audio/models`.
    SpeechModels,
    /// Open WebUI: `GET /v1/audio/voices`.
    SpeechVoices,
    /// Macaw: `GET /health`.
    Health,
    /// Deepgram: `POST /v1/listen`.
    Listen,
    /// Deepgram: `POST /v1/speak`.
    DeepgramSpeak,
    /// ElevenLabs: `POST /v1/text-to-speech/{voice_id}`, and `/stream`, `/with-timestamps` and `/stream/with-timestamps` below it,
    /// with the id of the voice.
    ElevenLabsSpeak(String, Delivery),
    /// ElevenLabs: `POST /v1/speech-to-text`.
    ElevenLabsListen,
    /// Cartesia: `POST /tts/bytes`.
    CartesiaSpeak,
    /// Cartesia: `POST /tts/sse`.
    CartesiaEvents,
    /// AssemblyAI: `POST /v1/speech`.
    AssemblyAiSpeak,
    /// Speechmatics: `POST /generate/{voice}`, with the name of the voice.
    SpeechmaticsSpeak(String),
    /// OpenAI: `POST /v1/realtime/calls`, and `POST /v1/realtime` of its beta.
    Call,
    /// OpenAI: `POST /v1/realtime/calls/{id}/hangup` and `/v1/live/sessions/{id}/hangup`.
    HangUp(String),
    /// `DELETE /v1/realtime/calls/{id}`, as some servers have it.
    DeleteCall(String),
    /// OpenAI: `POST /v1/live/sessions`.
    LiveSession,
    /// Pipecat: `POST /api/offer` and `PATCH /api/offer`, for clients of the protocol with this name.
    Offer(String),
    /// Uploads and transcriptions as jobs, at the paths of a mapping file.
    Job(JobEndpoint),
}

impl Endpoint {
    /// The endpoint of a request; `None` if the path belongs to WebSocket clients or is unknown.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        match path {
            "/health" => return Some(Self::Health),
            "/tts/bytes" => return Some(Self::CartesiaSpeak),
            "/tts/sse" => return Some(Self::CartesiaEvents),
            "/v1/speech" => return Some(Self::AssemblyAiSpeak),
            _ => {}
        }
        if let Some(voice) = path.strip_prefix("/generate/").and_then(one_segment) {
            return Some(Self::SpeechmaticsSpeak(voice));
        }
        // WebSocket clients of Deepgram and ElevenLabs use the same or similar paths with GET.
        let is_upgrade = method == Method::GET;
        let (_, path) = path.split_once("/v1/").filter(|(before, _)| ["", "/openai"].contains(before))?;
        Some(match path {
            "audio/transcriptions" => Self::Transcribe(Task::Transcribe),
            "audio/translations" => Self::Transcribe(Task::Translate),
            "audio/speech" => Self::Speak,
            "audio/models" => Self::SpeechModels,
            "audio/voices" => Self::SpeechVoices,
            "models" => Self::Models,
            "voices" => Self::Voices,
            "listen" if !is_upgrade => Self::Listen,
            "speak" if !is_upgrade => Self::DeepgramSpeak,
            "speech-to-text" => Self::ElevenLabsListen,
            other if !is_upgrade && other.starts_with("text-to-speech/") => {
                let rest = &other["text-to-speech/".len()..];
                let (voice, end) = rest.split_once('/').unwrap_or((rest, ""));
                let delivery = match end {
                    "" | "stream" => Delivery::Bytes,
                    "with-timestamps" => Delivery::Timed(TimedForm::Object),
                    "stream/with-timestamps" => Delivery::Timed(TimedForm::Lines),
                    _ => return None,
                };
                Self::ElevenLabsSpeak(one_segment(voice)?, delivery)
            }
            "realtime" | "realtime/calls" if !is_upgrade => Self::Call,
            "live/sessions" if !is_upgrade => Self::LiveSession,
            other if !is_upgrade && other.starts_with("live/sessions/") => {
                let id = other["live/sessions/".len()..].strip_suffix("/hangup")?;
                Self::HangUp(one_segment(id)?)
            }
            other if other.starts_with("realtime/calls/") => {
                let id = &other["realtime/calls/".len()..];
                match id.strip_suffix("/hangup") {
                    Some(id) => Self::HangUp(id.to_owned()),
                    None => Self::DeleteCall(id.to_owned()),
                }
            }
            other => {
                let cancelled = other.strip_prefix("audio/transcriptions/");
                match cancelled.and_then(|rest| rest.strip_suffix("/cancel")) {
                    Some(id) => Self::CancelTranscription(id.to_owned()),
                    None => Self::Model(decode_percent(other.strip_prefix("models/")?)),
                }
            }
        })
    }

    /// The endpoint of a path that a client's mapping file names: of jobs, or of offers, alone or below `/sessions/{id}`, if a route
    /// serves the protocol.
    pub(crate) fn of_mapping<B>(request: &Request<B>, config: &ServiceConfig) -> Option<Self> {
        if let Some(job) = JobEndpoint::find(request, &config.library) {
            return Some(Self::Job(job));
        }
        let path = request.uri().path();
        let below = |path: &str| path.strip_prefix("/sessions/")?.find('/').map(|at| at + "/sessions/".len());
        let path = &path[below(path).unwrap_or(0)..];
        let is_offer = |client: &&Arc<ClientMapping>| client.offer_path.as_deref() == Some(path);
        let client = config.library.clients().find(is_offer)?;
        config.routes.can_serve(client).then(|| Self::Offer(client.name.clone()))
    }

    /// True for the paths of calls by WebRTC that nothing else has.
    pub(crate) const fn is_call(&self) -> bool {
        matches!(self, Self::Call | Self::HangUp(_) | Self::DeleteCall(_) | Self::Offer(_))
    }

    /// True for a method of the path, beside a browser's preflight request.
    pub(super) fn allows(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|name| name == method.as_str())
    }

    /// The methods of the path, as headers list them.
    pub(super) const fn methods(&self) -> &'static str {
        match self {
            Self::Models
            | Self::Model(_)
            | Self::Voices
            | Self::SpeechModels
            | Self::SpeechVoices
            | Self::Health => "GET, HEAD",
            Self::DeleteCall(_) => "DELETE",
            Self::Offer(_) => "POST, PATCH",
            Self::Job(job) => job.methods(),
            _ => "POST",
        }
    }
}

/// The decoded text of a path's last segment; `None` for an empty one, or several.
fn one_segment(path: &str) -> Option<String> {
    let is_one = !path.is_empty() && !path.contains('/');
    is_one.then(|| decode_percent(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::accept::not_found::REST_PATHS;

    #[test]
    fn listed_paths_are_served() {
        let is_served =
            |path| [Method::GET, Method::POST].iter().any(|method| Endpoint::of(method, path).is_some());
        assert!(REST_PATHS.into_iter().all(is_served));
    }

    #[test]
    fn paths_are_told_from_those_of_websocket_clients() {
        let of = |method, path| Endpoint::of(&method, path);
        assert_eq!(
            of(Method::POST, "/v1/audio/transcriptions"),
            Some(Endpoint::Transcribe(Task::Transcribe))
        );
        assert_eq!(
            of(Method::POST, "/openai/v1/audio/translations"),
            Some(Endpoint::Transcribe(Task::Translate))
        );
        assert_eq!(
            of(Method::POST, "/v1/audio/transcriptions/7/cancel"),
            Some(Endpoint::CancelTranscription("7".into()))
        );
        assert_eq!(of(Method::GET, "/openai/v1/audio/voices"), Some(Endpoint::SpeechVoices));
        assert_eq!(of(Method::GET, "/v1/audio/models"), Some(Endpoint::SpeechModels));
        for path in ["/v1/models/a/b", "/v1/models/a%2Fb", "/v1/models/%61/b"] {
            assert_eq!(of(Method::GET, path), Some(Endpoint::Model("a/b".into())), "{path}");
        }
        assert!(Endpoint::Health.allows(&Method::HEAD) && !Endpoint::Speak.allows(&Method::HEAD));
        assert_eq!(of(Method::POST, "/v1/listen"), Some(Endpoint::Listen));
        assert_eq!(of(Method::POST, "/v1/realtime"), Some(Endpoint::Call));
        for (end, delivery) in [
            ("", Delivery::Bytes),
            ("/stream", Delivery::Bytes),
            ("/with-timestamps", Delivery::Timed(TimedForm::Object)),
            ("/stream/with-timestamps", Delivery::Timed(TimedForm::Lines)),
        ] {
            let endpoint = Endpoint::of(&Method::POST, &format!("/v1/text-to-speech/a%20b{end}"));
            assert_eq!(endpoint, Some(Endpoint::ElevenLabsSpeak("a b".into(), delivery)));
        }
        assert_eq!(of(Method::POST, "/generate/sarah"), Some(Endpoint::SpeechmaticsSpeak("sarah".into())));
        for path in ["/v1/text-to-speech/", "/v1/text-to-speech/a/b", "/generate/", "/tts", "/generate/a/b"] {
            assert_eq!(of(Method::POST, path), None, "{path}");
        }
        assert_eq!(
            of(Method::POST, "/v1/realtime/calls/rtc_1/hangup"),
            Some(Endpoint::HangUp("rtc_1".into()))
        );
        assert_eq!(
            of(Method::DELETE, "/v1/realtime/calls/rtc_1"),
            Some(Endpoint::DeleteCall("rtc_1".into()))
        );
        assert_eq!(of(Method::POST, "/v1/live/sessions"), Some(Endpoint::LiveSession));
        assert_eq!(
            of(Method::POST, "/v1/live/sessions/rtc_1/hangup"),
            Some(Endpoint::HangUp("rtc_1".into()))
        );
        for (method, path) in [
            (Method::GET, "/v1/listen"),
            (Method::GET, "/v1/speak"),
            (Method::GET, "/v1/realtime"),
            (Method::GET, "/v1/text-to-speech/a/stream-input"),
            (Method::GET, "/v1/speech-to-text/realtime"),
            (Method::POST, "/v1/realtime/client_secrets"),
            (Method::GET, "/v1/live/sessions"),
            (Method::GET, "/v1/live/sessions/rtc_1/attach"),
            (Method::POST, "/v1/live/sessions/rtc_1/fork"),
            (Method::GET, "/"),
            (Method::POST, "/v2/v1/audio/speech"),
        ] {
            assert_eq!(of(method, path), None, "{path}");
        }
    }
}
