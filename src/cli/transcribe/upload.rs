//! Transcription by an HTTP server: `POST /v1/audio/transcriptions` of OpenAI's API, which voxbridge, Macaw and others serve.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::Transcribed;
use crate::cli::error::ClientError;
use crate::cli::http::{Form, HttpTarget};
use crate::cli::recording::Recording;
use crate::cli::view::Progress;
use crate::media::transcript::{Gap, Segment, Task, TranscriptFormat, Word};

/// The request to the server.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Request {
    pub(in crate::cli) task: Task,
    pub(in crate::cli) language: Option<String>,
    /// Times are asked for only where they are needed, because some models have none.
    pub(in crate::cli) needs_times: bool,
    pub(in crate::cli) needs_word_times: bool,
}

/// Latest time in an answer, ms: a year. Wrong times overflow nothing.
const TIME_MAX_MS: u64 = 366 * 86_400_000;

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
    if request.needs_word_times && request.needs_times {
        for granularity in ["segment", "word"] {
            form.add("timestamp_granularities[]", granularity);
        }
    }
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
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    // A request that fails late has its error in place of the transcript.
    let failed = || answer.pointer("/error/message").and_then(Value::as_str);
    let transcribed = read_answer(&answer)
        .ok_or_else(|| target.unexpected(failed().unwrap_or("the answer is not a transcript")))?;
    for segment in &transcribed.segments {
        on_progress(Progress::Transcribed(segment))?;
    }
    if let Some(mut gap) = read_break_off(&answer["incomplete"]) {
        let length = length_of(file).await.unwrap_or(transcribed.duration);
        gap.end_ms = gap.start_ms.max(u64::try_from(length.as_millis()).unwrap_or(TIME_MAX_MS));
        on_progress(Progress::Failed(&gap))?;
    }
    Ok(transcribed)
}

/// The length of a recording by its headers, if it can be read again.
async fn length_of(file: &Path) -> Option<Duration> {
    if file == Path::new("-") {
        return None;
    }
    Recording::open(file).await.ok()?.expected_length
}

/// Reads the answer of voxbridge beside a transcript that breaks off because its upstream was lost.
fn read_break_off(incomplete: &Value) -> Option<Gap> {
    let start_ms = incomplete.is_object().then(|| read_ms(&incomplete["from"]).unwrap_or(0))?;
    let message = incomplete["message"].as_str().unwrap_or("the server does not say why").to_owned();
    Some(Gap { start_ms, end_ms: start_ms, message })
}

/// Seconds as milliseconds.
fn read_ms(seconds: &Value) -> Option<u64> {
    seconds.as_f64().map(|seconds| ((seconds * 1000.0).round() as u64).min(TIME_MAX_MS))
}

fn read_answer(answer: &Value) -> Option<Transcribed> {
    let text = answer["text"].as_str()?;
    let language = answer["language"].as_str().map(str::to_owned);
    let usage = &answer["usage"]["seconds"];
    let duration = read_ms(&answer["duration"]).or_else(|| read_ms(usage)).unwrap_or(0);
    let segment = |value: &Value| {
        let start_ms = read_ms(&value["start"])?;
        Some(Segment {
            text: value["text"].as_str()?.to_owned(),
            start_ms,
            end_ms: read_ms(&value["end"])?.max(start_ms),
            language: language.clone(),
            words: read_words(&value["words"]),
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
    if let Some(words) = read_words(&answer["words"]) {
        place_words(words, &mut segments);
    }
    Some(Transcribed { segments, duration: Duration::from_millis(duration), ..Transcribed::default() })
}

fn read_words(list: &Value) -> Option<Vec<Word>> {
    let read = |word: &Value| {
        let word: Word = serde_json::from_value(word.clone()).ok()?;
        let is_time = |seconds: f64| (0.0..TIME_MAX_MS as f64 / 1000.0).contains(&seconds);
        (is_time(word.start) && is_time(word.end)).then_some(word)
    };
    let words: Vec<Word> = list.as_array()?.iter().filter_map(read).collect();
    (!words.is_empty()).then_some(words)
}

/// Gives each segment its words: those that begin before its end.
fn place_words(words: Vec<Word>, segments: &mut [Segment]) {
    let mut words = words.into_iter().peekable();
    let last = segments.len().saturating_sub(1);
    for (at, segment) in segments.iter_mut().enumerate() {
        let end = segment.end_ms as f64 / 1000.0;
        let own = std::iter::from_fn(|| words.next_if(|word| at == last || word.start < end)).collect();
        segment.words = Some(own);
    }
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
        let words = json!([
            {"word": "One", "start": 0.3, "end": 0.9}, {"word": "Two", "start": 1.1, "end": 2.0}, {"word": "so", "start": 2.6, "end": 3.0},
        ]);
        let timed = json!({"text": "One. Two so.", "words": words, "segments": [
            {"start": 0.25, "end": 1.0, "text": "One."}, {"start": 1.0, "end": 2.5, "text": "Two so."}]});
        let timed = read_answer(&timed).unwrap();
        let counts: Vec<_> =
            timed.segments.iter().map(|segment| segment.words.as_ref().unwrap().len()).collect();
        assert_eq!(counts, [1, 2]);
        assert!(read_answer(&json!({"text": "", "duration": 1.0})).unwrap().segments.is_empty());
        assert!(read_answer(&json!({"error": "no"})).is_none());
        let backwards = json!({"text": "One.", "segments": [{"start": 2.0, "end": 1.0, "text": "One."}]});
        let backwards = read_answer(&backwards).unwrap().segments;
        assert_eq!((backwards[0].start_ms, backwards[0].end_ms), (2000, 2000));
    }

    #[test]
    fn transcript_that_breaks_off_has_a_gap() {
        let incomplete = json!({"from": 1.5, "code": "unavailable", "message": "the upstream was lost"});
        let gap = read_break_off(&incomplete).unwrap();
        assert_eq!((gap.start_ms, gap.message.as_str()), (1500, "the upstream was lost"));
        assert_eq!(read_break_off(&Value::Null), None);
    }
}
