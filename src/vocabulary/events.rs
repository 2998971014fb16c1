//! The table of events for clients. To add an event, add a row; the session then pushes the [`ClientEvent`], and protocol files
//! spell it.
//!
//! A row has
//! - the event with its fields, which become a variant of [`ClientEvent`], and its name, a variant of [`EventName`];
//! - after `from`, its origin, for `mappings explain`, which knows the profiles where it differs;
//! - in brackets, the slots of its templates with their values. The codec knows the value of a slot that has none here;
//! - after `and`, another name that protocol files can spell, for a part or a special case of the event.
//!
//! Times are relative as on the Macaw server (mappings/notes/macaw.md#times).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    CloseReason, EndCause, RolloverReason, Slot,
    SlotValue::{self, Base64, Bool, Float, Raw, Str},
    Speaker, TokenUsage,
};
use crate::{audio::word_times::WordTime, error::Error};

macro_rules! client_events {
    ($(
        $(#[$doc:meta])*
        $Event:ident $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)+ })? $(($content:ident: $content_type:ty))?
        from $origin:literal
        [$($slot:ident $(= $value:expr)?),*]
        $(and $(#[$other_doc:meta])* $Other:ident from $other_origin:literal [$($other_slot:ident),*])*;
    )+) => {
        /// Event for the client.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ClientEvent {
            $($(#[$doc])* $Event $({ $($(#[$field_doc])* $field: $field_type,)+ })? $(($content_type))?,)+
        }

        impl ClientEvent {
            /// Name of the event.
            #[must_use]
            pub const fn name(&self) -> EventName {
                match self {
                    $(Self::$Event { .. } => EventName::$Event,)+
                }
            }

            /// Value of a slot of the event; `None` for a slot that only the codec knows.
            #[must_use]
            #[allow(unused_variables, reason = "some fields are for codecs that do not use slots")]
            pub fn value(&self, slot: Slot) -> Option<SlotValue<'_>> {
                Some(match self {
                    $(Self::$Event $({ $($field),+ })? $(($content))? => match slot {
                        $($(Slot::$slot => $value,)?)*
                        _ => return None,
                    },)+
                })
            }
        }

        /// Events for a client. Mapping files name them in snake case under `[events]`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum EventName {
            $($(#[$doc])* $Event, $($(#[$other_doc])* $Other,)*)+
        }

        impl EventName {
            /// Every event.
            pub const ALL: [Self; [$(Self::$Event, $(Self::$Other,)*)+].len()] =
                [$(Self::$Event, $(Self::$Other,)*)+];

            /// The slots that its template may use, beside [`Slot::COMMON`].
            #[must_use]
            pub const fn own_slots(self) -> &'static [Slot] {
                match self {
                    $(Self::$Event => &[$(Slot::$slot),*], $(Self::$Other => &[$(Slot::$other_slot),*],)*)+
                }
            }

            /// Origin of the event, in most profiles.
            pub(crate) const fn origin(self) -> &'static str {
                match self {
                    $(Self::$Event => $origin, $(Self::$Other => $other_origin,)*)+
                }
            }
        }
    };
}

