//! One session of the legacy dialect on its worker: prepare, answer appends one after the other, end (field notes §4).
//!
//! The real server and its document are two things, and this can be either: the real one forgives almost everything, gives
//! one error that ends nothing, and breaks the connection where the document has a reason and a close frame. What the
//! model does with an append is the same as in the current dialect (`duplex`).

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

use super::{
    EngineAnswer, FaultKind, JobId, Mode,
    backlog::{Backlog, TOO_MUCH},
    duplex::{DEFAULT_PROMPT, Duplex},
    messages, python,
    session_context::{Bench, Ending},
};
use crate::audio::{SPEECH_RATE_HZ, wav};

/// What stands around the instructions; `prompt_length` counts it (field notes §6.4: 94 for 36 characters).
const AROUND_PROMPT: &str = "<|im_start|>system\n\n<|audio_start|><|audio_end|><|im_end|>";

/// The least audio of an append, by the document: 250 ms.
const APPEND_MIN_SAMPLES: usize = 4_000;

/// The longest voice sample that is read as a WAV file.
const VOICE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Stage {
    /// For the first `session.update`.
    Waiting,
    /// Until `session.created`.
    Preparing { until: Instant, session: Map<String, Value> },
    /// With its model.
    Live(Box<Duplex>),
}

/// One session.
#[derive(Debug)]
pub(super) struct Legacy {
    sees: bool,
    /// As the document says, not as the real server does.
    documented: bool,
    /// When the watchdog ends it.
    limit: Option<Instant>,
    stage: Stage,
    inbox: Backlog<Map<String, Value>>,
    closing: Option<Instant>,
}

impl Legacy {
    pub(super) fn new(mode: Mode, documented: bool, limit: Option<Instant>) -> Self {
        Self {
            sees: mode == Mode::Video,
            documented,
            limit,
            stage: Stage::Waiting,
            inbox: Backlog::default(),
            closing: None,
        }
    }

    /// A text frame from the client.
    pub(super) fn text(&mut self, text: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        if self.closing.is_some() {
            return Ok(());
        }
        let Ok(Value::Object(message)) = serde_json::from_str(text) else { return self.unreadable() };
        if message.get("type").and_then(Value::as_str) == Some("session.close") {
            let at = bench.now + bench.cfg.timing.close;
            self.closing = Some(self.step_end().map_or(at, |end| end.max(at)));
            return Ok(());
        }
        if !self.inbox.push(message, text.len()) {
            return Err(Ending::Failed(TOO_MUCH));
        }
        self.work(bench)
    }

    /// What is no JSON object: the real server breaks the connection, the document closes it.
    pub(super) const fn unreadable(&self) -> Result<(), Ending> {
        Err(if self.documented { Ending::Unsupported } else { Ending::Aborted })
    }

    /// Takes the next messages, as long as nothing is under way.
    fn work(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        while self.is_idle() && self.closing.is_none() {
            let Some(message) = self.inbox.pop() else { return Ok(()) };
            match message.get("type").and_then(Value::as_str) {
                Some("session.update") => self.update(message, bench),
                Some("input_audio_buffer.append") => self.append(&message, bench)?,
                Some(name) if self.documented => {
                    say_error(bench, "unknown_event", &format!("unknown event '{name}'"));
                }
                None if self.documented => say_error(bench, "missing_field", "missing field 'type'"),
                _ => {}
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        match &self.stage {
            Stage::Waiting => true,
            Stage::Preparing { .. } => false,
            Stage::Live(duplex) => !duplex.busy(),
        }
    }

    /// Nothing of it is required by the real server, which prepares anew each time.
    fn update(&mut self, mut message: Map<String, Value>, bench: &mut Bench<'_>) {
        let session = match message.remove("session") {
            Some(Value::Object(session)) => session,
            _ => Map::new(),
        };
        if self.documented {
            if matches!(self.stage, Stage::Live(_)) {
                return say_error(bench, "unknown_event", "session.update is taken once");
            }
            if !session.get("instructions").is_some_and(Value::is_string) {
                return say_error(bench, "missing_field", "missing field 'instructions'");
            }
        }
        let slow = bench.faults.strike(|kind| match kind {
            FaultKind::SlowInit(by) => Some(by),
            _ => None,
        });
        let until = bench.now + bench.cfg.timing.init + slow.unwrap_or_default();
        self.stage = Stage::Preparing { until, session };
    }

    fn prepared(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Preparing { session, .. } = std::mem::replace(&mut self.stage, Stage::Waiting) else {
            return Ok(());
        };
        if bench.faults.hits(FaultKind::DieBeforeCreated) {
            return self.dies(bench);
        }
        let duplex = match payload(&session, self.documented) {
            Some(payload) => Duplex::prepare(self.sees, &payload, bench).ok(),
            None => None,
        };
        match duplex {
            Some(duplex) => {
                let prompt = session.get("instructions").and_then(Value::as_str).unwrap_or(DEFAULT_PROMPT);
                let length = prompt.chars().count() + AROUND_PROMPT.chars().count();
                let id = format!("rt_{:.0}", bench.seconds() * 1000.0);
                let created = json!({"type": "session.created", "session_id": id, "prompt_length": length});
                bench.say(created.to_string());
                self.stage = Stage::Live(Box::new(duplex));
            }
            None if self.documented => say_error(bench, "invalid_payload", "invalid session"),
            None => return Err(Ending::Aborted),
        }
        self.work(bench)
    }

    fn append(&mut self, message: &Map<String, Value>, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Stage::Live(duplex) = &mut self.stage else {
            match self.documented {
                true => say_error(bench, "not_ready", "the session is not ready"),
                false => say_failure(bench, false, "Streaming processor not initialized"),
            }
            return Ok(());
        };
        let audio = message.get("audio").and_then(Value::as_str).filter(|text| !text.is_empty());
        match (audio.map(python::float32), self.documented) {
            (None, true) => say_error(bench, "missing_field", "missing field 'audio'"),
            (None, false) => say_failure(bench, false, "Missing audio_base64"),
            (Some(Err(_)), true) => say_error(bench, "invalid_payload", "audio base64 decode failed"),
            (Some(Err(_)), false) => return Err(Ending::Aborted),
            (Some(Ok(samples)), true) if samples.len() < APPEND_MIN_SAMPLES => {
                say_error(bench, "invalid_payload", "audio is shorter than 250 ms");
            }
            (Some(Ok(_)), _) => {
                let known = ["audio", "force_listen", "video_frames", "max_slice_nums"];
                let known =
                    known.iter().filter_map(|key| Some(((*key).to_owned(), message.get(*key)?.clone())));
                duplex.begin("", &known.collect(), bench)?;
            }
        }
        Ok(())
    }

    /// The engines' answer; ignored if it is not for this session.
    pub(super) fn engine(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) {
        if let Stage::Live(duplex) = &mut self.stage {
            duplex.answered(job, answer, bench);
        }
    }

    /// The next instant at which something happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let work = match &self.stage {
            Stage::Waiting => None,
            Stage::Preparing { until, .. } => Some(*until),
            Stage::Live(duplex) => duplex.next(),
        };
        [work, self.closing, self.limit].into_iter().flatten().min()
    }

