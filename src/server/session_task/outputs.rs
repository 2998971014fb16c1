//! Carries out what the bridge orders: messages to the client and the lanes, dials, closes, and observations.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::Instant,
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tower::Service as _;
use tracing::{debug, info, trace};

use super::{
    ClientEnd, LANE_CLOSE_TIMEOUT, SessionRegistration, SessionTask, socket_poll::LaneSocket, std_now,
};
use crate::{
    bridge::{Input, Output},
    error::Origin,
    server::{
        memory::Held,
        recordings::RecordingNews,
        registry::observer::FrameDirection,
        tap::{TapFrame, TapPoint},
        upstream_pool::{
            dial::{DialRequest, UpstreamSocket},
            lease::Lease,
        },
        websocket::{
            pausable_stream::PausableRead,
            session_socket::{OUT_OF_MEMORY, SessionSocket},
        },
    },
    session::{Observation, RecordedItem},
    telemetry::context::TraceContext,
    vocabulary::{
        ClientEvent, EntryId, HttpBody, HttpRequest, Lane, LanePurpose, Message, Mode, RemoteServer,
        ServerCall, ServerCallResult, SpeechId,
    },
};

/// Why a client's tool server is not connected.
const NO_TOOL_SERVERS: &str =
    "the operator allows no tool servers of clients (access.tool_servers lists patterns of their URLs)";

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    /// Carries out the bridge's outputs. Returns its next deadline, or `None` when the session is over.
    pub(super) fn drain_bridge(&mut self) -> Option<Option<Instant>> {
        loop {
            let now = std_now();
            let output = self.bridge.poll_output(now);
            for trace in &mut self.traces {
                trace.record_output(now, &output);
            }
            match output {
                Output::ToClient(message, turn) => self.send_client(message, turn),
                Output::Event(event) => self.send_event(now, event),
                Output::DropTurn { turn, .. } => {
                    if let Some(client) = &mut self.client {
                        client.drop_turn(turn);
                    }
                }
                Output::ReopenLane(lane, mode, purpose) => self.redial(lane, mode, purpose),
                Output::ToLane(lane, message) => self.send_lane(lane, message),
                Output::Request(lane, request) => self.send_request(lane, request),
                Output::OpenLane(lane, mode, purpose) => self.dial(lane, mode, purpose),
                Output::CloseLane(lane) => {
                    self.with_observer(|observer| observer.lane_closed(lane, None));
                    if let Some(socket) = self.take_lane_socket(lane) {
                        close_lane(socket, self.drain_guard.clone());
                    }
                }
                Output::JudgeTurn(pause, audio) => self.pauses.judge(pause, audio),
                Output::WithdrawJudgement => self.pauses.withdraw(),
                Output::FindWorker(pause, lane) => {
                    let is_free = |lease: &Lease| {
                        self.pool.has_free_worker_beside(lease, Mode::Chat, LanePurpose::Answer)
                    };
                    if self.lane_leases.get(lane).is_some_and(is_free) {
                        self.pauses.answers.push(Input::WorkerFound(pause));
                    }
                }
                Output::Record(item) => self.handle_recorded(now, item),
                Output::CallTool(call) => self.call_tool(now, *call),
                Output::ConnectTools(number, server) => self.connect_tools(number, *server),
                Output::LeaveTools(number) => {
                    if let Some(tools) = &mut self.tools {
                        tools.leave(number);
                    }
                }
                Output::Observe(observation) => self.handle_observation(now, &observation),
                Output::Wait(due) => {
                    if self.note_report(now) {
                        let next_look = self.room_search.next_look(&self.lane_leases);
                        return Some(due.map(Instant::from_std).into_iter().chain(next_look).min());
                    }
                }
                Output::Finished => return None,
            }
        }
    }

    /// Takes note of the bridge's report when it has no more output. Returns false if there is an input for it instead.
    fn note_report(&mut self, now: std::time::Instant) -> bool {
        let Self { room_search, pool, lane_leases, .. } = self;
        let room = || room_search.look(Instant::from_std(now), pool, lane_leases);
        if let Some(answer) = self.pauses.answers.pop().or_else(room) {
            self.feed_bridge(answer);
            return false;
        }
        self.slice.count_time(now);
        self.report = self.bridge.report(now);
        let kept = self.backlog.bytes + self.report.kept_bytes + self.report.unsent_bytes;
        let has_room = |client: &mut ClientEnd<C>| client.memory_mut().hold(Held::Kept, kept);
        if !self.client.as_mut().is_none_or(has_room) {
            self.close_client_early(CloseCode::Again, OUT_OF_MEMORY);
            return false;
        }
        let Self { bridge, lane_leases, left_lanes, .. } = self;
        left_lanes.retain(|lane| {
            let goes_on = bridge.has_lane(*lane);
            if !goes_on {
                lane_leases.remove(*lane);
            }
            goes_on
        });
        if let Some(registration) = &mut self.registration {
            registration.observer.publish_if_due(Instant::from_std(now), self.report.state, &self.bridge);
        }
        true
    }

    fn dial_request(&self, lane: Lane, mode: Mode, purpose: LanePurpose) -> DialRequest {
        let span_id = self.registration.as_ref().and_then(|session| session.observer.lane_span_id(lane));
        let trace = match span_id {
            None => self.trace_context.clone(),
            Some(_) => Arc::new(TraceContext { span_id, ..(*self.trace_context).clone() }),
        };
        DialRequest { mode, purpose, trace: Some(trace) }
    }

    fn dial(&mut self, lane: Lane, mode: Mode, purpose: LanePurpose) {
        debug!(lane = lane.0, mode = mode.name(), "dialling an upstream");
        let request = self.dial_request(lane, mode, purpose);
        let dial = match self.room_search.take_upstream(mode, purpose) {
            Some(upstream) => self.pool.call_at(upstream, request),
            None => self.pool.call(request),
        };
        self.lanes.reserve_exact(1);
        self.lanes.push((lane, LaneSocket::Dialling(dial)));
    }

    /// Dials a lane's upstream again, for the lease that the lane keeps.
    fn redial(&mut self, lane: Lane, mode: Mode, purpose: LanePurpose) {
        let Some(lease) = self.lane_leases.get(lane) else { return };
        debug!(lane = lane.0, upstream = lease.upstream(), "dialling the upstream again");
        if let Some(dial) = self.pool.redial(lease, self.dial_request(lane, mode, purpose)) {
            self.lanes.push((lane, LaneSocket::Redialling(dial)));
        }
    }

    /// Calls a tool, or answers at once that there is none.
    fn call_tool(&mut self, now: std::time::Instant, call: ServerCall) {
        self.record(now, || Some(RecordingNews::of_call(&call)));
        match &self.tools {
            Some(tools) => tools.call(call),
            None => {
                let result = ServerCallResult::failed("there are no tool servers");
                self.pauses.answers.push(Input::ToolResult(call.id, result));
            }
        }
    }

    /// Connects to a tool server of the client, or answers at once why not.
    fn connect_tools(&mut self, number: EntryId, server: RemoteServer) {
        match &mut self.tools {
            Some(tools) => tools.connect(number, server),
            None => {
                self.pauses.answers.push(Input::ToolList(number, Err(NO_TOOL_SERVERS.to_owned())));
            }
        }
    }

    /// Passes a piece of the recording on, and an event to webhooks.
    fn handle_recorded(&mut self, now: std::time::Instant, item: Box<RecordedItem>) {
        if let RecordedItem::Event(event) = &*item {
            self.with_observer(|observer| observer.tell_event(event));
        }
        self.record(now, || Some(RecordingNews::Item(item)));
    }

    fn handle_observation(&mut self, now: std::time::Instant, observation: &Observation) {
        self.record(now, || RecordingNews::of_observation(observation));
        self.lane_leases.handle_observation(observation);
        if let Observation::Measured(figure) = observation {
            return self.with_observer(|observer| observer.record_measurement(*figure));
        }
        self.with_observer(|observer| observer.observe(observation));
        // Only an upstream's own queue has to be waited for; the line for a place is voxbridge's.
        if let Observation::LaneUnneeded { lane, .. } = observation
            && let Some((_, LaneSocket::Dialling(dial))) =
                self.lanes.iter_mut().find(|(known, _)| known == lane)
        {
            dial.give_up();
        }
        match observation {
            // Logged once per kind. The detail may quote the client, so it is only traced.
            Observation::ErrorTold(error) if error.kind.origin() == Origin::Client => {
                if self.logged_errors.insert(error.kind) {
                    info!(error = error.kind.name(), "client error");
                }
                trace!("{}", error.detail);
            }
            other => crate::telemetry::log_observation(other),
        }
    }

    pub(super) fn send_client(&mut self, message: Message, turn: Option<SpeechId>) {
        self.show_tap(TapPoint::ToClient, &message);
        let close_code = if let Message::Close(code, _) = message { Some(code) } else { None };
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            match close_code {
                Some(_) => observer.client_closed(false, close_code),
                None => observer.counts.client_frames[FrameDirection::Out as usize] += 1,
            }
        }
        if let Some(client) = &mut self.client {
            client.send_tagged(message, turn);
        }
        if close_code.is_some() {
            self.close_client();
        }
    }

    /// Sends an event to a client within this process.
    fn send_event(&mut self, now: std::time::Instant, event: ClientEvent) {
        let message = self.show_event(now, &event);
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            observer.counts.client_frames[FrameDirection::Out as usize] += 1;
        }
        if let Some(client) = &mut self.client {
            client.send_event(event, message);
        }
    }

    /// Shows the tap and the traces an event, as the message that spells it. Returns that message, if it is a text.
    fn show_event(&mut self, now: std::time::Instant, event: &ClientEvent) -> Option<String> {
        let client_shows_it = self.client.as_ref().is_some_and(ClientEnd::shows_messages);
        if self.traces.is_empty() && self.tap.is_none() && !client_shows_it {
            return None;
        }
        let mut text = None;
        for message in self.bridge.spell_event(now, event) {
            self.show_tap(TapPoint::ToClient, &message);
            let output = Output::ToClient(message, event.turn());
            for trace in &mut self.traces {
                trace.record_output(now, &output);
            }
            if let Output::ToClient(Message::Text(spelled), _) = output {
                text = Some(spelled);
            }
        }
        text
    }

    /// Ends the connection with the client, which the session does not wait for.
    pub(super) fn close_client(&mut self) {
        let Some(client) = self.client.take() else { return };
        let eviction = self.eviction.take_if(|_| client.is_port());
        client.close(eviction, self.drain_guard.clone());
    }

    fn send_lane(&mut self, lane: Lane, message: Message) {
        self.show_tap(TapPoint::ToLane(lane), &message);
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            observer.counts.upstream_frames[FrameDirection::Out as usize] += 1;
        }
        if let Some((_, LaneSocket::Connected(socket))) =
            self.lanes.iter_mut().find(|(known, _)| *known == lane)
        {
            socket.send(message);
        }
    }

    fn send_request(&mut self, lane: Lane, request: HttpRequest) {
        let shown = match &request.body {
            HttpBody::Json(json) => TapFrame::Text(json),
            HttpBody::Form { file, .. } => TapFrame::Binary(file),
        };
        self.show_tap(TapPoint::ToLane(lane), shown);
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            observer.counts.upstream_frames[FrameDirection::Out as usize] += 1;
        }
        if let Some((_, LaneSocket::Http(socket))) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
            socket.send(request);
        }
    }

    pub(super) fn take_lane_socket(&mut self, lane: Lane) -> Option<LaneSocket> {
        let index = self.lanes.iter().position(|(known, _)| *known == lane)?;
        if !self.left_lanes.contains(&lane) {
            self.left_lanes.push(lane);
        }
        Some(self.lanes.swap_remove(index).1)
    }
}

/// Closes a lane politely, which the session does not wait for. A connection that is still being dialled would reach an
/// upstream that then waits for its session: it is finished first.
fn close_lane(lane_socket: LaneSocket, drain_guard: mpsc::Sender<()>) {
    let close = |mut socket: SessionSocket<_>, drain_guard| {
        socket.send(Message::Close(1000, String::new()));
        socket.close_in_background(LANE_CLOSE_TIMEOUT, drain_guard);
    };
    match lane_socket {
        LaneSocket::Connected(socket) => close(*socket, drain_guard),
        // Dropping it ends the request, or the attempt: no session waits for that one.
        LaneSocket::Http(_) | LaneSocket::Redialling(_) => {}
        LaneSocket::Dialling(dial) => {
            tokio::spawn(async move {
                if let Some(dialled) = dial.finish().await
                    && let UpstreamSocket::WebSocket(socket) = dialled.socket.socket
                {
                    close(SessionSocket::new(*socket), drain_guard);
                }
            });
        }
    }
}
