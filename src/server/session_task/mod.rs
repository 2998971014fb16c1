//! The one task of a session: moves frames between sockets and the bridge, dials lanes, waits.
//!
//! It decides nothing. Each round drains the bridge into the outboxes, then waits for one thing: a frame, the end of a
//! socket, a dialled lane, a deadline, or the order to stop. One stuck side never stalls the other: every socket has an
//! outbox of its own, and lanes are not read while the client is far behind. [`event_loop`] is how it waits, [`read scheduler`](super::adaptive_read::scheduler) foretells
//! when a client that streams is to be read.

mod event_loop;
pub(crate) mod lane_leases;
pub(crate) mod socket_poll;
mod tapped;

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::{Instant, Sleep},
};
use tokio_tungstenite::tungstenite::Message as WsMessage;
use tower::Service as _;
use tracing::{debug, info, trace};

use self::tapped::TapHandle;
use super::adaptive_read::{backlog::ReadBacklog, frame_batcher::FrameBatcher, scheduler::ReadScheduler};
use super::{
    registry::{
        OperatorOrder, RegistryEntry,
        observer::{FrameDirection, Observer, close_code},
    },
    session_task::{
        lane_leases::LaneLeases,
        socket_poll::{CLIENT_OUTBOX_MAX_BYTES, LaneSocket, Wakeup},
    },
    tap::{Tap, TapPoint},
    trace_files::SessionTrace,
    upstream_pool::{DialledLane, Pool, dial::DialRequest},
    websocket::{
        outbox::{MeteredWebSocket, SessionSocket, SocketEvent},
        pausable_stream::PausableRead,
    },
};
use crate::{
    bridge::{Bridge, Input, Output},
    error::{ErrorKind, Origin},
    event::{DisconnectReason, Frame, Lane, Message, TurnTag},
    session::Observation,
    telemetry::context::TraceContext,
};

/// How long a client may take to read the end of its session.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an upstream that is dropped may take to answer the close frame.
const LANE_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session's place among those that run, and the orders it is given.
pub(super) struct SessionRegistration {
    pub(super) entry: RegistryEntry,
    pub(super) orders: mpsc::Receiver<OperatorOrder>,
    pub(super) observer: Observer,
}

/// What is around a session.
pub(super) struct SessionContext {
    pub(super) tap: Option<Arc<dyn Tap>>,
    pub(super) trace: Option<SessionTrace>,
    /// Whose request it is part of.
    pub(super) trace_context: Arc<TraceContext>,
    /// None for a client that is only told why it is refused.
    pub(super) registration: Option<SessionRegistration>,
    /// The order to finish, and within which time.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Within which time an operator's order to end is carried out.
    pub(super) close_timeout: Duration,
    /// Held as long as the session and its farewells last.
    pub(super) drain_guard: mpsc::Sender<()>,
}

