//! The wires of a relay: whatever a client or an upstream says is understood or refused, and comes out as JSON.

use std::sync::Arc;

use super::{LIBRARY, assert_json, dialects};
use crate::{
    downstream::relay::RelayCodec,
    error::Error,
    event::{
        Frame, Mark,
        relay::{About, FromModel, ToModel, Told},
    },
    mapping::ClientMapping,
    upstream::Dialect,
};

/// A client's frame, judged as it is where it passes and where it is translated.
pub(super) fn client(mapping: &Arc<ClientMapping>, text: &str) {
    let query = RelayCodec::new(mapping.clone(), text, 0.0);
    let codec = RelayCodec::new(mapping.clone(), "mode=audio", 0.0).expect("every protocol has this mode");
    for codec in query.iter().chain([&codec]) {
        let _ = codec.begins_with(text);
        for native in [false, true] {
            match codec.decode(text, native) {
                Ok(read) => {
                    assert!(read.without_effect(|_| false).iter().all(|words| !words.is_empty()));
                    // Where messages pass as they came, what is in them was not judged.
                    if !native {
                        said(&read.message());
                    }
                }
                Err(error) => refused(codec, &error),
            }
        }
    }
}

/// It can be said to every upstream. A session's settings are as they were written, and voices have their own tests.
fn said(message: &ToModel<'_>) {
    for dialect in dialects() {
        match message {
            ToModel::Open(opening) => assert_json(&dialect.relay_open(opening)),
            ToModel::Append(input) => assert_json(&dialect.relay_append(input)),
            ToModel::Close(reason) => assert_json(&dialect.relay_close(*reason)),
            ToModel::Unknown(name) => assert!(!name.is_empty()),
        }
    }
}

/// An error has an event, or ends the session.
fn refused(codec: &RelayCodec, error: &Error) {
    let told = codec.error(error, &About::default());
    assert!(
        told.event.is_some() || told.ended.is_some() || told.close.is_some(),
        "nothing is said: {error:?}"
    );
    told.event.iter().chain(&told.ended).for_each(|json| assert_json(json));
    // RFC 6455, section 5.5.1: a control frame has 125 bytes.
    assert!(told.close.is_none_or(|(_, reason)| reason.len() <= 123));
}

/// An upstream's frame: it means something, and every client can be told.
pub(super) fn upstream(dialect: &Dialect, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for frame in [Frame::Text(&text), Frame::Binary(data)] {
        let mut heard = 0;
        dialect.decode_relayed(frame, |event, mark| {
            heard += 1;
            let _ = event.lane_event();
            for client in LIBRARY.clients().filter(|client| client.relays()) {
                let codec = RelayCodec::new(client.clone(), "mode=audio", 0.0);
                told(&codec.expect("every protocol has this mode"), event, mark);
            }
        });
        assert_eq!(heard, 1);
    }
}

fn told(codec: &RelayCodec, event: &FromModel<'_>, mark: Mark<'_>) {
    let Mark { response_id, input_id, context_tokens, backend: _ } = mark;
    let about = About { response_id, input_id, context_tokens, ..About::default() };
    let told = match event {
        FromModel::Queued(place) => Told::Queued { place: *place, moved: true },
        FromModel::Granted => Told::Granted,
        FromModel::Opened(_) => Told::Opened { prompt_chars: u64::MAX },
        FromModel::Listening => Told::Listening,
        FromModel::Text(text) => Told::Text(text),
        FromModel::Speech(audio) => Told::Speech(audio),
        FromModel::Output(output) => Told::Output(*output),
        FromModel::Answered(text, audio) => Told::Answered(*text, *audio),
        FromModel::Ended(why, ending) => {
            let _ = codec.close_frame(*why);
            Told::Ended { why: *why, own: Some(&ending.words), detail: Some(&ending.words) }
        }
        FromModel::Failed(..) | FromModel::Unknown(_) => return,
    };
    codec.tell(&told, &about).iter().for_each(|json| assert_json(json));
}
