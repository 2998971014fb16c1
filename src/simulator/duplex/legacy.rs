//! Output of a full-duplex step in the legacy dialect: one message for each append
//! (mappings/notes/minicpm-o-legacy.md#messages, mappings/notes/minicpm-o-legacy.md#exchange).

use super::{
    DuplexSession, DuplexStep, StepOutcome,
    reply::{StepEvent, StepEventKind},
};
use crate::{
    messages,
    session_context::{SimContext, SimSessionEnd},
};

impl DuplexSession {
    /// True after the server reported a full context. The real server then continues.
    pub(in super::super) const fn has_sent_context_full(&self) -> bool {
        self.context_full_sent
    }

    /// Sends the messages of a completed step.
    pub(super) fn finish_legacy_step(
        &mut self,
        step: DuplexStep,
        follows_document: bool,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        let tokens = ctx.model.kv_cache_length;
        combined_messages(&step.events, tokens).into_iter().for_each(|message| ctx.send_text(message));
        let reason = match step.outcome {
            StepOutcome::Continue => return Ok(()),
            StepOutcome::Failed => {
                ctx.send_inference_error(follows_document, "simulated: the step failed");
                return Ok(());
            }
            StepOutcome::ContextFull if !follows_document => {
                if !std::mem::replace(&mut self.context_full_sent, true) {
                    ctx.send_text(messages::session_closed("context_full"));
                }
                return Ok(());
            }
            StepOutcome::ContextFull => "context_full",
            StepOutcome::Crash(_) if follows_document => "error",
            StepOutcome::Crash(_) | StepOutcome::Abort => return Err(SimSessionEnd::Aborted),
        };
        ctx.send_text(messages::session_closed(reason));
        Err(SimSessionEnd::Closed)
    }
}

/// Merges the events of a step into one message. Doubled `listen` events stay two; anything behind them has no legacy
/// form.
fn combined_messages(events: &[StepEvent], tokens: u64) -> Vec<String> {
    let listens = events.iter().filter(|event| matches!(event.kind, StepEventKind::Listen)).count();
    if events.first().is_some_and(|event| matches!(event.kind, StepEventKind::Listen)) {
        let listen =
            messages::to_json([("type", "response.listen".into()), ("kv_cache_length", tokens.into())]);
        return vec![listen; listens];
    }
    let (mut text, mut audio) = (String::new(), Vec::new());
    for event in events {
        match &event.kind {
            StepEventKind::Text(part) => text.push_str(part),
            StepEventKind::Audio(part) => audio.extend_from_slice(part),
            StepEventKind::Listen | StepEventKind::Done(_) => {}
        }
    }
    if events.is_empty() {
        return Vec::new();
    }
    let audio = Some(messages::base64_f32(&audio)).filter(|audio| !audio.is_empty());
    vec![messages::to_json([
        ("type", "response.output_audio.delta".into()),
        ("text", text.into()),
        ("audio", audio.into()),
        ("end_of_turn", (listens > 0).into()),
        ("kv_cache_length", tokens.into()),
    ])]
}
