//! Transcripts of recordings, and their file formats: text, subtitles, and the JSON of OpenAI's API.
//!
//! - [`cues`]: divides a transcript into the cues of subtitles
//! - [`subtitles`]: the file formats of cues
//! - [`segments`]: divides the transcript of a long utterance
//! - [`partial`]: a transcript that is not complete, and which audio it lacks

pub mod cues;
mod division;
pub mod partial;
mod pieces;
pub mod segments;
pub mod subtitles;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::cues::{CueRules, cues_of};
use self::subtitles::{SubtitleFormat, SubtitleWriter};
use crate::named_enum::named_enum;

named_enum! {
    /// Task for the speech in a recording. The names are those of OpenAI's API and of the client protocol `rest`.
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
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
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

/// A word with its time.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Word {
    /// The word.
    pub word: String,
    /// Start in seconds from the start of the recording.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// The times are estimated.
    #[serde(default)]
    pub estimated: bool,
}

impl Word {
    /// Start and end, ms.
    fn times_ms(&self) -> (u64, u64) {
        let ms = |seconds: f64| (seconds.max(0.0) * 1000.0).round() as u64;
        (ms(self.start), ms(self.end))
    }
}

/// A part of the speech that was not transcribed, because the model failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Gap {
    /// Start of the speech, from the start of the recording.
    pub start_ms: u64,
    /// End of the speech.
    pub end_ms: u64,
    /// Cause.
    pub message: String,
}

/// Where the verbose JSON has the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordList {
    /// Nowhere.
    None,
    /// In a list of their own, as in OpenAI's API.
    Own,
    /// In their segments, as Whisper writes them.
    InSegments,
}

/// Transcript of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'s> {
    /// The segments in the order of speech.
    pub segments: &'s [Segment],
    /// Length of the recording.
    pub duration: Duration,
    /// Task that the transcript results from.
    pub task: Task,
    /// Parts that are missing, in the order of speech.
    pub gaps: &'s [Gap],
    /// Where the verbose JSON has the words, if they are known.
    pub words: WordList,
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
            TranscriptFormat::Srt => self.subtitles(SubtitleFormat::Srt),
            TranscriptFormat::Vtt => self.subtitles(SubtitleFormat::Vtt),
        }
    }

    fn subtitles(&self, format: SubtitleFormat) -> String {
        let mut writer = SubtitleWriter::new(format);
        let end_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let rules = CueRules::default();
        let mut text = writer.header().to_owned();
        for segment in self.segments {
            text += &writer.add(&cues_of(segment, &rules));
        }
        text + &writer.finish(end_ms)
    }

    /// The verbose JSON of OpenAI's API.
    pub fn verbose(&self) -> Value {
        let Self { segments, duration, task, gaps, words } = *self;
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
            let mut row = json!({
                "id": id, "seek": segment.start_ms / 10, "start": seconds(segment.start_ms),
                "end": seconds(segment.end_ms), "text": segment.text.trim(), "tokens": [], "temperature": 0.0,
                "avg_logprob": 0.0, "compression_ratio": 1.0, "no_speech_prob": 0.0,
            });
            if words == WordList::InSegments {
                let listed = segment.words.iter().flatten();
                let row_of = |word| described(word, json!({"probability": null}));
                row["words"] = listed
                    .zip(spaces_before(segment))
                    .map(|(word, space)| {
                        let mut row = row_of(word);
                        row["word"] = format!("{space}{}", word.word).into();
                        row
                    })
                    .collect();
            }
            row
        });
        answer["segments"] = rows.collect();
        let mut all = segments.iter().flat_map(|segment| segment.words.iter().flatten()).peekable();
        if words == WordList::Own && all.peek().is_some() {
            answer["words"] = all.map(|word| described(word, json!({}))).collect();
        }
        if !gaps.is_empty() {
            let gap = |gap: &Gap| json!({"start": seconds(gap.start_ms), "end": seconds(gap.end_ms), "message": gap.message});
            answer["gaps"] = gaps.iter().map(gap).collect();
        }
        answer
    }
}

