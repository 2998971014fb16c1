//! The session's answers: the model's steps become the events of an answer, which ends completed, cancelled or failed; and
//! the client's reports of what it played.

use serde_json::{Map, Value};

use super::VllmSession;
use crate::{
    FaultKind, VllmVersion,
    duplex::UnitOutput,
    session_context::SimContext,
    vllm_omni::events::{self, Answer},
};

impl VllmSession {
    pub(super) fn cancel(&mut self, named: Option<&str>, event_id: Option<&str>, ctx: &mut SimContext<'_>) {
        let active = self.answer.as_ref().map(|answer| answer.id.clone());
        let last = self.last_answer.as_ref().map(|(id, _)| id.clone());
        let target = named.map(str::to_owned).or(active.clone()).or(last.clone());
        let is_next = ctx.cfg.vllm_version >= VllmVersion::V0_32;
        let words = match (&active, target) {
            (None, Some(id)) if is_next && named.is_some() => format!("Response is not active: {id}"),
            (None, Some(id)) if last.as_ref() == Some(&id) && !is_next => {
                format!("Response is already complete: {id}")
            }
            // Before 0.31 the server says nothing about an answer that it does not know.
            (None, _) if named.is_some() => return,
            (None, _) => "response.cancel requires an active response".to_owned(),
            (Some(active), Some(id)) if *active != id => format!("Response is not active: {id}"),
            _ => return self.end_cancelled(ctx),
        };
        self.emit_error("response_not_active", &words, event_id, ctx);
    }

    /// Cancels the answer. The model's output for the old epoch is dropped.
    fn end_cancelled(&mut self, ctx: &mut SimContext<'_>) {
        self.epoch += 1;
        let late = self.model.cancel_turn();
        self.end_answer("cancelled", "client_cancelled", ctx);
        if ctx.faults.trigger(FaultKind::LateAudio)
            && let (Some(samples), Some((id, _))) = (late, &self.last_answer)
        {
            let mut answer = Answer::new(id.clone());
            let events = answer.delta("", &samples, self.epoch);
            events.into_iter().for_each(|(kind, members)| self.emit(kind, members, ctx));
        }
    }

    pub(super) fn acknowledge_playback(&mut self, message: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let Some(played) = message.get("played_ms").and_then(Value::as_f64) else {
            let event_id = message.get("event_id").and_then(Value::as_str);
            return events::send_error(ctx, "bad_event", "playback.ack requires numeric played_ms", event_id);
        };
        let named = message.get("response_id").and_then(Value::as_str);
        let active = self.answer.as_ref().map(|answer| (answer.id.clone(), answer.audio_ms()));
        let known = active.into_iter().chain(self.last_answer.clone());
        let known = named.and_then(|named| known.into_iter().find(|(id, _)| *id == named));
        if let (Some(named), None) = (named, &known) {
            let words = format!("No assistant response item is registered for {named}.");
            return self.emit_error("playback_item_not_found", &words, None, ctx);
        }
        let event = events::playback_acknowledged(&self.id, self.epoch, known.as_ref(), played as u64);
        self.emit("playback.acknowledged", [("event", event)], ctx);
    }

    pub(super) fn finish_step(&mut self, ctx: &mut SimContext<'_>) {
        self.last_activity_at = ctx.now;
        for output in self.model.take_step() {
            match output {
                UnitOutput::Listen if self.answer.is_none() => {
                    let members = events::listen_members(&self.id, self.epoch);
                    self.emit("response.listen", members, ctx);
                }
                // A model that listens during its answer says nothing.
                UnitOutput::Listen => {}
                UnitOutput::Speech(text, audio) => self.speak(&text, &audio, ctx),
                UnitOutput::TurnEnd => self.end_answer("completed", "stop", ctx),
                UnitOutput::Crash(words) => return self.crash(&words, ctx),
                UnitOutput::Drop => self.drop_connection(ctx),
            }
        }
    }

    fn speak(&mut self, text: &str, audio: &[f32], ctx: &mut SimContext<'_>) {
        if self.answer.is_none() {
            let id = format!("resp-{}-{}-{:08x}", self.id, self.epoch, ctx.rng.u32(..));
            let answer = Answer::new(id);
            let previous = self.last_item.replace(answer.item_id());
            let events = answer.opening(&self.id, self.epoch, previous.as_deref());
            events.into_iter().for_each(|(kind, members)| self.emit(kind, members, ctx));
            self.answer = Some(answer);
        }
        if ctx.cfg.vllm_version >= VllmVersion::V0_32 && ctx.faults.trigger(FaultKind::OutputBackpressure) {
            return self.end_unread(ctx);
        }
        let Some(answer) = &mut self.answer else { return };
        let events = answer.delta(text, audio, self.epoch);
        events.into_iter().for_each(|(kind, members)| self.emit(kind, members, ctx));
    }

    /// Ends the session, because too much of its output waits (engine/duplex/session/emitter.py `fail_output`).
    fn end_unread(&mut self, ctx: &mut SimContext<'_>) {
        const REASON: &str = "output_backpressure";
        self.emit_error(REASON, "duplex session pending output limit exceeded", None, ctx);
        self.end_answer("failed", REASON, ctx);
        self.close(REASON, ctx);
    }

    fn end_answer(&mut self, status: &'static str, reason: &'static str, ctx: &mut SimContext<'_>) {
        let Some(answer) = self.answer.take() else { return };
        self.last_answer = Some((answer.id.clone(), answer.audio_ms()));
        let events = answer.ending(status, reason);
        events.into_iter().for_each(|(kind, members)| self.emit(kind, members, ctx));
    }

    /// A stage of the model failed, which ends the session.
    fn crash(&mut self, words: &str, ctx: &mut SimContext<'_>) {
        let message = format!("Stage-1 input processor failed: RuntimeError: {words}");
        self.emit_error("runtime_data_plane_stream_failed", &message, None, ctx);
        self.end_answer("failed", "runtime_data_plane_stream_failed", ctx);
        self.expire("request_cleanup", ctx);
    }
}
