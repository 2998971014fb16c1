//! Transcripts of recordings, and their file formats: text, subtitles, and the JSON of OpenAI's API.

use std::{fmt::Write as _, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::named_enum::named_enum;

named_enum! {
    /// What to do with the speech in a recording. The names are those of OpenAI's API and of the client protocol `rest`.
    pub enum Task {
        /// Write it down.
        Transcribe = "transcribe",
        /// Write it down in English.
        Translate = "translate",
    }
}

named_enum! {
    /// Format of a transcript, by its name in OpenAI's API.
    pub enum TranscriptFormat {
        /// JSON with the text.
        Json = "json",
        /// JSON with the text, the segments and their times.
        VerboseJson = "verbose_json",
        /// The text.
        Text = "text",
        /// SubRip subtitles.
        Srt = "srt",
        /// WebVTT subtitles.
        Vtt = "vtt",
    }
}

/// Transcript of one segment of speech.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Segment {
    /// The words.
    pub text: String,
    /// Start of the speech, from the start of the recording.
    pub start_ms: u64,
    /// End of the speech.
    pub end_ms: u64,
    /// Language of the speech, if known.
    #[serde(default)]
    pub language: Option<String>,
    /// Estimated times of the words, if the profile has them.
    #[serde(default)]
    pub words: Option<Vec<Word>>,
}

/// A word with its estimated time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Word {
    /// The word.
    pub word: String,
    /// Start in seconds from the start of the recording.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
}

/// Transcript of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'s> {
    /// The segments in the order of speech.
    pub segments: &'s [Segment],
    /// Length of the recording.
    pub duration: Duration,
    /// What was done with the speech.
    pub task: Task,
    /// Adds the times of the words, if known, to the verbose JSON.
    pub wants_words: bool,
}

impl Transcript<'_> {
    /// Writes the transcript as a file of this format.
    pub fn write(&self, format: TranscriptFormat) -> String {
        match format {
            TranscriptFormat::Json => {
                json!({"text": joined(self.segments), "usage": usage(self.duration)}).to_string()
            }
            TranscriptFormat::VerboseJson => self.verbose().to_string(),
            TranscriptFormat::Text => joined(self.segments) + "\n",
            TranscriptFormat::Srt => subtitles(self.segments, ',', true),
            TranscriptFormat::Vtt => format!("WEBVTT\n\n{}", subtitles(self.segments, '.', false)),
        }
    }

    /// The verbose JSON of OpenAI's API.
    pub fn verbose(&self) -> Value {
        let Self { segments, duration, task, wants_words } = *self;
        let language = match task {
            Task::Translate => Some("english"),
            Task::Transcribe => segments.iter().find_map(|segment| segment.language.as_deref()),
        };
        let mut answer = json!({
            "task": task.name(), "language": language.unwrap_or("unknown"), "duration": duration.as_secs_f64(),
            "text": joined(segments), "usage": usage(duration),
        });
        let rows = segments.iter().enumerate().map(|(id, segment)| {
            // MiniCPM-o has no such figures; typed clients expect every key.
            json!({
                "id": id, "seek": segment.start_ms / 10, "start": seconds(segment.start_ms),
                "end": seconds(segment.end_ms), "text": segment.text.trim(), "tokens": [], "temperature": 0.0,
                "avg_logprob": 0.0, "compression_ratio": 1.0, "no_speech_prob": 0.0,
            })
        });
        answer["segments"] = rows.collect();
        let words: Vec<&Word> = segments.iter().flat_map(|segment| segment.words.iter().flatten()).collect();
        if wants_words && !words.is_empty() {
            let word = |word: &Word| json!({"word": word.word, "start": word.start, "end": word.end, "estimated": true});
            answer["words"] = words.into_iter().map(word).collect();
        }
        answer
    }
}

/// All texts as one.
pub fn joined(segments: &[Segment]) -> String {
    segments.iter().fold(String::new(), |mut text, segment| {
        append(&mut text, &segment.text);
        text
    })
}

