//! What a verb, a value and an event come to, in words, by profile and dialect.

use super::super::{
    Profile, UpstreamMapping,
    client::{EventName, Verb},
    field::FieldRole,
    upstream::Mode,
};
use crate::mapping::dialogue::{AssistantText, ConverseRules};

pub(super) fn describe_verb(verb: Verb, profile: &Profile, dialect: &UpstreamMapping) -> String {
    let talk = profile.dialogue.is_some();
    let words = match verb {
        Verb::Configure => "settings from now on; never acknowledged",
        Verb::Speak if !can_speak(dialect) => {
            "an error: this dialect has no chat mode, and so cannot speak a given text"
        }
        Verb::Speak => return describe_speak(profile),
        Verb::CancelSpeech if talk => "silence at once; the model is made to listen",
        Verb::CancelSpeech => "silence at once; the model's answer is waited out and discarded",
        Verb::AppendText => "gathered until a flush",
        Verb::Flush => return describe_flush(profile),
        Verb::Clear => "silence at once, and nothing that was gathered or waits is spoken",
        Verb::Finalize if talk && !transcribes_user(profile) => {
            "nothing: the user's words are not transcribed"
        }
        Verb::Finalize => {
            "the utterance ends; what came so far is transcribed, and its last transcript says so"
        }
        Verb::Finish => "all that came is transcribed and spoken; then the session ends",
        Verb::KeepAlive => "the session is not idle",
        Verb::Commit if talk && !transcribes_user(profile) => {
            "nothing: the model itself decides when it answers"
        }
        Verb::Commit => "the utterance so far is transcribed now; the rest of it follows as another",
        Verb::Frame if profile.mode == Mode::Video => {
            "a picture for the model; the newest goes with the next second of audio (extension)"
        }
        Verb::Frame => "accepted without effect: the model of this profile sees nothing (extension)",
        Verb::Close | Verb::CancelSession if talk => "what is being said is dropped; the session ends",
        Verb::Close | Verb::CancelSession => {
            "what was said is still answered, what is being said is dropped; then the session ends"
        }
    };
    words.to_owned()
}

/// Whether a given text can be spoken: that is a chat turn.
pub(super) fn can_speak(dialect: &UpstreamMapping) -> bool {
    dialect.modes.contains_key(&Mode::Chat)
}

fn describe_speak(profile: &Profile) -> String {
    let most = profile.speak.part_max_chars;
    let turn =
        format!("a chat turn with the read-aloud prompts, spoken in parts of at most {most} characters");
    match profile.dialogue {
        Some(_) => format!("{turn}; interrupts the model, which hears silence meanwhile"),
        None => format!("{turn}; replaces what is being spoken"),
    }
}

fn describe_flush(profile: &Profile) -> String {
    let most = profile.speak.part_max_chars;
    format!(
        "a chat turn with the read-aloud prompts, in parts of at most {most} characters, after what is being spoken"
    )
}

fn converse_rules(profile: &Profile) -> Option<&ConverseRules> {
    profile.dialogue.as_ref().map(|talk| &talk.converse)
}

fn transcribes_user(profile: &Profile) -> bool {
    converse_rules(profile).is_none_or(|converse| converse.transcribe_user)
}

