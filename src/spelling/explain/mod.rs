//! Explains how a profile and a dialect treat each command, field and event of a client protocol, and which of
//! the three work together.
//!
//! [`Explanation`] and [`MatrixCell`] are the data; [`render`] turns them into text, Markdown or JSON.

pub mod page;
mod phrases;
mod relay;
pub mod render;
pub(super) mod row;

use std::sync::Arc;

use serde::Serialize;

pub use self::row::{ExplainRow, RowKind};

use self::phrases::{can_speak, describe_event, describe_field, describe_verb};
use super::{
    ClientMapping, Library, Profile, UpstreamMapping,
    client::{
        AudioOut, CommandVerb, EventMessage, ExactMessage, FieldNames, ProtocolCommand, RealtimeEvent,
        RealtimeNames, Verb,
    },
    compatibility::check_compatible,
    field::ProtocolField,
    template::Template,
    tested_with::TestedClient,
};
use crate::{
    audio::{encoding::Encoding, opus::PacketOptions},
    vocabulary::{EventName, Mode, SlotValue},
};

/// Settings of OpenAI's protocol that have an effect where the model calls tools.
const TOOL_SETTINGS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// Explanation of one client protocol with one profile on one dialect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Name of the client protocol.
    pub client: String,
    /// Title of the client protocol.
    pub client_title: String,
    /// Name of the profile.
    pub profile: String,
    /// Name of the dialect.
    pub dialect: String,
    /// Title of the dialect.
    pub dialect_title: String,
    /// Why they do not work together; absent if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Notes of the three mapping files.
    pub notes: Vec<String>,
    /// Command that starts the upstream; absent if the dialect names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Messages and fields from the client, with their effect.
    pub sends: Vec<ExplainRow>,
    /// Messages to the client, with their origin.
    pub gets: Vec<ExplainRow>,
    /// Paths that serve this protocol.
    pub paths: Vec<String>,
    /// URL path of the upstream.
    pub upstream_path: String,
    /// Upstream modes in use.
    pub modes: Vec<Mode>,
}

/// Whether one client protocol, profile and dialect work together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatrixCell {
    /// The client protocol.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// The dialect.
    pub dialect: String,
    /// True if they work together.
    pub works: bool,
    /// Why they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Explains one combination.
#[must_use]
pub fn build_explanation(
    client: &ClientMapping,
    profile: &Profile,
    dialect: &Arc<UpstreamMapping>,
) -> Explanation {
    let (sends, gets, modes) = match &client.relay {
        Some(relay) => {
            let (sends, gets) =
                (relay::sent_rows(relay, dialect), relay::received_rows(client, relay, dialect));
            (sends, gets, relay::common_modes(relay, dialect))
        }
        None => {
            (sent_rows(client, profile, dialect), received_rows(client, profile, dialect), vec![profile.mode])
        }
    };
    let names_note = (client.field_names == FieldNames::CamelOrSnake)
        .then(|| "Names of fields may also be in snake case.".to_owned());
    let language_note = client.relay.is_none().then(|| describe_languages(profile));
    Explanation {
        client: client.name.clone(),
        client_title: client.title.clone(),
        profile: profile.name.clone(),
        dialect: dialect.name.clone(),
        dialect_title: dialect.title.clone(),
        because: check_compatible(client, profile, dialect).err(),
        notes: [&client.notes, &profile.notes, &dialect.notes]
            .into_iter()
            .flatten()
            .cloned()
            .chain(describe_keys(client))
            .chain(describe_jobs(client))
            .chain(names_note)
            .chain(language_note)
            .chain(client.tested_with.iter().map(TestedClient::description))
            .collect(),
        start: dialect.start.clone(),
        sends,
        gets,
        paths: client
            .paths
            .iter()
            .cloned()
            .chain(client.tcp.iter().map(|tcp| format!("[[tcp]] {}", tcp.listener)))
            .collect(),
        upstream_path: dialect.path.clone(),
        modes,
    }
}

