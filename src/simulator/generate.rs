//! One answer being generated: first its text, then its speech, then the deltas at their times.
//!
//! A generation cannot be stopped from outside (field notes §2). When its session ends, the worker's model keeps what is
//! left of it (`model`), and whatever is generated meanwhile comes out corrupted.

use std::{
    collections::VecDeque,
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    Backend, EngineAnswer, EngineRequest, FaultKind, JobId,
    chat::ChatRequest,
    hum_voice::{Hum, SAMPLE_RATE_HZ, Sound},
    messages::{self, Event, Metrics},
    script,
    session_context::{Bench, Emit, Ending},
};

/// Characters of text that accompany a second of speech (field notes §6.2).
const CHARS_PER_SPEECH_DELTA: usize = 16;

/// What the streaming generator raises when its first token ends the answer (field notes §2).
const EMPTY_ANSWER: &str = "torch.cat(): expected a non-empty list of Tensors";

#[derive(Debug)]
enum Step {
    Text(String),
    Audio(Range<usize>),
    Done,
    Crash(String),
    Abort,
}

/// One answer.
#[derive(Debug)]
pub(super) struct Generation {
    request: ChatRequest,
    pub(super) response_id: String,
    started: Instant,
    corrupted: bool,
    pub(super) job: Option<JobId>,
    text: String,
    sound: Option<Sound>,
    steps: VecDeque<(Instant, Step)>,
}

impl Generation {
    /// Starts to answer; `voice` is the session's reference.
    pub(super) fn begin(
        mut request: ChatRequest,
        response_id: String,
        voice: Option<&[f32]>,
        bench: &mut Bench<'_>,
    ) -> Self {
        if let (true, Some(samples)) = (bench.cfg.record, &request.heard) {
            bench.emit(Emit::Heard(samples.clone()));
        }
        // C++ parses the request's own reference and does not use it (field notes §1.7).
        request.voice = request.voice.or_else(|| voice.map(<[f32]>::to_vec));
        let corrupted = bench.model.busy(bench.now);
        let mut generation = Self {
            response_id,
            started: bench.now,
            corrupted,
            job: None,
            text: String::new(),
            sound: None,
            steps: VecDeque::new(),
            request,
        };
        generation.find_text(bench);
        generation
    }

    fn find_text(&mut self, bench: &mut Bench<'_>) {
        let Some(samples) = self.request.heard.take() else {
            let text = script::answer(&self.request.user_text, self.request.speaks);
            return self.text_found(&text, bench);
        };
        if bench.faults.hits(FaultKind::EmptyTranscript) {
            self.text_found("", bench);
        } else if bench.cfg.engines {
            self.job = Some(bench.ask(EngineRequest::Recognise(samples)));
        } else {
            self.text_found(&script::transcript(samples.len()), bench);
        }
    }

    fn text_found(&mut self, text: &str, bench: &mut Bench<'_>) {
        let text = if self.corrupted { format!("{}{text}", script::CORRUPTED) } else { text.to_owned() };
        let bans = bench.cfg.backend == Backend::Pytorch && self.request.speaks && self.request.streaming;
        let text = if bans { script::without_banned(&text) } else { text };
        self.text = script::truncate(&text, self.request.max_new_tokens).to_owned();
        if !self.request.speaks || self.text.is_empty() || bench.faults.hits(FaultKind::NoAudio) {
            self.plan(bench);
        } else if bench.cfg.engines {
            self.job = Some(bench.ask(EngineRequest::Speak(self.text.clone())));
        } else {
            self.sound = Some(Sound::Synthetic(Hum::new(&self.text, self.request.voice.as_deref())));
            self.plan(bench);
        }
    }

    /// The engines' answer; `false` if it is not this generation's.
    pub(super) fn answered(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) -> bool {
        if self.job != Some(job) {
            return false;
        }
        self.job = None;
        match answer {
            EngineAnswer::Transcript(Ok(text)) => self.text_found(text.trim(), bench),
            EngineAnswer::Speech(Ok(samples)) => {
                self.sound = (!samples.is_empty()).then(|| Sound::Given(samples.clone()));
                self.plan(bench);
            }
            // A failed synthesis is swallowed when nothing is streamed (field notes §2).
            EngineAnswer::Speech(Err(_)) if !self.request.streaming => self.plan(bench),
            EngineAnswer::Speech(Err(why)) | EngineAnswer::Transcript(Err(why)) => {
                self.steps.push_back((bench.now, Step::Crash(why.clone())));
            }
        }
        true
    }

    fn plan(&mut self, bench: &mut Bench<'_>) {
        let timing = &bench.cfg.timing;
        let first = (self.started + timing.first_delta).max(bench.now);
        if self.text.is_empty() && self.request.streaming && bench.cfg.backend == Backend::Pytorch {
            self.steps.push_back((first, Step::Crash(EMPTY_ANSWER.to_owned())));
            return;
        }
        let end = match (&self.sound, self.request.streaming) {
            (Some(sound), streaming) => {
                let units = sound.len().div_ceil(SAMPLE_RATE_HZ);
                let end = times(first, timing.speech_second, units.saturating_sub(1));
                if streaming { self.plan_speech(first, timing.speech_second, units) } else { end }
            }
            (None, true) => self.plan_text(first, timing.text_delta),
            (None, false) => first,
        };
        self.steps.push_back((end, Step::Done));
        self.meet_fate(bench);
    }