/// The text before each word of a segment: a space, or nothing in scripts without spaces. Whisper's words join to the segment's
/// text.
fn spaces_before(segment: &Segment) -> impl Iterator<Item = &'static str> {
    let mut rest = segment.text.as_str();
    segment.words.iter().flatten().enumerate().map(move |(number, word)| {
        let gap = rest.split_once(&*word.word).map(|(gap, after)| {
            rest = after;
            gap
        });
        let is_spaced = match gap {
            Some(gap) if number > 0 => gap.contains(char::is_whitespace),
            _ => word.word.chars().next().is_some_and(|letter| !is_unspaced(letter)),
        };
        if is_spaced { " " } else { "" }
    })
}

/// A word as JSON, with further members.
fn described(word: &Word, mut more: Value) -> Value {
    (more["word"], more["start"], more["end"]) = (json!(word.word), json!(word.start), json!(word.end));
    if word.estimated {
        more["estimated"] = true.into();
    }
    more
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

/// Usage as OpenAI bills it.
pub fn usage(duration: Duration) -> Value {
    json!({"type": "duration", "seconds": duration.as_millis().div_ceil(1000) as u64})
}

const fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str, start_ms: u64, end_ms: u64) -> Segment {
        Segment { text: text.into(), start_ms, end_ms, language: Some("en".into()), words: None }
    }

    fn written(format: TranscriptFormat, segments: &[Segment]) -> String {
        let duration = Duration::from_millis(3_601_001);
        let words = WordList::Own;
        Transcript { segments, duration, task: Task::Transcribe, gaps: &[], words }.write(format)
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
        let words = vec![Word { word: "hi".into(), start: 0.5, end: 1.0, estimated: true }];
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
    fn words_may_be_in_their_segments_and_gaps_are_listed() {
        let words = vec![Word { word: "hi".into(), start: 0.5, end: 1.0, estimated: true }];
        let segments = [Segment { words: Some(words), ..segment(" hi", 500, 1000) }];
        let gaps = [Gap { start_ms: 1500, end_ms: 2000, message: "busy".into() }];
        let (duration, task, words) = (Duration::from_secs(3), Task::Transcribe, WordList::InSegments);
        let verbose = Transcript { segments: &segments, duration, task, gaps: &gaps, words }.verbose();
        let word = json!({"word": " hi", "start": 0.5, "end": 1.0, "probability": null, "estimated": true});
        assert_eq!((&verbose["segments"][0]["words"], &verbose["words"]), (&json!([word]), &Value::Null));
        assert_eq!(verbose["gaps"], json!([{"start": 1.5, "end": 2.0, "message": "busy"}]));
    }

    #[test]
    fn words_in_their_segments_join_to_the_text_as_whispers_do() {
        for (text, words, joined) in [
            ("Go forward, please.", &["Go", "forward,", "please."][..], " Go forward, please."),
            (" a  a a-b", &["a", "a", "a-b"], " a a a-b"),
            ("你好世界 yes", &["你", "好", "世", "界", "yes"], "你好世界 yes"),
            ("Héllo 你好", &["Héllo", "你", "好"], " Héllo 你好"),
            ("other words", &["not", "in", "it"], " not in it"),
        ] {
            let word = |word: &&str| Word { word: (*word).into(), start: 0.0, end: 1.0, estimated: true };
            let words = Some(words.iter().map(word).collect());
            let segments = [Segment { words, ..segment(text, 0, 1000) }];
            let (duration, task, words) = (Duration::from_secs(3), Task::Transcribe, WordList::InSegments);
            let verbose = Transcript { segments: &segments, duration, task, gaps: &[], words }.verbose();
            let listed = verbose["segments"][0]["words"].as_array().unwrap();
            let text: String = listed.iter().map(|row| row["word"].as_str().unwrap()).collect();
            assert_eq!(text, joined);
        }
    }

    #[test]
    fn texts_are_joined_as_their_language_is_written() {
        let text = |texts: &[&str]| joined(&texts.iter().map(|text| segment(text, 0, 1)).collect::<Vec<_>>());
        assert_eq!(text(&["One.", " Two. ", "Three"]), "One. Two. Three");
        assert_eq!(text(&["你好。", "世界", "yes"]), "你好。世界yes");
        assert_eq!(text(&[]), "");
    }
}
