//! The texts of explanations: the effect of verbs and fields and the origin of events, for a profile and a
//! dialect.

use super::super::{
    ClientMapping, Profile, UpstreamMapping,
    client::{RealtimeEvent, Verb},
    field::FieldRole,
};
use crate::{
    spelling::profile::{AssistantText, ConverseRules},
    vocabulary::{EventName, Mode},
};

pub(super) fn describe_verb(verb: Verb, profile: &Profile, dialect: &UpstreamMapping) -> String {
    let talk = profile.barge_in().is_some();
    let words = match verb {
        // The format of the audio, and the acknowledgement of settings, are said instead.
        Verb::Audio => "audio",
        Verb::Played => "the client has played a text or turn to its end",
        Verb::PauseAudio => "holds back the audio to the client, for 60 s at most",
        Verb::ResumeAudio => "continues with the audio that was held back",
        Verb::Configure | Verb::Adjust => "changes the settings from now on",
        Verb::Ask if profile.answers.is_some() => "a message of the user, which the model answers",
        Verb::Tell if profile.answers.is_some() => {
            "a message of the user, which the next answer takes into account"
        }
        Verb::Ask | Verb::Tell => {
            "nothing, or an error if the protocol has one for it: in this profile, the model takes no text"
        }
        Verb::Answer | Verb::ToolResult if profile.answers.is_none() => {
            "accepted without effect: in this profile nobody asks the model to speak"
        }
        Verb::Answer => "a chat turn with all that was said and shown since the last one",
        Verb::ToolResult if profile.calls_tools() => {
            "the results of calls; the model answers when it has all of them"
        }
        Verb::ToolResult => "an error: in this profile, the model calls no tools",
        Verb::Speak if !can_speak(dialect) => {
            "an error: this dialect has no chat mode, so it cannot speak a given text"
        }
        Verb::Speak => return describe_speak(profile),
        Verb::CancelSpeech if talk => "stops playback at once and makes the model listen",
        Verb::CancelSpeech => "stops playback at once; the rest of the model's answer is discarded",
        Verb::AppendText => {
            "collected until it is flushed, or until a sentence is complete with `speak_sentences`"
        }
        Verb::Flush | Verb::SpeakAppended => return describe_flush(profile),
        Verb::Clear => "stops playback at once and discards collected and waiting text",
        Verb::Finalize if talk && !transcribes_user(profile) => {
            "nothing: this profile does not transcribe the user"
        }
        Verb::Finalize => "ends the utterance and transcribes it; its last transcript is marked",
        Verb::Complete => {
            "transcribes all audio and speaks all text received so far, then says so; the session goes on"
        }
        Verb::Finish => "transcribes all audio and speaks all text received so far, then ends the session",
        Verb::KeepAlive => "restarts the idle timeout",
        Verb::Commit if talk && !transcribes_user(profile) => {
            "nothing: the model itself decides when to answer"
        }
        Verb::Commit if profile.answers.is_some() => {
            "completes the utterance; without turn detection, response.create asks for the answer"
        }
        Verb::Commit => "transcribes the utterance so far; its rest becomes another utterance",
        Verb::Frame if profile.mode == Mode::Video => {
            "a picture for the model; the newest one is sent with the next second of audio (extension)"
        }
        Verb::Frame if profile.answers.is_some() => "a picture for the next answer (extension)",
        Verb::Frame => "accepted without effect: this profile uses no pictures (extension)",
        Verb::ClearAudio => "discards the audio of the current utterance",
        Verb::SessionUpdate => "changes settings; answered with the whole session",
        Verb::ItemCreate if profile.answers.is_some() => "adds text, speech and pictures to the conversation",
        Verb::ItemCreate => "kept and echoed; only pictures reach the model, in profile video",
        Verb::ItemRetrieve => "answered with the item",
        Verb::ItemTruncate if profile.answers.is_some() => {
            "cuts the answer in the history to what was played, in whole words"
        }
        Verb::ItemTruncate => "cuts the item to what was played; the model's own context stays",
        Verb::ItemDelete if profile.answers.is_some() => "removes the item from the history",
        Verb::ItemDelete => "removes the item; the model's own context stays",
        Verb::ResponseCreate if profile.answers.is_some() => {
            "a chat turn with instructions, history, and what was said or shown since the last one"
        }
        Verb::ResponseCreate => "accepted without effect: in this profile nobody asks the model to speak",
        Verb::LiveStart => "sets formats and voice; answered with the session",
        Verb::LiveMute => "replaces the client's audio with silence from now on",
        Verb::LiveUnmute => "takes the client's audio again",
        Verb::LiveAppend => "acknowledged without effect: the model takes no text while it converses",
        Verb::LiveUpdate => "changes the delegation that the session reports; answered with the session",
        Verb::LiveDelegate => "answered with an error: the model delegates no work",
        Verb::EndInput => "fills the last second up with silence; the answer in progress is still heard",
        Verb::ResponseCancel => "stops the answer at once; its rest is discarded",
        Verb::Close | Verb::CancelSession if talk => "drops the current speech and ends the session",
        Verb::Close | Verb::CancelSession => {
            "answers finished utterances, drops the current one, then ends the session"
        }
    };
    words.to_owned()
}

