//! The one task of a session: moves frames between sockets and the bridge, dials lanes, waits.
//!
//! The bridge makes every decision. Each round drains the bridge into the outboxes, then waits for one event: a frame, the
//! end of a socket, a dialled lane, a deadline or an order. One stuck side never stalls the other: every socket has its own
//! outbox, and lanes are not read while the client is far behind. [`event_loop`] waits, [`inputs`] passes what came to the
//! bridge, [`super::adaptive_read`] schedules the reads of a client that streams.

mod event_loop;
mod inputs;
pub(crate) mod lane_leases;
mod slice;
pub(crate) mod socket_poll;

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::{Instant, Sleep},
};
use tokio_tungstenite::tungstenite::{Message as WsMessage, protocol::frame::coding::CloseCode};
use tower::Service as _;
use tracing::{Instrument as _, debug, info, trace};

use super::{
    adaptive_read::{AdaptiveReader, backlog::ReadBacklog},
    memory::{Eviction, Held, MemoryBudget},
    queue_keeper::QueueKeeper,
    registry::{
        OperatorOrder, RegistryEntry,
        observer::{FrameDirection, Observer},
    },
    session_task::{
        lane_leases::LaneLeases,
        slice::TimeSlice,
        socket_poll::{LaneSocket, Wakeup},
    },
    tap::{Tap, TapFrame, TapPoint},
    trace_files::SessionTrace,
    upstream_pool::{
        Pool,
        dial::{DialRequest, UpstreamSocket},
    },
    websocket::{
        WebSocket,
        pausable_stream::PausableRead,
        session_socket::{OUT_OF_MEMORY, SessionSocket, SocketEvent},
    },
};
use crate::{
    bridge::{Bridge, Input, Output},
    error::{ErrorKind, Origin},
    event::{HttpBody, HttpRequest, Lane, LanePurpose, Message, Mode, SpeechId},
    mapping::ClientMapping,
    session::{Observation, SessionReport},
    telemetry::context::TraceContext,
};

/// Time for a client to read the end of its session.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an upstream to answer the close frame.
const LANE_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a connection that is no longer needed to be established, so that it can be closed.
const DIAL_FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// A running session's registration, its operator orders and its observer.
pub(super) struct SessionRegistration {
    /// Dropping it ends the registration.
    pub(super) entry: RegistryEntry,
    pub(super) orders: mpsc::Receiver<OperatorOrder>,
    pub(super) observer: Observer,
}

/// Finds the protocol of a client whose first message is of another one than its session's.
pub(super) type FindProtocol = Box<dyn Fn(&WsMessage) -> Option<Arc<ClientMapping>> + Send>;

/// A client whose first message is of another protocol than its session's.
pub(super) struct OtherClient<C> {
    pub(super) client: WebSocket<C>,
    pub(super) first_message: WsMessage,
    pub(super) protocol: Arc<ClientMapping>,
}

/// Everything a session needs from its server.
pub(super) struct SessionContext {
    pub(super) tap: Option<Arc<dyn Tap>>,
    /// The budget for messages in transit, and its bound in bytes.
    pub(super) memory: (Arc<MemoryBudget>, usize),
    /// Due when others need the memory that the client holds.
    pub(super) eviction: Arc<Eviction>,
    /// The client is a request that this process serves: the other end of a stream in memory.
    pub(super) client_is_request: bool,
    /// Finds the client's protocol by its first message; `None` if it is certain.
    pub(super) find_protocol: Option<FindProtocol>,
    /// The client's errors may contain the addresses of upstreams.
    pub(super) tells_upstream_addresses: bool,
    /// Where the session is recorded.
    pub(super) traces: Vec<SessionTrace>,
    /// The trace context of the request.
    pub(super) trace_context: Arc<TraceContext>,
    /// `None` for a connection that is rejected.
    pub(super) registration: Option<SessionRegistration>,
    /// Set to the drain timeout when sessions must finish.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Time to finish after an operator's order to close.
    pub(super) close_timeout: Duration,
    /// Held until the session and its closing handshakes end.
    pub(super) drain_guard: mpsc::Sender<()>,
    /// Takes over lanes that wait in a queue when the session has ended.
    pub(super) queue_keeper: QueueKeeper,
}

