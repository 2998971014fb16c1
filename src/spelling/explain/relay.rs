//! Part of `mappings explain` for relays: effect of every message, field and event on an upstream.

use super::{
    row::{ExplainRow, RowKind},
    spelled_event,
};
use crate::{
    spelling::{
        ClientMapping, UpstreamMapping,
        relay::{RelayCommand, RelayEvent, RelayField, RelayFieldRole, RelayProtocol, RelayVerb},
    },
    vocabulary::Mode,
};

/// Messages from the client, with their effect on this dialect.
pub(super) fn sent_rows(relay: &RelayProtocol, dialect: &UpstreamMapping) -> Vec<ExplainRow> {
    let native = relay.dialect == dialect.name;
    let mut rows = vec![
        ExplainRow::new(RowKind::Query, &relay.mode.key, describe_modes(relay, dialect)),
        ExplainRow::new(RowKind::Audio, "", "an error that ends the session, as on the real server"),
    ];
    for command in &relay.commands {
        rows.push(ExplainRow::new(
            RowKind::Command,
            &command.name,
            describe_verb(command, gets_commands(relay, dialect)),
        ));
        let field = |field: &RelayField| {
            ExplainRow::new(RowKind::Field, &field.name, describe_field(field, dialect, native))
        };
        rows.extend(command.fields.iter().map(field));
    }
    let rest = match native {
        true => "passes untouched, known or unknown",
        false => "answered with an error; the session goes on",
    };
    rows.push(ExplainRow::new(RowKind::Command, "any other message", rest));
    rows
}

