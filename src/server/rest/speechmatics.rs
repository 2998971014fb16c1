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
    speak::{self, Job, required_text},
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
    let (voice, model) = (Some(voice.to_owned()), query.get("model").unwrap_or(MODEL).to_owned());
    let read = move |body: Bytes| {
        let text = required_text(&mut Members::read(&body, &["text"])?, "text", TEXT_MAX_CHARS)?;
        let request = SpeakRequest { text, voice, ..SpeakRequest::default() };
        Ok(Job { model, format, request, delivery: Delivery::Bytes })
    };
    speak::answer_job(request, Style::Speechmatics, opening, read).await
}
