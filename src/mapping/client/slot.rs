//! The slots of event templates, and which event knows which of them.

use super::EventName;

/// A value that an event's template can use. Files name these in snake case: `${at_ms}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Milliseconds: of audio heard, or since the request.
    AtMs,
    /// [`Slot::AtMs`] in seconds.
    AtS,
    /// The audio, base64.
    Audio,
    /// Length of the audio sent for a text or turn, ms.
    AudioMs,
    /// Length of the audio heard in the session, s.
    AudioS,
    /// A word in lower case, without punctuation around it.
    BareWord,
    /// Whether the text or turn was cancelled.
    Cancelled,
    /// Error code.
    Code,
    /// How long the client should wait, ms.
    DelayMs,
    /// How much audio was dropped, ms.
    DroppedMs,
    /// Length of the utterance, s.
    DurationS,
    /// End of the transcript, counted from the beginning of the utterance, ms.
    EndMs,
    /// [`Slot::EndMs`] in seconds.
    EndS,
    /// Whether the user ended the utterance.
    Ended,
    /// Whether the client's `finalize` ended the utterance.
    Finalized,
    /// Where the utterance begins in the audio heard, s.
    FromS,
    /// How long no audio reached a model, ms.
    GapMs,
    /// Audio that was kept and follows, ms.
    KeptMs,
    /// Lines of the conversation that the next upstream session knows.
    KnownLines,
    /// Language, ISO 639-1.
    Language,
    /// Where the last utterance ended in the audio heard, s.
    LastS,
    /// Error message.
    Message,
    /// Lines of the conversation that the next upstream session does not know.
    MissingLines,
    /// Model asked for.
    Model,
    /// When the session was opened, RFC 3339 in UTC.
    OpenedAt,
    /// Position in the upstream's queue.
    Position,
    /// Why the session ends, or why the conversation rolled over.
    Reason,
    /// Whether the session goes on after the error.
    Recoverable,
    /// The client's name for a text, or a turn's.
    RequestId,
    /// Number of the utterance.
    SegmentId,
    /// Utterances in the session.
    Segments,
    /// Flushes or clears before this one.
    Sequence,
    /// The session's id.
    SessionId,
    /// Where a transcript comes from.
    Source,
    /// `user` or `assistant`.
    Speaker,
    /// Whether the next upstream session had been prepared.
    Standby,
    /// Beginning of the transcript, counted from the beginning of the utterance, ms.
    StartMs,
    /// [`Slot::StartMs`] in seconds.
    StartS,
    /// Where the speech of the utterance begins in the audio heard, ms.
    SpeechFromMs,
    /// Where the speech of the utterance ends in the audio heard, ms.
    SpeechToMs,
    /// Text of the transcript, or text being spoken.
    Text,
    /// Where the utterance ends in the audio heard, s.
    ToS,
    /// Length of the session, ms.
    TotalMs,
    /// Number of the text or turn in this session.
    Turn,
    /// Wall clock, seconds since 1970.
    UnixS,
    /// Longest time in the upstream's queue, ms.
    WaitMaxMs,
    /// Time in the upstream's queue so far, ms.
    WaitedMs,
    /// A word as it stands in the transcript.
    Word,
    /// The transcript's words with estimated times, each written as the event `transcript_word`.
    Words,
}

impl Slot {
    /// Slots that every event knows.
    pub const COMMON: [Self; 3] = [Self::SessionId, Self::Model, Self::OpenedAt];

