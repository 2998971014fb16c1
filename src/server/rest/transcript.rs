//! The answer with a transcript.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{super::accept::http_error::HttpResponse, answer_with, style::Failure};
use crate::media::MediaError;
use crate::media::transcript::{Segment, Transcript};
pub(super) use crate::media::transcript::{TranscriptFormat, append, joined, usage};

/// The format with this name; JSON without a name.
pub(super) fn format_of(name: Option<&str>) -> Result<TranscriptFormat, Failure> {
    let Some(name) = name else { return Ok(TranscriptFormat::Json) };
    TranscriptFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        let names = TranscriptFormat::ALL.map(TranscriptFormat::name).join(", ");
        let message = format!("Invalid response_format '{name}'. Accepted values: {names}");
        Failure::invalid(message).about("response_format")
    })
}

/// How long subtitles show that the transcript breaks off.
const NOTE_MS: u64 = 3000;
/// Header of an answer whose transcript is incomplete: the second of the recording from which on words are missing. A
/// trailer if the answer began before it was known.
pub(super) const INCOMPLETE_HEADER: HeaderName = HeaderName::from_static("x-voxbridge-incomplete-from");

/// From where on words are missing from a transcript, and why: the upstream was lost or failed for good, or the recording is
/// damaged.
pub(super) struct BreakOff {
    from_ms: u64,
    code: &'static str,
    /// The message for the client.
    message: String,
}

impl BreakOff {
    /// A transcript breaks off after these segments; none if the failure leaves nothing to answer with, or is the client's.
    pub(super) fn after(segments: &[Segment], failure: Failure) -> Result<Self, Failure> {
        match segments.last() {
            Some(last) if failure.is_upstreams() => Ok(Self {
                from_ms: last.end_ms,
                code: failure.code,
                message: break_off_message(last.end_ms, &failure.message),
            }),
            _ => Err(failure),
        }
    }

    /// Words may be missing behind the first damage of a recording.
    pub(super) fn damaged(damage: &MediaError) -> Self {
        let from = match damage {
            MediaError::Broken { at, .. } => *at,
            _ => Duration::ZERO,
        };
        let from_ms = u64::try_from(from.as_millis()).unwrap_or(u64::MAX);
        Self { from_ms, code: "invalid_audio", message: damage.to_string() }
    }

    /// The message for the client.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The length of the recording, as far as it was transcribed.
    pub(super) const fn transcribed(&self) -> Duration {
        Duration::from_millis(self.from_ms)
    }

    fn gap_start_s(&self) -> f64 {
        self.from_ms as f64 / 1000.0
    }

    /// A member that clients of OpenAI's API ignore or keep.
    pub(super) fn json(&self) -> Value {
        json!({"from": self.gap_start_s(), "code": self.code, "message": self.message})
    }

    /// Adds the header.
    pub(super) fn mark<B>(&self, response: &mut hyper::Response<B>) {
        if let Ok(value) = HeaderValue::from_str(&format!("{:.3}", self.gap_start_s())) {
            response.headers_mut().insert(INCOMPLETE_HEADER, value);
        }
    }

    /// The transcript, with a note of where it breaks off.
    fn write(&self, transcript: &Transcript<'_>, format: TranscriptFormat) -> String {
        let note = format!("[incomplete: {}]", self.message());
        match format {
            TranscriptFormat::Json | TranscriptFormat::VerboseJson => {
                let mut body = match format {
                    TranscriptFormat::Json => {
                        json!({"text": joined(transcript.segments), "usage": usage(transcript.duration)})
                    }
                    _ => transcript.verbose(),
                };
                body["incomplete"] = self.json();
                body.to_string()
            }
            TranscriptFormat::Text => transcript.write(format) + &note + "\n",
            TranscriptFormat::Srt | TranscriptFormat::Vtt => {
                let (start_ms, end_ms) = (self.from_ms, self.from_ms + NOTE_MS);
                let last = Segment { text: note, start_ms, end_ms, ..Segment::default() };
                let segments: Vec<_> = transcript.segments.iter().cloned().chain([last]).collect();
                Transcript { segments: &segments, ..*transcript }.write(format)
            }
        }
    }
}

/// Says from where on words are missing, and why.
pub(super) fn break_off_message(from_ms: u64, cause: &str) -> String {
    format!("Nothing after {:.1} s was transcribed: {cause}", from_ms as f64 / 1000.0)
}

/// The content type of an answer.
pub(super) const fn content_type(format: TranscriptFormat) -> &'static str {
    match format {
        TranscriptFormat::Json | TranscriptFormat::VerboseJson => "application/json",
        TranscriptFormat::Text | TranscriptFormat::Srt | TranscriptFormat::Vtt => "text/plain; charset=utf-8",
    }
}

/// The answer with a transcript, whole or broken off.
pub(super) fn response(
    transcript: &Transcript<'_>,
    format: TranscriptFormat,
    broken_off: Option<&BreakOff>,
) -> HttpResponse {
    let content_type = content_type(format);
    match broken_off {
        None => answer_with(content_type, transcript.write(format)),
        Some(broken_off) => {
            let mut response = answer_with(content_type, broken_off.write(transcript, format));
            broken_off.mark(&mut response);
            response
        }
    }
}