/// Modes of the query, and whether the upstream has them.
fn describe_modes(relay: &RelayProtocol, dialect: &UpstreamMapping) -> String {
    let told = relay.mode.values.iter().map(|(value, mode)| match dialect.modes.get(mode) {
        Some(upstream) => format!("`{value}` as `{upstream}`"),
        None => format!("`{value}` refused: the upstream has no such mode"),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Modes that both the client protocol and the dialect have.
pub(super) fn common_modes(relay: &RelayProtocol, dialect: &UpstreamMapping) -> Vec<Mode> {
    dialect
        .modes
        .keys()
        .filter(|mode| relay.mode.values.values().any(|known| known == *mode))
        .copied()
        .collect()
}

/// True if the upstream gets the commands of a conversation, because its dialect has no messages of a relay.
fn gets_commands(relay: &RelayProtocol, dialect: &UpstreamMapping) -> bool {
    relay.dialect != dialect.name && !dialect.has_relay_messages()
}

const fn describe_verb(command: &RelayCommand, gets_commands: bool) -> &'static str {
    match command.verb {
        RelayVerb::Append if gets_commands => {
            "made into units of one second, of which each may have one picture; queued while there is no upstream session"
        }
        RelayVerb::Open => "opens the upstream session; kept to open another when the session is lost",
        RelayVerb::Append => "one step of the model; queued while there is no upstream session",
        RelayVerb::Close => "ends both sessions",
    }
}

fn describe_field(field: &RelayField, dialect: &UpstreamMapping, native: bool) -> String {
    let validated = if field.checked || !native { ", validated by the bridge" } else { "" };
    match (field.to, &field.because) {
        _ if native => format!("untouched{validated}"),
        (_, Some(because)) => format!("accepted without effect: {because}"),
        (None, None) => format!("contains other fields{validated}"),
        (Some(RelayFieldRole::InputId | RelayFieldRole::ResponseId), _) => {
            "kept by the bridge and returned with the answer".to_owned()
        }
        (Some(part), _) if part.is_taken_by(dialect) => {
            format!("`{}` of the upstream's message{validated}", part.name())
        }
        (Some(RelayFieldRole::Reason), _) => "reported in the last event".to_owned(),
        (Some(_), _) => "accepted without effect: the upstream's dialect has no such field".to_owned(),
    }
}

/// Messages to the client, with their origin.
pub(super) fn received_rows(
    client: &ClientMapping,
    relay: &RelayProtocol,
    dialect: &UpstreamMapping,
) -> Vec<ExplainRow> {
    let native = relay.dialect == dialect.name;
    let mut rows = Vec::new();
    for name in RelayEvent::ALL {
        let Some(template) = relay.event(name) else { continue };
        let spelled = spelled_event(client, template);
        let from_commands = gets_commands(relay, dialect);
        rows.push(ExplainRow::new(RowKind::Event, &spelled, describe_event(name, native, from_commands)));
    }
    let never =
        |(name, why): (&String, &String)| ExplainRow::new(RowKind::Event, name, format!("never_sent: {why}"));
    rows.extend(client.never_sent.iter().map(never));
    rows
}

const fn describe_event(name: RelayEvent, native: bool, from_commands: bool) -> &'static str {
    match name {
        RelayEvent::Queued | RelayEvent::QueueUpdate if from_commands => {
            "the line in voxbridge: the upstream has none"
        }
        RelayEvent::Speech if from_commands => "part of the model's speech, as float32",
        RelayEvent::Queued | RelayEvent::QueueUpdate => "the upstream's queue, until a worker is assigned",
        RelayEvent::Granted | RelayEvent::Opened => "the upstream; sent once over all attempts",
        RelayEvent::Ended | RelayEvent::EndedWithDetail => "the upstream's own end, or the bridge",
        RelayEvent::Error => "bad input, the bridge, or the upstream; the message says which",
        _ if native => "the upstream, unchanged",
        RelayEvent::Listening => "the model listens",
        RelayEvent::Text => "part of the model's text",
        RelayEvent::Speech => "part of the model's speech, base64, unchanged",
        RelayEvent::Output => "text and speech of one step, and the end of the turn",
        RelayEvent::Answered => "the end of an answer in chat",
    }
}

#[cfg(test)]
mod tests {
    use crate::spelling::{Library, explain::explain_markdown};

    #[test]
    fn every_message_field_and_event_of_a_relay_is_explained() {
        let library = Library::embedded().unwrap();
        let profile = library.profile("relay").unwrap();
        for client in ["minicpm-o", "minicpm-o-legacy"] {
            for dialect in ["minicpm-o", "minicpm-o-legacy"] {
                let client = library.client(client).unwrap();
                let text = explain_markdown(&client, &profile, &library.upstream(dialect).unwrap());
                for command in &client.relay.as_ref().unwrap().commands {
                    assert!(text.contains(&format!("`{}`", command.name)), "{}", command.name);
                    let named =
                        command.fields.iter().all(|field| text.contains(&format!("`{}`", field.name)));
                    assert!(named, "{text}");
                }
                assert!(text.contains("`session.created`") && text.contains("`error`"));
                assert_eq!(text.contains("untouched"), client.name == dialect, "{text}");
            }
        }
        let speech = library.profile("speech").unwrap();
        let (macaw, current) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
        let own = library.client("minicpm-o").unwrap();
        assert!(explain_markdown(&own, &speech, &current).contains("has no [relay]"));
        assert!(explain_markdown(&macaw, &profile, &current).contains("profile \"relay\" relays"));
    }

    #[test]
    fn relay_reaches_servers_that_converse_and_no_others() {
        let library = Library::embedded().unwrap();
        let profile = library.profile("relay").unwrap();
        for client in ["minicpm-o", "minicpm-o-legacy"] {
            let explain = |dialect| {
                let client = library.client(client).unwrap();
                explain_markdown(&client, &profile, &library.upstream(dialect).unwrap())
            };
            for dialect in ["sglang-omni", "vllm-omni"] {
                let text = explain(dialect);
                assert!(text.contains("units of one second") && text.contains("no such field"), "{text}");
                assert!(!text.contains("do not work together"), "{text}");
            }
            assert!(explain("sglang-omni-http").contains("do not work together"));
        }
    }
}