    fn plan_text(&mut self, first: Instant, pace: Duration) -> Instant {
        let deltas = script::text_deltas(&self.text);
        let end = times(first, pace, deltas.len().saturating_sub(1));
        for (index, delta) in deltas.into_iter().enumerate() {
            self.steps.push_back((times(first, pace, index), Step::Text(delta)));
        }
        end
    }

    fn plan_speech(&mut self, first: Instant, pace: Duration, units: usize) -> Instant {
        let texts = script::spoken_deltas(&self.text, CHARS_PER_SPEECH_DELTA, units);
        for (index, text) in texts.into_iter().enumerate() {
            let at = times(first, pace, index);
            if !text.is_empty() {
                self.steps.push_back((at, Step::Text(text)));
            }
            self.steps.push_back((at, Step::Audio(index * SAMPLE_RATE_HZ..(index + 1) * SAMPLE_RATE_HZ)));
        }
        times(first, pace, units.saturating_sub(1))
    }

    /// The faults that strike in the middle of an answer replace what would have come next.
    fn meet_fate(&mut self, bench: &mut Bench<'_>) {
        let fate = bench.faults.strike(|kind| match kind {
            FaultKind::DieMidAnswer(deltas) => Some((deltas, true)),
            FaultKind::DropMidAnswer(deltas) => Some((deltas, false)),
            _ => None,
        });
        let Some((deltas, dies)) = fate else { return };
        let at = (deltas as usize).min(self.steps.len() - 1);
        if let Some((_, step)) = self.steps.get_mut(at) {
            *step = if dies { Step::Crash("simulated: the generator died".to_owned()) } else { Step::Abort };
        }
        self.steps.truncate(at + 1);
    }

    /// When the next delta is due; `None` while the engines work and when all is said.
    pub(super) fn next(&self) -> Option<Instant> {
        self.steps.front().map(|(at, _)| *at)
    }

    /// When the last delta is due.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.steps.back().map(|(at, _)| *at)
    }

    /// Says what is due; `true` when the answer is complete.
    pub(super) fn step(&mut self, session_id: &str, bench: &mut Bench<'_>) -> Result<bool, Ending> {
        let Some((_, step)) = self.steps.pop_front() else { return Ok(true) };
        match step {
            Step::Text(text) => self.delta(session_id, Some(&text), None, bench),
            Step::Audio(range) => {
                let audio = self.sound.as_ref().map(|sound| messages::base64_f32(&sound.samples(range)));
                self.delta(session_id, None, audio, bench);
            }
            Step::Done => {
                self.done(session_id, bench);
                return Ok(true);
            }
            Step::Crash(message) => {
                bench.say(match bench.cfg.backend {
                    Backend::Pytorch => bench.closed(session_id, "backend_error", Some(&message)),
                    Backend::Cpp => messages::worker_closed(Some(session_id)),
                });
                return Err(Ending::Polite);
            }
            Step::Abort => return Err(Ending::Aborted),
        }
        Ok(false)
    }

    /// Chat deltas carry metrics only from C++ (field notes §1.3; its own builders).
    fn delta(&self, session_id: &str, text: Option<&str>, audio: Option<String>, bench: &mut Bench<'_>) {
        let metrics = (bench.cfg.backend == Backend::Cpp)
            .then(|| Metrics::new(Backend::Cpp, bench.model.kv_cache_length + self.tokens()));
        let event = Event {
            name: "response.output.delta",
            kind: Some(if text.is_some() { "text" } else { "audio" }),
            session_id: Some(Some(session_id)),
            response_id: Some(&self.response_id),
            input_id: self.request.input_id.as_ref(),
            text,
            audio: audio.map(Some),
            metrics,
            server_send_ts: Some(bench.seconds()),
            ..Event::default()
        };
        bench.say(event.write(bench.cfg.backend));
    }

    fn done(&self, session_id: &str, bench: &mut Bench<'_>) {
        let backend = bench.cfg.backend;
        // PyTorch starts every append from zero, C++ adds to what is there (field notes §1.7, §2).
        let kept = if backend == Backend::Cpp { bench.model.kv_cache_length } else { 0 };
        bench.model.kv_cache_length = kept + self.tokens();
        let whole = self.sound.as_ref().filter(|_| !self.request.streaming);
        let audio = whole.map(|sound| messages::base64_f32(&sound.samples(0..sound.len())));
        let event = Event {
            name: "response.done",
            session_id: Some(Some(session_id)),
            response_id: Some(&self.response_id),
            input_id: self.request.input_id.as_ref(),
            text: Some(&self.text),
            audio: if backend == Backend::Cpp { Some(audio) } else { audio.map(Some) },
            reason: Some("turn_end"),
            metrics: Some(Metrics::new(backend, bench.model.kv_cache_length)),
            server_send_ts: Some(bench.seconds()),
            ..Event::default()
        };
        bench.say(event.write(backend));
    }

    fn tokens(&self) -> u64 {
        (self.request.prompt_tokens + script::tokens(&self.text)) as u64
    }
}

/// `start + pace * count`; a count beyond `u32` cannot be reached, the answer's length is bounded.
fn times(start: Instant, pace: Duration, count: usize) -> Instant {
    start + pace * u32::try_from(count).unwrap_or(u32::MAX)
}
