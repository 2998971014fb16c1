//! Client codecs: frames of a client protocol to and from the neutral vocabulary.
//!
//! To change here: what a protocol needs beyond its mapping file. Not here: what a message leads to, which is
//! [`crate::session`]'s.
//!
//! A mapping file holds the spelling of a protocol. Most protocols need no more; [`realtime`] and [`live`] know what the messages of
//! OpenAI's protocols contain. Audio is binary frames or base64 in a field; ids are
//! remembered, generated or counted here ([`values`]). The codec knows nothing of sessions.

mod decode;
mod decode_announced;
mod encode;
mod field_values;
mod framing;
pub(crate) mod json_text;
mod live;
mod messages;
mod picture;
mod query;
mod realtime;
pub mod reference;
pub mod relay;
mod segments;
mod sentences;
mod slot_values;
mod spell_request;
mod spoken;
mod tools;
mod user_words;
pub(crate) mod values;

use std::sync::{Arc, OnceLock};

pub use self::query::ConnectQuery;
#[cfg(feature = "io")]
pub(crate) use self::reference::decode_voice_sample;
use self::{
    framing::{AudioFormat, announced::AnnouncedAudio},
    live::Live,
    realtime::Realtime,
    segments::Segments,
    sentences::Sentences,
    slot_values::EventSource,
    spoken::SpokenAmounts,
    tools::AwaitedCalls,
    user_words::UserWords,
    values::ConnectionValues,
};
#[cfg(feature = "io")]
pub(crate) use self::{live::check_live_session, realtime::check_session};
use crate::{
    spelling::{
        ClientMapping,
        client::{EventSlot, Framing},
    },
    vocabulary::{EventName, Message, Setting},
};

/// Name of the voice that every configuration has.
const DEFAULT_VOICE: &str = "default";

/// One connection's codec.
#[derive(Debug)]
pub struct Codec {
    mapping: Arc<ClientMapping>,
    /// Wall clock at the start of the session, seconds since 1970; times in events are based on it.
    opened_unix_s: f64,
    /// The same time as RFC 3339, once an event needs it.
    opened_at: OnceLock<String>,
    /// Session id and requested model, which every event may use.
    session_id: String,
    model: String,
    /// Contents of the protocol's `[values]`.
    values: ConnectionValues,
    /// Buffer for the client's audio, decoded from base64.
    audio_bytes: Vec<u8>,
    /// The words of an event, as elements of a JSON array.
    words_json: String,
    /// The last segments, for protocols that repeat them, and as elements of a JSON array.
    segments: Option<Segments>,
    segments_json: String,
    /// The voices that the client may name, as elements of a JSON array.
    voices_json: String,
    /// How messages are framed in both directions.
    framing: Framing,
    /// A binary message may be a command.
    has_binary_commands: bool,
    /// Rate of the audio to the client, as its frames say it, Hz.
    rate_out_hz: u32,
    /// Format of the client's audio, where its messages say it.
    frame_format: AudioFormat,
    /// Where in an utterance the client's audio is, with [`Framing::Announced`].
    announced: AnnouncedAudio,
    /// The model's words, for protocols with [`crate::vocabulary::EventName::AnswerSentence`].
    sentences: Sentences,
    /// The answer whose first audio has not been announced, and the answer's words so far, which wait for the announcement.
    unannounced_words: Option<(u32, String)>,
    /// The client knows of a speech that has not ended.
    is_speaking: bool,
    /// The same words, for protocols with [`crate::vocabulary::EventName::AnswerDelta`].
    deltas: Sentences,
    /// The client's name for the text or turn being spoken.
    speaking_id: String,
    /// How much was spoken.
    spoken: SpokenAmounts,
    /// The user's words, for protocols with [`crate::vocabulary::EventName::UserDelta`].
    user_words: UserWords,
    /// The transcript that is being sent, behind a space if it is not the first of the user's turn.
    joined_text: String,
    /// The user's turn has a transcript.
    has_user_text: bool,
    /// The time of the event that is rendered as RFC 3339, once its message needs it.
    event_time: OnceLock<String>,
    /// The model takes texts of the user.
    takes_text: bool,
    /// The profile calls tools.
    calls_tools: bool,
    /// Calls of tools whose results have not come.
    calls: AwaitedCalls,
    /// Answers are spoken.
    speaks: bool,
    /// The words of spoken answers are sent.
    sends_answer_words: bool,
    /// Texts of the user so far.
    asked: u32,
    /// Messages that answer the client's commands at once.
    replies: Vec<Message>,
    /// Fields without effect since the last [`Codec::take_ignored_fields`].
    ignored: Vec<IgnoredField>,
    kind: CodecKind,
}

/// The part of the codec that knows what messages contain.
#[derive(Debug)]
enum CodecKind {
    /// The mapping file says all.
    Mapped,
    /// OpenAI's Realtime protocol.
    Realtime(Box<Realtime>),
    /// OpenAI's Live protocol.
    Live(Box<Live>),
}

/// An accepted field without effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredField {
    /// The command, or `connect` for a query parameter.
    pub command: String,
    /// The field.
    pub field: String,
    /// Reason why the field has no effect.
    pub because: String,
    /// The client cannot work as intended without it.
    pub is_needed: bool,
}