    /// Its name in mapping files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtMs => "at_ms",
            Self::AtS => "at_s",
            Self::Audio => "audio",
            Self::AudioMs => "audio_ms",
            Self::AudioS => "audio_s",
            Self::BareWord => "bare_word",
            Self::Cancelled => "cancelled",
            Self::Code => "code",
            Self::DelayMs => "delay_ms",
            Self::DroppedMs => "dropped_ms",
            Self::DurationS => "duration_s",
            Self::EndMs => "end_ms",
            Self::EndS => "end_s",
            Self::Ended => "ended",
            Self::Finalized => "finalized",
            Self::FromS => "from_s",
            Self::GapMs => "gap_ms",
            Self::KeptMs => "kept_ms",
            Self::KnownLines => "known_lines",
            Self::Language => "language",
            Self::LastS => "last_s",
            Self::Message => "message",
            Self::MissingLines => "missing_lines",
            Self::Model => "model",
            Self::OpenedAt => "opened_at",
            Self::Position => "position",
            Self::Reason => "reason",
            Self::Recoverable => "recoverable",
            Self::RequestId => "request_id",
            Self::SegmentId => "segment_id",
            Self::Segments => "segments",
            Self::Sequence => "sequence",
            Self::SessionId => "session_id",
            Self::Source => "source",
            Self::Speaker => "speaker",
            Self::Standby => "standby",
            Self::StartMs => "start_ms",
            Self::StartS => "start_s",
            Self::SpeechFromMs => "speech_from_ms",
            Self::SpeechToMs => "speech_to_ms",
            Self::Text => "text",
            Self::ToS => "to_s",
            Self::TotalMs => "total_ms",
            Self::Turn => "turn",
            Self::UnixS => "unix_s",
            Self::WaitMaxMs => "wait_max_ms",
            Self::WaitedMs => "waited_ms",
            Self::Word => "word",
            Self::Words => "words",
        }
    }
}

impl EventName {
    /// The slots its template may use.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        self.own_slots().iter().copied().chain(Slot::COMMON)
    }

    /// The slots its template may use, beside [`Slot::COMMON`].
    #[must_use]
    pub const fn own_slots(self) -> &'static [Slot] {
        use Slot::*;
        match self {
            Self::SessionCreated => &[Language],
            Self::SpeechStarted => &[AtMs, AtS, SpeechFromMs, SegmentId, UnixS],
            Self::SpeechEnded => &[AtMs, AtS, SegmentId, UnixS],
            Self::AudioCommitted => &[SegmentId, AudioMs, UnixS],
            Self::AudioCleared => &[UnixS],
            Self::AnswerStarted => &[SegmentId, UnixS],
            Self::AnswerEnded => &[SegmentId, Cancelled, UnixS],
            Self::TranscriptPartial => {
                &[Text, SegmentId, AtMs, FromS, ToS, DurationS, Speaker, Source, UnixS]
            }
            Self::TranscriptFinal => &[
                Text,
                SegmentId,
                StartMs,
                EndMs,
                StartS,
                EndS,
                DurationS,
                FromS,
                ToS,
                SpeechFromMs,
                SpeechToMs,
                Ended,
                Finalized,
                Language,
                Speaker,
                Source,
                UnixS,
                Words,
            ],
            Self::TranscriptWord => &[Word, BareWord, FromS, ToS],
            Self::UtteranceGap => &[LastS, UnixS],
            Self::SpeakingStarted => &[RequestId, AtMs, Text, UnixS],
            Self::Audio => &[Audio, Turn, UnixS],
            Self::AudioComplete => &[Turn, UnixS],
            Self::SpeakingEnded | Self::SpeakingCancelled => &[RequestId, AtMs, Cancelled, AudioMs, UnixS],
            Self::Flushed | Self::Cleared => &[Sequence, UnixS],
            Self::Configured => &[UnixS],
            Self::Queued => &[Position, WaitedMs, WaitMaxMs, UnixS],
            Self::RateLimited => &[DelayMs],
            Self::FramesDropped => &[DroppedMs],
            Self::RolledOver => &[Reason, GapMs, Standby, KeptMs, KnownLines, MissingLines, UnixS],
            Self::Error => &[Code, Message, Recoverable, SegmentId, RequestId],
            Self::SessionClosed => &[Reason, TotalMs, AudioS, Segments],
        }
    }
}