/// A session and its sockets.
pub(super) struct SessionTask<C> {
    bridge: Bridge,
    client: Option<SessionSocket<C>>,
    read_scheduler: ReadScheduler,
    frame_batcher: FrameBatcher,
    /// What a client sent that is held back.
    backlog: ReadBacklog,
    lanes: Vec<(Lane, LaneSocket)>,
    pool: Pool,
    lane_leases: LaneLeases,
    tap: TapHandle,
    trace: Option<SessionTrace>,
    trace_context: Arc<TraceContext>,
    /// None for a client that is only told why it is refused.
    registration: Option<SessionRegistration>,
    /// The order to stop; `None` once it came. Registered once, not every round.
    drain_order: Option<BoxFuture<'static, Duration>>,
    close_timeout: Duration,
    /// Held as long as the session and its farewells last.
    drain_guard: mpsc::Sender<()>,
    sleep: Pin<Box<Sleep>>,
    /// The last thing that happened was a deadline.
    last_was_timer: bool,
    /// Errors of the client's own making that were logged.
    logged_errors: BTreeSet<ErrorKind>,
    /// Whose turn it is to be read first, so that a busy client cannot starve its lanes.
    lanes_first: bool,
}

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    pub(super) fn new(
        bridge: Bridge,
        client: MeteredWebSocket<C>,
        pool: Pool,
        context: SessionContext,
    ) -> Self {
        let SessionContext { tap, trace, trace_context, registration, drain, close_timeout, drain_guard } =
            context;
        Self {
            drain_order: Some(Box::pin(wait_for_drain_order(drain))),
            close_timeout,
            bridge,
            client: Some(SessionSocket::new(client)),
            read_scheduler: ReadScheduler::new(Instant::now()),
            frame_batcher: FrameBatcher::default(),
            backlog: ReadBacklog::default(),
            lanes: Vec::new(),
            pool,
            lane_leases: LaneLeases::default(),
            tap: TapHandle(tap),
            trace,
            trace_context,
            registration,
            drain_guard,
            last_was_timer: false,
            logged_errors: BTreeSet::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            lanes_first: false,
        }
    }

    /// Runs the session to its end; `first_message` is a message that was read before.
    /// In a box, or its future has room for it twice.
    pub(super) async fn run(mut self: Box<Self>, first_message: Option<WsMessage>) {
        info!("session opened");
        let mut first_message = first_message;
        while let Some(due) = self.drain_bridge() {
            let wakeup = match first_message.take() {
                Some(message) => Wakeup::Client(SocketEvent::Message(message)),
                None => self.next_wakeup(due).await,
            };
            self.handle_wakeup(wakeup);
        }
        self.close_client();
        self.unregister();
        self.log_end();
    }

    /// For who reads the log.
    fn log_end(&self) {
        if self.bridge.is_relay() {
            info!("session ended");
            return;
        }
        let (counts, dropped) = self.bridge.sample_counts();
        if let Some(uplink) = self.bridge.uplink_counts() {
            info!(
                appended = uplink.appended,
                hushed = uplink.silenced,
                late = uplink.dropped,
                silence = uplink.silence_filled,
                "conversation ended"
            );
        }
        info!(
            taken = counts.received,
            muted = counts.muted,
            recorded = counts.recorded,
            silent = counts.silent,
            dropped,
            "session ended"
        );
    }

    /// It is no longer among those that run, and what became of it is told.
    fn unregister(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.observer.finish(&self.bridge, self.drain_guard.clone());
        }
    }

    /// Does all the bridge wants; the instant it wants to be woken at, or `None` when it is finished.
    fn drain_bridge(&mut self) -> Option<Option<Instant>> {
        loop {
            let now = std_now();
            let output = self.bridge.poll_output(now);
            if let Some(trace) = &mut self.trace {
                trace.record_output(now, &output);
            }
            match output {
                Output::ToClient(message, turn) => self.send_client(message, turn),
                Output::DropTurn { turn, .. } => {
                    if let Some(client) = &mut self.client {
                        client.drop_turn(turn);
                    }
                }
                Output::ToLane(lane, message) => self.send_lane(lane, message),
                Output::OpenLane(lane, mode) => {
                    debug!(lane = lane.0, ?mode, "dialling");
                    let request = DialRequest { mode, trace: Some(self.trace_context.clone()) };
                    self.lanes.push((lane, LaneSocket::Dialling(self.pool.call(request))));
                }
                Output::CloseLane(lane) => {
                    self.with_observer(|observer| observer.lane_closed(lane, None));
                    if let Some(LaneSocket::Connected(mut socket)) = self.take_lane_socket(lane) {
                        socket.send(Message::Close(1000, String::new()));
                        socket.close_in_background(LANE_CLOSE_TIMEOUT, self.drain_guard.clone());
                    }
                }
                Output::Observe(observation) => self.handle_observation(&observation),
                Output::Wait(due) => {
                    self.lane_leases.retain(self.lanes.iter().map(|(lane, _)| *lane));
                    if let Some(registration) = &mut self.registration {
                        registration.observer.publish_if_due(Instant::from_std(now), &self.bridge);
                    }
                    return Some(due.map(Instant::from_std));
                }
                Output::Finished => return None,
            }
        }
    }

    /// Gives the bridge an input.
    fn feed_bridge(&mut self, input: Input<'_>) {
        let now = std_now();
        if let Some(trace) = &mut self.trace {
            trace.record_input(now, &input);
        }
        self.bridge.handle_input(now, input);
    }

    /// Lets the session's observer know.
    fn with_observer(&mut self, act: impl FnOnce(&mut Observer)) {
        if let Some(registration) = &mut self.registration {
            act(&mut registration.observer);
        }
    }

    fn handle_observation(&mut self, observation: &Observation) {
        self.lane_leases.handle_observation(observation);
        self.with_observer(|observer| observer.observe(observation));
        match observation {
            // Once a kind: a client that errs errs often. What it sent may be quoted in the detail.
            Observation::ErrorTold(error) if error.kind.origin() == Origin::Client => {
                if self.logged_errors.insert(error.kind) {
                    info!(kind = ?error.kind, "the client was told of its error");
                }
                trace!("{}", error.detail);
            }
            other => crate::telemetry::log_observation(other),
        }
    }

    fn send_client(&mut self, message: Message, turn: Option<TurnTag>) {
        self.tap.on_sent(self.bridge.session_id(), std_now(), TapPoint::ToClient, &message);
        let is_close = matches!(message, Message::Close(..));
        self.with_observer(|observer| match &message {
            Message::Close(code, _) => observer.client_closed(false, Some(*code)),
            _ => observer.count_client_frames(FrameDirection::Out, 1),
        });
        if let Some(client) = &mut self.client {
            client.send_tagged(message, turn);
        }
        if is_close {
            self.close_client();
        }
    }

    /// Says goodbye to the client, which has nothing more to do with the session.
    fn close_client(&mut self) {
        if let Some(mut client) = self.client.take() {
            client.set_read_paused(false);
            client.close_in_background(CLIENT_CLOSE_TIMEOUT, self.drain_guard.clone());
        }
    }

    fn send_lane(&mut self, lane: Lane, message: Message) {
        self.tap.on_sent(self.bridge.session_id(), std_now(), TapPoint::ToLane(lane), &message);
        self.with_observer(|observer| observer.count_upstream_frame(FrameDirection::Out));
        if let Some((_, LaneSocket::Connected(socket))) =
            self.lanes.iter_mut().find(|(known, _)| *known == lane)
        {
            socket.send(message);
        }
    }

    fn take_lane_socket(&mut self, lane: Lane) -> Option<LaneSocket> {
        let index = self.lanes.iter().position(|(known, _)| *known == lane)?;
        Some(self.lanes.swap_remove(index).1)
    }

    fn handle_wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Client(event) => self.handle_client_event(event),
            Wakeup::Lane(lane, event) => self.handle_lane_event(lane, event),
            Wakeup::Dialled(lane, Ok(dialled)) => {
                debug!(lane = lane.0, upstream = dialled.lease.upstream(), "connected");
                if let Some((_, lane_socket)) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
                    let DialledLane { socket, lease } = *dialled;
                    if let Some(registration) = &mut self.registration {
                        registration.observer.lane_connected(lane, lease.upstream(), socket.traffic.clone());
                    }
                    *lane_socket = LaneSocket::Connected(Box::new(SessionSocket::new(socket)));
                    self.lane_leases.insert(lane, lease);
                    self.feed_bridge(Input::LaneOpened(lane));
                }
            }
            Wakeup::Dialled(lane, Err(why)) => self.handle_lane_end(lane, why),
            Wakeup::Drain(timeout) => {
                self.drain_order = None;
                self.feed_bridge(Input::Drain(timeout));
            }
            Wakeup::OperatorOrder(order) => {
                if let Some(SessionRegistration { entry, .. }) = &self.registration {
                    info!(session = entry.info.id, ?order, "ordered");
                }
                match order {
                    OperatorOrder::Close => self.feed_bridge(Input::Close(self.close_timeout)),
                    OperatorOrder::Rollover => self.feed_bridge(Input::Rollover),
                }
            }
            Wakeup::Timer => self.handle_timer(),
            // The client is read again.
            Wakeup::LaneDrained => {}
        }
    }

    fn handle_client_event(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Message(message) if self.is_client_held() => self.backlog.push(message),
            SocketEvent::Message(message) => {
                let Some(frame) = to_frame(&message) else { return };
                self.tap.on_received(self.bridge.session_id(), std_now(), TapPoint::FromClient, frame);
                let frames = self.frame_batcher.record_message(message.is_binary());
                self.with_observer(|observer| observer.count_client_frames(FrameDirection::In, frames));
                self.feed_bridge(Input::Client(frame));
            }
            SocketEvent::End(why) => self.handle_client_end(&why),
        }
    }

    fn handle_client_end(&mut self, why: &DisconnectReason) {
        debug!(%why, "the client");
        self.tap.on_closed(self.bridge.session_id(), std_now(), TapPoint::FromClient, why);
        self.close_client();
        self.with_observer(|observer| observer.client_closed(true, close_code(why)));
        self.backlog.clear();
        self.feed_bridge(Input::ClientClosed);
    }

    fn handle_lane_event(&mut self, lane: Lane, event: SocketEvent) {
        match event {
            SocketEvent::Message(message) => {
                let Some(frame) = to_frame(&message) else { return };
                self.tap.on_received(self.bridge.session_id(), std_now(), TapPoint::FromLane(lane), frame);
                self.with_observer(|observer| observer.count_upstream_frame(FrameDirection::In));
                self.feed_bridge(Input::Lane(lane, frame));
            }
            SocketEvent::End(why) => self.handle_lane_end(lane, why),
        }
    }

    fn handle_lane_end(&mut self, lane: Lane, why: DisconnectReason) {
        debug!(lane = lane.0, %why, "the upstream");
        self.tap.on_closed(self.bridge.session_id(), std_now(), TapPoint::FromLane(lane), &why);
        drop(self.take_lane_socket(lane));
        self.lane_leases.lane_ended(lane, &why);
        self.with_observer(|observer| observer.lane_closed(lane, Some(&why)));
        self.feed_bridge(Input::LaneClosed(lane, why));
    }

    fn handle_timer(&mut self) {
        let now = Instant::now();
        let is_paced = self.bridge.is_paced();
        let check_alive = |client: &mut SessionSocket<C>| {
            let is_lost = is_paced && client.outbox_bytes() > CLIENT_OUTBOX_MAX_BYTES;
            client.handle_timer(now).or_else(|| {
                is_lost.then(|| DisconnectReason::Lost("it reads slower than it listens".to_owned()))
            })
        };
        if let Some(why) = self.client.as_mut().and_then(check_alive) {
            info!(%why, "the client is given up");
            self.client = None;
            self.with_observer(|observer| observer.client_closed(false, None));
            self.feed_bridge(Input::ClientClosed);
        }
        let ended: Vec<_> = self
            .lanes
            .iter_mut()
            .filter_map(|(lane, lane_socket)| Some((*lane, lane_socket.handle_timer(now)?)))
            .collect();
        for (lane, why) in ended {
            self.handle_lane_end(lane, why);
        }
        self.feed_bridge(Input::Timeout);
    }
}

/// Who is cut off in the middle is told of, too.
impl<C> Drop for SessionTask<C> {
    fn drop(&mut self) {
        if let Some(SessionRegistration { mut observer, entry, .. }) = self.registration.take() {
            info!(session = entry.info.id, "session cut off");
            observer.mark_cut_off();
            observer.finish(&self.bridge, self.drain_guard.clone());
        }
    }
}

/// Done when the order to finish comes, with the time there is; a sender that is gone has none to give.
pub(super) async fn wait_for_drain_order(mut drain: watch::Receiver<Option<Duration>>) -> Duration {
    let timeout = drain.wait_for(Option::is_some).await.ok().and_then(|timeout| *timeout);
    match timeout {
        Some(timeout) => timeout,
        None => std::future::pending().await,
    }
}

fn to_frame(message: &WsMessage) -> Option<Frame<'_>> {
    match message {
        WsMessage::Text(text) => Some(Frame::Text(text)),
        WsMessage::Binary(bytes) => Some(Frame::Binary(bytes)),
        _ => None,
    }
}

fn std_now() -> std::time::Instant {
    Instant::now().into_std()
}
