//! Profile files: what a client's verbs mean to the model. The schema is `mappings/reference.md`.
//!
//! To change here: a key of a section, or a new section, which the session's owner of that matter reads. Not here: how a
//! protocol spells a verb, which is [`super::client`]'s.

mod answer;
mod dialogue;
mod hear;
mod inherit;
mod relay;
mod tools;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};

use self::{
    answer::AnswerFile,
    inherit::{OWN_KEYS, parse_extended},
};
use super::{
    check::{self, Document, FileError},
    language::primary_language,
    template::{TextWithInstruction, TextWithText},
};

pub use self::{
    answer::AnswerRules,
    dialogue::{
        AgcRules, AssistantText, BargeInRules, ConverseRules, PlayoutPace, PlayoutRules, RolloverRules,
    },
    hear::{HearRules, PromptRequest},
    relay::RelayRules,
    tools::{AskTools, ToolRules},
};
use crate::vocabulary::{MicrophoneMode, Mode, TurnEndRule};

/// The file, with what it inherits from the extended profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    extends: Option<String>,
    mode: Option<Mode>,
    record: Option<bool>,
    listen: Option<ListenRules>,
    read_window: Option<ReadWindowRules>,
    hear: Option<HearRules>,
    speak: Option<SpeakRules>,
    playout: Option<PlayoutRules>,
    lanes: Option<LaneTimeouts>,
    converse: Option<ConverseRules>,
    barge_in: Option<BargeInRules>,
    rollover: Option<RolloverRules>,
    answer: Option<AnswerFile>,
    relay: Option<RelayRules>,
}

/// Sections of a relay profile.
const RELAY_SECTIONS: [&str; 2] = ["relay", "lanes"];

/// `[listen]`: how utterances are found in microphone audio.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenRules {
    /// Audio before the detected start that belongs to the utterance, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub pre_roll_ms: u32,
    /// Length of speech that starts an utterance, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub start_ms: u32,
    /// Length of silence that ends it, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub end_ms: u32,
    /// Longest utterance in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub segment_max_ms: u32,
    /// Ends an utterance when no audio at all arrives for this time, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub stall_ms: u32,
    /// Rule that ends an utterance.
    #[serde(default)]
    pub turn_end: TurnEndRule,
    /// Detector presets by sensitivity.
    pub sensitivity: SensitivityPresets,
}

/// `[read_window]`: longest time that streamed client data may wait unread while nothing depends on it; 0 reads
/// at once.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadWindowRules {
    /// Longest wait while the client plays nothing, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u32,
    /// Longest wait while the client plays speech, which it may want to stop, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub playing_ms: u32,
}

/// The three sensitivity presets.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityPresets {
    /// Detects more.
    pub high: SensitivityPreset,
    /// Default preset.
    pub normal: SensitivityPreset,
    /// Detects less.
    pub low: SensitivityPreset,
}

/// One preset of the voice activity detector.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityPreset {
    /// Detector score above which a hop is speech, 0 to 1.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub threshold: f32,
    /// Level below which no hop is speech, in dB relative to full scale.
    #[serde(deserialize_with = "check::deserialize_level")]
    pub gate_dbfs: f32,
}

/// `[lanes]`: timeouts of upstream sessions.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneTimeouts {
    /// First pause before a retry, in ms; it doubles with each retry, with jitter.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_first_ms: u64,
    /// Longest pause before a retry, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_max_ms: u64,
    /// Time without success after which the lane fails, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub retry_total_ms: u64,
    /// Longest connection attempt, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub dial_max_ms: u64,
    /// Time without progress in the queue after which the client is informed, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub queue_stuck_ms: u64,
    /// Longest wait in the queue, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub queue_max_ms: u64,
    /// Longest time from `init` to ready, in ms. It counts towards `retry_total_ms`.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub init_max_ms: u64,
    /// Longest time from a request to the first output of the model, in ms. The request is then repeated, as often as
    /// `attempts` says.
    #[serde(default = "default_first_answer_max_ms", deserialize_with = "check::deserialize_ms")]
    pub first_answer_max_ms: u64,
    /// Longest silence of the model during an answer, in ms. The request is then repeated, too.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub answer_max_ms: u64,
    /// Longest drain of a cancelled answer before its worker is released, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub drain_max_ms: u64,
    /// Longest time from the polite close to the end of the transport, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub close_max_ms: u64,
}

/// Another upstream gets the request within 20 s, connection and initialisation included.
const fn default_first_answer_max_ms() -> u64 {
    15_000
}

