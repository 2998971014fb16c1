//! Sends answers as responses: their beginning, words, audio and end. Only the first
//! response is sent to the client; the others wait for its end.

use serde_json::json;

use super::{
    Realtime,
    events::EventLabels,
    items::{Item, call_json},
    response::{Response, ResponseCall},
    tool_servers::MadeCall,
    with,
};
use crate::{
    spelling::client::RealtimeEvent,
    vocabulary::{ClientAudio, EntryId, Message, SpeechId, TokenUsage, ToolCall},
};

impl<L: EventLabels> Realtime<L> {
    /// Begins a response, or lets it wait for the end of the one in progress.
    pub(super) fn begin_response(&mut self, segment_id: u32, by_client: bool, send: &mut dyn FnMut(Message)) {
        let requested = if by_client { self.requests.pop_front() } else { None };
        let id = format!("resp_{:08x}{segment_id:08x}", self.events.seed);
        let item_id = self.events.item_id(EntryId(segment_id));
        let response = Response::new(segment_id, id, item_id, requested.unwrap_or_default(), &self.session);
        self.responses.push_back(response);
        if self.responses.len() == 1 {
            self.tell_response(send);
        }
    }

    /// Tells the client of the first response, and what is known of it.
    fn tell_response(&mut self, send: &mut dyn FnMut(Message)) {
        let Some(response) = self.responses.front() else { return };
        let fields = json!({ "response": response.to_json(&self.session, self.events.is_beta) });
        self.send(RealtimeEvent::ResponseCreated, fields, send);
        self.send_new_words(send);
    }

