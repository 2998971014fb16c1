//! The table of what clients can set, and of the roles of their fields. To add a setting, add a row; the session then reads its
//! field of [`ClientSettings`], and protocol files name its role.
//!
//! A row of a setting has
//! - its meaning, which is also its row in `mappings/reference.md`;
//! - its name, a variant of [`Setting`] and of [`FieldRole`];
//! - its field of [`ClientSettings`] with its type, and after `=` its default. A field without one is `None` until it is set;
//! - after `in`, the unit of the role;
//! - after `explained`, its effect, for `mappings explain`, which knows the profiles where it has none;
//! - after `as`, how a value of the field's type is read if it needs more than [`FromField`].
//!
//! Settings `of codecs` have no role of their own, because codecs read them of several fields, or of what no file describes. The
//! roles below them make parts of requests, several settings, or change the codec.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    ToolOffer, TurnDetection,
    field_value::{FieldValue, FromField},
};
use crate::audio::{MODEL_RATE_HZ, SPEECH_RATE_HZ, encoding::Encoding, vad::Sensitivity};

macro_rules! client_settings {
    (
        $(
            $(#[doc = $doc:literal])+
            $Name:ident $field:ident: $type:ty $(= $default:expr)?
            $(, in $unit:literal)?
            , explained $effect:literal
            $(, as $read:expr)?;
        )+
        of codecs:
        $($(#[doc = $codec_doc:literal])+ $CodecName:ident $codec_field:ident: $codec_type:ty $(= $codec_default:expr)?;)+
        other roles:
        $($(#[doc = $role_doc:literal])+ $Role:ident explained $role_effect:literal;)+
    ) => {
        /// One setting of a session.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Setting {
            $($(#[doc = $doc])+ $Name($type),)+
            $($(#[doc = $codec_doc])+ $CodecName($codec_type),)+
        }

        /// Settings of a session: the defaults of its protocol and profile, and what the client has set.
        #[derive(Debug, Clone)]
        pub struct ClientSettings {
            $($(#[doc = $doc])+ pub $field: client_settings!(@type $type $(, $default)?),)+
            $($(#[doc = $codec_doc])+ pub $codec_field: client_settings!(@type $codec_type $(, $codec_default)?),)+
        }

        impl Default for ClientSettings {
            fn default() -> Self {
                Self {
                    $($field: client_settings!(@default $($default)?),)+
                    $($codec_field: client_settings!(@default $($codec_default)?),)+
                }
            }
        }

        impl ClientSettings {
            /// Takes over a setting.
            pub(crate) fn set(&mut self, setting: Setting) {
                match setting {
                    $(Setting::$Name(value) => self.$field = client_settings!(@set value $(, $default)?),)+
                    $(Setting::$CodecName(value) => {
                        self.$codec_field = client_settings!(@set value $(, $codec_default)?);
                    })+
                }
            }
        }

        impl Setting {
            /// The setting of a field with this role; `None` for other roles and values.
            pub(crate) fn of_field(role: FieldRole, value: FieldValue) -> Option<Self> {
                Some(match role {
                    $(FieldRole::$Name => Self::$Name(client_settings!(@read value $(, $read)?)),)+
                    $(FieldRole::$Role => return None,)+
                })
            }
        }

        /// Role of a field. Mapping files name it in snake case after `to =`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FieldRole {
            $($(#[doc = $doc])+ $Name,)+
            $($(#[doc = $role_doc])+ $Role,)+
        }

        impl FieldRole {
            /// Every role.
            pub const ALL: &[Self] = &[$(Self::$Name,)+ $(Self::$Role,)+];

            /// Its meaning, in Markdown.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$Name => concat!($($doc),+),)+
                    $(Self::$Role => concat!($($role_doc),+),)+
                }
            }

            /// Its effect, in most profiles.
            pub(crate) const fn effect(self) -> &'static str {
                match self {
                    $(Self::$Name => $effect,)+
                    $(Self::$Role => $role_effect,)+
                }
            }

            /// Unit of its value; empty without one.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$Name => concat!($($unit)?),)+
                    $(Self::$Role => "",)+
                }
            }
        }
    };
    (@type $type:ty) => { Option<$type> };
    (@type $type:ty, $default:expr) => { $type };
    (@default) => { None };
    (@default $default:expr) => { $default };
    (@set $value:ident) => { Some($value) };
    (@set $value:ident, $default:expr) => { $value };
    (@read $value:ident) => { FromField::from_field($value)? };
    (@read $value:ident, $read:expr) => { $read(FromField::from_field($value)?) };
}

client_settings! {
    /// Language of the user's speech, ISO 639-1.
    Language language: String,
    explained "language of the transcription prompt and of spelled-out symbols";

    /// Words that are likely to occur.
    HotWords hot_words: Vec<String> = Vec::new(),
    explained "listed in the transcription prompt";

    /// The client's own words for the transcription prompt; empty for none.
    TranscriptionPrompt transcription_prompt: String = String::new(),
    explained "added to the transcription prompt";

    /// `transcribe`, or `translate`: speech is translated into English instead of transcribed.
    Task translates: bool = false,
    explained "`transcribe`, or `translate`: the prompt for a translation into English",
    as |name: String| name == "translate";

    /// How easily speech is detected: `high`, `normal` or `low`.
    VadSensitivity vad_sensitivity: Sensitivity = Sensitivity::Normal,
    explained "threshold and gate of the voice activity detection";

    /// Silence that ends an utterance.
    EndSilenceMs end_silence_ms: u32, in "ms",
    explained "silence that ends an utterance";

    /// Probability that the user has finished, from 0 to 1, from which on the end-of-turn model ends a turn. At 1, only silence
    /// and the client end it. Lets a model judge the ends of turns, if one is loaded.
    EndThreshold end_threshold: f64,
    explained "probability from which on the end-of-turn model ends a turn; at 1, only silence ends it";

    /// Probability from which on `turn_end_likely` is sent; never by default.
    EndLikelyThreshold end_likely_threshold: f64,
    explained "probability from which on the end of a turn is reported as likely, with its words";

    /// Silence that ends a turn although the user does not seem to have finished.
    EndWaitMaxMs end_wait_max_ms: u32, in "ms",
    explained "silence that ends a turn although the user does not seem to have finished";

    /// Longest utterance.
    SegmentMaxMs segment_max_ms: u32, in "ms",
    explained "longest utterance";

    /// Whether partial transcripts are sent.
    Partials partials: bool = true,
    explained "enables partial transcripts";

    /// Whether `words` of final transcripts may be filled; on by default.
    WordTimes word_times: bool = true,
    explained "enables estimated word times";

    /// Whether `words` of final transcripts are filled with estimated times, whatever the profile says.
    EstimatedWordTimes estimated_word_times: bool,
    explained "enables estimated word times, whatever the profile says";

    /// Speech model. Also selects the configured voice of that name; an unknown name is an error when a text is spoken.
    SpeakModel speak_model: SpeechModel,
    explained "the configured voice of that name, or one of the configured speech models";

    /// Voice by name.
    Voice voice: String,
    explained "the configured voice of that name, or the default voice";

    /// Encoding of the client's audio.
    InputEncoding input_encoding: Encoding = Encoding::S16le,
    explained "encoding of the binary frames";

    /// Sample rate of the client's audio. In a command with the verb `audio`, that of this message and those after it.
    InputRateHz input_rate_hz: u32 = SPEECH_RATE_HZ, in "Hz",
    explained "sample rate of the binary frames, 8 to 192 kHz";

    /// Channels of the client's audio.
    InputChannels input_channels: u16 = 1,
    explained "channels of the binary frames; only the first is used";

    /// Encoding of the audio to the client.
    OutputEncoding output_encoding: Encoding = Encoding::S16le,
    explained "encoding of the audio sent back";

    /// Sample rate of the audio to the client.
    OutputRateHz output_rate_hz: u32 = MODEL_RATE_HZ, in "Hz",
    explained "sample rate of the audio sent back, 8 to 192 kHz (extension)";

    /// Bit rate of `mp3` and `ogg_opus` to the client, which take the nearest that they have; 96 000 and 48 000 by default.
    OutputBitRate output_bit_rate: u32, in "bit/s",
    explained "bit rate of compressed audio sent back";

    /// Whether `speech_started` and `speech_ended` are sent; by default, if voice activity ends utterances.
    SpeechEvents speech_events: bool,
    explained "enables events for the start and end of speech";

    /// Whether only final transcripts that the client asks for are sent, each with all words since the last, as with
    /// `lock_step = "finals"`.
    FinalsOnly finals_only: bool = false,
    explained "sends only final transcripts that the client asks for, each with all words since the last";

    /// Silence after an utterance before `utterance_gap` is sent, of audio; off by default.
    UtteranceGapMs utterance_gap_ms: u32, in "ms",
    explained "silence after an utterance that triggers an event";

    /// Closes a session whose client is idle for this time, if the session's own limit is not shorter. `idle_ms` in `[audio_in]`
    /// says when a client is idle.
    IdleTimeoutMs idle_timeout_ms: u32, in "ms",
    explained "closes the session of an idle client after this time, if its own limit is not shorter";

    /// The microphone while the client plays speech: `open`, so that the user can interrupt, or `muted`.
    Microphone microphone: MicrophoneMode = MicrophoneMode::Open,
    explained "`open`: the user's speech interrupts playback; `muted`: the microphone is muted during playback (extension)";

    /// Whether voxbridge removes from the client's audio what the client plays.
    EchoCancellation cancels_echo: bool = false,
    explained "removes from the microphone what the client plays";

    /// Whether `rolled_over` is sent.
    RolloverEvents rollover_events: bool = false,
    explained "enables rollover events (extension)";

    /// Instructions for the model, in place of the profile's.
    Instructions instructions: String,
    explained "instructions for the model, in place of the profile's";

    /// Whether answers are spoken, from now on.
    SpokenAnswers spoken_answers: bool = true,
    explained "whether answers are spoken";

    /// Whether the user's words are transcribed beside the conversation.
    TranscribeUser transcribes_user: bool,
    explained "whether the user's words are transcribed, by a second question";

    /// Bound on each answer, in the model's tokens, below the profile's; an `integer`.
    MaxTokens max_tokens: Option<u32> = None,
    explained "bound on the length of answers, below the profile's",
    as |max: u32| Some(max.max(1));

    /// Sampling temperature of answers, in place of the server's; a `number`.
    Temperature temperature: Option<f64> = None,
    explained "sampling temperature of answers, where the upstream takes one";

    of codecs:

    /// How the session reacts to the user's speech.
    TurnDetection turn_detection: TurnDetection = TurnDetection::default();

    /// Tools that the model may call.
    Tools tools: ToolOffer = ToolOffer::default();

    /// Pauses a conversation in which no one has spoken for this long, until the user speaks.
    IdlePause idle_pause: Duration;

    other roles:

    /// Requested model; selects the route. Of `[query]`.
    Model explained "selects the route and thereby the profile; echoed in the first event";

    /// Requested model that may also name a configured voice: selects the route and that voice. Of `[query]`.
    ModelAndVoice explained "selects the route, and the configured voice of that name";

    /// Speech model, if one of that name exists; no error otherwise.
    SpeakModelIfKnown explained "selects the voice of that name; an unknown name changes nothing";

    /// Encoding, sample rate and perhaps channels of the client's audio, in one word: a `choice` whose `value_map` has an encoding
    /// and a rate, such as `{ pcm_16000 = "s16le 16000" }`, and perhaps channels, as in `"s16le 48000 2"`.
    InputFormat explained "encoding, sample rate and perhaps channels of the client's audio";

    /// The same for the audio to the client, with the kbit/s of a file format instead of channels, as in `"mp3 44100 128"`.
    OutputFormat
    explained "encoding and sample rate of the audio sent back, and bit rate of a compressed encoding";

    /// What ends an utterance: `silence`, or `client` for a client that ends its utterances with `commit`.
    UtteranceEnd explained "what ends an utterance: silence, or the client";

    /// Whether the user's speech interrupts answers; on by default.
    Interruption explained "whether the user's speech interrupts answers";

    /// Tools that the model may call, in profiles with `[answer.tools]`: a list, see below, which replaces the one before.
    Tools explained "functions that the model may call";

    /// Whether `answer_delta` is sent for spoken answers; on by default.
    AnswerWords explained "whether the words of spoken answers are sent";

    /// Most segments in `last_segments`, up to 100; an `integer`.
    SegmentsMax explained "most segments in a message that repeats the last ones; up to 100";

    /// How messages are framed, in place of the protocol's own. Of `[query]`.
    Framing explained "how the messages are framed, in both directions";

    /// The text to speak, of `speak` and `append_text`; the user's message, of `ask` and `tell`.
    Text explained "the text; symbols that the model cannot say are spelled out";

    /// The client's name for a text to speak, of `speak` and the verbs of collected text.
    RequestId explained "echoed in the events of this text";

    /// Voice sample in base64, of `speak`.
    ReferenceAudio explained "the voice for this text: a WAV file, or raw int16 at 16 kHz";

    /// Instruction how to speak, of `speak`.
    Instruction explained "added to the system prompt of this text";

    /// Picture of `frame`, JPEG in base64.
    Image explained "a JPEG in base64";

    /// Microphone audio of `audio`, of type `base64`.
    Audio explained "the audio, base64";

    /// Number of the text or turn that was played, of `played`; an `integer`.
    Turn explained "number of the text or turn";

    /// Messages of the conversation, of `ask` and `tell` in place of `text`: a list, see below. In a command that also has a `text` for
    /// another verb, the messages count.
    Messages explained "messages that become part of the conversation";

    /// Whether the answer to this text is spoken, of `ask`.
    SpokenAnswer explained "whether the answer is spoken";

    /// Results of calls, of `tool_result`: a list, see below.
    ToolResults explained "what the client's functions have returned";

    /// Id of the call that a result belongs to, of `tool_result`.
    CallId explained "the call that a result belongs to";

    /// Result of a call, of `tool_result`.
    Output explained "what the client's functions have returned";

    /// `transcription` for a session without answers. With `[realtime]`.
    Intent explained "`transcription`: a session that only transcribes";

    /// `beta` for the older event names. With `[realtime]`.
    Shape explained "`beta`: the older shape of the protocol";

    /// The first settings of the session, as JSON. With `[realtime]` or `live = true`.
    Session explained "the first settings, as JSON; voxbridge takes them from a client secret (extension)";

    /// `webrtc` for a session whose audio is a call's, beside the messages. With `[realtime]` or `live = true`.
    Transport explained "`webrtc`: the audio is a call's, beside the messages (extension)";
}

/// Handling of microphone audio while the client plays speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MicrophoneMode {
    /// Processes it, so that the user can barge in: for clients without echo.
    Open,
    /// Discards it, as the Macaw server does.
    Muted,
}

impl FromField for MicrophoneMode {
    fn from_field(value: FieldValue) -> Option<Self> {
        String::from_field(value).map(|name| if name == "muted" { Self::Muted } else { Self::Open })
    }
}

/// Speech model that a client names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechModel {
    /// Name of the model, or of a configured voice.
    pub name: String,
    /// An unconfigured name is an error when a text is spoken. Otherwise, it has no effect.
    pub must_exist: bool,
}

impl SpeechModel {
    /// A model whose name has no effect if it is not configured.
    #[must_use]
    pub fn if_known(name: impl Into<String>) -> Self {
        Self { name: name.into(), must_exist: false }
    }
}

impl FromField for SpeechModel {
    fn from_field(value: FieldValue) -> Option<Self> {
        Some(Self { name: String::from_field(value)?, must_exist: true })
    }
}

impl Setting {
    /// True for the format of the audio, in either direction.
    pub(crate) const fn is_audio_format(&self) -> bool {
        matches!(self, Self::InputEncoding(_) | Self::InputRateHz(_)) || self.is_output_format()
    }

    /// True for a part of the format of the audio to the client.
    pub(crate) const fn is_output_format(&self) -> bool {
        matches!(self, Self::OutputEncoding(_) | Self::OutputRateHz(_) | Self::OutputBitRate(_))
    }
}
