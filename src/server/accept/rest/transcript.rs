//! The answer with a transcript.

use super::{super::http_error::HttpResponse, answer_with, style::Failure};
use crate::media::transcript::Transcript;
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

/// The answer with a whole transcript.
pub(super) fn response(transcript: &Transcript<'_>, format: TranscriptFormat) -> HttpResponse {
    let content_type = match format {
        TranscriptFormat::Json | TranscriptFormat::VerboseJson => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    answer_with(content_type, transcript.write(format))
}
