//! The end of a response: its message and its call become items.

use serde_json::{Value, json};

use super::{
    OpenaiSession,
    conversation::Item,
    response::{Ending, Response},
};
use crate::{RealtimeServer, session_context::SimContext, tool_script::FunctionCall};

impl OpenaiSession {
    /// Ends a response: closes its message, adds its call, and sends `response.done`.
    pub(super) fn finish_response(&mut self, response: Response, ending: Ending, ctx: &mut SimContext<'_>) {
        let call = response.generation.call().filter(|_| matches!(ending, Ending::Completed));
        let output = match (self.server, ending) {
            // The package's handler forgets the message of a response that failed.
            (RealtimeServer::VllmOmni, Ending::Failed) => {
                self.forget_message(&response);
                Vec::new()
            }
            (RealtimeServer::VllmOmni, _) => self.finish_as_package(&response, ending, call, ctx),
            (RealtimeServer::Openai, _) => {
                let message = response.item_id.as_ref().map(|_| self.finish_message(&response, ending, ctx));
                let call = call.map(|call| self.send_call(&response, call, ctx));
                message.into_iter().chain(call).collect()
            }
        };
        self.has_spoken |= response.samples > 0;
        self.send_done(&response, ending, output, ctx);
    }

    /// The package announces a call before it ends the message, which it then drops if nothing was said.
    fn finish_as_package(
        &mut self,
        response: &Response,
        ending: Ending,
        call: Option<FunctionCall>,
        ctx: &mut SimContext<'_>,
    ) -> Vec<Value> {
        let Some(FunctionCall { name, arguments }) = call else {
            return vec![self.finish_message(response, ending, ctx)];
        };
        let (item_id, call_id) = (self.server.new_id("item", ctx.rng), self.server.new_id("call", ctx.rng));
        let index =
            json!({"response_id": response.id, "item_id": item_id, "output_index": 1, "call_id": call_id});
        let begun = Item::call(item_id.clone(), "in_progress", &call_id, &name, "");
        let members = json!({"response_id": response.id, "output_index": 1, "item": without_object(&begun)});
        self.server.send(ctx, "response.output_item.added", members);
        let delta = with(&index, json!({"delta": arguments}));
        self.server.send(ctx, "response.function_call_arguments.delta", delta);
        let _dropped = self.finish_message(response, ending, ctx);
        self.forget_message(response);
        let done = with(&index, json!({"name": name, "arguments": arguments}));
        self.server.send(ctx, "response.function_call_arguments.done", done);
        let item = Item::call(item_id, "completed", &call_id, &name, &arguments);
        let wire = without_object(&item);
        let members = json!({"response_id": response.id, "output_index": 1, "item": wire});
        self.server.send(ctx, "response.output_item.done", members);
        let previous = self.conversation.last_id();
        let members = json!({"previous_item_id": previous, "item": item.wire});
        self.conversation.push(item);
        self.server.send(ctx, "conversation.item.added", members.clone());
        self.server.send(ctx, "conversation.item.done", members);
        vec![wire]
    }

    /// Sends the ends of the message and keeps it; returns it.
    fn finish_message(&mut self, response: &Response, ending: Ending, ctx: &mut SimContext<'_>) -> Value {
        let server = self.server;
        let speaks = response.config.speaks();
        let mut part = if speaks {
            server.send(ctx, "response.output_audio.done", response.part(json!({})));
            server.send(
                ctx,
                "response.output_audio_transcript.done",
                response.part(json!({"transcript": response.text})),
            );
            json!({"type": "audio", "transcript": response.text})
        } else {
            server.send(ctx, "response.output_text.done", response.part(json!({"text": response.text})));
            json!({"type": "text", "text": response.text})
        };
        if server == RealtimeServer::VllmOmni {
            let text = if speaks { "" } else { response.text.as_str() };
            part = json!({"type": part["type"], "text": text, "transcript": response.text});
        }
        server.send(ctx, "response.content_part.done", response.part(json!({"part": part})));
        let is_whole = ending.status(response.generation.is_cut()) == "completed";
        let status = if is_whole { "completed" } else { "incomplete" };
        let id = response.item_id.clone().unwrap_or_default();
        let item = Item::spoken(id, status, &response.content(), Some(response.audio_ms()));
        let wire = item.wire.clone();
        let shown = if server == RealtimeServer::Openai { wire.clone() } else { without_object(&item) };
        let members = json!({"response_id": response.id, "output_index": 0, "item": shown});
        server.send(ctx, "response.output_item.done", members);
        let is_dropped = server == RealtimeServer::VllmOmni && response.generation.call().is_some();
        if response.is_in_conversation && !is_dropped {
            self.keep_message(item, response, ending, ctx);
        }
        wire
    }

