//! Generation of one chat answer: first the text, then the speech, then the deltas at their times.
//!
//! A generation cannot be stopped from outside (mappings/notes/minicpm-o.md#stopping-a-chat). When its session ends,
//! the worker's model keeps the rest of it (`model`). Any answer generated meanwhile is corrupted.

use std::{
    collections::VecDeque,
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    Backend, EngineAnswer, EngineRequest, FaultKind, JobId, SimOutput,
    chat::ChatRequest,
    hum_voice::{HumVoice, SAMPLE_RATE_HZ, SpeechSource},
    messages::{self, EventMetrics, ServerEvent},
    model::OrphanedGeneration,
    script,
    session_context::{SimContext, SimSessionEnd},
    tool_script::{self, FunctionCall},
};

/// Characters of text per second of speech (mappings/notes/minicpm-o.md#exchanges).
const CHARS_PER_SPEECH_DELTA: usize = 16;

/// Exception of the streaming generator when its first token ends the answer (mappings/notes/minicpm-o.md#chat).
const EMPTY_ANSWER_EXCEPTION: &str = "torch.cat(): expected a non-empty list of Tensors";

/// What happens at one instant.
#[derive(Debug)]
enum GenerationStep {
    Text(String),
    Audio(Range<usize>),
    Done,
    Crash(String),
    Abort,
}

/// A piece of an answer, as it is generated.
#[derive(Debug)]
pub(super) enum AnswerPiece {
    Text(String),
    /// Samples at 24 kHz.
    Audio(Vec<f32>),
    /// The answer is complete.
    Done,
    /// The generator failed, with this text.
    Crash(String),
    /// The TCP connection breaks.
    Abort,
}

/// One answer being generated.
#[derive(Debug)]
pub(super) struct Generation {
    request: ChatRequest,
    response_id: String,
    started: Instant,
    is_corrupted: bool,
    pending_job: Option<JobId>,
    text: String,
    /// The limit of tokens cut the text.
    is_cut: bool,
    speech: Option<SpeechSource>,
    steps: VecDeque<(Instant, GenerationStep)>,
}

impl Generation {
    /// Starts a generation; `voice` is the session's voice reference.
    pub(super) fn start(
        mut request: ChatRequest,
        response_id: String,
        voice: Option<&[f32]>,
        ctx: &mut SimContext<'_>,
    ) -> Self {
        if let Some(samples) = &request.user_audio {
            ctx.record(|conn| SimOutput::AsrAudio(conn, samples.clone()));
        }
        // C++ parses the request's own reference but does not use it (mappings/notes/llama-cpp-omni.md#chat).
        request.voice_reference = request.voice_reference.or_else(|| voice.map(<[f32]>::to_vec));
        let is_corrupted = ctx.model.has_running_orphan(ctx.now);
        let mut generation = Self {
            response_id,
            started: ctx.now,
            is_corrupted,
            pending_job: None,
            text: String::new(),
            is_cut: false,
            speech: None,
            steps: VecDeque::new(),
            request,
        };
        generation.determine_text(ctx);
        generation
    }

    fn determine_text(&mut self, ctx: &mut SimContext<'_>) {
        if let Some(answer) = self.scripted_answer(ctx) {
            return self.handle_text(&answer, ctx);
        }
        let Some(samples) = self.request.user_audio.take() else {
            let ChatRequest { system_text, user_text, speech_enabled, .. } = &self.request;
            let text = tool_script::simulated_answer(system_text, user_text)
                .unwrap_or_else(|| script::simulated_answer(user_text, *speech_enabled));
            return self.handle_text(&text, ctx);
        };
        if ctx.faults.trigger(FaultKind::EmptyTranscript) {
            self.handle_text("", ctx);
        } else if ctx.cfg.use_engines {
            self.pending_job = Some(ctx.ask_engines(EngineRequest::Recognise(samples)));
        } else {
            self.handle_text(&script::simulated_transcript(samples.len()), ctx);
        }
    }

    /// The next answer of the script, unless the request is for speech or for a transcript.
    fn scripted_answer(&self, ctx: &mut SimContext<'_>) -> Option<String> {
        let ChatRequest { user_audio, user_text, speech_enabled, system_text, .. } = &self.request;
        let reads_aloud = *speech_enabled && user_text.contains(script::READ_ALOUD_PROMPT);
        let transcribes = user_audio.is_some() && system_text.is_empty();
        let next = usize::try_from(*ctx.answer_count).ok().filter(|_| !reads_aloud && !transcribes)?;
        let answer = ctx.cfg.answers.get(next)?.clone();
        *ctx.answer_count += 1;
        Some(answer)
    }

