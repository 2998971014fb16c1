//! What is answered to an utterance: by the engines, or by a rule that only counts seconds.

use super::{
    super::{EngineAnswer, EngineRequest, FaultKind, JobId},
    input_units::Utterance,
};
use crate::simulator::session_context::Bench;

/// Something to be said.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    /// An engine's speech at 24 kHz; the marker without one.
    pub(super) speech: Option<Vec<f32>>,
}

/// At most one answer at a time; what the user says meanwhile waits in the ear.
#[derive(Debug, Default)]
pub(super) enum Mind {
    #[default]
    Idle,
    Recognising(JobId),
    Speaking(JobId, String),
    Ready(Answer),
}

impl Mind {
    pub(super) const fn idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Begins to think of an answer.
    pub(super) fn think(&mut self, utterance: Utterance, bench: &mut Bench<'_>) {
        if bench.faults.hits(FaultKind::EmptyTranscript) {
            return;
        }
        *self = if bench.cfg.engines {
            Self::Recognising(bench.ask(EngineRequest::Recognise(utterance.audio)))
        } else {
            let text = format!("I heard {:.1} seconds of speech.", utterance.seconds);
            Self::Ready(Answer { text, speech: None })
        };
    }

    /// The answer, once there is one.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        match std::mem::take(self) {
            Self::Ready(answer) => Some(answer),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The engines' answer; ignored if it is not awaited. Where there are no words there is no answer.
    pub(super) fn answered(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        bench: &mut Bench<'_>,
    ) -> Result<(), String> {
        let awaited = match self {
            Self::Recognising(asked) | Self::Speaking(asked, _) => *asked == job,
            Self::Idle | Self::Ready(_) => false,
        };
        if !awaited {
            return Ok(());
        }
        *self = match (std::mem::take(self), answer) {
            (_, EngineAnswer::Transcript(Err(why)) | EngineAnswer::Speech(Err(why))) => {
                return Err(why.clone());
            }
            (Self::Recognising(_), EngineAnswer::Transcript(Ok(words))) if !words.trim().is_empty() => {
                let text = format!("You said: {}.", words.trim().trim_end_matches(['.', '?', '!']));
                Self::Speaking(bench.ask(EngineRequest::Speak(text.clone())), text)
            }
            (Self::Speaking(_, text), EngineAnswer::Speech(Ok(samples))) => {
                Self::Ready(Answer { text, speech: Some(samples.clone()) })
            }
            _ => Self::Idle,
        };
        Ok(())
    }
}