client_events! {
    /// The session is open.
    SessionCreated {
        /// Language requested at connect.
        language: Option<String>,
        /// Time until the session reaches its limit, ms; `None` without a limit.
        limit_ms: Option<u64>,
    } from "the bridge"
    [Language = language.as_deref().into(), ExpiresUnixS]
    and
    /// A voice that the client may name: not a message, but an element of [`Slot::Voices`].
    VoiceEntry from "an element of replies: a configured voice, or `default`"
    [Voice];

    /// A message with audio has arrived. Only for protocols with a template for it.
    AudioReceived {
        /// Number of the message, from 1.
        sequence: u32,
        /// Bytes of audio received before and after it.
        bytes: (u64, u64),
        /// Length of the audio received before and after it, ms.
        ms: (u64, u64),
    } from "the bridge, for each message with audio"
    [
        Sequence = int(*sequence), FromByte = int(bytes.0), ToByte = int(bytes.1), FromS = seconds(ms.0),
        ToS = seconds(ms.1)
    ];

    /// The user started to speak.
    SpeechStarted {
        /// Position of the decision in the received audio, ms.
        at_ms: u64,
        /// Position of the first sound, ms.
        from_ms: u64,
        /// Utterance.
        segment_id: u32,
    } from "the bridge's voice activity detection"
    [
        AtMs = int(*at_ms), AtS = seconds(*at_ms), SpeechFromMs = int(*from_ms), FromS = seconds(*from_ms),
        ToS = seconds(*at_ms), SegmentId = int(*segment_id)
    ];

    /// Transcript so far.
    TranscriptPartial {
        /// Speaker.
        speaker: Speaker,
        /// Whole text so far, not only the new part.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        audio_ms: u64,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
    } from "the model's answer so far, as it streams in"
    [
        Text = Str(text), SegmentId = int(*segment_id), AtMs = int(*audio_ms), FromMs = int(*start_ms),
        ToMs = int(start_ms + audio_ms), FromS = seconds(*start_ms), ToS = seconds(start_ms + audio_ms), DurationS = seconds(*audio_ms), Speaker = Str(speaker.name()),
        Source = Str(speaker.source()), Words, LastSegments
    ]
    and
    /// A sentence of the model's words, as soon as it is complete.
    AnswerSentence from "the model's words, a sentence at a time"
    [Text, SegmentId]
    and
    /// The words that are new in a transcript of the model so far.
    AnswerDelta from "the model's words, as they stream in"
    [Text, SegmentId]
    and
    /// The same in an answer that is written, not spoken; without a template, [`EventName::AnswerDelta`] is sent.
    AnswerTextDelta from "the model's words, as they stream in, if the client wants no speech"
    [Text, SegmentId]
    and
    /// The user's words so far; without a template, [`EventName::TranscriptPartial`] is sent.
    UserPartial from "the user's words so far, if they are transcribed while the user speaks"
    [Text, SegmentId, FromMs, ToMs, FromS, ToS, LastSegments]
    and
    /// The words that are new in the user's transcript so far; without a template, [`EventName::TranscriptPartial`] is sent.
    UserDelta from "the words that are new in the model's answer so far"
    [Text, SegmentId];

    /// Final transcript.
    TranscriptFinal {
        /// Speaker.
        speaker: Speaker,
        /// Text.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        duration_ms: u64,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
        /// Start and end of the speech in the received audio, ms: without the pre-roll and the silence after it.
        speech_ms: (u64, u64),
        /// The utterance ended by silence or by its maximum length.
        utterance_ended: bool,
        /// The client requested the final transcript.
        finalized: bool,
        /// Language of the request to the model; `None` if there was no request.
        language: Option<String>,
        /// Estimated times of the words, in the received audio; empty without an estimate.
        words: Vec<WordTime>,
    } from "the model's answer to the transcription prompt"
    [
        Text = Str(text), SegmentId = int(*segment_id), StartMs = int(0_u64), EndMs = int(*duration_ms),
        StartS = seconds(0), EndS = seconds(*duration_ms), DurationS = seconds(*duration_ms),
        FromMs = int(*start_ms), ToMs = int(start_ms + duration_ms), FromS = seconds(*start_ms),
        ToS = seconds(start_ms + duration_ms), SpeechFromMs = int(speech_ms.0),
        SpeechToMs = int(speech_ms.1), Ended = Bool(*utterance_ended), Finalized = Bool(*finalized),
        Language = language.as_deref().into(), Speaker = Str(speaker.name()), Source = Str(speaker.source()),
        Words, LastSegments
    ]
    and
    /// One segment of the user's transcript: not a message, but an element of [`Slot::LastSegments`].
    TranscriptSegment from "an element of the user's transcripts: an utterance with its words"
    [Text, SegmentId, FromS, ToS, Completed]
    and
    /// One word of a transcript: not a message, but an element of [`Slot::Words`].
    TranscriptWord from "an element of the user's transcripts. Its times, if it has any, are estimated: the words share the \
        voiced parts of the utterance by their letters"
    [Word, BareWord, FromS, ToS]
    and
    /// The user's final words; without a template, [`EventName::TranscriptFinal`] is sent.
    UserTranscript from "the user's words, if they are transcribed"
    [
        Text, JoinedText, SegmentId, FromMs, ToMs, FromS, ToS, SpeechFromMs, SpeechToMs, Finalized, Language, LastSegments
    ];

    /// Everything that came before the client's [`crate::spelling::client::Verb::Complete`] is transcribed and spoken.
    Completed from "the bridge, after the last transcript and audio of what came before the client's request to complete"
    [];

    /// Words that are final and part of a transcript that the client has not asked for yet. Only where the
    /// client asks for finals: with `lock_step`, or `finals_only`.
    TranscriptPart {
        /// The words, with a space before them if others come before.
        text: String,
        /// Utterance.
        segment_id: u32,
    } from "the model's answer to the transcription prompt, before the client asks for all words"
    [Text = Str(text), SegmentId = int(*segment_id)];

    /// The user stopped speaking.
    SpeechEnded {
        /// Position of the decision in the received audio, ms.
        at_ms: u64,
        /// Utterance.
        segment_id: u32,
    } from "the bridge's voice activity detection"
    [AtMs = int(*at_ms), AtS = seconds(*at_ms), SegmentId = int(*segment_id)];

    /// The user pauses, and the turn is likely over. Only for clients with [`Slot::EndLikelyThreshold`]'s setting.
    TurnEndLikely {
        /// All words of the turn so far; never empty.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Probability that the user has finished; 0.5 if no model has judged it.
        confidence: f32,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
        /// Length of the utterance's audio so far, ms.
        audio_ms: u64,
    } from "the bridge, in a pause: the end-of-turn model's judgement, and the words so far"
    [
        Text = Str(text), SegmentId = int(*segment_id), EndConfidence = Float((*confidence).into()),
        FromS = seconds(*start_ms), ToS = seconds(start_ms + audio_ms), Words
    ];

    /// The user goes on after [`ClientEvent::TurnEndLikely`].
    TurnResumed {
        /// The words before.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
        /// Length of the utterance's audio at `TurnEndLikely`, ms.
        audio_ms: u64,
    } from "the bridge's voice activity detection, after `turn_end_likely`"
    [
        Text = Str(text), SegmentId = int(*segment_id), FromS = seconds(*start_ms),
        ToS = seconds(start_ms + audio_ms), Words
    ];

    /// The user's turn is over: its words are final. Follows the final transcript, and exists without one, too.
    TurnEnded {
        /// Words of the turn; empty if there are none, or if the transcript failed.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Probability that the user has finished; 1 if no model has judged the last pause.
        confidence: f32,
        /// Cause of the turn's end.
        cause: EndCause,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
        /// Length of the utterance's audio, ms.
        audio_ms: u64,
    } from "the end of an utterance, with the model's answer to the transcription prompt"
    [
        Text = Str(text), SegmentId = int(*segment_id), EndConfidence = Float((*confidence).into()),
        EndCause = Str(cause.name()), FromS = seconds(*start_ms), ToS = seconds(start_ms + audio_ms), Words
    ];

    /// The audio of an utterance is complete.
    AudioCommitted {
        /// Utterance.
        segment_id: u32,
        /// Length of its audio, ms.
        audio_ms: u64,
        /// Its transcript follows.
        is_transcribed: bool,
        /// Start and end in the audio of a silence that the client wanted answered, ms. There is no speech in it.
        silence_ms: Option<(u64, u64)>,
    } from "the end of an utterance, or the client's commit"
    [SegmentId = int(*segment_id), AudioMs = int(*audio_ms)];

    /// The audio of the current utterance was discarded at the client's request.
    AudioCleared from "the bridge, when the audio is discarded"
    [];

    /// The model has answered the user's audio up to here. In full duplex only.
    AudioAnswered {
        /// Received audio that it has answered or that was dropped, samples at 16 kHz.
        samples: u64,
    } from "the model's answer to a second of audio"
    [];

    /// The model begins an answer.
    AnswerStarted {
        /// Answer.
        segment_id: u32,
        /// The client asked for it; otherwise the model or the end of an utterance did.
        by_client: bool,
    } from "the bridge, before the first word of an answer"
    [SegmentId = int(*segment_id)]
    and
    /// The results of these calls are no longer awaited, because another answer begins without them.
    ToolsCancelled from "the bridge, when another answer begins before the results of calls have come"
    [CallIds];

    /// The model calls a tool of the client. Sent when the words before it have been heard, and before the end of the answer.
    ToolCalled {
        /// Answer.
        segment_id: u32,
        /// Entry of the conversation that the call becomes.
        entry_id: u32,
        /// The call.
        call: ToolCall,
    } from "the model's answer, if the client offers tools"
    [
        CallId = Str(&call.call_id), Name = Str(&call.name), Arguments = Raw(&call.arguments),
        SegmentId = int(*segment_id)
    ];

    /// An answer is complete: nothing of it follows.
    AnswerEnded {
        /// Answer.
        segment_id: u32,
        /// It was interrupted, or the rest of it was lost.
        cancelled: bool,
        /// Length of the audio that was made, ms, heard or not.
        audio_ms: u64,
        /// Tokens that it took, as the upstream reported them or estimated.
        usage: TokenUsage,
        /// The turn ended before its last word without an interruption: the model stopped at the bound on the answer's length,
        /// or the rest was lost.
        hit_limit: bool,
    } from "the bridge, after the last word and sample of an answer"
    [
        SegmentId = int(*segment_id), Cancelled = Bool(*cancelled), InputTokens = int(usage.input()),
        OutputTokens = int(usage.output()), TotalTokens = int(usage.input().saturating_add(usage.output())),
        InputTextTokens = int(usage.input_text), InputAudioTokens = int(usage.input_audio),
        InputImageTokens = int(usage.input_images), CachedTokens = int(usage.cached),
        OutputTextTokens = int(usage.output_text), OutputAudioTokens = int(usage.output_audio),
        AudioMs = int(*audio_ms)
    ]
    and
    /// The end of an answer that was interrupted; without a template, [`EventName::AnswerEnded`] is sent.
    AnswerCancelled from "the bridge, at a barge-in or cancel, or when the rest of an answer is lost"
    [
        SegmentId, InputTokens, OutputTokens, TotalTokens, InputTextTokens, InputAudioTokens, InputImageTokens, CachedTokens,
        OutputTextTokens, OutputAudioTokens
    ]
    and
    /// The end of an answer with calls of tools, whose results the model waits for; without a template,
    /// [`EventName::AnswerEnded`] is sent.
    AnswerAwaitsTools from "the bridge, after the calls of an answer; the next answer follows the client's results"
    [
        SegmentId, InputTokens, OutputTokens, TotalTokens, InputTextTokens, InputAudioTokens, InputImageTokens, CachedTokens,
        OutputTextTokens, OutputAudioTokens
    ];

    /// The user has been silent for the requested gap.
    UtteranceGap {
        /// End of the last utterance in the received audio, ms.
        last_ms: u64,
    } from "the bridge's voice activity detection, for clients that ask for it"
    [LastS = seconds(*last_ms)];

    /// Audio follows.
    SpeakingStarted {
        /// Request id.
        request_id: String,
        /// Time since the request, ms.
        at_ms: u64,
        /// The text being spoken.
        text: String,
        /// The client asked for it; otherwise it is the model's turn or answer.
        is_requested: bool,
    } from "the first audio of the model's read-aloud answer"
    [RequestId = Str(request_id), AtMs = int(*at_ms), AtS = seconds(*at_ms), Text = Str(text), Requested = Bool(*is_requested), Continued];

    /// Audio of a text or turn. Its template has base64; without one, audio leaves as binary frames.
    Audio(audio: ClientAudio) from "the model's voice"
    [Audio = Base64(&audio.bytes), Turn = int(audio.turn.0), RequestId];

    /// All audio of a text or turn was sent. It may still be heard. Only for protocols with a template.
    AudioComplete {
        /// The text or turn.
        turn: SpeechId,
    } from "the bridge, after the last audio of a text or turn"
    [Turn = int(turn.0)];

    /// No more audio follows.
    SpeakingEnded {
        /// Request id.
        request_id: String,
        /// Time since the request, ms.
        at_ms: u64,
        /// The speech was cancelled, or the rest of it was lost.
        cancelled: bool,
        /// Audio sent, ms.
        audio_ms: u64,
    } from "the end of that audio, a cancel, or a failure"
    [
        RequestId = Str(request_id), AtMs = int(*at_ms), Cancelled = Bool(*cancelled), AudioMs = int(*audio_ms)
    ]
    and
    /// No more audio follows because of a cancel or barge-in; without a template, [`EventName::SpeakingEnded`] is sent.
    SpeakingCancelled from "the bridge, at a barge-in or cancel"
    [RequestId, AtMs, Cancelled, AudioMs];

    /// All texts up to a flush have been spoken.
    Flushed {
        /// Number of earlier flushes.
        sequence: u32,
        /// The client's name for the flushed text.
        request_id: Option<String>,
    } from "the bridge, after the last audio of the flushed text"
    [
        Sequence = int(*sequence), RequestId = request_id.as_deref().into(), SpokenMs, SpokenChars, TotalSpokenMs,
        TotalSpokenChars
    ];

    /// Speech was stopped and the queue is empty, or has no text with this id.
    Cleared {
        /// Number of earlier clears.
        sequence: u32,
        /// The client's name for the text that was discarded; `None` for all.
        request_id: Option<String>,
    } from "the bridge, after playback has stopped"
    [
        Sequence = int(*sequence), RequestId = request_id.as_deref().into(), SpokenMs, SpokenChars, TotalSpokenMs,
        TotalSpokenChars
    ];

    /// Settings have changed. The event has those in force.
    Configured {
        /// Words that are likely to occur.
        hot_words: Vec<String>,
        /// Probability from which on a turn ends, if the client has set it.
        end_threshold: Option<f64>,
        /// Probability from which on the end of a turn is reported as likely, if the client has set it.
        end_likely_threshold: Option<f64>,
        /// Silence that ends a turn in any case, ms, if the client has set it.
        end_wait_max_ms: Option<u32>,
    } from "the bridge"
    [
        HotWords, EndThreshold = optional(*end_threshold), EndLikelyThreshold = optional(*end_likely_threshold),
        EndWaitMaxMs = end_wait_max_ms.map_or(SlotValue::Null, int)
    ];

    /// The client got no message for `idle_event_ms`.
    StillHere from "the bridge, when it has had nothing to say for `idle_event_ms`"
    [];

    /// A conversation waits for a model, because all workers are taken. Repeated while it waits.
    Queued {
        /// Position in the upstream's queue, from 1.
        position: u32,
        /// Time in the queue so far, ms.
        waited_ms: u64,
        /// Longest time in the queue, ms.
        wait_max_ms: u64,
    } from "the bridge, every 5 s while the conversation waits in the upstream's queue"
    [Position = int(*position), WaitedMs = int(*waited_ms), WaitMaxMs = int(*wait_max_ms)];

    /// Audio arrives faster than real time.
    RateLimited {
        /// How long the client should pause, ms.
        delay_ms: u64,
    } from "the bridge's audio rate limiter"
    [DelayMs = int(*delay_ms)];

    /// Audio was dropped.
    FramesDropped {
        /// Length of the dropped audio, ms.
        dropped_ms: u64,
    } from "the bridge's audio rate limiter"
    [DroppedMs = int(*dropped_ms)];

    /// The conversation continued in another upstream session.
    RolledOver {
        /// Reason.
        reason: RolloverReason,
        /// Time without a model, ms.
        gap_ms: u64,
        /// The next session was a standby that was ready.
        standby: bool,
        /// Audio kept meanwhile, which is sent now, ms.
        kept_ms: u64,
        /// Lines of the conversation that the prompt of the next session has.
        known_lines: u64,
        /// Lines that it lacks: said after it was initialised, or too old for its length.
        missing_lines: u64,
    } from "the bridge, when the conversation moves to another upstream session (extension, for clients that ask for it)"
    [
        Reason = Str(reason.name()), GapMs = int(*gap_ms), Standby = Bool(*standby), KeptMs = int(*kept_ms),
        KnownLines = int(*known_lines), MissingLines = int(*missing_lines)
    ];

    /// The conversation is paused, because no one has spoken for the time that the client set.
    ConversationPaused from "the bridge, when no one has spoken for the client's idle timeout"
    [];

    /// The user has spoken, and a model is ready again.
    ConversationResumed from "the user's speech in a paused conversation, once a model is ready"
    [];

    /// An error. The protocol's `[errors]` have its code and message.
    Error(error: Error) from "bad input, the bridge, or the upstream; the message says which"
    [Code, Message, Recoverable, Fatal, SegmentId, RequestId]
    and
    /// An error in a message of the client that has an id; without a template, [`EventName::Error`] is sent.
    RequestFailed from "a message of the client that is wrong or unknown"
    [Code, Message, RequestId]
    and
    /// An error in a message that changes settings; without a template, [`EventName::Error`] is sent.
    ConfigureFailed from "a message of the client with wrong settings, of which none applies"
    [Code, Message]
    and
    /// An error after which the connection stays open; without a template, [`EventName::Error`] is sent.
    Warning from "the bridge or the upstream; the session goes on"
    [Code, Message, SegmentId, RequestId];

    /// The session will end soon, by an operator, a restart or its time limit.
    GoingAway {
        /// Time until then at most, ms.
        left_ms: u64,
    } from "the bridge, before a restart, an operator's close or the time limit"
    [LeftMs = int(*left_ms), LeftS = seconds(*left_ms)];

    /// The session has ended. This is the last event. The protocol's `[closes]` have the spelling of the reason.
    SessionClosed {
        /// Reason.
        reason: CloseReason,
        /// Time since the session opened, ms.
        total_ms: u64,
        /// Received audio, ms.
        audio_ms: u64,
        /// Number of utterances.
        segments: u32,
    } from "the bridge"
    [
        Reason, TotalMs = int(*total_ms), TotalS = seconds(*total_ms), AudioS = seconds(*audio_ms), Segments = int(*segments), TotalSpokenMs,
        TotalSpokenChars
    ];
}