/// Where what an event says comes from.
pub(super) fn describe_event(name: EventName, profile: &Profile, dialect: &UpstreamMapping) -> &'static str {
    let talk = converse_rules(profile);
    let assistant = talk.is_some_and(|converse| converse.text == AssistantText::Transcripts);
    match name {
        EventName::SessionCreated | EventName::SessionClosed | EventName::Configured => "the bridge",
        EventName::UtteranceGap => "the bridge's voice activity detection, for clients that ask",
        EventName::Flushed => "the bridge, after the last audio of what was flushed",
        EventName::Cleared => "the bridge, after the last audio of all",
        EventName::SpeechStarted | EventName::SpeechEnded => "the bridge's voice activity detection",
        EventName::TranscriptPartial | EventName::TranscriptFinal if talk.is_some() => {
            match (assistant, transcribes_user(profile)) {
                (true, true) => {
                    "the model's own words, `speaker` \"assistant\"; the user's, transcribed, `speaker` \"user\""
                }
                (true, false) => {
                    "the model's own words, `speaker` \"assistant\"; the user's words are not transcribed"
                }
                (false, true) => "the user's words, transcribed; the model's own are not told",
                (false, false) => "never: nobody's words are told",
            }
        }
        EventName::TranscriptPartial => "the model's answer so far, as it streams in",
        EventName::TranscriptFinal => "the model's answer to the transcription prompt",
        EventName::SpeakingStarted if talk.is_some() && !can_speak(dialect) => {
            "the first audio of a turn of the model"
        }
        EventName::SpeakingStarted if talk.is_some() => {
            "the first audio of a turn of the model, or of a text"
        }
        EventName::SpeakingStarted => "the first audio of the model's read-aloud answer",
        EventName::SpeakingEnded if talk.is_some() => "its last audio has been heard, or it was interrupted",
        EventName::SpeakingEnded => "the end of that audio, a cancel, or its failure",
        EventName::FramesDropped if talk.is_some() => {
            "the bridge's audio meter, or an upstream slower than real time"
        }
        EventName::RateLimited | EventName::FramesDropped => "the bridge's audio meter",
        EventName::RolledOver if talk.is_some() => {
            "the bridge: the conversation goes on in another upstream session (extension, for clients that ask)"
        }
        EventName::RolledOver => "never: in this profile no upstream session lasts longer than a question",
        EventName::Error => "bad input, the bridge, or the upstream; the message says which",
    }
}

pub(super) const fn describe_field(role: FieldRole, profile: &Profile) -> &'static str {
    let talk = profile.dialogue.is_some();
    match role {
        FieldRole::Model => "picks the route, and so the profile; echoed in the first event",
        FieldRole::ModelAndVoice => "picks the route, and the configured voice of that name",
        FieldRole::Language => "language of the transcription prompt, and of spelled-out symbols",
        FieldRole::HotWords => "named in the transcription prompt",
        FieldRole::VadSensitivity => "threshold and gate of the voice activity detection",
        FieldRole::EndSilenceMs => "silence that ends an utterance",
        FieldRole::SegmentMaxMs => "longest utterance",
        FieldRole::Partials => "whether partial transcripts are sent",
        FieldRole::SpeakModel => "a configured voice of that name, or one of the configured speech models",
        FieldRole::SpeakModelIfKnown => "picks the voice of that name; another name changes nothing",
        FieldRole::Voice => "a configured voice of that name; otherwise the default voice",
        FieldRole::InputEncoding => "encoding of the binary frames",
        FieldRole::OutputEncoding => "encoding of the audio sent back",
        FieldRole::SpeechEvents => "whether the beginning and the end of speech are told",
        FieldRole::UtteranceGapMs => "silence after an utterance that is told",
        FieldRole::InputRateHz => "sample rate of the binary frames, 8 to 192 kHz",
        FieldRole::InputChannels => "channels of the binary frames; the first is taken",
        FieldRole::OutputRateHz => "sample rate of the audio sent back, 8 to 192 kHz (extension)",
        FieldRole::Text => "the text, with the symbols the model cannot say spelled out",
        FieldRole::RequestId => "echoed in the events about this text",
        FieldRole::ReferenceAudio => "the voice for this text: a WAV file, or raw int16 at 16 kHz",
        FieldRole::Instruction => "added to the system prompt of this text",
        FieldRole::Microphone if talk => {
            "`open`: who speaks interrupts what is being spoken; `muted`: nobody is heard meanwhile (extension)"
        }
        FieldRole::Microphone => {
            "accepted without effect: muted while a text is spoken, as on the real server"
        }
        FieldRole::RolloverEvents if talk => "whether the client is told of rollovers (extension)",
        FieldRole::RolloverEvents => "accepted without effect: in this profile there are none",
        FieldRole::Image => "JPEG in base64",
    }
}