/// A compiled profile.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Notes for readers, one line each.
    pub notes: Vec<String>,
    /// Name of the profile it extends.
    pub extends: Option<String>,
    /// The file with what it inherits, for profiles that extend this one.
    pub(crate) document: Arc<str>,
    /// Upstream mode it needs.
    pub mode: Mode,
    /// Sessions are recorded, if the configuration says where.
    pub record: bool,
    /// How utterances are found.
    pub listen: ListenRules,
    /// How long streamed data may wait unread.
    pub read_window: ReadWindowRules,
    /// How utterances are transcribed.
    pub hear: HearRules,
    /// How texts are spoken.
    pub speak: SpeakRules,
    /// How audio leaves for the client.
    pub playout: PlayoutRules,
    /// Timeouts of upstream sessions.
    pub lanes: LaneTimeouts,
    /// Rules of a dialogue, in profiles with a full-duplex mode.
    pub dialogue: Option<Arc<DialogueRules>>,
    /// Rules of a conversation that takes turns, in profiles with `[answer]`.
    pub answers: Option<Arc<AnswerRules>>,
    /// Relay rules, for clients that speak the model's own protocol. Only [`Profile::lanes`] applies besides.
    pub relay: Option<RelayRules>,
}

/// The rules of a dialogue.
#[derive(Debug, Clone)]
pub struct DialogueRules {
    /// How the conversation is held.
    pub converse: ConverseRules,
    /// How the user interrupts.
    pub barge_in: BargeInRules,
    /// When it moves to another upstream session.
    pub rollover: RolloverRules,
}

/// `[speak]`: how texts are spoken.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeakRules {
    /// System prompt before the voice reference.
    pub before_voice: String,
    /// System prompt after the voice reference.
    pub after_voice: String,
    /// Longest part of a text spoken in one answer, in characters.
    pub part_max_chars: usize,
    /// Attempts to speak a text, while no audio of it was sent.
    #[serde(deserialize_with = "check::deserialize_attempts")]
    pub attempts: u32,
    instruction: TextWithInstruction,
    text: TextWithText,
    symbols: BTreeMap<String, BTreeMap<String, String>>,
}

impl SpeakRules {
    fn checked(self, document: &Document<'_>) -> Result<Self, FileError> {
        if self.part_max_chars < 16 {
            let message = "`part_max_chars` must be 16 or more";
            return Err(document.problem_at_key(&["speak", "part_max_chars"], message));
        }
        Ok(self)
    }

    /// Renders the user message that asks to read `text` aloud.
    #[must_use]
    pub fn read_aloud_request(&self, text: &str) -> String {
        self.text.filled_with(text)
    }

    /// Renders the end of the system prompt, with the client's own instruction.
    #[must_use]
    pub fn system_prompt_end(&self, instruction: Option<&str>) -> String {
        let mut prompt = self.after_voice.clone();
        if let Some(instruction) = instruction {
            prompt += &self.instruction.filled_with(instruction);
        }
        prompt
    }

    /// Spoken forms of the symbols that the model cannot say (mappings/notes/minicpm-o.md#chat), by language; English
    /// as a fallback.
    #[must_use]
    pub fn symbols(&self, language: &str) -> Option<&BTreeMap<String, String>> {
        self.symbols.get(&*primary_language(language)).or_else(|| self.symbols.get("en"))
    }
}

impl Profile {
    /// Name of the profile that a file extends.
    pub(super) fn base_of(document: &Document<'_>) -> Result<Option<String>, FileError> {
        #[derive(Deserialize)]
        struct ExtendsHeader {
            extends: Option<String>,
        }
        document.read::<ExtendsHeader>().map(|header| header.extends)
    }

