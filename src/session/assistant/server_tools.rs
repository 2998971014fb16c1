//! Tools of the operator's tool servers: what the model is offered beside the client's tools, and the calls that are running.
//!
//! The driver carries out a call ([`Action::CallTool`]) and gives its result. The call and a note that it is running become part
//! of the conversation at once, and the result replaces the note when it comes. So a barge-in drops the wish for an answer, and
//! the conversation still says what was done.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    answer::Answer,
    entries::Entries,
    offer::{CallCounts, Offer},
};
use crate::{
    session::{outbox::Action, tools::Tools},
    vocabulary::{
        AnswerRequest, Entry, EntryId, EntryPart, Role, ServerCall, ServerCallResult, ToolCall, ToolChoice,
        ToolOffer, ToolResult, ToolServer,
    },
};

/// Result of a call that is running, for the model.
const RUNNING: &str = r#"{"status":"the call is still running"}"#;

/// Tool servers of one session.
#[derive(Debug, Default)]
pub(super) struct ServerTools {
    servers: Arc<[ToolServer]>,
    /// Calls whose results have not come, of any answer.
    running: Vec<RunningCall>,
}

/// A call whose result has not come.
#[derive(Debug)]
struct RunningCall {
    /// Entry of the call.
    call: EntryId,
    call_id: String,
    /// Entry of its result.
    result: EntryId,
    /// The answer that made it.
    answer: u32,
    /// Longest time of the call.
    timeout: Duration,
    deadline: Instant,
}

impl ServerTools {
    pub(super) fn set_servers(&mut self, servers: Arc<[ToolServer]>) {
        self.servers = servers;
    }

    /// The tools for the model: the client's and those of servers, after these calls in the same turn of the user.
    pub(super) fn offer(&self, client: &ToolOffer, counts: &CallCounts) -> Offer {
        Offer::merge(client, &self.servers, counts)
    }

    /// True if an answer may have calls beside this offer of the client.
    pub(super) fn allow_calls(&self, client: &ToolOffer) -> bool {
        client.allows_calls()
            || self.servers.iter().any(|server| !server.tools.is_empty()) && client.choice != ToolChoice::None
    }

    /// True while calls of this answer run.
    pub(super) fn are_running_for(&self, answer: u32) -> bool {
        self.running.iter().any(|call| call.answer == answer)
    }

    /// When the first running call takes too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running.iter().map(|call| call.deadline).min()
    }

    /// Forgets the running calls, because the session ends. Their effects stay.
    pub(super) fn stop(&mut self) {
        self.running.clear();
    }

    /// Begins the calls of an answer on tool servers, if there are any. Returns false if there are none.
    pub(super) fn begin_calls(
        &mut self,
        now: Instant,
        answer: &mut Answer,
        entries: &mut Entries,
        tools: &mut Tools,
    ) -> bool {
        let calls = answer.take_server_calls(now, entries, tools);
        for (number, call) in &calls {
            let part = EntryPart::Call(call.clone());
            let entry = Entry { id: EntryId(*number), role: Role::Assistant, parts: vec![part] };
            answer.add_to_conversation(entry, entries);
        }
        for (number, call) in &calls {
            self.begin_call(now, EntryId(*number), call, answer, entries, tools);
        }
        !calls.is_empty()
    }

    fn begin_call(
        &mut self,
        now: Instant,
        id: EntryId,
        call: &ToolCall,
        answer: &mut Answer,
        entries: &mut Entries,
        tools: &mut Tools,
    ) {
        let result = EntryId(tools.segment_ids.next_id());
        let (call_id, arguments) = (call.call_id.clone(), call.arguments.clone());
        let output = match answer.count_server_call(&call.name) {
            Ok(offered) => {
                self.running.push(RunningCall {
                    call: id,
                    call_id: call_id.clone(),
                    result,
                    answer: answer.segment_id(),
                    timeout: offered.timeout,
                    deadline: now + offered.timeout,
                });
                tools.floor.out.push(Action::CallTool(Box::new(ServerCall {
                    id,
                    list: None,
                    server: offered.server.clone(),
                    tool: offered.tool.clone(),
                    arguments,
                    timeout: offered.timeout,
                })));
                RUNNING.to_owned()
            }
            Err(problem) => ServerCallResult::failed(&problem).output,
        };
        let parts = vec![EntryPart::Result(ToolResult { call_id, output })];
        answer.add_to_conversation(Entry { id: result, role: Role::User, parts }, entries);
    }

    /// Takes the result of a call. One that came too late is dropped.
    pub(super) fn take_result(
        &mut self,
        id: EntryId,
        result: ServerCallResult,
        current: Option<&mut Answer>,
        entries: &mut Entries,
    ) {
        let Some(at) = self.running.iter().position(|known| known.call == id) else { return };
        let call = self.running.remove(at);
        let mut output = result.output;
        entries.cut_result(&mut output);
        let mut parts = vec![EntryPart::Result(ToolResult { call_id: call.call_id, output })];
        parts.extend(result.pictures.into_iter().map(EntryPart::Picture));
        match current.and_then(|answer| find_own(&mut answer.request, call.result)) {
            Some(own) => own.parts = parts,
            None => entries.replace(call.result, parts),
        }
    }

    /// Numbers and times of the calls that take too long.
    pub(super) fn late_calls(&self, now: Instant) -> Vec<(EntryId, Duration)> {
        let late = self.running.iter().filter(|call| call.deadline <= now);
        late.map(|call| (call.call, call.timeout)).collect()
    }
}

/// An entry of a request that has its own.
fn find_own(request: &mut AnswerRequest, id: EntryId) -> Option<&mut Entry> {
    request.entries.iter_mut().flatten().find(|entry| entry.id == id)
}
