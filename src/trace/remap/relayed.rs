//! The same for a relayed client: what each of its messages means, and what those it got mean in the dialect it is of.

use std::{sync::Arc, time::Duration};

use super::{Step, step, with_silence};
use crate::{
    bridge::Input,
    downstream::relay::RelayCodec,
    event::{Frame, relay::FromModel},
    mapping::{ClientMapping, Library, relay::RelayClient},
    trace::{
        Line, Trace,
        record::{Came, Went},
    },
    upstream::Dialect,
};

pub(super) fn of_relayed(
    trace: &Trace,
    library: &Library,
    client: &Arc<ClientMapping>,
    relay: &RelayClient,
) -> Result<Vec<Step>, String> {
    let opened = Duration::from_nanos(trace.start.opened_unix_ns).as_secs_f64();
    let codec = RelayCodec::new(client.clone(), &trace.start.query, opened);
    let codec = codec.ok_or_else(|| format!("client {} is not relayed", client.name))?;
    let dialect = Dialect::new(library.upstream(&relay.dialect)?);
    let mut steps = vec![asked(trace, relay)];
    for line in &trace.lines {
        if line.came == Some(Came::Client) {
            steps.push(understood(line, &codec)?);
        } else if line.went == Some(Went::Client) {
            steps.push(told(line, &dialect));
        }
    }
    Ok(steps)
}

fn asked(trace: &Trace, relay: &RelayClient) -> Step {
    let mode = relay.mode(&trace.start.query);
    Step {
        ns: 0,
        place: "from the client".to_owned(),
        recorded: format!("?{}", trace.start.query),
        trouble: mode.is_err(),
        becomes: vec![mode.map_or_else(
            |status| format!("refused with HTTP {status}"),
            |mode| format!("mode {}", mode.name()),
        )],
    }
}

fn understood(line: &Line, codec: &RelayCodec) -> Result<Step, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(line).give(|input| match input {
        Input::Client(Frame::Text(text)) => match codec.decode(text, false) {
            Ok(read) => {
                becomes.push(shortened(&format!("{:?}", read.message())));
                let without = read.without_effect(|_| true).into_iter();
                becomes.extend(without.map(|words| format!("without effect: {words}")));
            }
            Err(error) => {
                trouble = true;
                becomes.push(format!("error: {error}"));
            }
        },
        Input::Client(Frame::Binary(_)) => {
            trouble = true;
            becomes.push("error: a binary frame".to_owned());
        }
        _ => {}
    })?;
    Ok(step(line, becomes, trouble))
}

fn told(line: &Line, dialect: &Dialect) -> Step {
    let line = with_silence(line);
    let Some(text) = &line.text else { return step(&line, Vec::new(), false) };
    let (mut becomes, mut trouble) = (String::new(), false);
    dialect.decode_relayed(Frame::Text(text), |event, _| {
        trouble = matches!(event, FromModel::Unknown(_));
        becomes = shortened(&format!("{event:?}"));
    });
    step(&line, vec![becomes], trouble)
}

/// Without what is long in quotes: audio, voices, pictures.
fn shortened(words: &str) -> String {
    const LONG: usize = 100;
    let part = |(at, part): (usize, &str)| match at % 2 == 1 && part.len() > LONG {
        true => format!("{} characters", part.len()),
        false => part.to_owned(),
    };
    words.split('"').enumerate().map(part).collect::<Vec<_>>().join("\"")
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_long_is_counted() {
        let words = format!("Append(Input {{ audio: Some({:?}), input_id: Some(\"7\") }})", "A".repeat(200));
        assert_eq!(
            super::shortened(&words),
            "Append(Input { audio: Some(\"200 characters\"), input_id: Some(\"7\") })"
        );
    }
}