/// Where clients put their key, if that is a place of this protocol.
fn describe_keys(client: &ClientMapping) -> Option<String> {
    let headers = client.key_headers.iter().map(|name| format!("the header `{name}`"));
    let parameters = client.key_parameters.iter().map(|name| format!("the query parameter `{name}`"));
    let places: Vec<_> = headers.chain(parameters).collect();
    (!places.is_empty()).then(|| format!("Clients may put their key into {}.", places.join(" or ")))
}

/// Where recordings are transcribed as jobs, and which settings of jobs end in an error.
fn describe_jobs(client: &ClientMapping) -> Option<String> {
    let jobs = client.jobs.as_ref()?;
    let paths: Vec<_> = jobs.paths().collect();
    let refused: Vec<_> = jobs.refused().map(|(name, _)| name).collect();
    let ending =
        if refused.is_empty() { String::new() } else { format!("; an error: {}", refused.join(", ")) };
    Some(format!("Recordings are transcribed as jobs, by HTTP: {}{ending}.", paths.join(", ")))
}

/// Which languages the user's speech is transcribed in.
fn describe_languages(profile: &Profile) -> String {
    let known: Vec<&str> = profile.hear.languages().collect();
    format!(
        "Languages with a transcription prompt: {}. Speech in any other language is transcribed with the prompt for `{}`; a \
         profile of your own can add `[hear] prompts.<language>`.",
        known.join(", "),
        profile.hear.language
    )
}

/// Renders an explanation as Markdown, which also reads well as plain text.
#[must_use]
pub fn explain_markdown(client: &ClientMapping, profile: &Profile, dialect: &Arc<UpstreamMapping>) -> String {
    render::markdown(&build_explanation(client, profile, dialect))
}

/// Compatibility of all combinations, optionally limited to one client protocol and one profile.
///
/// # Errors
/// An unknown name, with the nearest known one.
pub fn matrix(
    library: &Library,
    client: Option<&str>,
    profile: Option<&str>,
) -> Result<Vec<MatrixCell>, String> {
    let client = client.map(|name| library.client(name)).transpose()?;
    let profile = profile.map(|name| library.profile(name)).transpose()?;
    let mut cells = Vec::new();
    for client in library.clients().filter(|one| client.as_ref().is_none_or(|only| only.name == one.name)) {
        for profile in
            library.profiles().filter(|one| profile.as_ref().is_none_or(|only| only.name == one.name))
        {
            cells.extend(library.upstreams().map(|dialect| matrix_cell(client, profile, dialect)));
        }
    }
    Ok(cells)
}

fn matrix_cell(client: &ClientMapping, profile: &Profile, dialect: &Arc<UpstreamMapping>) -> MatrixCell {
    let because = check_compatible(client, profile, dialect).err();
    MatrixCell {
        client: client.name.clone(),
        profile: profile.name.clone(),
        dialect: dialect.name.clone(),
        works: because.is_none(),
        because,
    }
}

