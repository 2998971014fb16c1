//! Units of a session whose server cuts the audio and names the model's output itself.

use super::{
    DuplexAppend, DuplexSession, DuplexUnit, StepOutcome,
    reply::{StepEvent, StepEventKind},
};
use crate::session_context::SimContext;

/// Output of one unit, in order.
#[derive(Debug)]
pub(crate) enum UnitOutput {
    Listen,
    /// Text and audio of the model.
    Speech(String, Vec<f32>),
    TurnEnd,
    /// The model failed.
    Crash(String),
    /// The connection is lost.
    Drop,
}

impl DuplexSession {
    /// Sets the number of first units in which the model only listens.
    pub(crate) const fn force_listen_for(&mut self, units: u32) {
        self.force_listen_count = units;
    }

    /// Starts the step of a unit.
    pub(crate) fn begin_unit(&mut self, unit: DuplexUnit, ctx: &mut SimContext<'_>) {
        self.append_count += 1;
        self.begin_step("", DuplexAppend { unit, response_id: None }, ctx);
    }

    /// Takes the output of the step that is over.
    pub(crate) fn take_step(&mut self) -> Vec<UnitOutput> {
        let Some(step) = self.step.take() else { return Vec::new() };
        let mut outputs = Vec::new();
        let mut words = String::new();
        for StepEvent { response_id, kind } in step.events {
            match kind {
                StepEventKind::Text(text) => words.push_str(&text),
                StepEventKind::Audio(audio) => {
                    outputs.push(UnitOutput::Speech(std::mem::take(&mut words), audio));
                }
                StepEventKind::Listen if response_id.is_some() => outputs.push(UnitOutput::TurnEnd),
                StepEventKind::Listen => outputs.push(UnitOutput::Listen),
                StepEventKind::Done(_) => {}
            }
        }
        match step.outcome {
            StepOutcome::Continue | StepOutcome::Failed => {}
            StepOutcome::ContextFull => outputs.push(UnitOutput::Crash("the context is full".to_owned())),
            StepOutcome::Crash(words) => outputs.push(UnitOutput::Crash(words)),
            StepOutcome::Abort => outputs.push(UnitOutput::Drop),
        }
        outputs
    }

    /// Ends the turn at once, with the step in progress. Returns the audio that would have come next.
    pub(crate) fn cancel_turn(&mut self) -> Option<Vec<f32>> {
        self.step = None;
        self.turn.take().map(|mut turn| turn.next_unit().audio)
    }
}
