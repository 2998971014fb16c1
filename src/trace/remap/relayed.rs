//! Translates the messages of a relayed client: decodes its own messages, and the messages to it by its dialect.

use std::{sync::Arc, time::Duration};

use super::{RemappedMessage, remapped, with_silence};
use crate::{
    bridge::Input,
    downstream::relay::RelayCodec,
    event::{Frame, relay::RelayUpstreamEvent},
    mapping::{ClientMapping, Library, relay::RelayProtocol},
    trace::{
        Trace, TraceRecord,
        record::{InputKind, OutputKind},
    },
    upstream::Dialect,
};

pub(super) fn remap_relayed(
    trace: &Trace,
    library: &Library,
    client: &Arc<ClientMapping>,
    relay: &RelayProtocol,
) -> Result<Vec<RemappedMessage>, String> {
    let opened_unix_s = Duration::from_nanos(trace.header.opened_unix_ns).as_secs_f64();
    let codec = RelayCodec::new(client.clone(), &trace.header.query, opened_unix_s);
    let codec = codec.ok_or_else(|| format!("client {} is not relayed", client.name))?;
    let dialect = Dialect::new(library.upstream(&relay.dialect)?);
    let mut steps = vec![remap_query(trace, relay)];
    for record in &trace.records {
        if record.input == Some(InputKind::Client) {
            steps.push(remap_client_frame(record, &codec)?);
        } else if record.output == Some(OutputKind::Client) {
            steps.push(remap_client_output(record, &dialect));
        }
    }
    Ok(steps)
}

fn remap_query(trace: &Trace, relay: &RelayProtocol) -> RemappedMessage {
    let mode = relay.mode(&trace.header.query);
    RemappedMessage {
        ns: 0,
        place: "from the client".to_owned(),
        recorded: format!("?{}", trace.header.query),
        trouble: mode.is_err(),
        becomes: vec![mode.map_or_else(
            |status| format!("rejected with HTTP {status}"),
            |mode| format!("mode {}", mode.name()),
        )],
    }
}

fn remap_client_frame(record: &TraceRecord, codec: &RelayCodec) -> Result<RemappedMessage, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(record).with_input(|input| match input {
        Input::Client(Frame::Text(text)) => match codec.decode(text, false) {
            Ok(read) => {
                becomes.push(read.to_client_event().to_string());
                let ineffective_fields = read.ineffective_fields(|_| true).into_iter();
                becomes.extend(ineffective_fields.map(|words| format!("without effect: {words}")));
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
    Ok(remapped(record, becomes, trouble))
}

fn remap_client_output(record: &TraceRecord, dialect: &Dialect) -> RemappedMessage {
    let record = with_silence(record);
    let Some(text) = &record.text else { return remapped(&record, Vec::new(), false) };
    let (mut becomes, mut trouble) = (String::new(), false);
    dialect.decode_for_relay(Frame::Text(text), |event, _| {
        trouble = matches!(event, RelayUpstreamEvent::Unknown(_));
        becomes = event.to_string();
    });
    remapped(&record, vec![becomes], trouble)
}
