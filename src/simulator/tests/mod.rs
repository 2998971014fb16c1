//! The gateway in virtual time: what a client sees, frame by frame.

mod duplex;
mod duplex_faults;
mod duplex_input;
mod ends;
mod engines;
mod faults;
mod legacy;
mod properties;
mod queue;
mod shapes;
#[cfg(feature = "io")]
mod socket;
mod validation;

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Backend, ConnId, EngineAnswer, Fault, Gateway, JobId, Mode, SimInput, SimOutput, SimulatorConfig,
    messages::base64_f32,
};

/// Unix time of the captures.
const UNIX: Duration = Duration::from_millis(1_795_148_864_000);

/// What one connection saw.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Event(Value),
    Close(u16, String),
    Drop,
}

/// A gateway, a virtual clock and everything that came out.
struct Lab {
    gateway: Gateway,
    started: Instant,
    now: Instant,
    log: Vec<(ConnId, Duration, Seen)>,
    raw: Vec<SimOutput>,
    connections: u64,
}

impl Lab {
    fn new(cfg: SimulatorConfig) -> Self {
        static EPOCH: OnceLock<Instant> = OnceLock::new();
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant has no other source; only differences count"
        )]
        let started = *EPOCH.get_or_init(Instant::now);
        let gateway = Gateway::new(cfg, started, UNIX);
        Self { gateway, started, now: started, log: Vec::new(), raw: Vec::new(), connections: 0 }
    }

    fn with_faults(faults: &[&str]) -> Self {
        let faults = faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect();
        Self::new(SimulatorConfig { faults, ..SimulatorConfig::default() })
    }

    fn on(backend: Backend) -> Self {
        Self::new(SimulatorConfig { backend, ..SimulatorConfig::default() })
    }

    fn input(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(self.now, input);
        self.drain();
    }

    /// Takes all outputs; the bound is the test that there is one.
    fn drain(&mut self) -> Option<Instant> {
        for _ in 0..10_000 {
            let output = self.gateway.poll_output(self.now);
            let (conn, seen) = match &output {
                SimOutput::Wait(until) => return *until,
                SimOutput::Text(conn, text) => (*conn, Seen::Event(serde_json::from_str(text).unwrap())),
                SimOutput::Close(conn, code, reason) => (*conn, Seen::Close(*code, reason.clone())),
                SimOutput::Drop(conn) => (*conn, Seen::Drop),
                SimOutput::Engine(..)
                | SimOutput::Heard(..)
                | SimOutput::Opened(..)
                | SimOutput::Unit(..) => {
                    self.raw.push(output);
                    continue;
                }
            };
            self.raw.push(output);
            self.log.push((conn, self.now - self.started, seen));
        }
        panic!("poll_output never waits");
    }

    /// Lets time pass, stopping at every deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.drain().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.input(SimInput::Timeout);
        }
        self.now = end;
        self.input(SimInput::Timeout);
    }

    fn connect(&mut self) -> ConnId {
        self.connect_to(Mode::Chat)
    }

    fn connect_to(&mut self, mode: Mode) -> ConnId {
        self.connections += 1;
        let conn = ConnId(self.connections);
        self.input(SimInput::Connected(conn, mode));
        conn
    }

    fn send(&mut self, conn: ConnId, message: &Value) {
        self.input(SimInput::Text(conn, &message.to_string()));
    }

    /// Connects and initialises; the log ends with `session.created`.
    fn session(&mut self) -> ConnId {
        let conn = self.connect();
        self.send(conn, &json!({"type": "session.init", "payload": {}}));
        self.pass(Duration::from_millis(40));
        assert_eq!(self.last(conn)["type"], "session.created");
        conn
    }

    fn append(&mut self, conn: ConnId, input: Value) {
        self.send(conn, &json!({"type": "input.append", "input": input}));
    }

    /// Sends an append and waits for whatever comes of it.
    fn ask(&mut self, conn: ConnId, input: Value) {
        self.append(conn, input);
        self.pass(Duration::from_secs(60));
    }

    fn close(&mut self, conn: ConnId, reason: &str) {
        self.send(conn, &json!({"type": "session.close", "reason": reason}));
        self.pass(Duration::from_millis(20));
    }

    fn seen(&self, conn: ConnId) -> Vec<Seen> {
        self.log.iter().filter(|(to, ..)| *to == conn).map(|(.., seen)| seen.clone()).collect()
    }

    fn events(&self, conn: ConnId) -> Vec<Value> {
        let event = |seen| if let Seen::Event(event) = seen { Some(event) } else { None };
        self.seen(conn).into_iter().filter_map(event).collect()
    }

    /// The last event of a connection.
    fn last(&self, conn: ConnId) -> Value {
        self.events(conn).pop().unwrap_or_default()
    }

    fn ended(&self, conn: ConnId) -> Option<Seen> {
        self.seen(conn).pop().filter(|seen| !matches!(seen, Seen::Event(_)))
    }

    /// The engines' requests that were not answered yet are the last ones asked.
    fn jobs(&self) -> Vec<(JobId, super::EngineRequest)> {
        let job = |output: &SimOutput| match output {
            SimOutput::Engine(job, request) => Some((*job, request.clone())),
            _ => None,
        };
        self.raw.iter().filter_map(job).collect()
    }

    fn engine(&mut self, job: JobId, answer: EngineAnswer) {
        self.input(SimInput::EngineDone(job, answer));
    }
}

fn polite() -> Option<Seen> {
    Some(Seen::Close(1000, String::new()))
}

fn names(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| match event["kind"].as_str() {
        Some(kind) => kind.to_owned(),
        None => event["type"].as_str().unwrap_or("?").to_owned(),
    };
    events.iter().map(name).collect()
}

fn speech(samples: usize) -> String {
    base64_f32(&vec![0.25; samples])
}

fn asr(samples: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Please listen to the audio snippet carefully and transcribe the content."},
            {"type": "audio", "data": speech(samples)},
        ]}],
        "streaming": true, "tts": {"enabled": false},
    })
}

fn tts(text: &str, streaming: bool) -> Value {
    json!({
        "messages": [{"role": "user", "content": format!("请朗读以下内容。 {text}")}],
        "streaming": streaming, "tts": {"enabled": true}, "generation": {"max_new_tokens": 2048},
    })
}
