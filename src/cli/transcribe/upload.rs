//! Transcription by an HTTP server: `POST /v1/audio/transcriptions` of OpenAI's API, which voxbridge, Macaw and others serve.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::Transcribed;
use crate::cli::error::ClientError;
use crate::cli::http::{Form, HttpTarget};
use crate::cli::view::Progress;
use crate::media::transcript::{Segment, Task, TranscriptFormat, Word};

/// The request to the server.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Request {
    pub(in crate::cli) task: Task,
    pub(in crate::cli) language: Option<String>,
    /// Times are asked for only where they are needed, because some models have none.
    pub(in crate::cli) needs_times: bool,
}

/// Uploads a recording and waits for its transcript.
pub(in crate::cli) async fn transcribe(
    target: &HttpTarget,
    request: &Request,
    file: &Path,
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<Transcribed, ClientError> {
    let format = if request.needs_times { TranscriptFormat::VerboseJson } else { TranscriptFormat::Json };
    let mut form = Form::new();
    form.add("model", &target.model);
    form.add("response_format", format.name());
    // The other endpoint has no language: it translates any.
    if let Some(language) = request.language.as_deref().filter(|_| request.task == Task::Transcribe) {
        form.add("language", language);
    }
    let payload = form.with_file(file).await?;
    on_progress(Progress::Doing("waiting for the transcript"))?;
    let path = match request.task {
        Task::Transcribe => "/audio/transcriptions",
        Task::Translate => "/audio/translations",
    };
    let answer = target.post(path, payload).await?;
    let answer = answer.collect().await?;
    let transcribed = read_answer(&serde_json::from_slice(&answer).unwrap_or_default());
    let transcribed = transcribed.ok_or_else(|| target.unexpected("the answer is not a transcript"))?;
    for segment in &transcribed.segments {
        on_progress(Progress::Words(segment.text.trim()))?;
    }
    Ok(transcribed)
}

fn read_answer(answer: &Value) -> Option<Transcribed> {
    let text = answer["text"].as_str()?;
    let language = answer["language"].as_str().map(str::to_owned);
    let ms = |value: &Value| value.as_f64().map(|seconds| (seconds * 1000.0).round() as u64);
    let usage = &answer["usage"]["seconds"];
    let duration = ms(&answer["duration"]).or_else(|| ms(usage)).unwrap_or(0);
    let segment = |value: &Value| {
        Some(Segment {
            text: value["text"].as_str()?.to_owned(),
            start_ms: ms(&value["start"])?,
            end_ms: ms(&value["end"])?,
            language: language.clone(),
            words: None,
        })
    };
    let mut segments: Vec<Segment> =
        answer["segments"].as_array().into_iter().flatten().filter_map(segment).collect();
    if segments.is_empty() && !text.trim().is_empty() {
        let text = text.to_owned();
        segments.push(Segment {
            text,
            start_ms: 0,
            end_ms: duration,
            language: language.clone(),
            words: None,
        });
    }
    let words: Vec<Word> = answer["words"].as_array().into_iter().flatten().filter_map(read_word).collect();
    if let Some(first) = segments.first_mut().filter(|_| !words.is_empty()) {
        first.words = Some(words);
    }
    Some(Transcribed { segments, duration: Duration::from_millis(duration), problem: None })
}

fn read_word(value: &Value) -> Option<Word> {
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_with_and_without_segments_are_read() {
        let plain =
            read_answer(&json!({"text": "Hello.", "usage": {"type": "duration", "seconds": 3}})).unwrap();
        assert_eq!((plain.segments.len(), plain.duration.as_secs()), (1, 3));
        let verbose = json!({
            "text": "One. Two.", "language": "english", "duration": 2.5, "task": "transcribe",
            "segments": [{"id": 0, "start": 0.25, "end": 1.0, "text": " One."}, {"start": 1.0, "end": 2.5, "text": "Two."}],
        });
        let verbose = read_answer(&verbose).unwrap();
        let times: Vec<_> =
            verbose.segments.iter().map(|segment| (segment.start_ms, segment.end_ms)).collect();
        assert_eq!(times, [(250, 1000), (1000, 2500)]);
        assert!(read_answer(&json!({"text": "", "duration": 1.0})).unwrap().segments.is_empty());
        assert!(read_answer(&json!({"error": "no"})).is_none());
    }
}
