//! What a session does with its appends once it is created: turns of messages, or full duplex.
//!
//! Here is the side of chat, one generation at a time; the other side is `duplex`.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    Backend, Dialect, EngineAnswer, FaultKind, JobId,
    chat::{ChatRequest, Refusal, init_voice},
    duplex::Duplex,
    generate::Generation,
    messages,
    session_context::{Bench, Ending, hex12},
};

/// A created session's work.
#[derive(Debug)]
pub(super) enum Talk {
    Chat(Box<Chat>),
    Duplex(Box<Duplex>),
}

/// Why a session cannot be created; the worker does not pass the reason on (field notes §1.5, §1.7).
#[derive(Debug)]
pub(super) struct InitRefused;

impl Talk {
    /// Prepares for the session that this payload describes.
    pub(super) fn prepare(
        duplex: bool,
        sees: bool,
        payload: &Map<String, Value>,
        bench: &mut Bench<'_>,
    ) -> Result<Self, InitRefused> {
        if duplex {
            Duplex::prepare(sees, payload, bench).map(|duplex| Self::Duplex(Box::new(duplex)))
        } else {
            Chat::prepare(payload, bench).map(|chat| Self::Chat(Box::new(chat)))
        }
    }

    /// What `session.created` calls this mode.
    pub(super) const fn mode(&self) -> &'static str {
        match self {
            Self::Chat(_) => "turn_based",
            Self::Duplex(_) => "full_duplex",
        }
    }

    /// Whether the next append has to wait.
    pub(super) const fn busy(&self) -> bool {
        match self {
            Self::Chat(chat) => chat.generation.is_some(),
            Self::Duplex(duplex) => duplex.busy(),
        }
    }

    /// Takes an append.
    pub(super) fn begin(
        &mut self,
        id: &str,
        input: &Map<String, Value>,
        bench: &mut Bench<'_>,
    ) -> Result<(), Ending> {
        match self {
            Self::Chat(chat) => chat.begin(id, input, bench),
            Self::Duplex(duplex) => duplex.begin(id, input, bench),
        }
    }

    /// When something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        match self {
            Self::Chat(chat) => chat.generation.as_ref().and_then(Generation::next),
            Self::Duplex(duplex) => duplex.next(),
        }
    }

    /// Does what is due.
    pub(super) fn step(&mut self, id: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        match self {
            Self::Chat(chat) => chat.step(id, bench),
            Self::Duplex(duplex) => duplex.step(id, bench),
        }
    }

    /// The engines' answer; what is not this session's is ignored.
    pub(super) fn answered(&mut self, job: JobId, answer: &EngineAnswer, bench: &mut Bench<'_>) {
        match self {
            Self::Chat(chat) => {
                if let Some(generation) = &mut chat.generation {
                    generation.answered(job, answer, bench);
                }
            }
            Self::Duplex(duplex) => duplex.answered(job, answer, bench),
        }
    }

    /// The end of a step that nothing interrupts. A chat generation is left behind instead (field notes §2).
    pub(super) fn step_end(&self) -> Option<Instant> {
        match self {
            Self::Chat(_) => None,
            Self::Duplex(duplex) => duplex.step_end(),
        }
    }

    /// What goes on in the model after the session is gone.
    pub(super) fn left_over(self) -> Option<Generation> {
        match self {
            Self::Chat(chat) => chat.generation,
            Self::Duplex(_) => None,
        }
    }
}

/// A turn-based session.
#[derive(Debug)]
pub(super) struct Chat {
    generation: Option<Generation>,
    turns: u64,
    voice: Option<Vec<f32>>,
}

impl Chat {
    fn prepare(payload: &Map<String, Value>, bench: &mut Bench<'_>) -> Result<Self, InitRefused> {
        let given = init_voice(bench.cfg.backend, payload).map_err(|_| InitRefused)?;
        // PyTorch ignores the payload in chat mode. C++ clears the context, then prefills the voice.
        let voice = given.filter(|_| bench.cfg.backend == Backend::Cpp);
        if bench.cfg.backend == Backend::Cpp {
            bench.model.kv_cache_length = voice.as_ref().map_or(0, |voice| 16 + voice.len() as u64 / 1600);
        }
        Ok(Self { generation: None, turns: 0, voice })
    }

    fn begin(&mut self, id: &str, input: &Map<String, Value>, bench: &mut Bench<'_>) -> Result<(), Ending> {
        self.turns += 1;
        let request = match ChatRequest::parse(bench.cfg.backend, input) {
            Ok(request) => request,
            Err(refusal) => return refuse(id, &refusal, bench),
        };
        if bench.faults.hits(FaultKind::NeverAnswers) {
            return Ok(());
        }
        let response_id = match (bench.cfg.backend, &request.response_id) {
            (Backend::Cpp, _) => format!("{id}_resp_{}", self.turns),
            (Backend::Pytorch, Some(given)) => given.clone(),
            (Backend::Pytorch, None) => format!("resp_{}", hex12(bench.rng)),
        };
        self.generation = Some(Generation::begin(request, response_id, self.voice.as_deref(), bench));
        Ok(())
    }

    fn step(&mut self, id: &str, bench: &mut Bench<'_>) -> Result<(), Ending> {
        let Some(generation) = &mut self.generation else { return Ok(()) };
        if generation.step(id, bench)? {
            self.generation = None;
        }
        Ok(())
    }
}

/// Ends the session over an append that its back-end does not take.
pub(super) fn refuse(id: &str, refusal: &Refusal, bench: &mut Bench<'_>) -> Result<(), Ending> {
    match bench.cfg.dialect {
        Dialect::Current => {}
        Dialect::Legacy { documented: false } => return Err(Ending::Aborted),
        Dialect::Legacy { documented: true } => {
            bench.say(messages::client_error("invalid_payload", "invalid append"));
            return Ok(());
        }
    }
    bench.say(match refusal {
        Refusal::Exception(message) => bench.closed(id, "backend_error", Some(message)),
        Refusal::Reason(reason) => bench.closed(id, reason, None),
        Refusal::Silent => messages::worker_closed(Some(id)),
    });
    Err(Ending::Polite)
}
