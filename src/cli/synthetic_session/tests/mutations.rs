//! Exchanges with further, changed messages of the client, for every client protocol.
//!
//! Rules: the session ends in order; it sends nothing but the protocol's messages and close codes; a message that is refused is
//! answered by an error of the protocol, or by its close code, and changes nothing: what was said is transcribed, and what was to
//! be spoken is spoken.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::{
    cli::synthetic_session::{SyntheticSession, replay_epoch, run::SessionRun},
    client::Codec,
    error::ErrorKind,
    spelling::{ClientMapping, Library, compatibility::check_compatible},
    vocabulary::{CloseReason, EventName, Frame, Message},
};

/// Exchanges of each protocol unless `PROPTEST_CASES` says otherwise.
const EXCHANGES: u64 = 16;
/// A changed message comes before one of this many messages.
const ONE_OF: usize = 12;
/// Changes that are tried for a refused one.
const TRIES: usize = 20;

/// Makes changed messages.
struct Mutations {
    rng: Rng,
    client: Arc<ClientMapping>,
    /// Reads what the session reads.
    codec: Codec,
    /// Every changed message should be one that is refused.
    seeks_refusals: bool,
    /// Changed messages so far.
    made: Vec<Message>,
    refused: usize,
    /// A refused message ends the session.
    ends: bool,
}

impl Mutations {
    fn new(client: &Arc<ClientMapping>, seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            client: client.clone(),
            codec: new_codec(client),
            seeks_refusals: seed.is_multiple_of(2),
            made: Vec::new(),
            refused: 0,
            ends: false,
        }
    }

    /// Messages that the client sends before this one.
    fn before(&mut self, message: &Message) -> Option<Message> {
        let changed = (self.rng.usize(..ONE_OF) == 0).then(|| self.next_change(message));
        if let Some(changed) = &changed {
            self.made.push(changed.clone());
            if let Err(kind) = read(&mut self.codec, changed) {
                self.refused += 1;
                self.ends |= self.client.error(kind).is_some_and(|error| error.close.is_some());
            }
        }
        let _understood = read(&mut self.codec, message);
        changed
    }

    fn next_change(&mut self, message: &Message) -> Message {
        let mut changed = change(&mut self.rng, message);
        for _ in 0..TRIES {
            if !self.seeks_refusals || read(&mut new_codec(&self.client), &changed).is_err() {
                break;
            }
            changed = change(&mut self.rng, message);
        }
        changed
    }
}

fn new_codec(client: &Arc<ClientMapping>) -> Codec {
    let mut codec = Codec::new(client.clone(), 0.0);
    let model = client.required_model_parameter();
    let _settings = codec.decode_query(&model.map(|name| format!("{name}=synthetic")).unwrap_or_default());
    codec
}

fn read(codec: &mut Codec, message: &Message) -> Result<(), ErrorKind> {
    let frame = match message {
        Message::Text(text) => Frame::Text(text),
        Message::Binary(bytes) => Frame::Binary(bytes),
        Message::Close(..) => return Ok(()),
    };
    codec.decode(frame, |_| ()).map_err(|error| error.kind)
}

/// A changed copy of a message.
fn change(rng: &mut Rng, message: &Message) -> Message {
    match message {
        Message::Text(text) => match rng.u8(..4) {
            0 => Message::Binary(Bytes::from(text.clone())),
            1 => Message::Text(String::from_utf8_lossy(&changed_bytes(rng, text.as_bytes())).into_owned()),
            _ => match serde_json::from_str(text) {
                Ok(mut value) => {
                    change_value(rng, &mut value);
                    Message::Text(value.to_string())
                }
                Err(_) => Message::Text(text.repeat(2)),
            },
        },
        Message::Binary(bytes) => match rng.u8(..4) {
            0 => Message::Text(String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned()),
            1 => Message::Text(["", "{}", "[]", "null", "Done", "{\"type\":7}"][rng.usize(..6)].to_owned()),
            _ => Message::Binary(changed_bytes(rng, bytes).into()),
        },
        Message::Close(..) => message.clone(),
    }
}

fn changed_bytes(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = rng.usize(..=bytes.len());
    match rng.u8(..5) {
        0 => bytes.truncate(at),
        1 => bytes.clear(),
        2 => bytes.insert(at, rng.u8(..)),
        3 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = rng.u8(..)),
        _ => bytes.extend_from_within(at..),
    }
    bytes
}