/// A session and its sockets.
pub(super) struct SessionTask<C> {
    bridge: Bridge,
    /// The bridge's report after the last input.
    report: SessionReport,
    client: Option<SessionSocket<C>>,
    reader: AdaptiveReader,
    /// Messages of the client under back-pressure.
    backlog: ReadBacklog,
    lanes: Vec<(Lane, LaneSocket)>,
    /// Lanes without a socket whose leases stay until the consequences of their end are known.
    left_lanes: Vec<Lane>,
    pool: Pool,
    lane_leases: LaneLeases,
    /// The budget for messages in transit, and its bound in bytes.
    memory: (Arc<MemoryBudget>, usize),
    tap: Option<Arc<dyn Tap>>,
    traces: Vec<SessionTrace>,
    trace_context: Arc<TraceContext>,
    /// `None` for a connection that is rejected.
    registration: Option<SessionRegistration>,
    /// The order to drain; `None` after it came. It is a future so that it registers once, not in every round.
    drain_order: Option<BoxFuture<'static, Duration>>,
    /// Completes when others need the memory that the client holds; `None` after that.
    eviction: Option<BoxFuture<'static, ()>>,
    client_is_request: bool,
    find_protocol: Option<FindProtocol>,
    tells_upstream_addresses: bool,
    close_timeout: Duration,
    /// Held until the session and its closing handshakes end.
    drain_guard: mpsc::Sender<()>,
    queue_keeper: QueueKeeper,
    sleep: Pin<Box<Sleep>>,
    slice: TimeSlice,
    /// The last event was a deadline.
    last_was_timer: bool,
    /// Kinds of client errors that were logged.
    logged_errors: BTreeSet<ErrorKind>,
    /// Alternates, so that a busy client cannot starve its lanes.
    lanes_first: bool,
}

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    pub(super) fn new(bridge: Bridge, client: WebSocket<C>, pool: Pool, context: SessionContext) -> Self {
        let SessionContext {
            memory,
            eviction,
            client_is_request,
            find_protocol,
            tells_upstream_addresses,
            tap,
            traces,
            trace_context,
            registration,
            drain,
            close_timeout,
            drain_guard,
            queue_keeper,
        } = context;
        Self {
            drain_order: Some(Box::pin(wait_for_drain_order(drain))),
            eviction: Some(Box::pin(eviction.wait())),
            client_is_request,
            find_protocol,
            tells_upstream_addresses,
            close_timeout,
            report: bridge.report(std_now()),
            bridge,
            client: Some(SessionSocket::new(client).without_time_limits(client_is_request)),
            reader: AdaptiveReader::new(Instant::now()),
            backlog: ReadBacklog::default(),
            lanes: Vec::new(),
            left_lanes: Vec::new(),
            pool,
            lane_leases: LaneLeases::default(),
            memory,
            tap,
            traces,
            trace_context,
            registration,
            drain_guard,
            queue_keeper,
            last_was_timer: false,
            logged_errors: BTreeSet::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            slice: TimeSlice::new(std_now()),
            lanes_first: false,
        }
    }

    /// Runs the session to its end, or to the first message of another protocol. `first_message` was read during protocol
    /// detection. Boxed, because otherwise the future would hold the task twice.
    pub(super) async fn run(mut self: Box<Self>, first_message: Option<WsMessage>) -> Option<OtherClient<C>> {
        let session = self.registration.as_ref().map(|registration| registration.entry.session());
        info!(detected_by = session.map(|session| session.info.detected_by.clone()), "session opened");
        if let Some(find_protocol) = self.find_protocol.take()
            && let Some((first_message, protocol)) = self.run_to_first_message(find_protocol).await
        {
            let client = self.client.take()?.into_websocket();
            // The next session closes the client when others need its memory.
            self.eviction = None;
            self.with_observer(|observer| observer.client_closed(true, Some(CloseCode::Normal.into())));
            self.feed_bridge(Input::ClientClosed);
            // Closing the upstream sessions takes time.
            tokio::spawn(self.run_to_end(None).in_current_span());
            return Some(OtherClient { client, first_message, protocol });
        }
        self.run_to_end(first_message).await;
        None
    }

    /// Runs the session until the client's first message. Returns it if it is of another protocol.
    async fn run_to_first_message(
        &mut self,
        find_protocol: FindProtocol,
    ) -> Option<(WsMessage, Arc<ClientMapping>)> {
        while let Some(due) = self.drain_bridge() {
            let wakeup = self.next_wakeup(due).await;
            let is_message = matches!(&wakeup, Wakeup::Client(SocketEvent::Message(_)));
            if let Wakeup::Client(SocketEvent::Message(message)) = &wakeup
                && let Some(protocol) = find_protocol(message)
            {
                return Some((message.clone(), protocol));
            }
            self.handle_wakeup(wakeup);
            if is_message {
                break;
            }
        }
        None
    }

    /// Runs the session to its end.
    async fn run_to_end(mut self: Box<Self>, mut first_message: Option<WsMessage>) {
        while let Some(due) = self.drain_bridge().filter(|_| !self.report.only_waits_in_queue) {
            let wakeup = match first_message.take() {
                Some(message) => Wakeup::Client(SocketEvent::Message(message)),
                None => self.next_wakeup(due).await,
            };
            self.handle_wakeup(wakeup);
            // A peer whose messages never end, or cost much, must not keep the thread from other sessions.
            if self.slice.is_over {
                self.slice.end();
                tokio::task::yield_now().await;
            } else {
                tokio::task::coop::consume_budget().await;
            }
        }
        self.close_client();
        self.traces.clear();
        if let Some(registration) = self.registration.take() {
            registration.observer.finish(&self.bridge);
        }
        if self.report.only_waits_in_queue {
            // The lanes need nothing of the client's conversation.
            self.feed_bridge(Input::ClientClosed);
            let keeper = self.queue_keeper.clone();
            keeper.keep(self.wait_in_queue());
        }
    }

    /// Runs an ended session until its last lane has left the queue and is closed.
    async fn wait_in_queue(mut self: Box<Self>) {
        while let Some(due) = self.drain_bridge() {
            let wakeup = self.next_wakeup(due).await;
            self.handle_wakeup(wakeup);
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Carries out the bridge's outputs. Returns its next deadline, or `None` when the session is over.
    fn drain_bridge(&mut self) -> Option<Option<Instant>> {
        loop {
            let now = std_now();
            let output = self.bridge.poll_output(now);
            for trace in &mut self.traces {
                trace.record_output(now, &output);
            }
            match output {
                Output::ToClient(message, turn) => self.send_client(message, turn),
                Output::DropTurn { turn, .. } => {
                    if let Some(client) = &mut self.client {
                        client.drop_turn(turn);
                    }
                }
                Output::ReopenLane(lane, mode, purpose) => self.redial(lane, mode, purpose),
                Output::ToLane(lane, message) => self.send_lane(lane, message),
                Output::Request(lane, request) => self.send_request(lane, request),
                Output::OpenLane(lane, mode, purpose) => {
                    debug!(lane = lane.0, mode = mode.name(), "dialling an upstream");
                    let request = self.dial_request(mode, purpose);
                    self.lanes.reserve_exact(1);
                    self.lanes.push((lane, LaneSocket::Dialling(self.pool.call(request))));
                }
                Output::CloseLane(lane) => {
                    self.with_observer(|observer| observer.lane_closed(lane, None));
                    if let Some(socket) = self.take_lane_socket(lane) {
                        close_lane(socket, self.drain_guard.clone());
                    }
                }
                Output::Observe(observation) => self.handle_observation(&observation),
                Output::Wait(due) => {
                    self.report = self.bridge.report(now);
                    let kept = self.backlog.bytes + self.report.kept_bytes;
                    let has_room =
                        |client: &mut SessionSocket<C>| client.stream.memory.hold(Held::Kept, kept);
                    if !self.client.as_mut().is_none_or(has_room) {
                        self.close_client_early(CloseCode::Again, OUT_OF_MEMORY);
                        continue;
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
                        registration.observer.publish_if_due(
                            Instant::from_std(now),
                            self.report.state,
                            &self.bridge,
                        );
                    }
                    return Some(due.map(Instant::from_std));
                }
                Output::Finished => return None,
            }
        }
    }

    fn dial_request(&self, mode: Mode, purpose: LanePurpose) -> DialRequest {
        DialRequest { mode, purpose, trace: Some(self.trace_context.clone()) }
    }

    /// Dials a lane's upstream again. The lane keeps its lease meanwhile.
    fn redial(&mut self, lane: Lane, mode: Mode, purpose: LanePurpose) {
        let Some(upstream) = self.lane_leases.upstream(lane) else { return };
        debug!(lane = lane.0, upstream, "dialling the upstream again");
        let mut pool = self.pool.subset([upstream.to_owned()].into());
        let dial = pool.call(self.dial_request(mode, purpose));
        self.lanes.push((lane, LaneSocket::Dialling(dial)));
    }

    /// Shows a frame to the tap.
    fn show_tap<'a>(&self, point: TapPoint, frame: impl Into<TapFrame<'a>>) {
        if let Some(tap) = &self.tap {
            tap.on_frame(self.bridge.session_id(), std_now(), point, frame.into());
        }
    }

    /// Calls the session's observer.
    fn with_observer(&mut self, act: impl FnOnce(&mut Observer)) {
        if let Some(registration) = &mut self.registration {
            act(&mut registration.observer);
        }
    }

    fn handle_observation(&mut self, observation: &Observation) {
        if let Observation::Measured(figure) = observation {
            return self.with_observer(|observer| observer.record_measurement(*figure));
        }
        self.lane_leases.handle_observation(observation);
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

    fn send_client(&mut self, message: Message, turn: Option<SpeechId>) {
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

    /// Starts the closing handshake with the client, which the session does not wait for. A request gets the whole outbox
    /// first, as slowly as its own client reads: the rest of a speech may be in it.
    fn close_client(&mut self) {
        let Some(mut client) = self.client.take() else { return };
        client.set_read_paused(false);
        let guard = self.drain_guard.clone();
        match self.eviction.take_if(|_| self.client_is_request) {
            Some(eviction) => client.deliver_in_background(eviction, CLIENT_CLOSE_TIMEOUT, guard),
            None => client.close_in_background(CLIENT_CLOSE_TIMEOUT, guard),
        }
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

    fn take_lane_socket(&mut self, lane: Lane) -> Option<LaneSocket> {
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
        // Dropping it ends the request.
        LaneSocket::Http(_) => {}
        LaneSocket::Dialling(dial) => {
            tokio::spawn(async move {
                if let Ok(Ok(dialled)) = tokio::time::timeout(DIAL_FINISH_TIMEOUT, dial).await
                    && let UpstreamSocket::WebSocket(socket) = dialled.socket.socket
                {
                    close(SessionSocket::new(*socket), drain_guard);
                }
            });
        }
    }
}

/// A session that is cut off is reported as well.
impl<C> Drop for SessionTask<C> {
    fn drop(&mut self) {
        if let Some(SessionRegistration { mut observer, .. }) = self.registration.take() {
            observer.mark_cut_off();
            observer.finish(&self.bridge);
        }
    }
}

/// Completes with the drain timeout when sessions must finish; never if the sender is gone.
pub(super) async fn wait_for_drain_order(mut drain: watch::Receiver<Option<Duration>>) -> Duration {
    let timeout = drain.wait_for(Option::is_some).await.ok().and_then(|timeout| *timeout);
    match timeout {
        Some(timeout) => timeout,
        None => std::future::pending().await,
    }
}

fn std_now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
mod tests;
