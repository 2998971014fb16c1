//! Bodies of the fuzz targets (`tests/fuzz`). A test runs their seeds as well (`tests/core/fuzz_seeds.rs`).
//!
//! Each body accepts any bytes and panics at a violation.

mod access;
#[cfg(feature = "webrtc")]
mod calls;
mod conversation;
mod files;
mod lanes;
mod lines;
mod relay;
mod sessions;
mod streams;

use std::{sync::LazyLock, time::Duration};

use serde::de::IgnoredAny;

pub use self::access::access;
#[cfg(feature = "webrtc")]
pub use self::calls::{call_audio, call_offer, call_packets};
pub use self::{
    conversation::bridge_inputs,
    files::{container, trace},
    lanes::{event_stream, lane_frames},
    sessions::any_session,
    streams::{client_frames, protobuf, sideband, tcp_stream, upload_form},
};
use crate::rtvi::RtviFrame;
use voxbridge::{
    audio::{
        SPEECH_RATE_HZ, encoding::Encoding, input_converter::InputConverter, opus::packet_samples,
        wav as wav_file,
    },
    client::Codec,
    error::Error,
    spelling::{Library, MappingKind, upstream::CloseBy},
    telemetry::context::{TraceContext, TraceParent},
    upstream::Dialect,
    vocabulary::{
        ClientEvent, EventName, Frame, LaneEvent, LaneRequest, Message, Mode, SlotValue, VoiceSample,
    },
};

static LIBRARY: LazyLock<Library> =
    LazyLock::new(|| Library::embedded().expect("a test compiles the embedded files"));

/// Messages, each after its length in two bytes. The highest bit of the length makes a text.
struct FuzzFrames<'d>(&'d [u8]);

impl<'d> Iterator for FuzzFrames<'d> {
    type Item = Frame<'d>;

    fn next(&mut self) -> Option<Frame<'d>> {
        let (head, tail) = self.0.split_first_chunk()?;
        let head = u16::from_be_bytes(*head);
        let (message, rest) = tail.split_at(tail.len().min(usize::from(head & 0x7fff)));
        self.0 = rest;
        let text = std::str::from_utf8(message).ok().filter(|_| head & 0x8000 != 0);
        Some(text.map_or(Frame::Binary(message), Frame::Text))
    }
}

/// Decodes a client's frame and a connection's query in every protocol. Every error must have a frame of its
/// own, and every relayed message must encode in every dialect.
pub fn client_decoder(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    LIBRARY.clients().filter(|client| client.is_relayed()).for_each(|client| relay::client(client, &text));
    for client in LIBRARY.clients().filter(|client| !client.is_relayed()) {
        let mut codec = codec(&LIBRARY, &client.name);
        let connect = codec.decode_query(&text);
        connect.problems.into_iter().for_each(|problem| assert_error_encodes(&mut codec, problem));
        for frame in [Frame::Text(&text), Frame::Binary(data)] {
            if let Err(error) = codec.decode(frame, |_| ()) {
                assert_error_encodes(&mut codec, error);
            }
        }
        codec
            .take_ignored_fields()
            .iter()
            .for_each(|ignored| assert!(!ignored.because.is_empty(), "{ignored:?}"));
    }
}

/// Decodes an upstream's frame. Each message has a meaning, and audio comes only from audio fields.
pub fn upstream_decoder(data: &[u8]) {
    for dialect in dialects() {
        decode_frame(&dialect, data);
        relay::upstream(&dialect, data);
    }
}

fn dialects() -> impl Iterator<Item = Dialect> {
    let dialect = |name| Dialect::new(LIBRARY.upstream(name).expect("the dialect is embedded"));
    ["minicpm-o", "minicpm-o-legacy"].into_iter().map(dialect)
}

fn decode_frame(dialect: &Dialect, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for frame in [Frame::Text(&text), Frame::Binary(data)] {
        let mut event_count = 0;
        dialect.decode(frame, |event, _| {
            event_count += 1;
            if let LaneEvent::Audio(samples) | LaneEvent::Done { audio: samples, .. } = event {
                assert!(samples.len() * 4 <= text.len());
            }
        });
        // At most three events per message: text, audio and the end of a unit.
        assert!((1..=3).contains(&event_count), "{event_count}");
    }
}