fn sent_rows(client: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> Vec<ExplainRow> {
    let audio = &client.audio_in;
    let becomes = match audio.frame_max_bytes {
        0 => "an error: in this protocol, the client sends no audio".to_owned(),
        _ => format!(
            "{}, {} Hz and {} channel unless set otherwise; first channel, resampled to 16 kHz, {}",
            audio.encoding.description(),
            audio.rate_hz,
            audio.channels,
            if profile.dialogue.is_some() {
                "sent to the model in units of one second"
            } else {
                "cut into utterances"
            }
        ),
    };
    let binary = client.takes_binary_audio.then(|| ExplainRow::new(RowKind::Audio, "", becomes.clone()));
    let mut rows: Vec<_> = binary.into_iter().collect();
    rows.extend(client.query.iter().map(|field| field_row(RowKind::Query, field, profile)));
    for command in &client.commands {
        rows.extend(command_rows(command, &becomes, client, profile, dialect));
    }
    rows
}

/// A command and its fields. `audio` is what becomes of audio.
fn command_rows(
    command: &ProtocolCommand,
    audio: &str,
    client: &ClientMapping,
    profile: &Profile,
    dialect: &UpstreamMapping,
) -> Vec<ExplainRow> {
    let describe = |rule: &CommandVerb| {
        let effect = match rule.verb {
            Verb::Audio => audio.to_owned(),
            Verb::Configure => describe_configure(client),
            Verb::Commit if client.realtime.is_none() && profile.answers.is_some() => {
                "completes the utterance, which the model answers".to_owned()
            }
            verb => describe_verb(verb, profile, dialect),
        };
        if rule.conditions.text.is_empty() { effect } else { format!("{}: {effect}", rule.conditions.text) }
    };
    let verbs: Vec<_> = command.verbs.iter().map(describe).collect();
    let message = match &command.exactly {
        Some(ExactMessage::Text(text)) => format!("the text message {text:?}: "),
        Some(ExactMessage::Binary(bytes)) => format!("the binary message {bytes:?}: "),
        None => String::new(),
    };
    let reply = command.reply.iter().map(|reply| format!("`{}`", spelled_event(client, &reply.template)));
    let reply = reply.collect::<Vec<_>>().join(" and ");
    let reply = if reply.is_empty() { reply } else { format!("answered at once by {reply}; ") };
    let effect = message + &reply + &verbs.join("; then, ");
    let mut rows = vec![ExplainRow::new(RowKind::Command, &command.name, effect)];
    let speaks_only = command.verbs.iter().all(|rule| rule.verb == Verb::Speak);
    let rejected = speaks_only && !can_speak(dialect);
    let field = |field: &ProtocolField| match rejected {
        true => ExplainRow::new(RowKind::Field, &field.name, "nothing: the command is rejected"),
        false => field_row(RowKind::Field, field, profile),
    };
    rows.extend(command.fields.iter().map(field));
    if command.verbs.iter().any(|rule| rule.verb == Verb::SessionUpdate) {
        let calls_tools = |names: &RealtimeNames| profile.calls_tools() && names.reports_calls();
        let has_effect = |names, setting: &str| calls_tools(names) && TOOL_SETTINGS.contains(&setting);
        let ignored = client
            .realtime
            .iter()
            .flat_map(|names| names.without_effect.iter().filter(|(setting, _)| !has_effect(names, setting)));
        rows.extend(ignored.map(|(setting, because)| {
            let becomes = format!("accepted without effect: {because}");
            ExplainRow::new(RowKind::Field, &format!("session.{setting}"), becomes)
        }));
    }
    rows
}

/// The effect of a settings change, with its acknowledgement if the protocol has one.
fn describe_configure(client: &ClientMapping) -> String {
    let acknowledged = match client.event(EventName::Configured).first() {
        Some(message) => format!("acknowledged by `{}`", spelled_message(client, message)),
        None => "never acknowledged".to_owned(),
    };
    format!("changes the settings from now on; {acknowledged}")
}

/// The name of an event. One without a type is named by its keys and constants.
fn spelled_event<S: Copy>(client: &ClientMapping, template: &Template<S>) -> String {
    let mut json = String::new();
    template.render(&mut json, |_| SlotValue::Null);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
    let name = value.pointer(&client.command_key).and_then(serde_json::Value::as_str);
    match (name, &value) {
        (Some(name), _) => name.to_owned(),
        (None, serde_json::Value::Object(members)) if !members.is_empty() => named_by_keys(members),
        (None, _) => json,
    }
}

/// The keys of a message, such as `serverContent.turnComplete, usageMetadata`. A key whose value is an object with a single key
/// is shown with that key.
fn named_by_keys(members: &serde_json::Map<String, serde_json::Value>) -> String {
    use serde_json::Value;
    let named = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) if inner.len() == 1 => {
            format!("{key}.{}", inner.keys().next().map_or("", String::as_str))
        }
        Value::String(constant) => format!("{key}: {constant}"),
        _ => key.clone(),
    };
    members.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// The name of a message's event; of plain text, the first word.