impl Codec {
    /// A codec for one connection, opened at `opened_unix_s` seconds since 1970.
    #[must_use]
    pub fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        let kind = match &mapping.realtime {
            Some(_) => CodecKind::Realtime(Box::new(Realtime::new(mapping.clone(), opened_unix_s))),
            None if mapping.is_live => CodecKind::Live(Box::new(Live::new(opened_unix_s))),
            None => CodecKind::Mapped,
        };
        Self {
            values: ConnectionValues::new(&mapping.values, 0),
            audio_bytes: Vec::new(),
            words_json: String::new(),
            segments: mapping.segments_max().map(Segments::new),
            segments_json: String::new(),
            voices_json: String::new(),
            framing: mapping.framing,
            has_binary_commands: mapping.has_binary_commands(mapping.framing),
            rate_out_hz: mapping.audio_out.rate_hz,
            frame_format: AudioFormat::default(),
            announced: AnnouncedAudio::default(),
            sentences: Sentences::default(),
            unannounced_words: None,
            is_speaking: false,
            deltas: Sentences::default(),
            speaking_id: String::new(),
            spoken: SpokenAmounts::default(),
            user_words: UserWords::default(),
            joined_text: String::new(),
            has_user_text: false,
            event_time: OnceLock::new(),
            takes_text: true,
            calls_tools: true,
            calls: AwaitedCalls::default(),
            speaks: true,
            sends_answer_words: true,
            asked: 0,
            kind,
            mapping,
            opened_unix_s,
            opened_at: OnceLock::new(),
            session_id: String::new(),
            model: String::new(),
            replies: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Sets the session id and model for later events, and the seed of generated ids.
    pub fn set_session(&mut self, session_id: &str, model: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        model.clone_into(&mut self.model);
        self.values.begin_session(&self.mapping.values, seed);
        match &mut self.kind {
            CodecKind::Mapped => {}
            CodecKind::Realtime(realtime) => realtime.set_session(session_id, model, seed),
            CodecKind::Live(live) => live.set_session(session_id, seed),
        }
    }

    /// Notes a setting that concerns messages to the client.
    const fn note_setting(&mut self, setting: &Setting) {
        match setting {
            Setting::OutputRateHz(rate_hz) => self.rate_out_hz = *rate_hz,
            Setting::SpokenAnswers(on) => self.speaks = *on,
            _ => {}
        }
    }

    /// Sets the configured voices, for protocols that list them.
    pub(crate) fn set_voices<'v>(&mut self, names: impl Iterator<Item = &'v str>) {
        let mapping = self.mapping.clone();
        let Some(entry) = mapping.event(EventName::VoiceEntry).first() else { return };
        let others = names.filter(|name| *name != DEFAULT_VOICE);
        let mut json = String::new();
        for name in std::iter::once(DEFAULT_VOICE).chain(others) {
            if !json.is_empty() {
                json.push(',');
            }
            let source = EventSource::Voice(name);
            entry.template.render(&mut json, |slot| match slot {
                EventSlot::Event(slot) => self.slot_value(&source, slot, 0.0),
                EventSlot::Value(at) => self.values.get(at),
            });
        }
        self.voices_json = json;
    }

    /// Notes that the profile calls no tools.
    pub(crate) fn refuse_tools(&mut self) {
        self.calls_tools = false;
        if let Some(realtime) = self.realtime_mut() {
            realtime.refuse_tools();
        }
    }

    /// Notes that the session answers no requests, because its model speaks unasked; and whether it sees pictures.
    pub(crate) fn set_full_duplex(&mut self, sees: bool) {
        self.takes_text = false;
        match &mut self.kind {
            CodecKind::Mapped => {}
            CodecKind::Realtime(realtime) => realtime.set_full_duplex(sees),
            CodecKind::Live(live) => live.set_full_duplex(),
        }
    }

    /// Notes whether the session can transcribe the user.
    pub(crate) const fn set_transcribes(&mut self, transcribes: bool) {
        if let CodecKind::Live(live) = &mut self.kind {
            live.set_transcribes(transcribes);
        }
    }

    /// Memory of what the client gave and the codec keeps, bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match &self.kind {
            CodecKind::Realtime(realtime) => realtime.kept_bytes(),
            // Twice, because the words are rendered, too.
            CodecKind::Mapped => self.segments.as_ref().map_or(0, |segments| 2 * segments.bytes()),
            CodecKind::Live(_) => 0,
        }
    }

    /// Forgets the conversation, because the client has left.
    pub(crate) fn forget(&mut self) {
        if let Some(realtime) = self.realtime_mut() {
            realtime.forget();
        }
    }

    fn realtime_mut(&mut self) -> Option<&mut Realtime> {
        match &mut self.kind {
            CodecKind::Realtime(realtime) => Some(realtime),
            CodecKind::Mapped | CodecKind::Live(_) => None,
        }
    }

    /// True if a binary message may be a command, or end the audio.
    pub(crate) const fn has_binary_commands(&self) -> bool {
        self.has_binary_commands
    }

    /// Sets how messages are framed.
    fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
        self.has_binary_commands = self.mapping.has_binary_commands(framing);
    }

    /// Mapping of the protocol.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<ClientMapping> {
        &self.mapping
    }

    /// Takes the fields without effect since the last call.
    pub fn take_ignored_fields(&mut self) -> Vec<IgnoredField> {
        let mut ignored = std::mem::take(&mut self.ignored);
        match &mut self.kind {
            CodecKind::Mapped => {}
            CodecKind::Realtime(realtime) => ignored.append(&mut realtime.ignored),
            CodecKind::Live(live) => ignored.append(&mut live.ignored),
        }
        ignored
    }

    /// Takes the codec's own answers to the client's messages since the last call.
    pub fn take_replies(&mut self) -> Vec<Message> {
        let mut replies = std::mem::take(&mut self.replies);
        match &mut self.kind {
            CodecKind::Mapped => {}
            CodecKind::Realtime(realtime) => replies.append(&mut realtime.replies),
            CodecKind::Live(live) => replies.append(&mut live.replies),
        }
        replies
    }
}

#[cfg(test)]
mod tests;
