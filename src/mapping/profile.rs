//! A profile's file: what a client's verbs mean to the model. The schema is `mappings/README.md`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::{
    check::{self, FileError},
    dialogue::ConverseFile,
    relay::{RelayProfileFile, RelayRules},
    template::Template,
    upstream::Mode,
};

pub use super::dialogue::{
    AgcRules, AssistantText, BargeInRules, ConverseRules, MicrophoneMode, PlayoutPace, PlayoutRules,
    RolloverRules,
};

/// The file, as written. A section that is absent is the one of the profile it extends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    kind: super::MappingKind,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    extends: Option<String>,
    mode: Mode,
    listen: Option<ListenRules>,
    read_window: Option<ReadWindowRules>,
    hear: Option<HearFile>,
    speak: Option<SpeakFile>,
    playout: Option<PlayoutRules>,
    lanes: Option<LaneTimeouts>,
    converse: Option<ConverseFile>,
    barge_in: Option<BargeInRules>,
    rollover: Option<RolloverRules>,
}

/// Finding utterances in the microphone's audio.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenRules {
    /// Audio from before the decision that belongs to the utterance, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub pre_roll_ms: u32,
    /// Speech that starts an utterance, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub start_ms: u32,
    /// Silence that ends one, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub end_ms: u32,
    /// Longest utterance, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub segment_max_ms: u32,
    /// An utterance whose audio stops coming altogether ends after this, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub stall_ms: u32,
    /// Thresholds by sensitivity.
    pub sensitivity: SensitivityPresets,
}

/// How long what a client streams may wait to be read where nothing can be decided by it any sooner; 0 reads all at once.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadWindowRules {
    /// While it hears nothing, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u32,
    /// While it hears something, which it may want to stop, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub playing_ms: u32,
}

/// The three presets.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityPresets {
    /// Hears more.
    pub high: SensitivityPreset,
    /// Default.
    pub normal: SensitivityPreset,
    /// Hears less.
    pub low: SensitivityPreset,
}

/// One preset of the detector.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityPreset {
    /// The detector's score above which a hop is speech, 0 to 1.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub threshold: f32,
    /// Level below which nothing is speech, dB relative to full scale.
    #[serde(deserialize_with = "check::deserialize_level")]
    pub gate_dbfs: f32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HearFile {
    language: String,
    prompts: BTreeMap<String, String>,
    hot_words: Spanned<String>,
    partials: bool,
    #[serde(deserialize_with = "check::deserialize_ms")]
    speech_end_wait_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    interim_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
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
pub struct LaneTimeouts {
    /// First pause before another attempt, ms; it doubles, with jitter.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_first_ms: u64,
    /// Longest pause, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_max_ms: u64,
    /// After this long without success the lane fails, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_total_ms: u64,
    /// Connecting, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub dial_max_ms: u64,
    /// A queue position that stays the same for this long is reported, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub queue_stuck_ms: u64,
    /// Longest wait in the queue, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub queue_max_ms: u64,
    /// From `init` to ready, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub init_max_ms: u64,
    /// Longest silence of the model while it owes an answer, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub answer_max_ms: u64,
    /// How long a cancelled answer is waited out before its worker is given back, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub drain_max_ms: u64,
    /// From the polite close to the end of the transport, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
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
    /// The profile it extends.
    pub extends: Option<String>,
    /// The upstream mode it needs.
    pub mode: Mode,
    /// Finding utterances.
    pub listen: ListenRules,
    /// How long what it streams may lie unread.
    pub read_window: ReadWindowRules,
    /// Transcribing them.
    pub hear: HearRules,
    /// Speaking.
    pub speak: SpeakRules,
    /// How audio leaves.
    pub playout: PlayoutRules,
    /// Patience.
    pub lanes: LaneTimeouts,
    /// Talk, where the model is the partner and not an engine.
    pub dialogue: Option<Arc<DialogueRules>>,
    /// Relaying, for clients that speak the model's own protocol; of the rest only [`Profile::lanes`] then counts.
    pub relay: Option<RelayRules>,
}

/// Everything about talk.
#[derive(Debug, Clone)]
pub struct DialogueRules {
    /// How it is held.
    pub converse: ConverseRules,
    /// How the user interrupts.
    pub barge_in: BargeInRules,
    /// When it goes on in another upstream session.
    pub rollover: RolloverRules,
}

/// How utterances are transcribed.
#[derive(Debug, Clone, Default)]
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
            self.hot_words.render_plain(&mut prompt, |_| super::template::SlotValue::Str(&words));
        }
        prompt
    }

    /// Languages with a prompt of their own.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.prompts.keys().map(String::as_str)
    }
}