fn spelled_message(client: &ClientMapping, message: &EventMessage) -> String {
    if !message.is_text {
        return spelled_event(client, &message.template);
    }
    let mut line = String::new();
    message.render(&mut line, |_| SlotValue::Null);
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

fn field_row(is: RowKind, field: &ProtocolField, profile: &Profile) -> ExplainRow {
    let because = field.file.because.as_deref();
    let becomes = match (field.file.to, because) {
        (Some(role), None) => describe_field(role, profile).to_owned(),
        (Some(role), Some(because)) => format!("{}; {because}", describe_field(role, profile)),
        (None, None) if field.remember.is_some() => "echoed in later messages".to_owned(),
        (None, None) if field.same_as.is_some() => {
            format!("must repeat the value `{}`", field.file.same_as.as_deref().unwrap_or_default())
        }
        (None, because) => format!("accepted without effect: {}", because.unwrap_or("no reason given")),
    };
    ExplainRow::new(is, &field.name, becomes)
}

/// How Opus is encoded, if it is the encoding.
fn describe_packets(audio: &AudioOut) -> String {
    let PacketOptions { bit_rate, complexity, frame_ms, .. } = audio.packet_options();
    match audio.encoding {
        Encoding::Opus => format!("; {frame_ms} ms in each, {bit_rate} bit/s, complexity {complexity}"),
        _ => String::new(),
    }
}

fn received_rows(client: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> Vec<ExplainRow> {
    let mut rows = Vec::new();
    let audio = &client.audio_out;
    let voice = match audio.frame_max_bytes {
        0 => "never: in this protocol, the client receives no audio".to_owned(),
        _ => format!(
            "the model's voice, {}, {} Hz unless set otherwise{}",
            audio.encoding.description(),
            audio.rate_hz,
            describe_packets(audio)
        ),
    };
    for (name, message) in EventName::ALL
        .into_iter()
        .flat_map(|name| client.event(name).iter().map(move |message| (name, message)))
    {
        let spelled = spelled_message(client, message);
        let origin = match name {
            EventName::Audio => voice.as_str(),
            EventName::Queued if client.is_rest => {
                "the upstream's queue, while the first utterance or the text waits in it"
            }
            name => describe_event(name, client, profile, dialect),
        };
        let becomes = match message.conditions.text.as_str() {
            "" => origin.to_owned(),
            conditions => format!("{conditions}: {origin}"),
        };
        rows.push(ExplainRow::new(RowKind::Event, &spelled, becomes));
    }
    for event in client.realtime.iter().flat_map(|_| RealtimeEvent::ALL) {
        let spelled = client.realtime.as_ref().map_or("", |names| names.event(event, false));
        if spelled.is_empty() {
            continue;
        }
        let origin = match event {
            RealtimeEvent::AudioDelta => voice.as_str(),
            event => phrases::describe_realtime_event(event, profile),
        };
        rows.push(ExplainRow::new(RowKind::Event, spelled, origin));
    }
    if client.event(EventName::Audio).is_empty() && client.realtime.is_none() {
        rows.push(ExplainRow::new(RowKind::Audio, "", voice));
    }
    let never =
        |(name, why): (&String, &String)| ExplainRow::new(RowKind::Event, name, format!("never: {why}"));
    rows.extend(client.never_sent.iter().map(never));
    rows
}

#[cfg(test)]
mod tests {
    use crate::spelling::Library;

    #[test]
    fn every_command_field_and_event_is_explained() {
        let library = Library::embedded().unwrap();
        let (client, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
        for profile in ["speech", "conversation", "video"] {
            let text = super::explain_markdown(&client, &library.profile(profile).unwrap(), &dialect);
            assert_complete(&client, &text);
        }
    }

    #[test]
    fn dialect_without_chat_explains_speak_as_error() {
        let library = Library::embedded().unwrap();
        let (client, profile) = (library.client("macaw").unwrap(), library.profile("conversation").unwrap());
        let text = super::explain_markdown(&client, &profile, &library.upstream("minicpm-o-legacy").unwrap());
        let speak = text.lines().find(|line| line.starts_with("| `tts.speak`")).unwrap();
        assert!(speak.contains("an error: this dialect has no chat mode"), "{speak}");
        assert_complete(&client, &text);
        for absent in ["read-aloud", "or of a text", "the voice for this text"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }

    #[test]
    fn word_times_are_explained_as_estimated_or_absent() {
        let mut library = Library::embedded().unwrap();
        let estimating = "kind = 'profile'\nname = 'timed'\ntitle = 't'\nextends = 'speech'\n[hear]\nestimated_word_times = true";
        library.add("timed.toml", estimating).unwrap();
        let (client, dialect) = (library.client("vosk").unwrap(), library.upstream("minicpm-o").unwrap());
        let explained =
            |name: &str| super::explain_markdown(&client, &library.profile(name).unwrap(), &dialect);
        let (on, off) = (explained("timed"), explained("speech"));
        assert!(
            on.contains("are estimated: the words share") && on.contains("enables estimated word times"),
            "{on}"
        );
        assert!(off.contains("never: MiniCPM-o provides no word times"), "{off}");
    }

    #[test]
    fn words_without_times_are_explained_as_sent() {
        let source = include_str!("../../../mappings/client/vosk.toml");
        let start = source.find("transcript_word =").unwrap();
        let length = source[start..].find('\n').unwrap();
        let mut library = Library::embedded().unwrap();
        let untimed = source.replace(&source[start..start + length], "transcript_word = '{\"w\": ${word}}'");
        library.add("vosk.toml", &untimed).unwrap();
        let (profile, dialect) = (library.profile("speech").unwrap(), library.upstream("minicpm-o").unwrap());
        let text = super::explain_markdown(&library.client("vosk").unwrap(), &profile, &dialect);
        assert!(text.contains("an element of the user's transcripts"), "{text}");
        assert!(!text.contains("provides no word times"), "{text}");
    }

    #[test]
    fn acknowledgement_of_settings_is_explained() {
        let library = Library::embedded().unwrap();
        let (profile, dialect) = (library.profile("speech").unwrap(), library.upstream("minicpm-o").unwrap());
        for (client, command, words) in [
            ("deepgram-listen", "`Configure`", "from now on; acknowledged by `ConfigureSuccess` |"),
            ("macaw", "`session.configure`", "from now on; never acknowledged |"),
        ] {
            let text = super::explain_markdown(&library.client(client).unwrap(), &profile, &dialect);
            let row = text.lines().find(|line| line.starts_with(&format!("| {command}"))).unwrap();
            assert!(row.ends_with(words), "{row}");
        }
    }

    #[test]
    fn settings_without_effect_are_listed_with_their_reasons() {
        let library = Library::embedded().unwrap();
        let (client, dialect) =
            (library.client("openai-realtime").unwrap(), library.upstream("minicpm-o").unwrap());
        let text = super::explain_markdown(&client, &library.profile("assistant").unwrap(), &dialect);
        let reasons = &client.realtime.as_ref().unwrap().without_effect;
        assert!(reasons.contains_key("tools"));
        for (setting, because) in reasons {
            let row = text.lines().find(|line| line.contains(&format!("`session.{setting}`")));
            if super::TOOL_SETTINGS.contains(&setting.as_str()) {
                assert_eq!(row, None, "the profile calls tools");
                continue;
            }
            let row = row.unwrap();
            assert!(row.contains(&format!("accepted without effect: {because}")), "{row}");
        }
    }

    #[test]
    fn every_embedded_protocol_is_explained() {
        let library = Library::embedded().unwrap();
        let (profile, dialect) = (library.profile("speech").unwrap(), library.upstream("minicpm-o").unwrap());
        for client in library.clients() {
            let text = super::explain_markdown(client, &profile, &dialect);
            assert!(!text.contains("no reason given"), "{}", client.name);
            for field in &client.query {
                assert!(text.contains(&format!("?{}=", field.name)), "{} {}", client.name, field.name);
            }
            for path in client.jobs.iter().flat_map(|jobs| jobs.paths()) {
                assert!(text.contains(&path), "{} {path}", client.name);
            }
            for name in client.never_sent.keys() {
                assert!(text.contains(&format!("`{name}`")), "{} {name}", client.name);
            }
            for command in &client.commands {
                assert!(text.contains(&format!("`{}`", command.name)), "{}", command.name);
            }
        }
    }

    fn assert_complete(client: &crate::spelling::ClientMapping, text: &str) {
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