/// True if the dialect can speak a given text, which takes a chat turn.
pub(super) fn can_speak(dialect: &UpstreamMapping) -> bool {
    dialect.modes.contains_key(&Mode::Chat)
}

fn describe_speak(profile: &Profile) -> String {
    let most = profile.speak.part_max_chars;
    let turn =
        format!("a chat turn with the read-aloud prompts, spoken in parts of at most {most} characters");
    match profile.dialogue {
        None if profile.answers.is_some() => format!("{turn}; interrupts the model's answer"),
        Some(_) => format!("{turn}; interrupts the model, which receives silence meanwhile"),
        None => format!("{turn}; replaces the text being spoken"),
    }
}

fn describe_flush(profile: &Profile) -> String {
    let most = profile.speak.part_max_chars;
    format!(
        "a chat turn with the read-aloud prompts, in parts of at most {most} characters, after the text being spoken"
    )
}

fn converse_rules(profile: &Profile) -> Option<&ConverseRules> {
    profile.dialogue.as_ref().map(|talk| &talk.converse)
}

fn transcribes_user(profile: &Profile) -> bool {
    profile.transcribes_user()
}

/// Origin of an event.
pub(super) fn describe_event(
    name: EventName,
    client: &ClientMapping,
    profile: &Profile,
    dialect: &UpstreamMapping,
) -> &'static str {
    let talk = converse_rules(profile);
    let assistant = talk.is_some_and(|converse| converse.text == AssistantText::Transcripts);
    match name {
        EventName::TranscriptPartial | EventName::TranscriptFinal if talk.is_some() => {
            match (assistant, transcribes_user(profile)) {
                (true, true) => {
                    "the model's own words, `speaker` \"assistant\"; the user's, transcribed, `speaker` \"user\""
                }
                (true, false) => {
                    "the model's own words, `speaker` \"assistant\"; the user's words are not transcribed"
                }
                (false, true) => "the user's words, transcribed; the model's own words are not reported",
                (false, false) => "never: this profile reports no words",
            }
        }
        EventName::TranscriptPartial | EventName::TranscriptFinal if profile.answers.is_some() => {
            "the model's answer, `speaker` \"assistant\"; the user's words where they are transcribed, `speaker` \"user\""
        }
        EventName::AnswerTextDelta if talk.is_some() => "never: in this profile, all answers are spoken",
        EventName::AnswerSentence | EventName::AnswerDelta if talk.is_some() && !assistant => {
            "never: this profile does not report the model's words"
        }
        EventName::AnswerSentence | EventName::AnswerDelta | EventName::AnswerTextDelta
            if talk.is_none() && profile.answers.is_none() =>
        {
            "never: in this profile, the model has no words of its own"
        }
        EventName::UserTranscript | EventName::UserPartial | EventName::UserDelta
            if !transcribes_user(profile) =>
        {
            "never: this profile does not transcribe the user"
        }
        EventName::TranscriptWord
            if client.transcripts.word_times_of_utterance && !profile.hear.estimated_word_times =>
        {
            "an element of the user's transcripts. Its times are those of the utterance: MiniCPM-o provides no word times, and \
             `[hear] estimated_word_times` is false in this profile"
        }
        EventName::TranscriptWord if client.lists_timed_words() && !profile.hear.estimated_word_times => {
            "never: MiniCPM-o provides no word times, and `[hear] estimated_word_times` is false in this profile"
        }
        EventName::SpeakingStarted if talk.is_some() && !can_speak(dialect) => {
            "the first audio of a model turn"
        }
        EventName::SpeakingStarted if talk.is_some() => "the first audio of a model turn, or of a text",
        EventName::SpeakingStarted if profile.answers.is_some() => {
            "the first audio of an answer, or of a text"
        }
        EventName::SpeakingEnded if talk.is_some() => "the end of playback, or an interruption",
        EventName::FramesDropped if talk.is_some() => {
            "the bridge's audio rate limiter, or an upstream slower than real time"
        }
        EventName::Queued if talk.is_none() => {
            "never: in this profile, a request that waits is answered later or with an error"
        }
        EventName::RolledOver if talk.is_none() => {
            "never: in this profile, each upstream session serves a single question"
        }
        name => name.origin(),
    }
}

