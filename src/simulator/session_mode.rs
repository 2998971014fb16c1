//! Append handling of a created session: turn-based chat or full duplex.
//!
//! Chat is implemented here, one generation at a time; full duplex is in `duplex`.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    Backend, EngineAnswer, FaultKind, JobId,
    chat::{ChatRequest, decode_init_voice},
    duplex::DuplexSession,
    generate::Generation,
    model::OrphanedGeneration,
    session_context::{InitRejected, SimContext, SimSessionEnd, random_hex12},
};

/// A created session of either mode.
#[derive(Debug)]
pub(super) enum ModeSession {
    Chat(Box<ChatSession>),
    Duplex(Box<DuplexSession>),
}

impl ModeSession {
    /// Creates the session from the payload of `session.init`.
    pub(super) fn prepare(
        is_duplex: bool,
        has_video: bool,
        payload: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<Self, InitRejected> {
        if is_duplex {
            DuplexSession::prepare(has_video, payload, ctx).map(|duplex| Self::Duplex(Box::new(duplex)))
        } else {
            ChatSession::prepare(payload, ctx).map(|chat| Self::Chat(Box::new(chat)))
        }
    }

    /// Name of the mode in `session.created`.
    pub(super) const fn mode_name(&self) -> &'static str {
        match self {
            Self::Chat(_) => "turn_based",
            Self::Duplex(_) => "full_duplex",
        }
    }

    /// True while the next append has to wait.
    pub(super) const fn is_busy(&self) -> bool {
        match self {
            Self::Chat(chat) => chat.generation.is_some(),
            Self::Duplex(duplex) => duplex.is_busy(),
        }
    }

    /// Handles an append.
    pub(super) fn handle_append(
        &mut self,
        id: &str,
        input: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        match self {
            Self::Chat(chat) => chat.handle_append(id, input, ctx),
            Self::Duplex(duplex) => duplex.handle_append(id, input, ctx),
        }
    }

    /// Instant of the next step.
    pub(super) fn step_deadline(&self) -> Option<Instant> {
        match self {
            Self::Chat(chat) => chat.generation.as_ref().and_then(Generation::step_deadline),
            Self::Duplex(duplex) => duplex.step_deadline(),
        }
    }

    /// Runs the due step.
    pub(super) fn run_step(&mut self, id: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        match self {
            Self::Chat(chat) => chat.run_step(id, ctx),
            Self::Duplex(duplex) => duplex.finish_step(id, ctx),
        }
    }

    /// Passes on the engines' answer; an answer for another job is ignored.
    pub(super) fn handle_engine_answer(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut SimContext<'_>,
    ) {
        match self {
            Self::Chat(chat) => {
                if let Some(generation) = &mut chat.generation {
                    generation.handle_engine_answer(job, answer, ctx);
                }
            }
            Self::Duplex(duplex) => duplex.handle_engine_answer(job, answer, ctx),
        }
    }

    /// End of the uninterruptible step. A chat generation becomes an orphan instead
    /// (mappings/notes/minicpm-o.md#stopping-a-chat).
    pub(super) fn step_end_time(&self) -> Option<Instant> {
        match self {
            Self::Chat(_) => None,
            Self::Duplex(duplex) => duplex.step_deadline(),
        }
    }

    /// Returns the generation that outlives the session, if any.
    pub(super) fn into_orphaned_generation(self) -> Option<OrphanedGeneration> {
        match self {
            Self::Chat(chat) => chat.generation?.into_orphan(),
            Self::Duplex(_) => None,
        }
    }
}

/// A turn-based session.
#[derive(Debug)]
pub(super) struct ChatSession {
    generation: Option<Generation>,
    turn_count: u64,
    voice_reference: Option<Vec<f32>>,
}

impl ChatSession {
    fn prepare(payload: &Map<String, Value>, ctx: &mut SimContext<'_>) -> Result<Self, InitRejected> {
        let given = decode_init_voice(ctx.cfg.backend, payload).map_err(|_| InitRejected)?;
        // PyTorch ignores the payload in chat mode. C++ clears the context, then prefills the voice.
        let voice_reference = given.filter(|_| ctx.cfg.backend == Backend::Cpp);
        if ctx.cfg.backend == Backend::Cpp {
            ctx.model.kv_cache_length =
                voice_reference.as_ref().map_or(0, |voice| 16 + voice.len() as u64 / 1600);
        }
        Ok(Self { generation: None, turn_count: 0, voice_reference })
    }

    fn handle_append(
        &mut self,
        id: &str,
        input: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        self.turn_count += 1;
        let request = match ChatRequest::parse(ctx.cfg.backend, input) {
            Ok(request) => request,
            Err(rejection) => return ctx.reject_append(id, &rejection),
        };
        if ctx.faults.trigger(FaultKind::NeverAnswers) {
            return Ok(());
        }
        let response_id = match (ctx.cfg.backend, &request.response_id) {
            (Backend::Cpp, _) => format!("{id}_resp_{}", self.turn_count),
            (Backend::Pytorch, Some(given)) => given.clone(),
            (Backend::Pytorch, None) => format!("resp_{}", random_hex12(ctx.rng)),
        };
        self.generation = Some(Generation::start(request, response_id, self.voice_reference.as_deref(), ctx));
        Ok(())
    }

    fn run_step(&mut self, id: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(generation) = &mut self.generation else { return Ok(()) };
        if generation.run_step(id, ctx)? {
            self.generation = None;
        }
        Ok(())
    }
}