    fn keep_message(&mut self, item: Item, response: &Response, ending: Ending, ctx: &mut SimContext<'_>) {
        let mut shown = item.wire.clone();
        if self.server == RealtimeServer::VllmOmni && matches!(ending, Ending::Cancelled(_)) {
            // The package cannot tell what the user heard.
            let key = if response.config.speaks() { "transcript" } else { "text" };
            shown["content"][0][key] = "".into();
        }
        if let Some(known) = self.conversation.find_mut(&item.id) {
            *known = Item { wire: shown.clone(), ..item };
        }
        let members = json!({"previous_item_id": response.previous_id, "item": shown});
        if self.server == RealtimeServer::VllmOmni {
            self.server.send(ctx, "conversation.item.added", members.clone());
        }
        self.server.send(ctx, "conversation.item.done", members);
    }

    fn forget_message(&mut self, response: &Response) {
        if let Some(id) = &response.item_id {
            self.conversation.remove(id);
        }
    }

    /// OpenAI's events of a call; returns its item.
    fn send_call(
        &mut self,
        response: &Response,
        FunctionCall { name, arguments }: FunctionCall,
        ctx: &mut SimContext<'_>,
    ) -> Value {
        let server = self.server;
        let (item_id, call_id) = (server.new_id("item", ctx.rng), server.new_id("call", ctx.rng));
        let output_index = usize::from(response.item_id.is_some());
        let previous = self.conversation.last_id();
        let begun = Item::call(item_id.clone(), "in_progress", &call_id, &name, "").wire;
        let item = Item::call(item_id.clone(), "completed", &call_id, &name, &arguments);
        let of_response = |item: &Value| {
            json!({
                "response_id": response.id, "output_index": output_index, "item": item,
            })
        };
        let in_conversation = |item: &Value| json!({"previous_item_id": previous, "item": item});
        let index = json!({
            "response_id": response.id, "item_id": item_id, "output_index": output_index, "call_id": call_id,
        });
        server.send(ctx, "response.output_item.added", of_response(&begun));
        if response.is_in_conversation {
            server.send(ctx, "conversation.item.added", in_conversation(&begun));
        }
        let (first, second) = halves(&arguments);
        for delta in [first, second] {
            let delta = with(&index, json!({"delta": delta}));
            server.send(ctx, "response.function_call_arguments.delta", delta);
        }
        let done = with(&index, json!({"name": name, "arguments": arguments}));
        server.send(ctx, "response.function_call_arguments.done", done);
        server.send(ctx, "response.output_item.done", of_response(&item.wire));
        let wire = item.wire.clone();
        if response.is_in_conversation {
            server.send(ctx, "conversation.item.done", in_conversation(&item.wire));
            self.conversation.push(item);
        }
        wire
    }
}

/// A text in two parts.
fn halves(text: &str) -> (&str, &str) {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(text.len(), |(at, _)| at);
    text.split_at(middle)
}

fn with(members: &Value, more: Value) -> Value {
    let mut members = members.clone();
    if let (Value::Object(members), Value::Object(more)) = (&mut members, more) {
        members.extend(more);
    }
    members
}

/// The package's items have no `object` before they are in the conversation.
fn without_object(item: &Item) -> Value {
    let mut wire = item.wire.clone();
    wire.as_object_mut().map(|wire| wire.remove("object"));
    wire
}
