//! Speechmatics' text to speech, `POST /generate/{voice}`.
//!
//! Sources: the published quickstart and the public client library (speechmatics-tts 0.1.2).

use bytes::Bytes;

use super::{
    super::accept::request_body::ReceivedRequest,
    RestResult,
    members::Members,
    query::Query,
    session::Opening,
    speak::{self, Job, check_length, text_of},
    speech_format::{Delivery, SpeechFormat},
    style::{Failure, Style},
};
use crate::vocabulary::SpeakRequest;

/// Longest text, characters.
const TEXT_MAX_CHARS: usize = 40_000;
/// Model of a client that names none.
const MODEL: &str = "speechmatics";

/// Answers the request: a WAV file, or samples, at 16 kHz.
pub(super) async fn answer_speak(voice: &str, request: ReceivedRequest, opening: Opening) -> RestResult {
    let query = Query::of(&request);
    let word = query.get("output_format").unwrap_or("wav_16000");
    let format = SpeechFormat::of_word(word).ok_or_else(|| {
        Failure::invalid(format!("Unsupported output_format {word:?}; there are wav_16000 and pcm_16000"))
    })?;
    let mut memory = opening.memory_share();
    let text =
        speak::read_speech_body(request, &mut memory, &opening.server, |body| read_text(&body)).await?;
    let admission = opening.admit()?;
    let request = SpeakRequest { text, voice: Some(voice.to_owned()), ..SpeakRequest::default() };
    let model = query.get("model").unwrap_or(MODEL).to_owned();
    let job = Job { model, format, request, delivery: Delivery::Bytes };
    speak::speak(opening, admission, job, Style::Speechmatics).await
}

fn read_text(body: &Bytes) -> Result<String, Failure> {
    let mut body = Members::read(body, &["text"]).map_err(|error| Failure::json(&error))?;
    let text = text_of(&mut body, "text")?.ok_or_else(|| Failure::missing("text"))?;
    check_length("text", &text, TEXT_MAX_CHARS)?;
    Ok(text.into_owned())
}
