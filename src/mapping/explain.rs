//! `mappings explain`: what becomes of every command, field and event of a client, for one profile and dialect.

use std::fmt::Write as _;

use super::{
    ClientMapping, Profile, UpstreamMapping,
    client::{EventName, Verb},
    converse::{AssistantText, ConverseRules},
    field::{Field, Target},
    upstream::Mode,
};

/// Prints the table as Markdown, which reads well as plain text too.
#[must_use]
pub fn explain(client: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> String {
    if let Some(rows) = super::relay::explain(client, profile, dialect) {
        return rows;
    }
    let mut out = String::new();
    let title = format!("# {} on {}, profile `{}`\n\n", client.title, dialect.title, profile.name);
    out.push_str(&title);
    notes(&mut out, [&client.notes, &profile.notes, &dialect.notes].into_iter().flatten());
    table(&mut out, "What the client sends", ["client", "becomes"], commands(client, profile, dialect));
    table(&mut out, "What the client gets", ["event", "comes from"], events(client, profile, dialect));
    let paths = client.paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, "Served at {paths}; upstream at `{}`, mode `{:?}`.", dialect.path, profile.mode);
    out
}

fn notes<'n>(out: &mut String, notes: impl Iterator<Item = &'n String>) {
    for note in notes {
        let _ = writeln!(out, "- {note}");
    }
    out.push('\n');
}

fn table(out: &mut String, title: &str, heads: [&str; 2], rows: Vec<[String; 2]>) {
    let _ = writeln!(out, "## {title}\n");
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0).max(heads[0].len());
    let _ = writeln!(out, "| {:width$} | {} |", heads[0], heads[1]);
    let _ = writeln!(out, "|{:-<1$}|---|", "", width + 2);
    for [left, right] in rows {
        let _ = writeln!(out, "| {left:width$} | {right} |");
    }
    out.push('\n');
}