    /// Notes the words of an answer so far, and sends the new ones.
    pub(super) fn add_words(&mut self, segment_id: u32, text: &str, send: &mut dyn FnMut(Message)) {
        let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) else { return };
        if text.len() > response.text.len() && text.starts_with(response.text.as_str()) {
            text.clone_into(&mut response.text);
        }
        self.send_new_words(send);
    }

    /// Notes the words of an answer at its end. These are fewer than the words sent if the answer was interrupted, or if the
    /// rest of its audio was lost.
    pub(super) fn complete_words(&mut self, segment_id: u32, text: &str, send: &mut dyn FnMut(Message)) {
        self.add_words(segment_id, text, send);
        if let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) {
            response.final_text = Some(text.to_owned());
        }
    }

    fn send_new_words(&mut self, send: &mut dyn FnMut(Message)) {
        let Some(response) = self.responses.front().filter(|it| it.has_new_words()) else { return };
        let event =
            if response.speaks { RealtimeEvent::AudioTranscriptDelta } else { RealtimeEvent::TextDelta };
        self.begin_output(send);
        let Some(response) = self.responses.front_mut() else { return };
        let mut fields = response.position();
        fields["delta"] = response.take_new_words().into();
        self.send(event, fields, send);
    }

    /// Sends audio of the first response.
    pub(super) fn send_audio(
        &mut self,
        audio: &ClientAudio,
        send: &mut dyn FnMut(Message, Option<SpeechId>),
    ) {
        if !self.responses.front().is_some_and(|response| response.speaks) {
            return;
        }
        self.begin_output(&mut |message| send(message, None));
        let Some(response) = self.responses.front_mut() else { return };
        response.has_audio = true;
        response.sent_audio_bytes += audio.bytes.len() as u64;
        if self.is_call {
            return send(Message::Binary(audio.bytes.clone()), Some(audio.turn));
        }
        let label = self.events.labels.audio_field();
        let Some((name, event_id)) = self.events.begin(RealtimeEvent::AudioDelta) else { return };
        let delta = response.audio_delta(name, &event_id, &audio.bytes, label);
        send(Message::Text(delta), Some(audio.turn));
    }

    /// Tells the client of a call about the playback of the first response.
    pub(super) fn send_playback(&mut self, event: RealtimeEvent, send: &mut dyn FnMut(Message)) {
        if self.is_call {
            let response_id = self.responses.front().map(Response::id);
            self.send(event, json!({ "response_id": response_id }), send);
        }
    }

    /// Announces the response's item, once and without words: clients add the words of the deltas to those of the item.
    fn begin_output(&mut self, send: &mut dyn FnMut(Message)) {
        let previous = self.items.last_id();
        let Some(response) = self.responses.front_mut().filter(|response| !response.has_item) else { return };
        response.has_item = true;
        let item = response.empty_item();
        let (position, part) = (response.position(), response.part_with(""));
        let in_conversation = response.is_remembered;
        let json = item.json().into_owned();
        let fields = json!({ "response_id": position["response_id"], "output_index": 0 });
        self.send_with(RealtimeEvent::OutputItemAdded, fields, "item", &json, send);
        if in_conversation {
            self.items.add(item);
            let fields = json!({ "previous_item_id": previous });
            self.send_with(RealtimeEvent::ItemAdded, fields, "item", &json, send);
        }
        self.send(RealtimeEvent::ContentPartAdded, with(position, "part", part), send);
    }

    /// Adds a call of a tool to a response. The client gets it when the words before it are complete.
    pub(super) fn add_call(&mut self, segment_id: u32, number: EntryId, call: &ToolCall) {
        let item_id = self.events.item_id(number);
        if let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) {
            let server_tools = response.server_tools.as_ref().unwrap_or(&self.session.server_tools);
            let server_tool = server_tools.iter().find(|tool| tool.offered.name == call.name).cloned();
            response.calls.push(ResponseCall { item_id, number, call: call.clone(), server_tool });
        }
    }

    /// Sends a call of a response. Clients know its item before its arguments are done: Pipecat relies on it.
    fn send_call(&mut self, response: &Response, at: usize, send: &mut dyn FnMut(Message)) {
        let ResponseCall { item_id: id, number, call, server_tool } = &response.calls[at];
        if let Some(tool) = server_tool {
            let made = MadeCall {
                number: *number,
                item_id: id,
                call,
                tool,
                response_id: response.id(),
                output_index: response.call_index(at),
                is_remembered: response.is_remembered,
            };
            return self.send_server_call(&made, send);
        }
        let position = response.call_position(at);
        let place =
            json!({ "response_id": position["response_id"], "output_index": position["output_index"] });
        let previous = self.items.last_id();
        let empty = call_json(id, call, "in_progress", "").to_string();
        self.send_with(RealtimeEvent::OutputItemAdded, place.clone(), "item", &empty, send);
        let item = Item::call(id.clone(), *number, call);
        let json = item.json().into_owned();
        if response.is_remembered {
            self.items.add(item);
            let fields = json!({ "previous_item_id": previous });
            self.send_with(RealtimeEvent::ItemAdded, fields, "item", &empty, send);
        }
        let arguments = call.arguments.as_str();
        let delta = with(position.clone(), "delta", arguments.into());
        self.send(RealtimeEvent::CallArgumentsDelta, delta, send);
        let done = with(with(position, "arguments", arguments.into()), "name", call.name.as_str().into());
        self.send(RealtimeEvent::CallArgumentsDone, done, send);
        if response.is_remembered {
            self.send_item_done(*number, send);
        }
        self.send_with(RealtimeEvent::OutputItemDone, place, "item", &json, send);
    }

    /// Notes what an answer took, and whether it ended at the bound on its length.
    pub(super) fn note_usage(&mut self, segment_id: u32, usage: TokenUsage, hit_limit: bool) {
        if let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) {
            (response.usage, response.hit_limit) = (usage, hit_limit);
        }
    }

    /// Ends a response: its part, its items and itself.
    pub(super) fn end_response(
        &mut self,
        segment_id: u32,
        cancelled: bool,
        audio_ms: u64,
        send: &mut dyn FnMut(Message),
    ) {
        let Some(at) = self.responses.iter().position(|response| response.segment_id == segment_id) else {
            return;
        };
        let Some(mut response) = self.responses.remove(at) else { return };
        if at > 0 {
            // The client has got nothing of it.
            return;
        }
        response.audio_ms = audio_ms;
        if cancelled && response.hit_limit {
            response.cut_lost_words();
        }
        response.set_status(cancelled, std::mem::take(&mut self.cancel_requested));
        if response.has_item {
            self.end_output(&response, send);
            self.tell_truncation(&response, cancelled, send);
        }
        (0..response.calls.len()).for_each(|at| self.send_call(&response, at, send));
        let fields = json!({ "response": response.to_json(&self.session, self.events.is_beta) });
        self.send(RealtimeEvent::ResponseDone, fields, send);
        self.send(RealtimeEvent::RateLimits, json!({ "rate_limits": [] }), send);
        self.start_ready_calls(send);
        self.leave_unused_servers();
        self.tell_response(send);
    }

    /// Tells the client of a call how much of an interrupted answer it heard, which only voxbridge knows: it paces the playback.
    /// Other clients tell voxbridge. The item has no more words than that already.
    fn tell_truncation(&mut self, response: &Response, cancelled: bool, send: &mut dyn FnMut(Message)) {
        if self.is_call && cancelled && response.has_audio && response.is_remembered {
            let item_id = response.position()["item_id"].take();
            let fields = json!({ "item_id": item_id, "content_index": 0, "audio_end_ms": response.audio_ms });
            self.send(RealtimeEvent::ItemTruncated, fields, send);
        }
    }

    fn end_output(&mut self, response: &Response, send: &mut dyn FnMut(Message)) {
        let position = response.position();
        if response.speaks {
            self.send(RealtimeEvent::AudioDone, position.clone(), send);
            let words = with(position.clone(), "transcript", response.text.as_str().into());
            self.send(RealtimeEvent::AudioTranscriptDone, words, send);
        } else {
            let words = with(position.clone(), "text", response.text.as_str().into());
            self.send(RealtimeEvent::TextDone, words, send);
        }
        let part = with(position.clone(), "part", response.part());
        self.send(RealtimeEvent::ContentPartDone, part, send);
        let item = response.item(self.events.is_beta);
        let fields = json!({ "response_id": position["response_id"], "output_index": 0 });
        self.send_with(RealtimeEvent::OutputItemDone, fields, "item", &item.json(), send);
        if response.is_remembered {
            let number = item.number;
            self.items.replace(item);
            self.send_item_done(number, send);
            if let (Some(played_ms), Some(item)) = (response.played_max_ms, self.items.find_mut(number)) {
                item.truncate(played_ms);
            }
        }
    }
}