/// Origin of an event of OpenAI's Realtime protocol.
pub(super) fn describe_realtime_event(event: RealtimeEvent, profile: &Profile) -> &'static str {
    use RealtimeEvent as E;
    match event {
        E::SessionCreated | E::SessionUpdated => "the bridge: the whole session, as the client has set it",
        E::SpeechStarted | E::SpeechStopped => "the bridge's voice activity detection",
        E::TimeoutTriggered => "the user's silence, of the length that the client set as idle_timeout_ms",
        E::BufferCommitted => "the end of an utterance, or the client's commit",
        E::BufferCleared => "the bridge, when the audio is discarded",
        E::ItemAdded | E::ItemDone | E::ItemRetrieved | E::ItemTruncated | E::ItemDeleted => {
            "the bridge's list of items"
        }
        E::TranscriptionDelta | E::TranscriptionCompleted if profile.dialogue.is_some() => {
            "the user's words, if the profile transcribes the user"
        }
        E::TranscriptionDelta | E::TranscriptionCompleted => {
            "the model's answer to the transcription prompt, if the client asks for transcripts"
        }
        E::TranscriptionFailed => "the upstream's failure to transcribe an utterance",
        E::ResponseCreated if profile.dialogue.is_some() => {
            "the begin of a turn that the model takes by itself"
        }
        E::ResponseCreated => "the begin of an answer",
        E::ResponseDone => "the end of playback, an interruption, or a failure",
        E::OutputItemAdded | E::OutputItemDone | E::ContentPartAdded | E::ContentPartDone => {
            "the bridge, around the words and audio of a response"
        }
        E::AudioDelta | E::AudioDone => "the model's voice",
        E::AudioTranscriptDelta | E::AudioTranscriptDone | E::TextDelta | E::TextDone => {
            "the model's own words"
        }
        E::CallArgumentsDelta
        | E::CallArgumentsDone
        | E::ToolListStarted
        | E::ToolListCompleted
        | E::ToolListFailed
        | E::ServerCallArgumentsDelta
        | E::ServerCallArgumentsDone
        | E::ServerCallStarted
        | E::ServerCallCompleted
        | E::ServerCallFailed
            if !profile.calls_tools() =>
        {
            "never: in this profile, the model calls no tools"
        }
        E::CallArgumentsDelta | E::CallArgumentsDone => {
            "the model's call of a tool that the client offers; the model is prompted, not trained, for calls"
        }
        E::ToolListStarted | E::ToolListCompleted | E::ToolListFailed => {
            "the bridge, which lists the tools of a server that the client names"
        }
        E::ServerCallArgumentsDelta | E::ServerCallArgumentsDone => {
            "the model's call of a tool of a server that the client names"
        }
        E::ServerCallStarted | E::ServerCallCompleted | E::ServerCallFailed => {
            "the bridge, which calls the tool"
        }
        E::RateLimits => "the bridge: no limits",
        E::Error => "bad input, or an upstream that is lost for good",
        E::InputAccepted | E::PictureAccepted | E::InputEnded => "the bridge, for each of these messages",
        E::UnitDone => "the model's answer to a second of the input",
        E::InputDrained => "the model's answer to the last second, after the end of playback",
        E::SessionClosed => "the end of the session, with its reason",
        E::CallAudioStarted | E::CallAudioStopped | E::CallAudioCleared => {
            "in calls by WebRTC: playback begins, has ended, or is interrupted"
        }
    }
}

/// The effect of a field's role: that of the table of settings and roles, but for roles without effect in this profile.
pub(super) fn describe_field(role: FieldRole, profile: &Profile) -> &'static str {
    match role {
        FieldRole::WordTimes if !profile.hear.estimated_word_times => {
            "accepted without effect: `[hear] estimated_word_times` is false in this profile"
        }
        FieldRole::Microphone if profile.barge_in().is_none() => {
            "accepted without effect: the microphone is muted while a text is spoken, as on the real server"
        }
        FieldRole::RolloverEvents if profile.dialogue.is_none() => {
            "accepted without effect: this profile has no rollovers"
        }
        FieldRole::Tools if !profile.calls_tools() => {
            "accepted without effect: in this profile, the model calls no tools"
        }
        FieldRole::Messages if profile.answers.is_none() => {
            "accepted without effect: in this profile, the model hears only the microphone"
        }
        FieldRole::Instructions if profile.answers.is_none() => {
            "accepted without effect: this profile has instructions of its own"
        }
        FieldRole::SpokenAnswers
        | FieldRole::MaxTokens
        | FieldRole::Temperature
        | FieldRole::Interruption
            if profile.answers.is_none() =>
        {
            "accepted without effect: this profile answers no single turns"
        }
        role => role.effect(),
    }
}
