//! Produces the answer to an utterance: by the engines, or by a rule that states the duration.

use super::{
    super::{EngineAnswer, EngineRequest, FaultKind, JobId},
    input_units::UserUtterance,
};
use crate::session_context::SimContext;

/// An answer for the model to speak.
#[derive(Debug)]
pub(in super::super) struct ModelAnswer {
    pub(in super::super) text: String,
    /// Speech from an engine, 24 kHz; without it, the watermark is spoken.
    pub(in super::super) speech: Option<Vec<f32>>,
}

/// State of the answer. There is at most one answer at a time; further user speech waits in [`super::input_units`].
#[derive(Debug, Default)]
pub(in super::super) enum Responder {
    #[default]
    Idle,
    Recognising(JobId),
    Synthesising(JobId, String),
    Ready(ModelAnswer),
}

impl Responder {
    pub(in super::super) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Starts to produce an answer.
    pub(in super::super) fn begin_answer(&mut self, utterance: UserUtterance, ctx: &mut SimContext<'_>) {
        if ctx.faults.trigger(FaultKind::EmptyTranscript) {
            return;
        }
        *self = if ctx.cfg.use_engines {
            Self::Recognising(ctx.ask_engines(EngineRequest::Recognise(utterance.audio)))
        } else {
            let text = format!("I heard {:.1} seconds of speech.", utterance.seconds);
            Self::Ready(ModelAnswer { text, speech: None })
        };
    }

    /// Takes the answer if it is ready.
    pub(in super::super) fn take_answer(&mut self) -> Option<ModelAnswer> {
        match std::mem::take(self) {
            Self::Ready(answer) => Some(answer),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Handles the engines' answer; ignores one for another job. An empty transcript produces no answer.
    pub(in super::super) fn handle_engine_answer(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), String> {
        let is_awaited = match self {
            Self::Recognising(pending) | Self::Synthesising(pending, _) => *pending == job,
            Self::Idle | Self::Ready(_) => false,
        };
        if !is_awaited {
            return Ok(());
        }
        *self = match (std::mem::take(self), answer) {
            (_, EngineAnswer::Transcript(Err(reason)) | EngineAnswer::Speech(Err(reason))) => {
                return Err(reason.clone());
            }
            (Self::Recognising(_), EngineAnswer::Transcript(Ok(transcript)))
                if !transcript.trim().is_empty() =>
            {
                let text = format!("You said: {}.", transcript.trim().trim_end_matches(['.', '?', '!']));
                Self::Synthesising(ctx.ask_engines(EngineRequest::Speak(text.clone())), text)
            }
            (Self::Synthesising(_, text), EngineAnswer::Speech(Ok(samples))) => {
                Self::Ready(ModelAnswer { text, speech: Some(samples.clone()) })
            }
            _ => Self::Idle,
        };
        Ok(())
    }
}
