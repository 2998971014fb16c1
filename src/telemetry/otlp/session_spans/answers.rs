//! Spans of what the user hears: turns of the model, with their calls of tools, and texts that the client wants spoken.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{OPEN_MAX, Scope};
use crate::{
    telemetry::otlp::span::{Span, SpanKind},
    vocabulary::{ClientEvent, EntryId, ServerCall, ServerCallResult, TokenUsage, ToolCall, ToolResult},
};

/// Events of turns and texts: the first audio was sent, the user has heard all, or has interrupted.
const FIRST_AUDIO: &str = "first_audio";
const HEARD: &str = "heard";
const INTERRUPTED: &str = "interrupted";

/// Turns, texts and calls that are not over.
#[derive(Debug)]
pub(super) struct AnswerSpans {
    /// Name of the profile, which is the agent.
    agent: String,
    turns: Vec<Turn>,
    speeches: Vec<SpokenText>,
    tools: Vec<ToolSpan>,
}

/// A turn of the model.
#[derive(Debug)]
struct Turn {
    segment_id: u32,
    span: Span,
}

/// A text that the client wants spoken.
#[derive(Debug)]
struct SpokenText {
    /// Its name; known when its audio begins.
    request_id: Option<String>,
    span: Span,
}

/// A call of a tool.
#[derive(Debug)]
struct ToolSpan {
    call: CallName,
    span: Span,
}

/// Names a call within its session.
#[derive(Debug, PartialEq, Eq)]
enum CallName {
    /// On a tool server.
    Server(EntryId),
    /// By the client.
    Client(String),
}

impl AnswerSpans {
    pub(super) fn new(profile: &str) -> Self {
        Self { agent: profile.to_owned(), turns: Vec::new(), speeches: Vec::new(), tools: Vec::new() }
    }

    /// Id of the newest turn.
    pub(super) fn newest_turn(&self) -> Option<u64> {
        self.turns.last().map(|turn| turn.span.id)
    }

    /// Id of the turn, or else of the text, that is spoken by a question which is asked now. A text begins with it.
    pub(super) fn speaking(&mut self, scope: &mut Scope, now: Instant) -> u64 {
        if let Some(turn) = self.newest_turn() {
            return turn;
        }
        if self.speeches.len() == OPEN_MAX {
            scope.end(now, self.speeches.remove(0).span);
        }
        let span = scope.begin(now, "speech", SpanKind::Internal);
        let id = span.id;
        self.speeches.push(SpokenText { request_id: None, span });
        id
    }

    /// Notes an event of a question in the turn or text that it belongs to.
    pub(super) fn note_question(&mut self, id: u64, unix_ns: u64, event: &'static str) {
        if let Some(span) = self.spans_mut().find(|span| span.id == id)
            && !span.has_event(event)
        {
            span.add_event(unix_ns, event, Vec::new());
        }
    }

    fn spans_mut(&mut self) -> impl Iterator<Item = &mut Span> {
        let turns = self.turns.iter_mut().map(|turn| &mut turn.span);
        turns.chain(self.speeches.iter_mut().map(|speech| &mut speech.span))
    }

    /// Notes an event in the turn, or else the text, that is heard now.
    pub(super) fn note_heard(&mut self, scope: &Scope, now: Instant, event: &'static str) {
        if let Some(span) = self.spans_mut().find(|span| span.has_event(FIRST_AUDIO)) {
            scope.note(span, now, event);
        }
    }

