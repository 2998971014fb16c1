//! Fuzz targets for relay codecs: every client or upstream message is decoded or rejected, and re-encodes as
//! JSON.

use std::sync::Arc;

use super::{LIBRARY, assert_json, dialects};
use voxbridge::{
    client::relay::RelayCodec,
    error::Error,
    spelling::{ClientMapping, upstream::CloseBy},
    upstream::Dialect,
    vocabulary::{
        Frame, LaneEvent, MessageMeta, Mode,
        relay::{RelayEnd, RelayEventMeta, RelayRequest},
    },
};

/// Decodes a client's frame with and without translation.
pub(super) fn client(mapping: &Arc<ClientMapping>, text: &str) {
    let query = RelayCodec::new(mapping.clone(), text, 0.0);
    let codec =
        RelayCodec::new(mapping.clone(), "mode=audio", 0.0).expect("every relay protocol has audio mode");
    for codec in query.iter().chain([&codec]) {
        let _ = codec.can_begin_with(text);
        for native in [false, true] {
            match codec.decode(text, native) {
                Ok(read) => {
                    assert!(read.ineffective_fields(|_| false).iter().all(|words| !words.is_empty()));
                    // Messages that pass unchanged are not checked further.
                    if !native {
                        assert_encodes(&read.to_request());
                    }
                }
                Err(error) => assert_error_encodes(codec, &error),
            }
        }
    }
}

/// Checks that every upstream can be sent the message. Session settings keep their spelling, and voices have
/// tests of their own.
fn assert_encodes(message: &RelayRequest<'_>) {
    for dialect in dialects() {
        match message {
            RelayRequest::Open(opening) => {
                assert_json(&dialect.encode_relay_opening(opening, Mode::Audio));
            }
            RelayRequest::Append(input) => assert_json(&dialect.encode_relay_append(input)),
            RelayRequest::Close(reason) if dialect.mapping().close_by == CloseBy::Message => {
                assert_json(&dialect.encode_relay_close(*reason));
            }
            RelayRequest::Close(_) => {}
            RelayRequest::Unknown(name) => assert!(!name.is_empty()),
        }
    }
}

/// Checks that an error has an event or ends the session.
fn assert_error_encodes(codec: &RelayCodec, error: &Error) {
    let messages = codec.encode_error(error, &RelayEventMeta::default());
    assert!(
        messages.event.is_some() || messages.session_end.is_some() || messages.close.is_some(),
        "no event and no close: {error:?}"
    );
    messages.event.iter().chain(&messages.session_end).for_each(|json| assert_json(json));
    // RFC 6455, section 5.5.1: a control frame has at most 125 bytes.
    assert!(messages.close.is_none_or(|(_, reason)| reason.len() <= 123));
}

/// Decodes an upstream's frame and encodes it for every client.
pub(super) fn upstream(dialect: &Dialect, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for frame in [Frame::Text(&text), Frame::Binary(data)] {
        let mut event_count = 0;
        dialect.decode_as_sent(frame, |event, meta| {
            event_count += 1;
            for client in LIBRARY.clients().filter(|client| client.is_relayed()) {
                let codec = RelayCodec::new(client.clone(), "mode=audio", 0.0);
                assert_event_encodes(&codec.expect("every relay protocol has this mode"), &event, meta);
            }
        });
        assert_eq!(event_count, 1);
    }
}

fn assert_event_encodes(codec: &RelayCodec, event: &LaneEvent<'_>, meta: MessageMeta<'_>) {
    let MessageMeta { response_id, input_id, context_tokens, .. } = meta;
    let (is_queue_update, prompt_chars) = (true, u64::MAX);
    let event_meta = RelayEventMeta {
        response_id,
        input_id,
        context_tokens,
        is_queue_update,
        prompt_chars,
        ..RelayEventMeta::default()
    };
    let encoded = match (event, meta.end_reason) {
        (LaneEvent::Closed(end), Some(reason)) => {
            let _ = codec.close_frame(reason);
            let detail = Some(end.detail.as_str());
            codec.encode_end(&RelayEnd { reason, client_reason: detail, detail }, &event_meta)
        }
        _ => codec.encode(event, &event_meta),
    };
    encoded.iter().for_each(|json| assert_json(json));
}
