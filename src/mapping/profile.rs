//! A profile's file: what a client's verbs mean to the model. The schema is `mappings/README.md`.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::{
    check::{self, Problem},
    template::Template,
    upstream::Mode,
};

/// The file, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    kind: super::Kind,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    mode: Mode,
    listen: Listen,
    hear: HearFile,
    speak: SpeakFile,
    lanes: LaneTimes,
}

/// Finding utterances in the microphone's audio.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// Audio from before the decision that belongs to the utterance, ms.
    #[serde(deserialize_with = "check::ms")]
    pub pre_roll_ms: u32,
    /// Speech that starts an utterance, ms.
    #[serde(deserialize_with = "check::ms")]
    pub start_ms: u32,
    /// Silence that ends one, ms.
    #[serde(deserialize_with = "check::ms")]
    pub end_ms: u32,
    /// Longest utterance, ms.
    #[serde(deserialize_with = "check::ms")]
    pub segment_max_ms: u32,
    /// An utterance whose audio stops coming altogether ends after this, ms.
    #[serde(deserialize_with = "check::ms")]
    pub stall_ms: u32,
    /// Thresholds by sensitivity.
    pub sensitivity: Sensitivities,
}

/// The three presets.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivities {
    /// Hears more.
    pub high: Preset,
    /// Default.
    pub normal: Preset,
    /// Hears less.
    pub low: Preset,
}

/// One preset of the detector.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The detector's score above which a hop is speech, 0 to 1.
    #[serde(deserialize_with = "check::share")]
    pub threshold: f32,
    /// Level below which nothing is speech, dB relative to full scale.
    #[serde(deserialize_with = "check::level")]
    pub gate_dbfs: f32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HearFile {
    language: String,
    prompts: BTreeMap<String, String>,
    hot_words: Spanned<String>,
    partials: bool,
    #[serde(deserialize_with = "check::ms")]
    speech_end_wait_ms: u64,
    #[serde(deserialize_with = "check::ms")]
    interim_ms: u64,
    #[serde(deserialize_with = "check::ms")]
    backlog_max_ms: u64,
    attempts: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeakFile {
    before_voice: String,
    after_voice: String,
    instruction: Spanned<String>,
    text: Spanned<String>,
    part_max_chars: usize,
    attempts: u32,
    symbols: BTreeMap<String, BTreeMap<String, String>>,
}

/// How long a lane may take for what.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneTimes {
    /// First pause before another attempt, ms; it doubles, with jitter.
    #[serde(deserialize_with = "check::ms")]
    pub retry_first_ms: u64,
    /// Longest pause, ms.
    #[serde(deserialize_with = "check::ms")]
    pub retry_max_ms: u64,
    /// After this long without success the lane fails, ms.
    #[serde(deserialize_with = "check::ms")]
    pub retry_total_ms: u64,
    /// Connecting, ms.
    #[serde(deserialize_with = "check::ms")]
    pub dial_max_ms: u64,
    /// A queue position that stays the same for this long is reported, ms.
    #[serde(deserialize_with = "check::ms")]
    pub queue_stuck_ms: u64,
    /// Longest wait in the queue, ms.
    #[serde(deserialize_with = "check::ms")]
    pub queue_max_ms: u64,
    /// From `init` to ready, ms.
    #[serde(deserialize_with = "check::ms")]
    pub init_max_ms: u64,
    /// Longest silence of the model while it owes an answer, ms.
    #[serde(deserialize_with = "check::ms")]
    pub answer_max_ms: u64,
    /// How long a cancelled answer is waited out before its worker is given back, ms.
    #[serde(deserialize_with = "check::ms")]
    pub drain_max_ms: u64,
    /// From the polite close to the end of the transport, ms.
    #[serde(deserialize_with = "check::ms")]
    pub close_max_ms: u64,
}

/// A profile, compiled.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// What a reader should know, a line each.
    pub notes: Vec<String>,
    /// The upstream mode it needs.
    pub mode: Mode,
    /// Finding utterances.
    pub listen: Listen,
    /// Transcribing them.
    pub hear: HearRules,
    /// Speaking.
    pub speak: SpeakRules,
    /// Patience.
    pub lanes: LaneTimes,
}

