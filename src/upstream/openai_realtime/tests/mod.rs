//! Messages of lanes in the names of GA and of its beta.

mod conversations;
mod faults;
mod questions;
mod requests;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::*;
use crate::{
    audio::pcm,
    spelling::Library,
    upstream::lane::{LaneCodec, LaneOpening},
    vocabulary::{
        ChatMessage, ChatTurn, ConversationInit, EntryPart, Frame, Role, Tool, ToolCall, ToolChoice,
        ToolOffer, ToolResult, TranscribePrompt, VideoFrame,
    },
};

/// A codec, and what its lane saw.
struct Bench {
    codec: LaneCodec,
    now: Instant,
}

impl Bench {
    /// A lane whose transport is open.
    fn dialled(purpose: LanePurpose, mode: Mode) -> Self {
        let mapping = Library::embedded().unwrap().upstream("openai-realtime").unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant has no other source; only differences count"
        )]
        let now = Instant::now();
        let mut codec = LaneCodec::new(mapping, mode, purpose);
        assert_eq!(codec.handle_opened(now), LaneOpening::Granted);
        Self { codec, now }
    }

    /// A lane that is ready, at a server that takes and sends audio at this rate.
    fn ready(purpose: LanePurpose, rate_hz: u32) -> Self {
        let mut bench = Self::dialled(purpose, Mode::Chat);
        let settings = bench.encode(LaneRequest::Init(None));
        let created = bench.receive(&session("session.created", 24_000));
        if purpose != LanePurpose::Transcribe {
            assert_eq!(created, [""; 0]);
            assert_eq!(settings[0]["session"]["audio"]["input"]["turn_detection"], Value::Null);
            assert_eq!(bench.receive(&session("session.updated", rate_hz)), ["Ready s"]);
        } else {
            assert_eq!((settings.len(), created), (0, vec!["Ready s".to_owned()]));
        }
        bench
    }

    fn encode(&mut self, command: LaneRequest) -> Vec<Value> {
        let mut sent = Vec::new();
        self.codec.encode(self.now, command, |message| sent.push(parse(&message)));
        sent
    }

    fn ask(&mut self, turn: ChatTurn) -> Vec<Value> {
        self.encode(LaneRequest::Chat(Box::new(turn)))
    }

    fn receive(&mut self, message: &Value) -> Vec<String> {
        let mut events = Vec::new();
        self.codec.decode(self.now, Frame::Text(&message.to_string()), |event, meta| {
            events.push(match event {
                LaneEvent::Ready { session_id } => format!("Ready {}", session_id.unwrap_or_default()),
                LaneEvent::Audio(samples) => format!("audio {}", samples.len()),
                LaneEvent::Text(text) => format!("text {text}"),
                LaneEvent::Call { call_id, name, arguments } => format!("call {call_id} {name} {arguments}"),
                LaneEvent::Done { .. } if meta.hit_limit => "cut".to_owned(),
                LaneEvent::Done { text, .. } => format!("done {}", text.unwrap_or_default()),
                LaneEvent::Closed(end) => format!("{:?}: {}", end.kind, end.detail),
                other => format!("{other:?}"),
            });
        });
        events
    }

    fn receive_all(&mut self, messages: &[Value]) -> Vec<String> {
        messages.iter().flat_map(|message| self.receive(message)).collect()
    }

    fn actions(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.codec.pop_action())
            .map(|action| match action {
                CodecAction::Send(message) => parse(&message),
                other => json!(format!("{other:?}")),
            })
            .collect()
    }
}

fn parse(message: &Message) -> Value {
    match message {
        Message::Text(text) => serde_json::from_str(text).unwrap(),
        other => json!(format!("{other:?}")),
    }
}

fn session(kind: &str, rate_hz: u32) -> Value {
    let format = json!({"format": {"type": "audio/pcm", "rate": rate_hz}});
    json!({"type": kind, "event_id": "e", "session": {
        "id": "s", "object": "realtime.session", "type": "realtime", "model": "m",
        "audio": {"input": format, "output": format},
    }})
}

fn done(status: &str, details: Value) -> Value {
    json!({"type": "response.done", "response": {"id": "r", "status": status, "status_details": details}})
}

fn turn(messages: Vec<ChatMessage>) -> ChatTurn {
    ChatTurn {
        before_voice: String::new(),
        instructions: "Be brief.".to_owned(),
        messages,
        speaks: true,
        voice: None,
        voice_name: None,
        max_tokens: 7,
        temperature: Some(0.5),
        tools: ToolOffer::default(),
    }
}

fn message(role: Role, parts: Vec<EntryPart>) -> ChatMessage {
    ChatMessage { role, parts }
}

fn text(words: &str) -> EntryPart {
    EntryPart::Text(words.to_owned())
}

fn audio(ms: usize) -> EntryPart {
    EntryPart::Audio(Arc::new(vec![1000; 16 * ms]))
}

/// Types of the messages, with those of items.
fn kinds(messages: &[Value]) -> Vec<String> {
    let kind = |message: &Value| match message["item"]["type"].as_str() {
        Some(item) => format!("{} {}", item, message["item"]["role"].as_str().unwrap_or_default()),
        None => message["type"].as_str().unwrap_or_default().to_owned(),
    };
    messages.iter().map(kind).collect()
}

/// Samples of appended audio.
fn appended(messages: &[Value]) -> Vec<usize> {
    let appends = messages.iter().filter(|message| message["type"] == "input_audio_buffer.append");
    appends.map(|message| decoded(&message["audio"]).len()).collect()
}

fn decoded(audio: &Value) -> Vec<f32> {
    let mut samples = Vec::new();
    pcm::decode_base64_s16(audio.as_str().unwrap(), &mut samples).unwrap();
    samples
}

fn pcm16(samples: usize) -> String {
    let mut base64 = String::new();
    pcm::encode_base64_s16(&vec![500; samples], &mut base64);
    base64
}