/// Appends a text, with a space between words of languages that have spaces.
pub fn append(text: &mut String, next: &str) {
    let next = next.trim();
    let ends = [text.chars().next_back(), next.chars().next()];
    let needs_space =
        ends.iter().all(|end| end.is_some_and(|letter| !letter.is_whitespace() && !is_unspaced(letter)));
    if needs_space {
        text.push(' ');
    }
    text.push_str(next);
}

/// True for characters of scripts without spaces between words: Chinese, Japanese, their punctuation and full-width forms.
const fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{2E80}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

/// What OpenAI bills by.
pub fn usage(duration: Duration) -> Value {
    json!({"type": "duration", "seconds": duration.as_millis().div_ceil(1000) as u64})
}

const fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// The segments as subtitles. `point` separates the milliseconds.
fn subtitles(segments: &[Segment], point: char, numbered: bool) -> String {
    let mut text = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let separator = if index > 0 { "\n" } else { "" };
        let number = if numbered { format!("{}\n", index + 1) } else { String::new() };
        let (start, end) = (clock(segment.start_ms, point), clock(segment.end_ms, point));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{separator}{number}{start} --> {end}\n{}", segment.text.trim());
    }
    text
}

fn clock(ms: u64, point: char) -> String {
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{:03}", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str, start_ms: u64, end_ms: u64) -> Segment {
        Segment { text: text.into(), start_ms, end_ms, language: Some("en".into()), words: None }
    }

    fn written(format: TranscriptFormat, segments: &[Segment]) -> String {
        let duration = Duration::from_millis(3_601_001);
        Transcript { segments, duration, task: Task::Transcribe, wants_words: true }.write(format)
    }

    /// As the real Macaw server writes them (captures of its REST API).
    #[test]
    fn subtitles_have_the_form_of_the_real_server() {
        let one = [segment("third one", 0, 3000)];
        assert_eq!(
            written(TranscriptFormat::Vtt, &one),
            "WEBVTT\n\n00:00:00.000 --> 00:00:03.000\nthird one\n"
        );
        let two = [segment("third one", 0, 3000), segment("fourth", 3_600_500, 3_601_001)];
        assert_eq!(
            written(TranscriptFormat::Srt, &two),
            "1\n00:00:00,000 --> 00:00:03,000\nthird one\n\n2\n01:00:00,500 --> 01:00:01,001\nfourth\n"
        );
    }

    #[test]
    fn verbose_answer_has_every_key_of_openais_types() {
        let words = vec![Word { word: "hi".into(), start: 0.5, end: 1.0 }];
        let segments = [Segment { words: Some(words), ..segment(" hi", 500, 1000) }];
        let verbose: Value =
            serde_json::from_str(&written(TranscriptFormat::VerboseJson, &segments)).unwrap();
        assert_eq!((&verbose["text"], &verbose["language"]), (&json!("hi"), &json!("en")));
        assert_eq!(verbose["usage"], json!({"type": "duration", "seconds": 3602}));
        let keys: Vec<_> = verbose["segments"][0].as_object().unwrap().keys().cloned().collect();
        for key in [
            "id",
            "seek",
            "start",
            "end",
            "text",
            "tokens",
            "temperature",
            "avg_logprob",
            "compression_ratio",
            "no_speech_prob",
        ] {
            assert!(keys.iter().any(|known| known == key), "{key}");
        }
        assert_eq!(verbose["words"][0], json!({"word": "hi", "start": 0.5, "end": 1.0, "estimated": true}));
    }

    #[test]
    fn texts_are_joined_as_their_language_is_written() {
        let text = |texts: &[&str]| joined(&texts.iter().map(|text| segment(text, 0, 1)).collect::<Vec<_>>());
        assert_eq!(text(&["One.", " Two. ", "Three"]), "One. Two. Three");
        assert_eq!(text(&["你好。", "世界", "yes"]), "你好。世界yes");
        assert_eq!(text(&[]), "");
    }
}