/// Parses trace-context headers, one per line. The outgoing context must be valid and continue the incoming
/// one.
pub fn trace_context(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (parent, states) = text.split_once('\n').unwrap_or((&text, ""));
    let mut rng = fastrand::Rng::with_seed(1);
    let accept = |parent: &str, states: &str, rng: &mut fastrand::Rng| {
        TraceContext::from_headers([parent].into_iter(), states.split('\n'), rng)
    };
    let context = accept(parent, states, &mut rng);
    let outgoing = context.child_traceparent(&mut rng);
    let passed_on = TraceParent::parse(&outgoing).expect("the outgoing context parses");
    assert_eq!((passed_on.trace_id, passed_on.sampled), (context.trace_id, context.sampled));
    let state = context.state.clone().unwrap_or_default();
    assert!(state.len() <= 512 && state.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{state}");
    assert_eq!(accept(&outgoing, &state, &mut rng).state, context.state, "the state passes unchanged");
}

/// Loads a mapping file. An accepted file must be usable.
pub fn mapping_file(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let mut library = LIBRARY.clone();
    if let Err(problem) = library.add("fuzz.toml", &source) {
        assert!(!problem.message.is_empty() && problem.line <= source.len() + 1, "{problem}");
        return;
    }
    let added = library.files().find(|(_, _, file, _)| *file == "fuzz.toml");
    let (kind, name) = added.map(|(kind, name, ..)| (kind, name.to_owned())).expect("the file was added");
    match kind {
        MappingKind::Client if library.client(&name).is_ok_and(|client| client.is_relayed()) => return,
        MappingKind::Profile if library.profile(&name).is_ok_and(|profile| profile.is_relay()) => return,
        MappingKind::Client => client_file(&library, &name),
        MappingKind::Upstream => upstream_file(&library, &name),
        MappingKind::Profile => {}
    }
    conversation::run_one_utterance(&library, kind, &name);
}

/// Parses a WAV file. Its sample count must fit its length in bytes.
pub fn wav(data: &[u8]) {
    const LONGEST: Duration = Duration::from_secs(60);
    let Ok((samples, rate_hz)) = wav_file::read(data, LONGEST) else { return };
    assert!(samples.len() <= data.len());
    assert!(samples.len() as u64 <= LONGEST.as_secs() * u64::from(rate_hz));
    if samples.len() < 20_000 {
        let _ = wav_file::resample_all(&samples, rate_hz, SPEECH_RATE_HZ);
    }
}

/// Decodes Opus packets, each after its length in one byte. A length of 0 is a lost packet, and one of 255 a muted one.
pub fn opus(data: &[u8]) {
    const LOST: usize = 960;
    const LOST_MAX: usize = 5_760;
    let mut converter = InputConverter::live(Encoding::Opus, 16_000, 1).expect("Opus has this rate");
    let (mut rest, mut out) = (data, Vec::new());
    while let [length, tail @ ..] = rest {
        let (packet, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        match length {
            0 => converter.note_lost(LOST),
            255 => drop(converter.skip_muted(packet)),
            _ => {
                out.clear();
                let before = converter.input_samples();
                converter.push(packet, &mut out);
                let given = (converter.input_samples() - before) as usize;
                let stated = packet_samples(packet).unwrap_or(0);
                assert!((stated..=stated + LOST_MAX).contains(&given), "{given} of {stated} samples");
                assert!(out.len() <= given / 3 + 1_600, "{} samples at 16 kHz", out.len());
            }
        }
    }
    converter.flush(&mut out);
}

fn codec(library: &Library, name: &str) -> Codec {
    Codec::new(library.client(name).expect("the client is in the library"), 0.0)
}

fn assert_error_encodes(codec: &mut Codec, error: Error) {
    let has_error_event = !codec.mapping().event(EventName::Error).is_empty();
    let mut messages = 0;
    codec.encode(&ClientEvent::Error(error.clone()), 0.0, |message, _| {
        messages += 1;
        match message {
            Message::Text(json) => assert_json(&json),
            // Pipecat's frames.
            Message::Binary(frame) => assert!(matches!(RtviFrame::read(&frame), RtviFrame::Message(_))),
            Message::Close(..) => panic!("an error is a message"),
        }
    });
    let closes = codec.error_close_frame(&error).is_some();
    assert!(messages > 0 || closes || !has_error_event, "an error without a message: {error:?}");
}

fn assert_json(json: &str) {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(json) {
        panic!("not JSON: {error}: {json}");
    }
}

fn client_file(library: &Library, name: &str) {
    let mapping = library.client(name).expect("the client is in the library");
    for message in EventName::ALL.into_iter().flat_map(|name| mapping.event(name)) {
        for fill in [SlotValue::Null, SlotValue::Str("a \"b\"\n"), SlotValue::Int(-1), SlotValue::Float(0.5)]
        {
            let mut json = String::new();
            message.template.render(&mut json, |_| fill);
            assert_json(&json);
        }
    }
    let mut codec = codec(library, name);
    for command in &mapping.commands {
        let _ = codec.decode(Frame::Text(&format!("{{\"type\": {:?}, \"x\": 1e999}}", command.name)), |_| ());
    }
}

fn upstream_file(library: &Library, name: &str) {
    let mapping = library.upstream(name).expect("the upstream is in the library");
    let has_chat = mapping.modes.contains_key(&Mode::Chat);
    let dialect = Dialect::new(mapping);
    let voice = VoiceSample::new([0]);
    let speak = |voice: Option<&VoiceSample>| LaneRequest::Speak {
        before_voice: "\"".into(),
        after_voice: "\\".into(),
        request: "\n".into(),
        text: "\t".into(),
        voice: voice.cloned(),
        voice_name: None,
    };
    let question = LaneRequest::Transcribe { prompt: "\"".into(), audio: vec![1, -1].into() };
    let chat = [
        LaneRequest::Init(None),
        LaneRequest::Init(Some(voice.clone())),
        question,
        speak(None),
        speak(Some(&voice)),
    ];
    for command in chat.into_iter().filter(|_| has_chat) {
        assert_json(&dialect.encode(&command, Mode::Chat));
    }
    if !dialect.mapping().modes.is_empty() && dialect.mapping().close_by == CloseBy::Message {
        assert_json(&dialect.encode(&LaneRequest::Close, Mode::Audio));
    }
}