    /// Does the earliest thing that is due; of two at one instant, the answer comes before the end.
    pub(super) fn tick(&mut self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= bench.now);
        match &mut self.stage {
            Stage::Preparing { until, .. } if due(Some(*until)) => return self.prepared(bench),
            Stage::Live(duplex) if due(duplex.next()) => {
                duplex.step("", bench)?;
                return self.work(bench);
            }
            _ => {}
        }
        if due(self.closing) {
            return self.closed("stopped", bench);
        }
        if !due(self.limit) {
            return Ok(());
        }
        match &self.stage {
            // Who has said once that the context is full says nothing of the time.
            Stage::Live(duplex) if duplex.was_full() => Err(Ending::Aborted),
            _ => self.closed("timeout", bench),
        }
    }

    fn closed(&self, reason: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        bench.say(messages::legacy_closed(reason));
        Err(if self.documented { Ending::Polite } else { Ending::Aborted })
    }

    fn dies(&self, bench: &mut Bench<'_>) -> Result<(), Ending> {
        if self.documented { self.closed("error", bench) } else { Err(Ending::Aborted) }
    }

    /// The end of a step that an end of the session does not interrupt.
    pub(super) fn step_end(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Live(duplex) => duplex.step_end(),
            _ => None,
        }
    }
}

/// A `session.update` as the current dialect's payload; none when its voice is not written as it has to be.
fn payload(session: &Map<String, Value>, documented: bool) -> Option<Map<String, Value>> {
    let mut payload = Map::new();
    for (ours, theirs) in [("instructions", "instructions"), ("voice_config", "config")] {
        payload.extend(session.get(ours).map(|value| (theirs.to_owned(), value.clone())));
    }
    for key in ["ref_audio", "tts_ref_audio"] {
        let Some(text) = session.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            continue;
        };
        let voice = if documented { Cow::Owned(unwrapped(text)?) } else { Cow::Borrowed(text) };
        payload.insert(key.to_owned(), voice.into());
    }
    Some(payload)
}

/// A WAV file of 16 kHz as raw float32, both in base64; none for anything else.
fn unwrapped(text: &str) -> Option<String> {
    let bytes = python::base64(text).ok().filter(|bytes| bytes.starts_with(b"RIFF"))?;
    let (samples, rate_hz) = wav::read(&bytes, VOICE_MAX).ok()?;
    (rate_hz == SPEECH_RATE_HZ).then(|| messages::base64_f32(&samples))
}

fn say_error(bench: &mut Bench<'_>, code: &str, message: &str) {
    bench.say(messages::client_error(code, message));
}

/// The one error that ends nothing, in the real server and in the document.
pub(super) fn say_failure(bench: &mut Bench<'_>, documented: bool, message: &str) {
    let code = if documented { "inference_error" } else { "inference_failed" };
    bench.say(messages::error(code, message));
}