/// How utterances are transcribed.
#[derive(Debug, Clone)]
pub struct HearRules {
    /// Language of a session that names none.
    pub language: String,
    /// Whether partial transcripts are sent unless the client says otherwise.
    pub partials: bool,
    /// A final later than this after the end of speech no longer holds up `speech_ended`.
    pub speech_end_wait: Duration,
    /// Pause between decodes while the user still speaks; zero for none.
    pub interim: Duration,
    /// Most audio that waits for the upstream; the oldest utterance is dropped and reported.
    pub backlog_max_ms: u64,
    /// Attempts an utterance gets when an upstream dies on it.
    pub attempts: u32,
    prompts: BTreeMap<String, String>,
    hot_words: Template,
}

impl HearRules {
    /// The transcription prompt for a language, with the words that may occur.
    #[must_use]
    pub fn prompt(&self, language: &str, hot_words: &[String]) -> String {
        let base = language.split(['-', '_']).next().unwrap_or(language);
        let known = [language, base, self.language.as_str()];
        let mut prompt = known.iter().find_map(|name| self.prompts.get(*name)).cloned().unwrap_or_default();
        if !hot_words.is_empty() {
            let words = hot_words.join(", ");
            self.hot_words.render_plain(&mut prompt, |_| super::template::Fill::Str(&words));
        }
        prompt
    }

    /// Languages with a prompt of their own.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.prompts.keys().map(String::as_str)
    }
}

/// How texts are spoken.
#[derive(Debug, Clone)]
pub struct SpeakRules {
    /// System prompt before the voice reference.
    pub before_voice: String,
    /// System prompt after it.
    pub after_voice: String,
    /// Longest part of a text spoken by one answer, characters.
    pub part_max_chars: usize,
    /// Attempts a text gets as long as nothing of it was heard.
    pub attempts: u32,
    instruction: Template,
    text: Template,
    symbols: BTreeMap<String, BTreeMap<String, String>>,
}

impl SpeakRules {
    /// The user message that has `text` read aloud.
    #[must_use]
    pub fn request(&self, text: &str) -> String {
        let mut message = String::new();
        self.text.render_plain(&mut message, |_| super::template::Fill::Str(text));
        message
    }

    /// The end of the system prompt, with the client's own instruction.
    #[must_use]
    pub fn after_voice_with(&self, instruction: Option<&str>) -> String {
        let mut prompt = self.after_voice.clone();
        if let Some(instruction) = instruction {
            self.instruction.render_plain(&mut prompt, |_| super::template::Fill::Str(instruction));
        }
        prompt
    }

    /// How to say the symbols the model will not say (field notes §2), by language; English when unknown.
    #[must_use]
    pub fn symbols(&self, language: &str) -> Option<&BTreeMap<String, String>> {
        let base = language.split(['-', '_']).next().unwrap_or(language);
        self.symbols.get(base).or_else(|| self.symbols.get("en"))
    }
}

impl Profile {
    pub(super) fn compile(file: &str, source: &str) -> Result<Self, Problem> {
        let read: ProfileFile = check::parse_toml(file, source)?;
        super::expect_kind(file, source, read.kind, super::Kind::Profile)?;
        let plain = |text: &Spanned<String>, slots: &[&str]| {
            Template::compile_plain(text.get_ref(), slots)
                .map_err(|error| Problem::at(file, source, text.span().start, error.to_string()))
        };
        let (hear, speak) = (read.hear, read.speak);
        if !hear.prompts.contains_key(&hear.language) {
            return Err(Problem::whole(
                file,
                format!("[hear.prompts] has none for `language = {:?}`", hear.language),
            ));
        }
        if speak.part_max_chars < 16 || read.listen.segment_max_ms < 1000 {
            return Err(Problem::whole(
                file,
                "`part_max_chars` must be 16 or more and `segment_max_ms` 1000 or more",
            ));
        }
        Ok(Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            mode: read.mode,
            listen: read.listen,
            lanes: read.lanes,
            hear: HearRules {
                hot_words: plain(&hear.hot_words, &["words"])?,
                language: hear.language,
                prompts: hear.prompts,
                partials: hear.partials,
                speech_end_wait: Duration::from_millis(hear.speech_end_wait_ms),
                interim: Duration::from_millis(hear.interim_ms),
                backlog_max_ms: hear.backlog_max_ms,
                attempts: hear.attempts.max(1),
            },
            speak: SpeakRules {
                instruction: plain(&speak.instruction, &["instruction"])?,
                text: plain(&speak.text, &["text"])?,
                before_voice: speak.before_voice,
                after_voice: speak.after_voice,
                part_max_chars: speak.part_max_chars,
                attempts: speak.attempts.max(1),
                symbols: speak.symbols,
            },
        })
    }
}
