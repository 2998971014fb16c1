//! Clients of OpenAI's Realtime protocol, in virtual time.
//!
//! [`Realtime`] is a client that checks what every client relies on: unique event ids, the order of events, and that each
//! delta belongs to a response in progress (mappings/notes/openai-realtime.md#server-events).

mod assistant;
mod bad_messages;
mod call_properties;
mod client_tool_servers;
mod large_audio;
mod latency;
mod live;
mod memory;
mod properties;
mod reference_client;
mod response_tool_servers;
mod server_tools;
mod settings;
mod stuck_upstream;
mod tools;
mod transcription;
mod truncation;
mod upstream;
mod upstream_conversation;
mod upstream_deviations;
mod usage;
mod user_words;
mod whole_answers;

use call_properties::asked_lane;
use tools::{config_with, questions, text_of};
use voxbridge::vocabulary::ServerCall;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Servers of the protocol, as upstreams.
const BOTH: [RealtimeServer; 2] = [RealtimeServer::Openai, RealtimeServer::VllmOmni];

/// Samples of 100 ms at 24 kHz, the length of most clients' messages.
const CHUNK_SAMPLES: usize = 2400;

/// A client.
struct Realtime {
    harness: Harness,
    log_position: usize,
    /// All events with their times.
    events: Vec<(Duration, Value)>,
    /// How many events of a type were waited for.
    waited_for: BTreeMap<String, usize>,
}

impl Realtime {
    fn connect(query: &str) -> Self {
        Self::with_config(config(query))
    }

    fn with_config(config: HarnessConfig) -> Self {
        let mut client = Self {
            harness: Harness::new(config),
            log_position: 0,
            events: Vec::new(),
            waited_for: BTreeMap::new(),
        };
        client.take_events();
        client
    }

    fn send(&mut self, message: &Value) {
        self.harness.send_json(message);
        self.take_events();
    }

    fn update(&mut self, session: &Value) {
        self.send(&json!({"type": "session.update", "session": session}));
    }

    /// Adds a message of the user in writing.
    fn write(&mut self, text: &str) {
        self.send(&json!({"type": "conversation.item.create", "item": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}));
    }

    /// Asks in writing.
    fn ask(&mut self, text: &str) {
        self.write(text);
        self.send(&json!({"type": "response.create"}));
    }

    /// Asks in writing; returns the response when it is done.
    fn answer(&mut self, text: &str) -> Value {
        self.write(text);
        self.respond()
    }

    /// Asks for a response; returns it when it is done.
    fn respond(&mut self) -> Value {
        self.send(&json!({"type": "response.create"}));
        self.wait_for("response.done")["response"].clone()
    }

    fn append(&mut self, samples: &[i16]) {
        let audio = STANDARD.encode(bytes_of(samples));
        self.send(&json!({"type": "input_audio_buffer.append", "audio": audio}));
    }

    /// Sends audio in real time.
    fn say(&mut self, samples: &[i16]) {
        for chunk in samples.chunks(CHUNK_SAMPLES) {
            self.append(chunk);
            self.pass(Duration::from_millis(chunk.len() as u64 / 24));
        }
    }

    /// Says something, and the silence that ends it.
    fn say_question(&mut self) {
        self.say(&speech());
        self.say_silence(900);
    }

    fn say_silence(&mut self, ms: usize) {
        self.say(&vec![0; ms * 24]);
    }

    fn pass(&mut self, time: Duration) {
        self.harness.advance(time);
        self.take_events();
    }

    /// Waits for the next event of this type: the first that was not waited for before.
    fn wait_for(&mut self, kind: &str) -> Value {
        let before = self.waited_for.get(kind).copied().unwrap_or(0);
        for _ in 0..600 {
            if let Some(event) = self.of_type(kind).get(before) {
                let event = (*event).clone();
                self.waited_for.insert(kind.to_owned(), before + 1);
                return event;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("no {kind} within a minute: {:?}", self.types());
    }

    fn take_events(&mut self) {
        for (at, frame) in &self.harness.log[self.log_position..] {
            match frame {
                ClientFrame::Event(event) => self.events.push((*at, event.clone())),
                ClientFrame::Binary(_) => panic!("a binary frame"),
                ClientFrame::Close(..) => {}
            }
        }
        self.log_position = self.harness.log.len();
    }

    fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().map(|(_, event)| event).filter(|event| event["type"] == kind).collect()
    }

    fn types(&self) -> Vec<&str> {
        self.events.iter().filter_map(|(_, event)| event["type"].as_str()).collect()
    }

    /// All audio received, in seconds.
    fn audio_s(&self) -> f64 {
        let bytes = |event: &&Value| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len();
        let total: usize = self.of_type("response.output_audio.delta").iter().map(bytes).sum();
        total as f64 / 48_000.0
    }

    /// Checks the whole session's events.
    fn check(&self) {
        let mut ids = BTreeSet::new();
        let mut open: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut active: Option<String> = None;
        for (_, event) in &self.events {
            let kind = event["type"].as_str().expect("an event without a type");
            assert!(ids.insert(event["event_id"].as_str().expect("no event_id")), "repeated id: {event}");
            match kind {
                "response.created" => {
                    assert_eq!(active, None, "two responses at once");
                    active = event["response"]["id"].as_str().map(str::to_owned);
                }
                "response.done" => {
                    assert_eq!(active.take().as_deref(), event["response"]["id"].as_str());
                    assert!(open.is_empty(), "unfinished at response.done: {open:?}");
                    assert_ne!(event["response"]["status"], "in_progress");
                }
                "response.content_part.added" => {
                    open.insert(event["item_id"].as_str().unwrap().to_owned(), Vec::new());
                }
                "response.content_part.done" => {
                    open.remove(event["item_id"].as_str().unwrap()).expect("a part that was never added");
                }
                "response.function_call_arguments.delta"
                | "response.function_call_arguments.done"
                | "response.mcp_call_arguments.delta"
                | "response.mcp_call_arguments.done" => {
                    assert_eq!(active.as_deref(), event["response_id"].as_str(), "a stale call: {event}");
                }
                _ if kind.starts_with("response.") && kind.ends_with(".delta") => {
                    assert_eq!(active.as_deref(), event["response_id"].as_str(), "a stale delta: {event}");
                    let item = event["item_id"].as_str().unwrap();
                    open.get_mut(item).expect("a delta before its part").push(kind);
                }
                _ => {}
            }
        }
    }
}

fn config(query: &str) -> HarnessConfig {
    HarnessConfig::of("openai-realtime", "assistant", query)
}

/// A recording at 24 kHz: every second sample of 16 kHz is repeated, which the detector does not mind.
fn speech() -> Vec<i16> {
    let slow = recording("jfk_16k.wav");
    let second = &slow[..slow.len().min(16_000 * 3)];
    second.chunks(2).flat_map(|pair| [pair[0], pair[0], *pair.last().unwrap()]).collect()
}