/// How texts are spoken.
#[derive(Debug, Clone, Default)]
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
    pub fn read_aloud_request(&self, text: &str) -> String {
        let mut message = String::new();
        self.text.render_plain(&mut message, |_| super::template::SlotValue::Str(text));
        message
    }

    /// The end of the system prompt, with the client's own instruction.
    #[must_use]
    pub fn system_prompt_end(&self, instruction: Option<&str>) -> String {
        let mut prompt = self.after_voice.clone();
        if let Some(instruction) = instruction {
            self.instruction.render_plain(&mut prompt, |_| super::template::SlotValue::Str(instruction));
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
    /// The name of the profile a file extends.
    pub(super) fn base_of(file: &str, source: &str) -> Result<Option<String>, FileError> {
        #[derive(Deserialize)]
        struct ExtendsHeader {
            extends: Option<String>,
        }
        check::parse_toml::<ExtendsHeader>(file, source).map(|header| header.extends)
    }

    pub(super) fn compile(file: &str, source: &str, base: Option<&Self>) -> Result<Self, FileError> {
        if RelayProfileFile::is_relay_profile(file, source, base)? {
            return RelayProfileFile::compile(file, source, base);
        }
        let read: ProfileFile = check::parse_toml(file, source)?;
        super::check_kind(file, source, read.kind, super::MappingKind::Profile)?;
        let missing = |section: &str| {
            let message = format!("there is no [{section}], and no profile it `extends` to take it from");
            FileError::at_key(file, source, &["extends"], message)
        };
        let hear = read.hear.map(|hear| hear.compile(file, source)).transpose()?;
        let speak = read.speak.map(|speak| speak.compile(file, source)).transpose()?;
        let converse = read.converse.map(|converse| converse.compile(file, source)).transpose()?;
        let listen = read.listen.or_else(|| base.map(|base| base.listen.clone()));
        let listen = listen.ok_or_else(|| missing("listen"))?;
        if listen.segment_max_ms < 1000 {
            let message = "`segment_max_ms` must be 1000 or more";
            return Err(FileError::at_key(file, source, &["listen", "segment_max_ms"], message));
        }
        if let Some(rollover) = &read.rollover {
            rollover.check(file, source)?;
        }
        let inherited = base.and_then(|base| base.dialogue.as_ref());
        let dialogue = match read.mode {
            Mode::Chat => None,
            Mode::Audio | Mode::Video => Some(Arc::new(DialogueRules {
                converse: converse
                    .or_else(|| inherited.map(|talk| talk.converse.clone()))
                    .ok_or_else(|| missing("converse"))?,
                barge_in: read
                    .barge_in
                    .or_else(|| inherited.map(|talk| talk.barge_in))
                    .ok_or_else(|| missing("barge_in"))?,
                rollover: read
                    .rollover
                    .or_else(|| inherited.map(|talk| talk.rollover))
                    .ok_or_else(|| missing("rollover"))?,
            })),
        };
        Ok(Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            extends: read.extends,
            mode: read.mode,
            listen,
            read_window: read
                .read_window
                .or_else(|| base.map(|base| base.read_window))
                .ok_or_else(|| missing("read_window"))?,
            hear: hear.or_else(|| base.map(|base| base.hear.clone())).ok_or_else(|| missing("hear"))?,
            speak: speak.or_else(|| base.map(|base| base.speak.clone())).ok_or_else(|| missing("speak"))?,
            playout: read
                .playout
                .or_else(|| base.map(|base| base.playout))
                .ok_or_else(|| missing("playout"))?,
            lanes: read.lanes.or_else(|| base.map(|base| base.lanes)).ok_or_else(|| missing("lanes"))?,
            dialogue,
            relay: None,
        })
    }
}

impl Profile {
    /// Whether it relays: then only clients that speak the model's own protocol can use it, and they no other.
    #[must_use]
    pub const fn is_relay(&self) -> bool {
        self.relay.is_some()
    }
}

impl HearFile {
    fn compile(self, file: &str, source: &str) -> Result<HearRules, FileError> {
        if !self.prompts.contains_key(&self.language) {
            let known = || self.prompts.keys().map(String::as_str);
            let (hint, known) = (check::did_you_mean(&self.language, known()), check::quoted_list(known()));
            let message =
                format!("[hear.prompts] has none for `language = {:?}`{hint}; it has {known}", self.language);
            return Err(FileError::at_key(file, source, &["hear", "language"], message));
        }
        Ok(HearRules {
            hot_words: compile_plain(&self.hot_words, &["words"], file, source)?,
            language: self.language,
            prompts: self.prompts,
            partials: self.partials,
            speech_end_wait: Duration::from_millis(self.speech_end_wait_ms),
            interim: Duration::from_millis(self.interim_ms),
            backlog_max_ms: self.backlog_max_ms,
            attempts: self.attempts.max(1),
        })
    }
}

impl SpeakFile {
    fn compile(self, file: &str, source: &str) -> Result<SpeakRules, FileError> {
        if self.part_max_chars < 16 {
            let message = "`part_max_chars` must be 16 or more";
            return Err(FileError::at_key(file, source, &["speak", "part_max_chars"], message));
        }
        Ok(SpeakRules {
            instruction: compile_plain(&self.instruction, &["instruction"], file, source)?,
            text: compile_plain(&self.text, &["text"], file, source)?,
            before_voice: self.before_voice,
            after_voice: self.after_voice,
            part_max_chars: self.part_max_chars,
            attempts: self.attempts.max(1),
            symbols: self.symbols,
        })
    }
}

fn compile_plain(
    text: &Spanned<String>,
    slots: &[&str],
    file: &str,
    source: &str,
) -> Result<Template, FileError> {
    Template::compile_plain(text.get_ref(), slots)
        .map_err(|error| FileError::at_offset(file, source, text.span().start, error.to_string()))
}
