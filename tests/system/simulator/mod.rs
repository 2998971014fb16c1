//! The simulated gateway in virtual time, frame by frame.

mod chat_faults;
mod chat_wire_format;
mod duplex;
mod duplex_faults;
mod duplex_input;
mod engines;
mod gateway_properties;
mod http_page;
mod key_order;
mod legacy;
mod llama_cpp_omni;
mod openai;
mod queue;
mod session_end;
mod sglang_omni;
mod socket;
mod validation;
mod vllm_omni;

use std::time::Instant;

use duplex::decode_audio;
use voxbridge::simulator::{
    CORRUPTED_PREFIX, DuplexOpening, EngineAnswer, EngineRequest, JobId, SimInput, SimMode, SimOutput,
    watermark_sample,
};
use voxbridge_test_support::world::{gateway::VirtualGateway, session::epoch};

use super::*;

/// Unix time of the captures.
const UNIX_START: Duration = Duration::from_millis(1_795_148_864_000);

/// An output to one connection.
#[derive(Debug, Clone, PartialEq)]
enum ServerOutput {
    Event(Value),
    Close(u16, String),
    Abort,
    Refuse(u16),
}

/// A gateway with a virtual clock and all its outputs.
struct TestGateway {
    gateway: VirtualGateway,
    started: Instant,
    now: Instant,
    log: Vec<(ConnId, Duration, ServerOutput)>,
    outputs: Vec<SimOutput>,
    connection_count: u64,
}

impl TestGateway {
    fn new(cfg: SimulatorConfig) -> Self {
        let (gateway, started) = (VirtualGateway::new(cfg, epoch(), UNIX_START), epoch());
        Self { gateway, started, now: started, log: Vec::new(), outputs: Vec::new(), connection_count: 0 }
    }

    fn with_faults(faults: &[&str]) -> Self {
        let faults = faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect();
        Self::new(SimulatorConfig { faults, ..SimulatorConfig::default() })
    }

    fn with_backend(backend: Backend) -> Self {
        Self::new(SimulatorConfig { backend, ..SimulatorConfig::default() })
    }

    fn input(&mut self, input: SimInput<'_>) {
        for output in self.gateway.input(self.now, input) {
            let sent = match &output {
                SimOutput::Text(conn, text) => {
                    Some((*conn, ServerOutput::Event(serde_json::from_str(text).unwrap())))
                }
                SimOutput::Close(conn, code, reason) => {
                    Some((*conn, ServerOutput::Close(*code, reason.clone())))
                }
                SimOutput::Abort(conn) => Some((*conn, ServerOutput::Abort)),
                SimOutput::Refuse(conn, page) => Some((*conn, ServerOutput::Refuse(page.status))),
                _ => None,
            };
            self.outputs.push(output);
            self.log.extend(sent.map(|(conn, sent)| (conn, self.now - self.started, sent)));
        }
    }

    /// Lets time pass, stopping at every deadline.
    fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.gateway.wait.filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.input(SimInput::Timeout);
        }
        self.now = end;
        self.input(SimInput::Timeout);
    }

    fn connect(&mut self) -> ConnId {
        self.connect_with_mode(SimMode::Chat)
    }

    fn connect_with_mode(&mut self, mode: SimMode) -> ConnId {
        self.connection_count += 1;
        let conn = ConnId(self.connection_count);
        self.input(SimInput::Connected(conn, mode));
        conn
    }

    fn send(&mut self, conn: ConnId, message: &Value) {
        self.input(SimInput::Text(conn, &message.to_string()));
    }

    /// Opens a chat session; the log ends with `session.created`.
    fn open_chat_session(&mut self) -> ConnId {
        let conn = self.connect();
        self.send(conn, &json!({"type": "session.init", "payload": {}}));
        self.advance(Duration::from_millis(40));
        assert_eq!(self.last_event(conn)["type"], "session.created");
        conn
    }

    fn send_append(&mut self, conn: ConnId, input: Value) {
        self.send(conn, &json!({"type": "input.append", "input": input}));
    }

    /// Sends an append and waits for the answer.
    fn append_and_wait(&mut self, conn: ConnId, input: Value) {
        self.send_append(conn, input);
        self.advance(Duration::from_secs(60));
    }

    fn close_session(&mut self, conn: ConnId, reason: &str) {
        self.send(conn, &json!({"type": "session.close", "reason": reason}));
        self.advance(Duration::from_millis(20));
    }

    fn outputs_of(&self, conn: ConnId) -> Vec<ServerOutput> {
        self.log.iter().filter(|(to, ..)| *to == conn).map(|(.., output)| output.clone()).collect()
    }

    fn events_of(&self, conn: ConnId) -> Vec<Value> {
        let event = |output| if let ServerOutput::Event(event) = output { Some(event) } else { None };
        self.outputs_of(conn).into_iter().filter_map(event).collect()
    }

    /// The last event of a connection.
    fn last_event(&self, conn: ConnId) -> Value {
        self.events_of(conn).pop().unwrap_or_default()
    }

    fn end_of(&self, conn: ConnId) -> Option<ServerOutput> {
        self.outputs_of(conn).pop().filter(|output| !matches!(output, ServerOutput::Event(_)))
    }

    /// The requests to the engines that are still open, newest last.
    fn engine_jobs(&self) -> Vec<(JobId, EngineRequest)> {
        let job = |output: &SimOutput| match output {
            SimOutput::AskEngines(job, request) => Some((*job, request.clone())),
            _ => None,
        };
        self.outputs.iter().filter_map(job).collect()
    }

    fn answer_job(&mut self, job: JobId, answer: EngineAnswer) {
        self.input(SimInput::EngineDone(job, answer));
    }
}

fn normal_close() -> Option<ServerOutput> {
    Some(ServerOutput::Close(1000, String::new()))
}

fn event_names(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| match event["kind"].as_str() {
        Some(kind) => kind.to_owned(),
        None => event["type"].as_str().unwrap_or("?").to_owned(),
    };
    events.iter().map(name).collect()
}

/// Base64 of raw little-endian float32.
fn base64_f32(samples: &[f32]) -> String {
    STANDARD.encode(samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
}

fn speech_base64(samples: usize) -> String {
    base64_f32(&vec![0.25; samples])
}

fn asr_request(samples: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Please listen to the audio snippet carefully and transcribe the content."},
            {"type": "audio", "data": speech_base64(samples)},
        ]}],
        "streaming": true, "tts": {"enabled": false},
    })
}

fn tts_request(text: &str, streaming: bool) -> Value {
    json!({
        "messages": [{"role": "user", "content": format!("请朗读以下内容。 {text}")}],
        "streaming": streaming, "tts": {"enabled": true}, "generation": {"max_new_tokens": 2048},
    })
}