fn commands(client: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> Vec<[String; 2]> {
    let audio = &client.audio_in;
    let mut rows = vec![[
        "binary frame".to_owned(),
        format!(
            "int16 PCM, {} Hz and {} channel unless set otherwise; first channel, resampled to 16 kHz, {}",
            audio.rate_hz,
            audio.channels,
            if profile.talk.is_some() { "sent to the model second by second" } else { "cut into utterances" }
        ),
    ]];
    rows.extend(client.query.iter().map(|field| row(&format!("?{}=", field.name), field, profile)));
    for command in &client.commands {
        rows.push([format!("`{}`", command.name), verb(command.verb, profile, dialect)]);
        let refused = command.verb == Verb::Speak && !speaks(dialect);
        let row = |field: &Field| match (format!("— `{}`", field.name), refused) {
            (name, true) => [name, "nothing: the command is refused".to_owned()],
            (name, false) => row(&name, field, profile),
        };
        rows.extend(command.fields.iter().map(row));
    }
    rows
}

fn row(name: &str, field: &Field, profile: &Profile) -> [String; 2] {
    let because = field.file.because.as_deref();
    let becomes = match (field.file.to, because) {
        (Some(target), None) => effect(target, profile).to_owned(),
        (Some(target), Some(because)) => format!("{}; {because}", effect(target, profile)),
        (None, because) => format!("accepted without effect: {}", because.unwrap_or("no reason given")),
    };
    [name.to_owned(), becomes]
}

fn verb(verb: Verb, profile: &Profile, dialect: &UpstreamMapping) -> String {
    let talk = profile.talk.is_some();
    let words = match verb {
        Verb::Configure => "settings from now on; never acknowledged",
        Verb::Speak if !speaks(dialect) => {
            "an error: this dialect has no chat mode, and so cannot speak a given text"
        }
        Verb::Speak => return speak(profile),
        Verb::CancelSpeech if talk => "silence at once; the model is made to listen",
        Verb::CancelSpeech => "silence at once; the model's answer is waited out and discarded",
        Verb::Commit if talk && !transcribes(profile) => "nothing: the model itself decides when it answers",
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
fn speaks(dialect: &UpstreamMapping) -> bool {
    dialect.modes.contains_key(&Mode::Chat)
}

fn speak(profile: &Profile) -> String {
    let most = profile.speak.part_max_chars;
    let turn =
        format!("a chat turn with the read-aloud prompts, spoken in parts of at most {most} characters");
    match profile.talk {
        Some(_) => format!("{turn}; interrupts the model, which hears silence meanwhile"),
        None => format!("{turn}; replaces what is being spoken"),
    }
}

fn converse(profile: &Profile) -> Option<&ConverseRules> {
    profile.talk.as_ref().map(|talk| &talk.converse)
}

fn transcribes(profile: &Profile) -> bool {
    converse(profile).is_none_or(|converse| converse.transcribe_user)
}

/// Where what an event says comes from.
fn source(name: EventName, profile: &Profile, dialect: &UpstreamMapping) -> &'static str {
    let talk = converse(profile);
    let assistant = talk.is_some_and(|converse| converse.text == AssistantText::Transcripts);
    match name {
        EventName::SessionCreated | EventName::SessionClosed => "the bridge",
        EventName::SpeechStarted | EventName::SpeechEnded => "the bridge's voice activity detection",
        EventName::TranscriptPartial | EventName::TranscriptFinal if talk.is_some() => {
            match (assistant, transcribes(profile)) {
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
        EventName::SpeakingStarted if talk.is_some() && !speaks(dialect) => {
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

const fn effect(target: Target, profile: &Profile) -> &'static str {
    let talk = profile.talk.is_some();
    match target {
        Target::Model => "picks the route, and so the profile; echoed in the first event",
        Target::Language => "language of the transcription prompt, and of spelled-out symbols",
        Target::HotWords => "named in the transcription prompt",
        Target::VadSensitivity => "threshold and gate of the voice activity detection",
        Target::EndSilenceMs => "silence that ends an utterance",
        Target::SegmentMaxMs => "longest utterance",
        Target::Partials => "whether partial transcripts are sent",
        Target::SpeakModel => "a configured voice of that name, or one of the configured speech models",
        Target::SpeakModelIfKnown => "picks the voice of that name; another name changes nothing",
        Target::Voice => "a configured voice of that name; otherwise the default voice",
        Target::InputRateHz => "sample rate of the binary frames, 8 to 192 kHz",
        Target::InputChannels => "channels of the binary frames; the first is taken",
        Target::OutputRateHz => "sample rate of the audio sent back, 8 to 192 kHz (extension)",
        Target::Text => "the text, with the symbols the model cannot say spelled out",
        Target::RequestId => "echoed in the events about this text",
        Target::ReferenceAudio => "the voice for this text: a WAV file, or raw int16 at 16 kHz",
        Target::Instruction => "added to the system prompt of this text",
        Target::Microphone if talk => {
            "`open`: who speaks interrupts what is being spoken; `muted`: nobody is heard meanwhile (extension)"
        }
        Target::Microphone => "accepted without effect: muted while a text is spoken, as on the real server",
        Target::RolloverEvents if talk => "whether the client is told of rollovers (extension)",
        Target::RolloverEvents => "accepted without effect: in this profile there are none",
        Target::Image => "JPEG in base64",
    }
}

fn events(client: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> Vec<[String; 2]> {
    let mut rows: Vec<[String; 2]> = Vec::new();
    for name in EventName::ALL {
        let Some(template) = client.event(name) else { continue };
        let mut json = String::new();
        template.render(&mut json, |_| super::template::Fill::Null);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
        let key = client.command_key.trim_start_matches('/');
        let spelled = value.get(key).and_then(serde_json::Value::as_str).map_or(json.clone(), str::to_owned);
        rows.push([format!("`{spelled}`"), source(name, profile, dialect).to_owned()]);
    }
    rows.push([
        "binary frame".to_owned(),
        format!("the model's voice, int16 PCM, {} Hz unless set otherwise", client.audio_out.rate_hz),
    ]);
    rows.extend(client.never.iter().map(|(name, why)| [format!("`{name}`"), format!("never: {why}")]));
    rows
}

#[cfg(test)]
mod tests {
    use crate::mapping::Library;

    #[test]
    fn every_command_field_and_event_is_explained() {
        let library = Library::embedded().unwrap();
        let (client, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
        for profile in ["speech", "conversation", "video"] {
            let text = super::explain(&client, &library.profile(profile).unwrap(), &dialect);
            complete(&client, &text);
        }
    }

    #[test]
    fn a_dialect_without_chat_speaks_no_given_text() {
        let library = Library::embedded().unwrap();
        let (client, profile) = (library.client("macaw").unwrap(), library.profile("conversation").unwrap());
        let text = super::explain(&client, &profile, &library.upstream("minicpm-o-legacy").unwrap());
        let speak = text.lines().find(|line| line.starts_with("| `tts.speak`")).unwrap();
        assert!(speak.contains("an error: this dialect has no chat mode"), "{speak}");
        complete(&client, &text);
        for absent in ["read-aloud", "or of a text", "the voice for this text"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }

    fn complete(client: &crate::mapping::ClientMapping, text: &str) {
        for command in &client.commands {
            assert!(text.contains(&format!("`{}`", command.name)), "{}", command.name);
            for field in &command.fields {
                assert!(text.contains(&format!("`{}`", field.name)), "{}", field.name);
            }
        }
        for event in ["vad.speech_start", "transcript.final", "tts.speaking_end", "session.hold", "error"] {
            assert!(text.contains(&format!("`{event}`")), "{event}");
        }
        assert!(!text.contains("no reason given"));
    }
}
