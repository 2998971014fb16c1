//! The slots of event templates. The table of events says which event knows which of them.

use crate::named_enum::named_enum;

named_enum! {
    /// A value that an event's template can use. Files name these in snake case: `${at_ms}`.
    pub enum Slot {
        /// Arguments of a call, a JSON object.
        Arguments = "arguments",
        /// Milliseconds: of audio heard, or since the request.
        AtMs = "at_ms",
        /// [`Slot::AtMs`] in seconds.
        AtS = "at_s",
        /// The audio, base64.
        Audio = "audio",
        /// Length of the audio sent for a text or turn, ms.
        AudioMs = "audio_ms",
        /// Length of the audio heard in the session, s.
        AudioS = "audio_s",
        /// A word in lower case, without punctuation around it.
        BareWord = "bare_word",
        /// Tokens of the input that the server had in its cache.
        CachedTokens = "cached_tokens",
        /// Id of a call of a tool.
        CallId = "call_id",
        /// Ids of calls of tools.
        CallIds = "call_ids",
        /// Whether the text or turn was cancelled.
        Cancelled = "cancelled",
        /// Error code.
        Code = "code",
        /// Whether the words of a segment are final.
        Completed = "completed",
        /// Whether the text being spoken continues one of which a part was spoken: nothing was flushed or cleared in between.
        Continued = "continued",
        /// How long the client should wait, ms.
        DelayMs = "delay_ms",
        /// Latest end of the session, whole seconds since 1970; a day after the opening of a session without a time limit.
        ExpiresUnixS = "expires_unix_s",
        /// How much audio was dropped, ms.
        DroppedMs = "dropped_ms",
        /// Length of the utterance, s.
        DurationS = "duration_s",
        /// Cause of the turn's end: `model`, `timeout` or `manual`.
        EndCause = "end_cause",
        /// Probability that the user has finished, 0 to 1.
        EndConfidence = "end_confidence",
        /// Probability from which on the end of a turn is reported as likely.
        EndLikelyThreshold = "end_likely_threshold",
        /// End of the transcript, counted from the beginning of the utterance, ms.
        EndMs = "end_ms",
        /// [`Slot::EndMs`] in seconds.
        EndS = "end_s",
        /// Probability from which on a turn ends.
        EndThreshold = "end_threshold",
        /// Silence that ends a turn although the user does not seem to have finished, ms.
        EndWaitMaxMs = "end_wait_max_ms",
        /// Whether the user ended the utterance.
        Ended = "ended",
        /// Whether the client's `finalize` ended the utterance.
        Finalized = "finalized",
        /// Whether the session ends with the error.
        Fatal = "fatal",
        /// Bytes of audio received before this message.
        FromByte = "from_byte",
        /// Where the utterance begins in the audio heard, ms.
        FromMs = "from_ms",
        /// [`Slot::FromMs`] in seconds.
        FromS = "from_s",
        /// How long no audio reached a model, ms.
        GapMs = "gap_ms",
        /// Words that are likely to occur.
        HotWords = "hot_words",
        /// Tokens of the audio that the model heard for an answer.
        InputAudioTokens = "input_audio_tokens",
        /// Tokens of the pictures that the model saw for an answer.
        InputImageTokens = "input_image_tokens",
        /// Tokens of the text that the model read for an answer.
        InputTextTokens = "input_text_tokens",
        /// All tokens that the model read for an answer.
        InputTokens = "input_tokens",
        /// Audio that was kept and follows, ms.
        KeptMs = "kept_ms",
        /// Lines of the conversation that the next upstream session knows.
        KnownLines = "known_lines",
        /// Language, ISO 639-1.
        Language = "language",
        /// The last segments of the transcript, each written as the event `transcript_segment`.
        LastSegments = "last_segments",
        /// Where the last utterance ended in the audio heard, s.
        LastS = "last_s",
        /// Time until the session ends, ms.
        LeftMs = "left_ms",
        /// [`Slot::LeftMs`] in seconds.
        LeftS = "left_s",
        /// Error message.
        Message = "message",
        /// Lines of the conversation that the next upstream session does not know.
        MissingLines = "missing_lines",
        /// Model asked for.
        Model = "model",
        /// Name of a tool.
        Name = "name",
        /// When the session was opened, RFC 3339 in UTC.
        OpenedAt = "opened_at",
        /// When the session was opened, seconds since 1970.
        OpenedUnixS = "opened_unix_s",
        /// Tokens of the audio of an answer.
        OutputAudioTokens = "output_audio_tokens",
        /// Tokens of the text of an answer.
        OutputTextTokens = "output_text_tokens",
        /// All tokens of an answer.
        OutputTokens = "output_tokens",
        /// Position in the upstream's queue.
        Position = "position",
        /// Why the session ends, or why the conversation rolled over.
        Reason = "reason",
        /// Whether the session goes on after the error.
        Recoverable = "recoverable",
        /// The client's name for a text, or a turn's; in an error about a message, the message's id.
        RequestId = "request_id",
        /// Whether the client asked for the text that is spoken. Otherwise it is the model's turn or answer.
        Requested = "requested",
        /// Number of the utterance.
        SegmentId = "segment_id",
        /// Utterances in the session.
        Segments = "segments",
        /// Flushes or clears before this one; or the number of the message with audio, from 1.
        Sequence = "sequence",
        /// The session's id.
        SessionId = "session_id",
        /// Text of the transcript, behind a space if it is not the first of the user's turn.
        JoinedText = "joined_text",
        /// Where a transcript comes from.
        Source = "source",
        /// `user` or `assistant`.
        Speaker = "speaker",
        /// Characters of the texts that were begun since the last `flushed` or `cleared`.
        SpokenChars = "spoken_chars",
        /// Audio sent for texts since the last `flushed` or `cleared`, ms.
        SpokenMs = "spoken_ms",
        /// Whether the next upstream session had been prepared.
        Standby = "standby",
        /// Beginning of the transcript, counted from the beginning of the utterance, ms.
        StartMs = "start_ms",
        /// [`Slot::StartMs`] in seconds.
        StartS = "start_s",
        /// Where the speech of the utterance begins in the audio heard, ms.
        SpeechFromMs = "speech_from_ms",
        /// Where the speech of the utterance ends in the audio heard, ms.
        SpeechToMs = "speech_to_ms",
        /// Text of the transcript, or text being spoken.
        Text = "text",
        /// Wall clock, RFC 3339 in UTC.
        Time = "time",
        /// Bytes of audio received up to this message.
        ToByte = "to_byte",
        /// Where the utterance ends in the audio heard, ms.
        ToMs = "to_ms",
        /// [`Slot::ToMs`] in seconds.
        ToS = "to_s",
        /// Length of the session, ms.
        TotalMs = "total_ms",
        /// [`Slot::TotalMs`] in seconds.
        TotalS = "total_s",
        /// [`Slot::SpokenChars`] in the whole session.
        TotalSpokenChars = "total_spoken_chars",
        /// [`Slot::SpokenMs`] in the whole session.
        TotalSpokenMs = "total_spoken_ms",
        /// All tokens of an answer and of its input.
        TotalTokens = "total_tokens",
        /// Number of the text or turn in this session.
        Turn = "turn",
        /// Wall clock, seconds since 1970.
        UnixS = "unix_s",
        /// Name of a voice.
        Voice = "voice",
        /// The configured voices, each written as the event `voice_entry`.
        Voices = "voices",
        /// Longest time in the upstream's queue, ms.
        WaitMaxMs = "wait_max_ms",
        /// Time in the upstream's queue so far, ms.
        WaitedMs = "waited_ms",
        /// A word as it stands in the transcript.
        Word = "word",
        /// The transcript's words, each written as the event `transcript_word`.
        Words = "words",
    }
}

impl Slot {
    /// Slots that every event knows.
    pub const COMMON: [Self; 6] =
        [Self::SessionId, Self::Model, Self::OpenedAt, Self::OpenedUnixS, Self::Time, Self::UnixS];

    /// Slots that the reply to a command knows, beside the protocol's values.
    pub const OF_REPLIES: [Self; 5] =
        [Self::SessionId, Self::Model, Self::OpenedAt, Self::OpenedUnixS, Self::Voices];
}