impl ClientEvent {
    /// The text or turn that is discarded with this event when the user interrupts; `None` for events that stay.
    #[must_use]
    pub const fn turn(&self) -> Option<SpeechId> {
        match self {
            Self::Audio(audio) => Some(audio.turn),
            Self::AudioComplete { turn } => Some(*turn),
            _ => None,
        }
    }
}

impl EventName {
    /// The slots that its template may use.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        self.own_slots().iter().copied().chain(Slot::COMMON)
    }
}

/// Names a speech to the client: a requested text, or a turn or answer of the model. Unique within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpeechId(pub u32);

/// A call of one of the client's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Names the call in its result.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments: the text of a JSON object.
    pub arguments: String,
}

impl ToolCall {
    /// Memory of its texts, bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.call_id.len() + self.name.len() + self.arguments.len()
    }
}

/// Audio for the client: mono samples at the client's rate.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientAudio {
    /// Samples in the client's encoding.
    pub bytes: Bytes,
    /// The text or turn that the audio belongs to.
    pub turn: SpeechId,
}

fn int(number: impl Into<u64>) -> SlotValue<'static> {
    SlotValue::Int(i64::try_from(number.into()).unwrap_or(i64::MAX))
}

fn optional(number: Option<f64>) -> SlotValue<'static> {
    number.map_or(SlotValue::Null, Float)
}

/// A time in seconds, given in ms.
pub(crate) fn seconds(ms: u64) -> SlotValue<'static> {
    Float(ms as f64 / 1000.0)
}