    fn handle_text(&mut self, text: &str, ctx: &mut SimContext<'_>) {
        let text =
            if self.is_corrupted { format!("{}{text}", script::CORRUPTED_PREFIX) } else { text.to_owned() };
        let removes_banned =
            ctx.cfg.backend == Backend::Pytorch && self.request.speech_enabled && self.request.streaming;
        let text = if removes_banned { script::remove_banned(&text) } else { text };
        self.text = script::truncate_to_tokens(&text, self.request.max_new_tokens).to_owned();
        self.is_cut = self.text.len() < text.len();
        let is_silent = !self.request.speech_enabled || self.text.is_empty() || self.call().is_some();
        if is_silent || ctx.faults.trigger(FaultKind::NoAudio) {
            self.schedule_steps(ctx);
        } else if ctx.cfg.use_engines {
            self.pending_job = Some(ctx.ask_engines(EngineRequest::Speak(self.text.clone())));
        } else {
            self.speech = Some(SpeechSource::Hummed(HumVoice::new(
                &self.text,
                self.request.voice_reference.as_deref(),
            )));
            self.schedule_steps(ctx);
        }
    }

    /// Handles the engines' answer; ignores one for another job.
    pub(super) fn handle_engine_answer(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut SimContext<'_>,
    ) {
        if self.pending_job != Some(job) {
            return;
        }
        self.pending_job = None;
        match answer {
            EngineAnswer::Transcript(Ok(text)) => {
                let call = tool_script::simulated_answer(&self.request.system_text, text);
                self.handle_text(call.as_deref().unwrap_or(text.trim()), ctx);
            }
            EngineAnswer::Speech(Ok(samples)) => {
                self.speech = (!samples.is_empty()).then(|| SpeechSource::Engine(samples.clone()));
                self.schedule_steps(ctx);
            }
            // Without streaming, the back-end ignores a failed synthesis (mappings/notes/minicpm-o.md#chat).
            EngineAnswer::Speech(Err(_)) if !self.request.streaming => self.schedule_steps(ctx),
            EngineAnswer::Speech(Err(reason)) | EngineAnswer::Transcript(Err(reason)) => {
                self.steps.push_back((ctx.now, GenerationStep::Crash(reason.clone())));
            }
        }
    }

    fn schedule_steps(&mut self, ctx: &mut SimContext<'_>) {
        let timing = &ctx.cfg.timing;
        let first = (self.started + timing.first_delta).max(ctx.now);
        if self.text.is_empty() && self.request.streaming && ctx.cfg.backend == Backend::Pytorch {
            self.steps.push_back((first, GenerationStep::Crash(EMPTY_ANSWER_EXCEPTION.to_owned())));
            return;
        }
        let end = match (&self.speech, self.request.streaming) {
            (Some(speech), streaming) => {
                let seconds = speech.len().div_ceil(SAMPLE_RATE_HZ);
                let end = nth_instant(first, timing.speech_second, seconds.saturating_sub(1));
                if streaming { self.schedule_speech(first, timing.speech_second, seconds) } else { end }
            }
            (None, true) => self.schedule_text(first, timing.text_delta),
            (None, false) => first,
        };
        self.steps.push_back((end, GenerationStep::Done));
        self.apply_mid_answer_faults(ctx);
    }

    fn schedule_text(&mut self, first: Instant, interval: Duration) -> Instant {
        let deltas = script::split_text_deltas(&self.text);
        let end = nth_instant(first, interval, deltas.len().saturating_sub(1));
        for (index, delta) in deltas.into_iter().enumerate() {
            self.steps.push_back((nth_instant(first, interval, index), GenerationStep::Text(delta)));
        }
        end
    }

    fn schedule_speech(&mut self, first: Instant, interval: Duration, seconds: usize) -> Instant {
        let texts = script::split_speech_deltas(&self.text, CHARS_PER_SPEECH_DELTA, seconds);
        for (index, text) in texts.into_iter().enumerate() {
            let at = nth_instant(first, interval, index);
            if !text.is_empty() {
                self.steps.push_back((at, GenerationStep::Text(text)));
            }
            self.steps
                .push_back((at, GenerationStep::Audio(index * SAMPLE_RATE_HZ..(index + 1) * SAMPLE_RATE_HZ)));
        }
        nth_instant(first, interval, seconds.saturating_sub(1))
    }

