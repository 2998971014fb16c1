//! Events of a response (serve/realtime/projection.py, and `OutputConverter` of the model's session_adapters.py).

use serde_json::{Value, json};

use super::{input::Unit, negotiation::OutputModality, send};
use crate::{messages::base64_s16le, session_context::SimContext};

/// The response that is open, and the counters of all.
#[derive(Debug, Default)]
pub(super) struct OpenResponse {
    /// Ids of the response and of its item, and its modality; unchanged until it ends.
    open: Option<(String, String, OutputModality)>,
    text: String,
    has_audio: bool,
    count: u64,
    next_chunk: u64,
}

impl OpenResponse {
    /// Writes one unit of speech; begins a response if none is open.
    pub(super) fn push_unit(
        &mut self,
        session_id: &str,
        text: &str,
        audio: &[f32],
        modality: OutputModality,
        unit: &Unit,
        ctx: &mut SimContext<'_>,
    ) {
        if text.is_empty() && audio.is_empty() {
            return;
        }
        if self.open.is_none() {
            let id = format!("{session_id}-response-{}", self.count);
            self.count += 1;
            self.open = Some((id.clone(), format!("{id}-message"), modality));
            let response =
                json!({"id": id, "object": "realtime.response", "status": "in_progress", "output": []});
            self.send("response.created", vec![("response", response)], Some(unit), ctx);
        }
        if !text.is_empty() {
            self.text.push_str(text);
            let name = self.text_event("delta");
            self.send_content(name, [("delta", text.into())], Some(unit), ctx);
        }
        if !audio.is_empty() && self.speaks() {
            self.has_audio = true;
            let delta = base64_s16le(audio).into();
            self.send_content("response.output_audio.delta", [("delta", delta)], Some(unit), ctx);
        }
    }

    /// Ends the open response, if there is one. Without a unit, the session's end ends it.
    pub(super) fn finish(
        &mut self,
        status: &str,
        reason: &str,
        unit: Option<&Unit>,
        ctx: &mut SimContext<'_>,
    ) {
        let Some((id, item_id, modality)) = self.open.clone() else { return };
        let text = std::mem::take(&mut self.text);
        let key = if self.speaks() { "transcript" } else { "text" };
        self.send_content(self.text_event("done"), [(key, text.clone().into())], unit, ctx);
        let has_audio = std::mem::take(&mut self.has_audio);
        if has_audio {
            self.send_content("response.output_audio.done", [], unit, ctx);
        }
        let written =
            (modality == OutputModality::Text).then(|| json!({"type": "output_text", "text": text}));
        let spoken = has_audio.then(|| json!({"type": "output_audio", "transcript": text}));
        let content: Vec<Value> = written.into_iter().chain(spoken).collect();
        let response = json!({
            "id": id, "object": "realtime.response", "status": status, "status_details": {"reason": reason},
            "output": [{
                "id": item_id, "object": "realtime.item", "type": "message", "role": "assistant",
                "content": content,
            }],
            "usage": null,
        });
        self.send("response.done", vec![("response", response)], unit, ctx);
        self.open = None;
    }

    fn speaks(&self) -> bool {
        self.open.as_ref().is_some_and(|(.., modality)| *modality == OutputModality::Audio)
    }

    fn text_event(&self, stage: &str) -> &'static str {
        match (self.speaks(), stage) {
            (true, "done") => "response.output_audio_transcript.done",
            (true, _) => "response.output_audio_transcript.delta",
            (false, "done") => "response.output_text.done",
            (false, _) => "response.output_text.delta",
        }
    }

    fn send_content(
        &mut self,
        name: &'static str,
        more: impl IntoIterator<Item = (&'static str, Value)>,
        unit: Option<&Unit>,
        ctx: &mut SimContext<'_>,
    ) {
        let Some((id, item_id, _)) = &self.open else { return };
        let mut members = vec![
            ("response_id", id.clone().into()),
            ("item_id", item_id.clone().into()),
            ("output_index", 0.into()),
            ("content_index", 0.into()),
        ];
        members.extend(more);
        self.send(name, members, unit, ctx);
    }

    fn send(
        &mut self,
        name: &'static str,
        mut members: Vec<(&'static str, Value)>,
        unit: Option<&Unit>,
        ctx: &mut SimContext<'_>,
    ) {
        if let Some(unit) = unit {
            members.push(("sglang", unit.metadata(self.next_chunk)));
            self.next_chunk += 1;
        }
        send(ctx, name, members);
    }
}
