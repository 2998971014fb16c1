//! `mappings explain` for the clients of relays: what becomes of every message, field and event on an upstream.

use std::fmt::Write as _;

use super::{
    super::{ClientMapping, Profile, UpstreamMapping, template::Fill, upstream::SendName},
    Part, RelayClient, RelayCommand, RelayEvent, RelayField, RelayVerb,
};

/// The table, as Markdown; `None` where neither client nor profile has to do with relays.
pub(in crate::mapping) fn explain(
    client: &ClientMapping,
    profile: &Profile,
    dialect: &UpstreamMapping,
) -> Option<String> {
    let mut out = format!("# {} on {}, profile `{}`\n\n", client.title, dialect.title, profile.name);
    let Some(relay) = client.relay.as_ref().filter(|_| profile.relays()) else {
        let words = match (client.relays(), profile.relays()) {
            (true, _) => "This client speaks the model's own protocol: it needs a profile with [relay].",
            (false, true) => {
                "This profile relays the model's own protocol, which this client does not speak."
            }
            (false, false) => return None,
        };
        let _ = writeln!(out, "{words}");
        return Some(out);
    };
    for note in [&client.notes, &profile.notes, &dialect.notes].into_iter().flatten() {
        let _ = writeln!(out, "- {note}");
    }
    let native = relay.dialect == dialect.name;
    let heading = if native { "passes as it came" } else { "becomes" };
    table(&mut out, "What the client sends", ["client", heading], commands(relay, dialect, native));
    table(&mut out, "What the client gets", ["event", "comes from"], events(client, relay, native));
    let paths = client.paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, "Served at {paths}, modes {}.", modes(relay, dialect));
    Some(out)
}

fn table(out: &mut String, title: &str, heads: [&str; 2], rows: Vec<[String; 2]>) {
    let _ = writeln!(out, "\n## {title}\n\n| {} | {} |\n|---|---|", heads[0], heads[1]);
    for [left, right] in rows {
        let _ = writeln!(out, "| {left} | {right} |");
    }
}

/// Which modes of the query the upstream has.
fn modes(relay: &RelayClient, dialect: &UpstreamMapping) -> String {
    let told = relay.mode.values.iter().map(|(value, mode)| match dialect.modes.get(mode) {
        Some(upstream) => format!("`{value}` as `{upstream}`"),
        None => format!("`{value}` refused: the upstream has no such mode"),
    });
    told.collect::<Vec<_>>().join(", ")
}

fn commands(relay: &RelayClient, dialect: &UpstreamMapping, native: bool) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    for command in &relay.commands {
        rows.push([format!("`{}`", command.name), verb(command).to_owned()]);
        for field in &command.fields {
            rows.push([format!("— `{}`", field.name), effect(field, dialect, native)]);
        }
    }
    let rest = if native {
        "passes untouched, unknown or not"
    } else {
        "answered with an error; the session goes on"
    };
    rows.push(["any other message".to_owned(), rest.to_owned()]);
    rows
}

const fn verb(command: &RelayCommand) -> &'static str {
    match command.verb {
        RelayVerb::Open => "opens the upstream session; kept, to open another when that one is lost",
        RelayVerb::Append => "one step of the model; kept while there is no upstream session",
        RelayVerb::Close => "ends both sessions",
    }
}

fn effect(field: &RelayField, dialect: &UpstreamMapping, native: bool) -> String {
    let judged = if field.checked || !native { ", judged by the bridge" } else { "" };
    let takes = |part: Part| {
        [SendName::RelayOpen, SendName::RelayAppend, SendName::Close].iter().any(|name| {
            let at = name.slots().iter().position(|slot| *slot == part.slot());
            at.zip(dialect.message(*name)).is_some_and(|(at, template)| template.uses(at))
        })
    };
    match (field.to, &field.because) {
        _ if native => format!("untouched{judged}"),
        (_, Some(because)) => format!("accepted without effect: {because}"),
        (None, None) => format!("holds the others{judged}"),
        (Some(Part::InputId | Part::ResponseId), _) => {
            "kept by the bridge and told with the answer".to_owned()
        }
        (Some(part), _) if takes(part) => format!("`{}` of the upstream's message{judged}", part.slot()),
        (Some(Part::Reason), _) => "told in the last event".to_owned(),
        (Some(_), _) => "accepted without effect: the upstream's dialect has nothing like it".to_owned(),
    }
}

fn events(client: &ClientMapping, relay: &RelayClient, native: bool) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    for name in RelayEvent::ALL {
        let Some(template) = relay.event(name) else { continue };
        let mut json = String::new();
        template.render(&mut json, |_| Fill::Null);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
        let spelled = value.pointer(&client.command_key).and_then(serde_json::Value::as_str);
        rows.push([format!("`{}`", spelled.unwrap_or(&json)), source(name, native).to_owned()]);
    }
    rows.extend(client.never.iter().map(|(name, why)| [format!("`{name}`"), format!("never: {why}")]));
    rows
}

const fn source(name: RelayEvent, native: bool) -> &'static str {
    match name {
        RelayEvent::Queued | RelayEvent::QueueMoved => "the upstream's queue, until there is a worker",
        RelayEvent::Granted | RelayEvent::Opened => "the upstream; told once, however many attempts it takes",
        RelayEvent::Ended | RelayEvent::EndedBecause => "the upstream's own end, or the bridge",
        RelayEvent::Error => "bad input, the bridge, or the upstream; the message says which",
        _ if native => "the upstream, as it came",
        RelayEvent::Listening => "the model listens",
        RelayEvent::Text => "a piece of the model's text",
        RelayEvent::Speech => "a piece of its speech, base64 as it came",
        RelayEvent::Output => "text and speech of one step, and whether the turn is over",
        RelayEvent::Answered => "the end of an answer in chat",
    }
}

#[cfg(test)]
mod tests {
    use crate::mapping::{Library, explain::explain};

    #[test]
    fn every_message_field_and_event_of_a_relay_is_explained() {
        let library = Library::embedded().unwrap();
        let profile = library.profile("relay").unwrap();
        for client in ["minicpm-o", "minicpm-o-legacy"] {
            for dialect in ["minicpm-o", "minicpm-o-legacy"] {
                let client = library.client(client).unwrap();
                let text = explain(&client, &profile, &library.upstream(dialect).unwrap());
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
        assert!(explain(&own, &speech, &current).contains("needs a profile with [relay]"));
        assert!(explain(&macaw, &profile, &current).contains("does not speak"));
    }
}