/// Replaces, removes or adds one value anywhere.
fn change_value(rng: &mut Rng, value: &mut Value) {
    match value {
        Value::Object(members) if !members.is_empty() && rng.u8(..4) > 0 => {
            let key = members.keys().nth(rng.usize(..members.len())).cloned().unwrap_or_default();
            match rng.u8(..6) {
                0 => drop(members.remove(&key)),
                1 => drop(members.insert("unknown".to_owned(), json!([1]))),
                _ => members.get_mut(&key).into_iter().for_each(|member| change_value(rng, member)),
            }
        }
        Value::Array(items) if !items.is_empty() && rng.bool() => {
            let at = rng.usize(..items.len());
            change_value(rng, &mut items[at]);
        }
        _ => {
            let values = [
                json!(null),
                json!(true),
                json!(-1),
                json!(0),
                json!(1e308),
                json!(i64::MAX),
                json!(""),
                json!("x".repeat(300)),
                json!("\u{0}\u{1f4a5}"),
                json!([]),
                json!({}),
                json!([[[{"a": []}]]]),
            ];
            *value = values[rng.usize(..values.len())].clone();
        }
    }
}

/// The messages for people, each cut.
fn brief(messages: &[Message]) -> String {
    let brief = messages.iter().map(|message| format!("{message:?}").chars().take(120).collect::<String>());
    brief.collect::<Vec<_>>().join(", ")
}

/// Close codes that the protocol may send.
fn close_codes(client: &ClientMapping) -> Vec<u16> {
    let of_ends = CloseReason::ALL.into_iter().filter_map(|reason| Some(client.close(reason)?.code));
    let of_errors =
        ErrorKind::ALL.into_iter().filter_map(|kind| Some(client.error(kind)?.close.as_ref()?.code));
    of_ends.chain(of_errors).collect()
}

#[test]
fn changed_messages_end_no_session_badly_and_lose_nothing() {
    let library = Library::embedded().unwrap();
    let clients: Vec<_> =
        library.clients().filter(|client| !client.is_relayed() && !client.is_rest).cloned().collect();
    // The longest test of its program: a thread for each core, each with the next protocol.
    let (library, next) = (&library, &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(client) = clients.get(next.fetch_add(1, Relaxed)) {
                    play_changed_exchanges(client, library);
                }
            });
        }
    });
}

#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the test runner shows it, and says how much"
)]
fn play_changed_exchanges(client: &Arc<ClientMapping>, library: &Library) {
    let profile = library.profile(client.default_profile.as_deref().unwrap_or("speech")).unwrap();
    let dialect = library.upstream("minicpm-o").unwrap();
    if check_compatible(client, &profile, &dialect).is_err() {
        return;
    }
    let session = SyntheticSession { client: client.clone(), profile, dialect };
    let mut clean = SessionRun::new(&session, replay_epoch());
    let _spoken = session.play(&mut clean);
    let codes = close_codes(client);
    let (mut refused, mut kept) = (0, 0);
    let exchanges = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    for seed in 0..exchanges.unwrap_or(EXCHANGES) {
        let mut run = SessionRun::new(&session, replay_epoch());
        let mutations = Rc::new(RefCell::new(Mutations::new(client, seed)));
        let shared = mutations.clone();
        run.before_each = Some(Box::new(move |message| shared.borrow_mut().before(message)));
        let _spoken = session.play(&mut run);
        let mutations = mutations.borrow();
        let what = format!("{} {seed}: {}", client.name, brief(&mutations.made));
        assert!(run.is_finished, "it does not end: {what}");
        for (at, message) in run.got.iter().enumerate() {
            match message {
                Message::Close(code, text) => {
                    assert!(codes.contains(code), "close {code} {text:?}: {what}");
                    assert_eq!(at + 1, run.got.len(), "a message behind the close: {what}");
                }
                Message::Text(text) if text.starts_with('{') => {
                    assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}: {what}");
                }
                _ => {}
            }
        }
        // A message that is understood may change everything, and end the session.
        let is_all = mutations.refused == mutations.made.len();
        if is_all && !mutations.ends {
            assert_eq!(
                (run.has_transcript, run.has_audio),
                (clean.has_transcript, clean.has_audio),
                "lost: {what}: {:?}",
                run.errors
            );
            kept += 1;
        }
        if is_all && mutations.refused > 0 {
            let is_told = run.errors.len() >= mutations.refused
                || matches!(run.got.last(), Some(Message::Close(..))) && !run.errors.is_empty()
                || client.event(EventName::Error).is_empty();
            assert!(is_told, "{} refused, told {:?}: {what}", mutations.refused, run.errors);
            refused += 1;
        }
    }
    println!("{}: {refused} exchanges with a refused message, {kept} of them compared", client.name);
}