    /// The audio of a turn begins: turns are heard in their order.
    fn note_first_audio(&mut self, scope: &Scope, now: Instant) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| !turn.span.has_event(FIRST_AUDIO)) {
            scope.note(&mut turn.span, now, FIRST_AUDIO);
        }
    }

    /// The user or the client has interrupted what is said.
    pub(super) fn interrupted(&mut self, scope: &Scope, now: Instant) {
        for span in self.spans_mut() {
            scope.note(span, now, INTERRUPTED);
        }
    }

    /// Returns the id of a turn that begins.
    pub(super) fn handle_event(
        &mut self,
        scope: &mut Scope,
        now: Instant,
        event: &ClientEvent,
    ) -> Option<u64> {
        match event {
            ClientEvent::AnswerStarted { segment_id, by_client } => {
                return Some(self.begin_turn(scope, now, *segment_id, *by_client));
            }
            ClientEvent::SpeakingStarted { is_requested: false, .. } => {
                self.note_first_audio(scope, now);
            }
            ClientEvent::SpeakingStarted { request_id, at_ms, text, .. } => {
                let requested_at = now.checked_sub(Duration::from_millis(*at_ms)).unwrap_or(now);
                self.begin_speech(scope, requested_at, now, request_id, text);
            }
            ClientEvent::SpeakingEnded { request_id, cancelled, audio_ms, .. } => {
                self.end_speech(scope, now, request_id, *cancelled, *audio_ms);
            }
            ClientEvent::TranscriptFinal { segment_id, text, .. } => self.set_words(scope, *segment_id, text),
            ClientEvent::ToolCalled { segment_id, call, .. } => {
                let parent = self.turn_mut(*segment_id).map(|turn| turn.span.id);
                self.client_tool_called(scope, now, parent, call);
            }
            ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, hit_limit } => {
                if let Some(turn) = self.turn_mut(*segment_id) {
                    set_usage(&mut turn.span, usage);
                    turn.span.set("voxbridge.turn.audio.seconds", *audio_ms as f64 / 1000.0);
                    let reason = if *hit_limit { "length" } else { "stop" };
                    turn.span.set("gen_ai.response.finish_reasons", vec![reason.to_owned()]);
                    let is_noted = turn.span.has_event(INTERRUPTED);
                    let end = if *cancelled { Some("cut_off").filter(|_| !is_noted) } else { Some(HEARD) };
                    end.into_iter().for_each(|end| scope.note(&mut turn.span, now, end));
                }
                self.end_turn(scope, now, *segment_id);
            }
            _ => {}
        }
        None
    }

    fn begin_turn(&mut self, scope: &mut Scope, now: Instant, segment_id: u32, by_client: bool) -> u64 {
        if self.turns.len() == OPEN_MAX {
            scope.end(now, self.turns.remove(0).span);
        }
        let mut span = scope.begin(now, format!("invoke_agent {}", self.agent), SpanKind::Internal);
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.agent.name", self.agent.clone());
        span.set("voxbridge.segment", segment_id);
        span.set("voxbridge.turn.by_client", by_client);
        let id = span.id;
        self.turns.push(Turn { segment_id, span });
        id
    }

    fn turn_mut(&mut self, segment_id: u32) -> Option<&mut Turn> {
        self.turns.iter_mut().find(|turn| turn.segment_id == segment_id)
    }

    fn set_words(&mut self, scope: &Scope, segment_id: u32, text: &str) {
        if let Some(turn) = self.turn_mut(segment_id) {
            scope.set_content(&mut turn.span, "gen_ai.output.messages", || {
                let part = json!({"type": "text", "content": text});
                json!([{"role": "assistant", "parts": [part], "finish_reason": "stop"}]).to_string()
            });
        }
    }

    fn end_turn(&mut self, scope: &Scope, now: Instant, segment_id: u32) {
        if let Some(index) = self.turns.iter().position(|turn| turn.segment_id == segment_id) {
            scope.end(now, self.turns.remove(index).span);
        }
    }

    /// The audio of a text begins.
    fn begin_speech(
        &mut self,
        scope: &mut Scope,
        requested_at: Instant,
        now: Instant,
        request_id: &str,
        text: &str,
    ) {
        if !self.speeches.iter().any(|speech| speech.request_id.is_none()) {
            self.speaking(scope, now);
        }
        let Some(speech) = self.speeches.iter_mut().find(|speech| speech.request_id.is_none()) else {
            return;
        };
        speech.request_id = Some(request_id.to_owned());
        speech.span.start_unix_ns = scope.unix_ns(requested_at).min(speech.span.start_unix_ns);
        speech.span.set("voxbridge.request", request_id.to_owned());
        scope.set_content(&mut speech.span, "voxbridge.text", || text.to_owned());
        scope.note(&mut speech.span, now, FIRST_AUDIO);
    }

    fn end_speech(&mut self, scope: &Scope, now: Instant, request_id: &str, cancelled: bool, audio_ms: u64) {
        let is_named = |speech: &SpokenText| speech.request_id.as_deref() == Some(request_id);
        let Some(index) = self.speeches.iter().position(is_named) else { return };
        let mut span = self.speeches.remove(index).span;
        span.set("voxbridge.speech.audio.seconds", audio_ms as f64 / 1000.0);
        let is_noted = span.has_event(INTERRUPTED);
        let end = if cancelled { Some(INTERRUPTED).filter(|_| !is_noted) } else { Some(HEARD) };
        end.into_iter().for_each(|end| scope.note(&mut span, now, end));
        scope.end(now, span);
    }

    fn begin_tool(&mut self, scope: &mut Scope, now: Instant, call: CallName, name: &str) -> &mut Span {
        if self.tools.len() == OPEN_MAX {
            scope.end(now, self.tools.remove(0).span);
        }
        let mut span = scope.begin(now, format!("execute_tool {name}"), SpanKind::Internal);
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", name.to_owned());
        self.tools.push(ToolSpan { call, span });
        let last = self.tools.len() - 1;
        &mut self.tools[last].span
    }

    fn client_tool_called(&mut self, scope: &mut Scope, now: Instant, parent: Option<u64>, call: &ToolCall) {
        let ToolCall { call_id, name, arguments, .. } = call;
        let has_content = scope.has_content;
        let span = self.begin_tool(scope, now, CallName::Client(call_id.clone()), name);
        span.parent = parent.or(span.parent);
        span.set("gen_ai.tool.call.id", call_id.clone());
        // The client runs it.
        span.set("gen_ai.tool.type", "function");
        span.set_if_known("gen_ai.tool.call.arguments", has_content.then(|| arguments.clone()));
    }

    /// The client gives the result of a call.
    pub(super) fn client_tool_ended(&mut self, scope: &Scope, now: Instant, result: &ToolResult) {
        self.end_tool(scope, now, &CallName::Client(result.call_id.clone()), &result.output, false);
    }

    pub(super) fn server_tool_called(&mut self, scope: &mut Scope, now: Instant, call: &ServerCall) {
        let (turn, has_content) = (self.newest_turn(), scope.has_content);
        let span = self.begin_tool(scope, now, CallName::Server(call.id), &call.tool);
        span.parent = turn.or(span.parent);
        // voxbridge runs it.
        span.set("gen_ai.tool.type", "extension");
        span.set("voxbridge.tool.server", call.server.clone());
        span.set_if_known("gen_ai.tool.call.arguments", has_content.then(|| call.arguments.clone()));
    }

    pub(super) fn server_tool_ended(
        &mut self,
        scope: &Scope,
        now: Instant,
        call: EntryId,
        result: &ServerCallResult,
    ) {
        self.end_tool(scope, now, &CallName::Server(call), &result.output, result.has_failed());
    }

    fn end_tool(&mut self, scope: &Scope, now: Instant, call: &CallName, output: &str, has_failed: bool) {
        let Some(index) = self.tools.iter().position(|tool| tool.call == *call) else { return };
        let mut span = self.tools.remove(index).span;
        scope.set_content(&mut span, "gen_ai.tool.call.result", || output.to_owned());
        if has_failed {
            span.fail("tool_error", "the call of the tool failed");
        }
        scope.end(now, span);
    }

    /// Number of turns and calls that are not over.
    #[cfg(test)]
    pub(super) const fn open_count(&self) -> usize {
        self.turns.len() + self.tools.len()
    }

    pub(super) fn end_all(&mut self, scope: &Scope, now: Instant) {
        let tools = self.tools.drain(..).map(|tool| tool.span);
        let speeches = self.speeches.drain(..).map(|speech| speech.span);
        let turns = self.turns.drain(..).map(|turn| turn.span);
        tools.chain(speeches).chain(turns).for_each(|span| scope.end(now, span));
    }
}

fn set_usage(span: &mut Span, usage: &TokenUsage) {
    span.set("gen_ai.usage.input_tokens", usage.input());
    span.set("gen_ai.usage.output_tokens", usage.output());
}