    pub(super) fn compile(document: &Document<'_>, base: Option<&Self>) -> Result<Self, FileError> {
        let is_relay = document.table.get_ref().contains_key("relay") || base.is_some_and(Self::is_relay);
        let is_inherited = |key: &str| !is_relay || RELAY_SECTIONS.contains(&key);
        let (read, text): (ProfileFile, _) =
            parse_extended(document, base.map(|base| &*base.document), is_inherited)?;
        if is_relay {
            return read.compile_relay(document, text);
        }
        let mode = read.mode.ok_or_else(|| document.problem(0, "missing field `mode`"))?;
        let listen = require(document, "listen", read.listen)?;
        if listen.segment_max_ms < 1000 {
            let message = "`segment_max_ms` must be 1000 or more";
            return Err(document.problem_at_key(&["listen", "segment_max_ms"], message));
        }
        let dialogue = match mode {
            Mode::Chat => None,
            Mode::Audio | Mode::Video => Some(Arc::new(DialogueRules {
                converse: require(document, "converse", read.converse)?.checked(document)?,
                barge_in: require(document, "barge_in", read.barge_in)?,
                rollover: require(document, "rollover", read.rollover)?.checked(document)?,
            })),
        };
        let answers = match (read.answer, mode) {
            (Some(_), Mode::Audio | Mode::Video) => {
                let message =
                    "[answer] is for mode \"chat\"; in the other modes the model decides when to speak";
                return Err(document.problem_at_key(&["mode"], message));
            }
            (Some(answer), Mode::Chat) => {
                let barge_in = require(document, "barge_in", read.barge_in)?;
                Some(Arc::new(answer.compile(document, barge_in)?))
            }
            (None, _) => None,
        };
        Ok(Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            extends: read.extends,
            document: text,
            mode,
            record: read.record.unwrap_or_default(),
            listen,
            read_window: require(document, "read_window", read.read_window)?,
            hear: require(document, "hear", read.hear)?.checked(document)?,
            speak: require(document, "speak", read.speak)?.checked(document)?,
            playout: require(document, "playout", read.playout)?,
            lanes: require(document, "lanes", read.lanes)?,
            dialogue,
            answers,
            relay: None,
        })
    }

    /// How the user interrupts the model, in profiles in which it speaks by itself.
    #[must_use]
    pub fn barge_in(&self) -> Option<&BargeInRules> {
        let of_dialogue = self.dialogue.as_ref().map(|rules| &rules.barge_in);
        of_dialogue.or_else(|| self.answers.as_ref().map(|rules| &rules.barge_in))
    }

    /// The microphone during playback, unless the client decides. Without a conversation it is always muted.
    #[must_use]
    pub fn microphone(&self) -> MicrophoneMode {
        match (&self.dialogue, &self.answers) {
            (Some(rules), _) => rules.converse.microphone,
            (None, Some(rules)) => rules.answer.microphone,
            (None, None) => MicrophoneMode::Muted,
        }
    }

    /// Whether the user's words are transcribed, unless the client decides.
    #[must_use]
    pub fn transcribes_user(&self) -> bool {
        match (&self.dialogue, &self.answers) {
            (Some(rules), _) => rules.converse.transcribe_user,
            (None, Some(rules)) => rules.answer.transcribe_user,
            (None, None) => true,
        }
    }

    /// True if the model calls the client's tools.
    #[must_use]
    pub fn calls_tools(&self) -> bool {
        self.answers.as_ref().is_some_and(|rules| rules.tools.is_some())
    }

    /// Names of the tool servers whose tools it offers.
    #[must_use]
    pub fn tool_servers(&self) -> &[String] {
        let tools = self.answers.as_ref().and_then(|rules| rules.tools.as_ref());
        tools.map_or(&[], |tools| &tools.mcp)
    }

    /// True for a relay profile, which serves only clients that speak the model's own protocol.
    #[must_use]
    pub const fn is_relay(&self) -> bool {
        self.relay.is_some()
    }
}

impl ProfileFile {
    /// Compiles a relay profile, which has no other sections than its own.
    fn compile_relay(self, document: &Document<'_>, text: Arc<str>) -> Result<Profile, FileError> {
        let is_foreign = |key: &&str| !OWN_KEYS.contains(key) && !RELAY_SECTIONS.contains(key);
        if let Some(key) = document.table.get_ref().keys().map(|key| &**key.get_ref()).find(is_foreign) {
            let message = format!("`{key}` is not for a relay profile, which has only [relay] and [lanes]");
            return Err(document.problem_at_key(&[key], message));
        }
        Ok(Profile {
            name: self.name,
            title: self.title,
            notes: self.notes,
            extends: self.extends,
            document: text,
            lanes: require(document, "lanes", self.lanes)?,
            relay: Some(require(document, "relay", self.relay)?),
            // Each client names its own mode, and a relay serves all modes.
            ..Profile::default()
        })
    }
}

/// The section; an error if it is in neither the file nor the profile that the file extends.
fn require<T>(document: &Document<'_>, name: &str, section: Option<T>) -> Result<T, FileError> {
    section.ok_or_else(|| {
        let message =
            format!("section [{name}] is missing, and there is no profile in `extends` to inherit it from");
        document.problem_at_key(&["extends"], message)
    })
}
