//! A response in progress: its message, its deltas, and its cancellation.

use serde_json::{Value, json};

use super::{
    OpenaiSession,
    conversation::Item,
    response::{Ending, Response},
};
use crate::{
    FaultKind, RealtimeServer,
    generate::AnswerPiece,
    messages::base64_s16le,
    session_context::{SimContext, SimSessionEnd},
};

/// Samples of one delta of OpenAI, 200 ms. The package sends what its model gives.
const DELTA_SAMPLES: usize = 4_800;

impl OpenaiSession {
    /// Sends the next piece of a response.
    pub(super) fn run_response(&mut self, at: usize, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let mut response = self.responses.remove(at);
        match response.generation.next_piece() {
            Some(AnswerPiece::Text(mut text)) => {
                // The package's talker waits for the words.
                if self.server == RealtimeServer::VllmOmni && response.config.speaks() {
                    text.push_str(&response.generation.take_text());
                }
                self.push_text(&mut response, &text, ctx);
            }
            Some(AnswerPiece::Audio(samples)) => self.push_audio(&mut response, &samples, ctx),
            Some(AnswerPiece::Done) | None => {
                self.finish_response(response, Ending::Completed, ctx);
                return Ok(());
            }
            Some(AnswerPiece::Crash(_)) => {
                self.finish_response(response, Ending::Failed, ctx);
                return Ok(());
            }
            Some(AnswerPiece::Abort) => return Err(SimSessionEnd::Aborted),
        }
        response.not_before = ctx.faults.trigger_time(FaultKind::SlowSteps).map(|by| ctx.now + by);
        self.responses.insert(at, response);
        Ok(())
    }

    fn push_text(&mut self, response: &mut Response, text: &str, ctx: &mut SimContext<'_>) {
        // A call is sent as such at the end.
        if response.generation.call().is_some() {
            return;
        }
        self.begin_message(response, ctx);
        response.text.push_str(text);
        let name = if response.config.speaks() { "output_audio_transcript" } else { "output_text" };
        let members = response.part(json!({"delta": text}));
        self.server.send(ctx, &format!("response.{name}.delta"), members);
    }

    fn push_audio(&mut self, response: &mut Response, samples: &[f32], ctx: &mut SimContext<'_>) {
        self.begin_message(response, ctx);
        response.samples += samples.len();
        let length = if self.server == RealtimeServer::Openai { DELTA_SAMPLES } else { samples.len().max(1) };
        for samples in samples.chunks(length) {
            self.send_audio(response.part(json!({})), samples, ctx);
        }
    }

    /// Sends a delta of audio about this part.
    fn send_audio(&self, mut part: Value, samples: &[f32], ctx: &mut SimContext<'_>) {
        part["delta"] = base64_s16le(samples).into();
        self.server.send(ctx, "response.output_audio.delta", part);
    }

    /// Begins the message of a response, which has none yet.
    pub(super) fn begin_message(&mut self, response: &mut Response, ctx: &mut SimContext<'_>) {
        if response.item_id.is_some() {
            return;
        }
        let id = self.server.new_id("item", ctx.rng);
        let item = Item::spoken(id.clone(), "in_progress", &json!([]), None);
        response.previous_id = self.conversation.last_id();
        response.item_id = Some(id);
        let (wire, previous) = (item.wire.clone(), response.previous_id.clone());
        if response.is_in_conversation {
            self.conversation.push(item);
        }
        let members = json!({"response_id": response.id, "output_index": 0, "item": wire});
        self.server.send(ctx, "response.output_item.added", members);
        let kind = if response.config.speaks() { "audio" } else { "text" };
        let part = match self.server {
            RealtimeServer::Openai => {
                if response.is_in_conversation {
                    let members = json!({"previous_item_id": previous, "item": wire});
                    self.server.send(ctx, "conversation.item.added", members);
                }
                json!({"type": kind, if kind == "audio" { "transcript" } else { "text" }: ""})
            }
            RealtimeServer::VllmOmni => json!({"type": kind, "text": "", "audio": "", "transcript": ""}),
        };
        let members = response.part(json!({"part": part}));
        self.server.send(ctx, "response.content_part.added", members);
    }

    /// Cancels the response in the conversation, if there is one.
    pub(super) fn cancel_conversation(&mut self, reason: &'static str, ctx: &mut SimContext<'_>) {
        if let Some(at) = self.responses.iter().position(|response| response.is_in_conversation) {
            self.cancel_response(at, reason, ctx);
        }
    }

    pub(super) fn cancel_response(&mut self, at: usize, reason: &'static str, ctx: &mut SimContext<'_>) {
        let mut response = self.responses.remove(at);
        let is_late = ctx.faults.trigger(FaultKind::LateAudio);
        let late = std::iter::from_fn(|| response.generation.next_piece().filter(|_| is_late))
            .find_map(|piece| if let AnswerPiece::Audio(samples) = piece { Some(samples) } else { None });
        let reason = if self.server == RealtimeServer::Openai { reason } else { "client_cancelled" };
        let part = response.part(json!({}));
        self.finish_response(response, Ending::Cancelled(reason), ctx);
        if let Some(samples) = late {
            self.send_audio(part, &samples, ctx);
        }
    }
}