    /// Replaces the rest of the answer by a mid-answer fault, if one is active.
    fn apply_mid_answer_faults(&mut self, ctx: &mut SimContext<'_>) {
        let fault = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::DieMidAnswer(deltas) => Some((deltas, true)),
            FaultKind::DropMidAnswer(deltas) => Some((deltas, false)),
            _ => None,
        });
        let Some((deltas, is_crash)) = fault else { return };
        let at = (deltas as usize).min(self.steps.len() - 1);
        if let Some((_, step)) = self.steps.get_mut(at) {
            *step = if is_crash {
                GenerationStep::Crash("simulated: the generator died".to_owned())
            } else {
                GenerationStep::Abort
            };
        }
        self.steps.truncate(at + 1);
    }

    /// The answer's call, for a server that reads it out of the text.
    pub(super) fn call(&self) -> Option<FunctionCall> {
        tool_script::read_call(&self.text).filter(|_| self.request.calls_natively)
    }

    /// True if the limit of tokens cut the text.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Instant of the next delta; `None` while the engines work and when the answer is complete.
    pub(super) fn step_deadline(&self) -> Option<Instant> {
        self.steps.front().map(|(at, _)| *at)
    }

    /// Returns the rest of the generation when its session ends; `None` if it is complete.
    pub(super) fn into_orphan(self) -> Option<OrphanedGeneration> {
        let ends_at = || self.steps.back().map(|(at, _)| OrphanedGeneration::RunningUntil(*at));
        self.pending_job.map(OrphanedGeneration::AwaitingEngines).or_else(ends_at)
    }

    /// The next piece of the answer; `None` after its end.
    pub(super) fn next_piece(&mut self) -> Option<AnswerPiece> {
        let (_, step) = self.steps.pop_front()?;
        Some(match step {
            GenerationStep::Text(text) => AnswerPiece::Text(text),
            GenerationStep::Audio(range) => {
                AnswerPiece::Audio(self.speech.as_ref().map_or_else(Vec::new, |speech| speech.samples(range)))
            }
            GenerationStep::Done => AnswerPiece::Done,
            GenerationStep::Crash(message) => AnswerPiece::Crash(message),
            GenerationStep::Abort => AnswerPiece::Abort,
        })
    }

    /// Takes all text that has not come yet.
    pub(super) fn take_text(&mut self) -> String {
        let mut rest = String::new();
        self.steps.retain(|(_, step)| match step {
            GenerationStep::Text(text) => {
                rest.push_str(text);
                false
            }
            _ => true,
        });
        rest
    }

    /// Sends the next delta; returns `true` when the answer is complete.
    pub(super) fn run_step(
        &mut self,
        session_id: &str,
        ctx: &mut SimContext<'_>,
    ) -> Result<bool, SimSessionEnd> {
        match self.next_piece() {
            None => return Ok(true),
            Some(AnswerPiece::Text(text)) => self.send_delta(session_id, Some(&text), None, ctx),
            Some(AnswerPiece::Audio(samples)) => {
                self.send_delta(session_id, None, Some(messages::base64_f32(&samples)), ctx);
            }
            Some(AnswerPiece::Done) => {
                self.send_done(session_id, ctx);
                return Ok(true);
            }
            Some(AnswerPiece::Crash(message)) => {
                ctx.send_text(match ctx.cfg.backend {
                    Backend::Pytorch => ctx.session_closed(session_id, "backend_error", Some(&message)),
                    Backend::Cpp => messages::worker_closed(Some(session_id)),
                });
                return Err(SimSessionEnd::Closed);
            }
            Some(AnswerPiece::Abort) => return Err(SimSessionEnd::Aborted),
        }
        Ok(false)
    }

    /// Sends a delta. Chat deltas have metrics only in C++ (mappings/notes/minicpm-o.md#events; its own builders).
    fn send_delta(
        &self,
        session_id: &str,
        text: Option<&str>,
        audio: Option<String>,
        ctx: &mut SimContext<'_>,
    ) {
        let metrics = (ctx.cfg.backend == Backend::Cpp)
            .then(|| EventMetrics::new(Backend::Cpp, ctx.model.kv_cache_length + self.context_tokens()));
        let event = ServerEvent {
            name: "response.output.delta",
            kind: Some(if text.is_some() { "text" } else { "audio" }),
            session_id: Some(Some(session_id)),
            response_id: Some(&self.response_id),
            input_id: self.request.input_id.as_ref(),
            text,
            audio: audio.map(Some),
            metrics,
            server_send_ts: Some(ctx.unix_seconds()),
            ..ServerEvent::default()
        };
        ctx.send_text(event.to_json(ctx.cfg.backend));
    }

    fn send_done(&self, session_id: &str, ctx: &mut SimContext<'_>) {
        let backend = ctx.cfg.backend;
        // PyTorch counts every append from zero, C++ cumulatively (mappings/notes/minicpm-o.md#chat,
        // mappings/notes/llama-cpp-omni.md#chat).
        let previous_tokens = if backend == Backend::Cpp { ctx.model.kv_cache_length } else { 0 };
        ctx.model.kv_cache_length = previous_tokens + self.context_tokens();
        let unstreamed_speech = self.speech.as_ref().filter(|_| !self.request.streaming);
        let audio = unstreamed_speech.map(|speech| messages::base64_f32(&speech.samples(0..speech.len())));
        let event = ServerEvent {
            name: "response.done",
            session_id: Some(Some(session_id)),
            response_id: Some(&self.response_id),
            input_id: self.request.input_id.as_ref(),
            text: Some(&self.text),
            audio: if backend == Backend::Cpp { Some(audio) } else { audio.map(Some) },
            reason: Some("turn_end"),
            metrics: Some(EventMetrics::new(backend, ctx.model.kv_cache_length)),
            server_send_ts: Some(ctx.unix_seconds()),
            ..ServerEvent::default()
        };
        ctx.send_text(event.to_json(backend));
    }

    fn context_tokens(&self) -> u64 {
        (self.request.prompt_tokens + script::estimate_tokens(&self.text)) as u64
    }
}

/// Returns `start + interval * count`. The bounded answer length keeps `count` below `u32::MAX`.
fn nth_instant(start: Instant, interval: Duration, count: usize) -> Instant {
    start + interval * u32::try_from(count).unwrap_or(u32::MAX)
}
