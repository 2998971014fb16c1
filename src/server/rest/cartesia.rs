//! Cartesia's text to speech, `POST /tts/bytes` and `POST /tts/sse`.
//!
//! Sources: the published API reference and the public client libraries (cartesia, @cartesia/cartesia-js).

use bytes::Bytes;

use super::{
    super::accept::request_body::ReceivedRequest,
    RestResult,
    members::{Members, number_of},
    session::Opening,
    speak::{self, Job, given, required_text, text_of, voice_of},
    speech_format::{Delivery, SpeechFormat},
    style::{Failure, Style},
};
use crate::{
    audio::{encode::AudioFormat, encoding::Encoding},
    vocabulary::SpeakRequest,
};

/// Longest text, characters.
const TEXT_MAX_CHARS: usize = 40_000;
/// The members of a request that count.
const MEMBERS: [&str; 6] = ["transcript", "model_id", "voice", "language", "output_format", "context_id"];
/// The members of its `output_format`.
const FORMAT_MEMBERS: [&str; 4] = ["container", "encoding", "sample_rate", "bit_rate"];

/// Answers the request: raw samples, a WAV file or mp3; raw samples in server-sent events.
pub(super) async fn answer_speak(
    delivery: Delivery,
    request: ReceivedRequest,
    opening: Opening,
) -> RestResult {
    speak::answer_job(request, Style::Cartesia, opening, move |body| read_job(&body, delivery)).await
}

fn read_job(bytes: &Bytes, delivery: Delivery) -> Result<Job, Failure> {
    let mut body = Members::read(bytes, &MEMBERS)?;
    let text = required_text(&mut body, "transcript", TEXT_MAX_CHARS)?;
    let model = text_of(&mut body, "model_id")?.ok_or_else(|| Failure::missing("model_id"))?.into_owned();
    let mut request = SpeakRequest {
        text,
        voice: voice_of(&mut body),
        language: given(text_of(&mut body, "language")?),
        ..SpeakRequest::default()
    };
    let format = read_format(bytes)?;
    if delivery == Delivery::Events {
        if format.file != AudioFormat::Pcm {
            let message = "Events have the container raw; /tts/bytes has wav and mp3, too";
            return Err(Failure::parameter("output_format", message));
        }
        let id = given(text_of(&mut body, "context_id")?);
        request.request_id = id.or_else(|| Some(format!("{:016x}", fastrand::u64(..))));
    }
    Ok(Job { model, format, request, delivery })
}

fn read_format(bytes: &Bytes) -> Result<SpeechFormat, Failure> {
    let outer = &["output_format"];
    let mut body = Members::read_within(bytes, outer, &FORMAT_MEMBERS)?;
    let container = text_of(&mut body, "container")?.ok_or_else(|| Failure::missing("output_format"))?;
    let file = match container.as_ref() {
        "raw" => AudioFormat::Pcm,
        "wav" => AudioFormat::Wav,
        "mp3" => AudioFormat::Mp3,
        other => {
            let message = format!("Unsupported container {other:?}; there are raw, wav and mp3");
            return Err(Failure::parameter("output_format", message));
        }
    };
    let samples = match text_of(&mut body, "encoding")?.as_deref() {
        None | Some("pcm_s16le") => Encoding::S16le,
        Some("pcm_f32le") => Encoding::F32le,
        Some("pcm_mulaw") => Encoding::Mulaw,
        Some("pcm_alaw") => Encoding::Alaw,
        Some(other) => {
            let message = format!(
                "Unsupported encoding {other:?}; there are pcm_f32le, pcm_s16le, pcm_mulaw and pcm_alaw"
            );
            return Err(Failure::parameter("output_format", message));
        }
    };
    let rate_hz = number_of(&mut body, "sample_rate")?.ok_or_else(|| Failure::missing("sample_rate"))?;
    let bit_rate = number_of(&mut body, "bit_rate")?;
    let format = SpeechFormat { file, samples, rate_hz, bit_rate };
    format.check().map_err(|error| Failure::parameter("output_format", error.to_string()))?;
    Ok(format)
}
