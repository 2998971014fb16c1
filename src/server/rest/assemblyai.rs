//! AssemblyAI's text to speech, `POST /v1/speech`.
//!
//! Source: the public client library (Python assemblyai 1.8.2, `tts/v1`).

use bytes::Bytes;
use hyper::HeaderMap;

use super::{
    super::accept::request_body::ReceivedRequest,
    RestResult,
    members::{Members, number_of},
    session::Opening,
    speak::{self, Job, given, required_text, text_of},
    speech_format::{Delivery, SpeechFormat},
    style::{Failure, Style, set_header},
};
use crate::{
    audio::{encode::AudioFormat, encoding::Encoding},
    vocabulary::SpeakRequest,
};

/// Longest text, characters.
const TEXT_MAX_CHARS: usize = 5000;
/// Model of a client that names none.
const MODEL: &str = "assemblyai-tts-1";
/// The members of a request that count.
const MEMBERS: [&str; 8] =
    ["text", "voice_id", "model_id", "language", "encoding", "container", "sample_rate", "bit_rate"];

/// Answers the request. The bytes leave as they are made, whatever `stream` says.
pub(super) async fn answer_speak(request: ReceivedRequest, opening: Opening) -> RestResult {
    let mut memory = opening.memory_share();
    let job = speak::read_speech_body(request, &mut memory, &opening.server, |body| read_job(&body)).await?;
    let admission = opening.admit()?;
    let format = job.format;
    let (model, request) = (job.model.clone(), job.request.clone());
    let mut response = speak::speak(opening, admission, job, Style::AssemblyAi).await?;
    describe(response.headers_mut(), &format, &model, &request);
    Ok(response)
}

/// The headers that say how the speech was made.
fn describe(headers: &mut HeaderMap, format: &SpeechFormat, model: &str, request: &SpeakRequest) {
    let encoding = match (format.file, format.samples) {
        (AudioFormat::Mp3, _) => "mp3",
        (_, Encoding::Mulaw) => "pcm_mulaw",
        (_, Encoding::Alaw) => "pcm_alaw",
        _ => "pcm_s16le",
    };
    set_header(headers, "x-tts-model", model);
    set_header(headers, "x-tts-voice-id", request.voice.as_deref().unwrap_or_default());
    set_header(headers, "x-tts-encoding", encoding);
    set_header(headers, "x-tts-sample-rate", &format.rate_hz.to_string());
    set_header(headers, "x-tts-billed-characters", &request.text.chars().count().to_string());
}

fn read_job(bytes: &Bytes) -> Result<Job, Failure> {
    let mut body = Members::read(bytes, &MEMBERS)?;
    let text = required_text(&mut body, "text", TEXT_MAX_CHARS)?;
    let model = text_of(&mut body, "model_id")?.unwrap_or(MODEL.into()).into_owned();
    let request = SpeakRequest {
        text,
        voice: given(text_of(&mut body, "voice_id")?),
        language: given(text_of(&mut body, "language")?),
        ..SpeakRequest::default()
    };
    let format = read_format(&mut body)?;
    Ok(Job { model, format, request, delivery: Delivery::Bytes })
}

fn read_format(body: &mut Members<'_>) -> Result<SpeechFormat, Failure> {
    let raw = match text_of(body, "container")?.as_deref() {
        None | Some("raw") => AudioFormat::Pcm,
        Some("wav") => AudioFormat::Wav,
        Some(other) => {
            let message = format!("Unsupported container {other:?}; there are raw and wav");
            return Err(Failure::parameter("container", message));
        }
    };
    let (file, samples) = match text_of(body, "encoding")?.as_deref() {
        None | Some("pcm_s16le") => (raw, Encoding::S16le),
        Some("pcm_mulaw" | "mulaw") => (raw, Encoding::Mulaw),
        Some("pcm_alaw" | "alaw") => (raw, Encoding::Alaw),
        Some("mp3") => (AudioFormat::Mp3, Encoding::S16le),
        Some(other) => {
            let message =
                format!("Unsupported encoding {other:?}; there are pcm_s16le, pcm_mulaw, pcm_alaw and mp3");
            return Err(Failure::parameter("encoding", message));
        }
    };
    let rate_hz = number_of(body, "sample_rate")?.unwrap_or(24_000);
    let bit_rate = number_of(body, "bit_rate")?;
    let format = SpeechFormat { file, samples, rate_hz, bit_rate };
    format.check().map_err(|error| Failure::parameter("sample_rate", error.to_string()))?;
    Ok(format)
}
