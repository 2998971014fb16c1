//! The one task of a session: moves frames between sockets and the bridge, dials lanes, waits.
//!
//! It decides nothing. Each round drains the bridge into the outboxes, then waits for one thing: a frame, the end of a
//! socket, a dialled lane, a deadline, or the order to stop. One stuck side never stalls the other: every socket has an
//! outbox of its own, and lanes are not read while the client is far behind. [`wait`] is how it waits, [`glances`] foretells
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

use self::tapped::Tapped;
use super::adaptive_read::{backlog::Kept, frame_batcher::Together, scheduler::Glances};
use super::{
    registry::{
        Entry, Order,
        observer::{Observer, Way, code_of},
    },
    session_task::{
        lane_leases::Feedback,
        socket_poll::{CLIENT_LOST_BYTES, Happened, Line},
    },
    tap::{Tap, Wire},
    trace_files::Tracing,
    upstream_pool::{Dialled, Pool, dial::Call},
    websocket::{
        outbox::{Came, Metered, Socket},
        pausable_stream::ReadByClock,
    },
};
use crate::{
    bridge::{Bridge, Input, Output},
    error::{ErrorKind, Origin},
    event::{Frame, Lane, Message, Why},
    session::Observation,
    telemetry::context::TraceContext,
};

/// How long a client may take to read the end of its session.
const CLIENT_FAREWELL: Duration = Duration::from_secs(5);
/// How long an upstream that is dropped may take to answer the close frame.
const LANE_FAREWELL: Duration = Duration::from_secs(1);

/// A session's place among those that run, and the orders it is given.
pub(super) struct Place {
    pub(super) entry: Entry,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) observer: Observer,
}

/// What is around a session.
pub(super) struct Around {
    pub(super) tap: Option<Arc<dyn Tap>>,
    pub(super) trace: Option<Tracing>,
    /// Whose request it is part of.
    pub(super) context: Arc<TraceContext>,
    /// None for a client that is only told why it is refused.
    pub(super) place: Option<Place>,
    /// The order to finish, and within which time.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Within which time an operator's order to end is carried out.
    pub(super) close_within: Duration,
    /// Held as long as the session and its farewells last.
    pub(super) alive: mpsc::Sender<()>,
}

/// A session and its sockets.
pub(super) struct Driver<C> {
    bridge: Bridge,
    client: Option<Socket<C>>,
    glances: Glances,
    together: Together,
    /// What a client sent that is held back.
    kept: Kept,
    lanes: Vec<(Lane, Line)>,
    pool: Pool,
    feedback: Feedback,
    tap: Tapped,
    trace: Option<Tracing>,
    context: Arc<TraceContext>,
    /// None for a client that is only told why it is refused.
    place: Option<Place>,
    /// The order to stop; `None` once it came. Registered once, not every round.
    stop: Option<BoxFuture<'static, Duration>>,
    close_within: Duration,
    /// Held as long as the session and its farewells last.
    alive: mpsc::Sender<()>,
    sleep: Pin<Box<Sleep>>,
    /// The last thing that happened was a deadline.
    was_due: bool,
    /// Errors of the client's own making that were logged.
    told: BTreeSet<ErrorKind>,
    /// Whose turn it is to be read first, so that a busy client cannot starve its lanes.
    lanes_first: bool,
}

impl<C: AsyncRead + AsyncWrite + ReadByClock + Unpin + Send + 'static> Driver<C> {
    pub(super) fn new(bridge: Bridge, client: Metered<C>, pool: Pool, around: Around) -> Self {
        let Around { tap, trace, context, place, drain, close_within, alive } = around;
        Self {
            stop: Some(Box::pin(ordered(drain))),
            close_within,
            bridge,
            client: Some(Socket::new(client)),
            glances: Glances::new(Instant::now()),
            together: Together::default(),
            kept: Kept::default(),
            lanes: Vec::new(),
            pool,
            feedback: Feedback::default(),
            tap: Tapped(tap),
            trace,
            context,
            place,
            alive,
            was_due: false,
            told: BTreeSet::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            lanes_first: false,
        }
    }

    /// Runs the session to its end; `first` is a message that was read before.
    /// In a box, or its future has room for it twice.
    pub(super) async fn run(mut self: Box<Self>, first: Option<WsMessage>) {
        info!("session opened");
        let mut first = first;
        while let Some(due) = self.drain_bridge() {
            let happened = match first.take() {
                Some(message) => Happened::Client(Came::Message(message)),
                None => self.next(due).await,
            };
            self.handle(happened);
        }
        self.leave_client();
        self.leave_place();
        self.tell_end();
    }

    /// For who reads the log.
    fn tell_end(&self) {
        if self.bridge.relays() {
            info!("session ended");
            return;
        }
        let (account, dropped) = self.bridge.account();
        if let Some(streamed) = self.bridge.streamed() {
            info!(
                appended = streamed.appended,
                hushed = streamed.hushed,
                late = streamed.dropped,
                silence = streamed.filled,
                "conversation ended"
            );
        }
        info!(
            taken = account.taken,
            muted = account.muted,
            recorded = account.recorded,
            silent = account.silent,
            dropped,
            "session ended"
        );
    }

    /// It is no longer among those that run, and what became of it is told.
    fn leave_place(&mut self) {
        if let Some(place) = self.place.take() {
            place.observer.end(&self.bridge, self.alive.clone());
        }
    }

    /// Does all the bridge wants; the instant it wants to be woken at, or `None` when it is finished.
    fn drain_bridge(&mut self) -> Option<Option<Instant>> {
        loop {
            let now = now();
            let output = self.bridge.poll_output(now);
            if let Some(trace) = &mut self.trace {
                trace.output(now, &output);
            }
            match output {
                Output::ToClient(message) => self.send_client(message),
                Output::DropAudio(bytes) => {
                    if let Some(client) = &mut self.client {
                        client.drop_audio(bytes);
                    }
                }
                Output::ToLane(lane, message) => self.send_lane(lane, message),
                Output::OpenLane(lane, mode) => {
                    debug!(lane = lane.0, ?mode, "dialling");
                    let call = Call { mode, trace: Some(self.context.clone()) };
                    self.lanes.push((lane, Line::Dialling(self.pool.call(call))));
                }
                Output::CloseLane(lane) => {
                    self.observed(|observer| observer.lane_gone(lane, None));
                    if let Some(Line::Up(mut socket)) = self.take_line(lane) {
                        socket.send(Message::Close(1000, String::new()));
                        socket.farewell(LANE_FAREWELL, self.alive.clone());
                    }
                }
                Output::Observe(observation) => self.observe(&observation),
                Output::Wait(due) => {
                    self.feedback.forget_all_but(self.lanes.iter().map(|(lane, _)| *lane));
                    if let Some(place) = &mut self.place {
                        place.observer.rest(Instant::from_std(now), &self.bridge);
                    }
                    return Some(due.map(Instant::from_std));
                }
                Output::Finished => return None,
            }
        }
    }

    /// Gives the bridge an input.
    fn tell(&mut self, input: Input<'_>) {
        let now = now();
        if let Some(trace) = &mut self.trace {
            trace.input(now, &input);
        }
        self.bridge.handle_input(now, input);
    }

    /// Lets the session's observer know.
    fn observed(&mut self, tell: impl FnOnce(&mut Observer)) {
        if let Some(place) = &mut self.place {
            tell(&mut place.observer);
        }
    }

    fn observe(&mut self, observation: &Observation) {
        self.feedback.observe(observation);
        self.observed(|observer| observer.observe(observation));
        match observation {
            // Once a kind: a client that errs errs often. What it sent may be quoted in the detail.
            Observation::ErrorTold(error) if error.kind.origin() == Origin::Client => {
                if self.told.insert(error.kind) {
                    info!(kind = ?error.kind, "the client was told of its error");
                }
                trace!("{}", error.detail);
            }
            other => crate::telemetry::observe(other),
        }
    }

    fn send_client(&mut self, message: Message) {
        self.tap.sent(self.bridge.session_id(), now(), Wire::ToClient, &message);
        let last = matches!(message, Message::Close(..));
        self.observed(|observer| match &message {
            Message::Close(code, _) => observer.client_closed(false, Some(*code)),
            _ => observer.client_frames(Way::Out, 1),
        });
        if let Some(client) = &mut self.client {
            client.send(message);
        }
        if last {
            self.leave_client();
        }
    }

    /// Says goodbye to the client, which has nothing more to do with the session.
    fn leave_client(&mut self) {
        if let Some(mut client) = self.client.take() {
            client.read_by_clock(false);
            client.farewell(CLIENT_FAREWELL, self.alive.clone());
        }
    }

    fn send_lane(&mut self, lane: Lane, message: Message) {
        self.tap.sent(self.bridge.session_id(), now(), Wire::ToLane(lane), &message);
        self.observed(|observer| observer.upstream_frame(Way::Out));
        if let Some((_, Line::Up(socket))) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
            socket.send(message);
        }
    }

    fn take_line(&mut self, lane: Lane) -> Option<Line> {
        let at = self.lanes.iter().position(|(known, _)| *known == lane)?;
        Some(self.lanes.swap_remove(at).1)
    }

    fn handle(&mut self, happened: Happened) {
        match happened {
            Happened::Client(came) => self.client_came(came),
            Happened::Lane(lane, came) => self.lane_came(lane, came),
            Happened::Dialled(lane, Ok(dialled)) => {
                debug!(lane = lane.0, upstream = dialled.lease.upstream(), "connected");
                if let Some((_, line)) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
                    let Dialled { socket, lease } = *dialled;
                    if let Some(place) = &mut self.place {
                        place.observer.connected(lane, lease.upstream(), socket.traffic.clone());
                    }
                    *line = Line::Up(Box::new(Socket::new(socket)));
                    self.feedback.hold(lane, lease);
                    self.tell(Input::LaneOpened(lane));
                }
            }
            Happened::Dialled(lane, Err(why)) => self.lane_ended(lane, why),
            Happened::Drain(within) => {
                self.stop = None;
                self.tell(Input::Drain(within));
            }
            Happened::Ordered(order) => {
                if let Some(Place { entry, .. }) = &self.place {
                    info!(session = entry.who.id, ?order, "ordered");
                }
                match order {
                    Order::Close => self.tell(Input::Close(self.close_within)),
                    Order::Rollover => self.tell(Input::Rollover),
                }
            }
            Happened::Due => self.tick(),
            // The client is read again.
            Happened::Relieved => {}
        }
    }

    fn client_came(&mut self, came: Came) {
        match came {
            Came::Message(message) if self.holds_back() => self.kept.push(message),
            Came::Message(message) => {
                let Some(frame) = frame(&message) else { return };
                self.tap.came(self.bridge.session_id(), now(), Wire::FromClient, frame);
                let frames = self.together.told(message.is_binary());
                self.observed(|observer| observer.client_frames(Way::In, frames));
                self.tell(Input::Client(frame));
            }
            Came::End(why) => self.client_ended(&why),
        }
    }

    fn client_ended(&mut self, why: &Why) {
        debug!(%why, "the client");
        self.tap.ended(self.bridge.session_id(), now(), Wire::FromClient, why);
        self.leave_client();
        self.observed(|observer| observer.client_closed(true, code_of(why)));
        self.kept.clear();
        self.tell(Input::ClientClosed);
    }

    fn lane_came(&mut self, lane: Lane, came: Came) {
        match came {
            Came::Message(message) => {
                let Some(frame) = frame(&message) else { return };
                self.tap.came(self.bridge.session_id(), now(), Wire::FromLane(lane), frame);
                self.observed(|observer| observer.upstream_frame(Way::In));
                self.tell(Input::Lane(lane, frame));
            }
            Came::End(why) => self.lane_ended(lane, why),
        }
    }

    fn lane_ended(&mut self, lane: Lane, why: Why) {
        debug!(lane = lane.0, %why, "the upstream");
        self.tap.ended(self.bridge.session_id(), now(), Wire::FromLane(lane), &why);
        drop(self.take_line(lane));
        self.feedback.ended(lane, &why);
        self.observed(|observer| observer.lane_gone(lane, Some(&why)));
        self.tell(Input::LaneClosed(lane, why));
    }

    fn tick(&mut self) {
        let at = Instant::now();
        let paced = self.bridge.paces();
        let gone = |client: &mut Socket<C>| {
            let behind = paced && client.outbox_bytes() > CLIENT_LOST_BYTES;
            client
                .tick(at)
                .or_else(|| behind.then(|| Why::Lost("it reads slower than it listens".to_owned())))
        };
        if let Some(why) = self.client.as_mut().and_then(gone) {
            info!(%why, "the client is given up");
            self.client = None;
            self.observed(|observer| observer.client_closed(false, None));
            self.tell(Input::ClientClosed);
        }
        let dead: Vec<_> =
            self.lanes.iter_mut().filter_map(|(lane, line)| Some((*lane, line.tick(at)?))).collect();
        for (lane, why) in dead {
            self.lane_ended(lane, why);
        }
        self.tell(Input::Timeout);
    }
}

/// Who is cut off in the middle is told of, too.
impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        if let Some(Place { mut observer, entry, .. }) = self.place.take() {
            info!(session = entry.who.id, "session cut off");
            observer.cut_off();
            observer.end(&self.bridge, self.alive.clone());
        }
    }
}

/// Done when the order to finish comes, with the time there is; a sender that is gone has none to give.
pub(super) async fn ordered(mut drain: watch::Receiver<Option<Duration>>) -> Duration {
    let within = drain.wait_for(Option::is_some).await.ok().and_then(|within| *within);
    match within {
        Some(within) => within,
        None => std::future::pending().await,
    }
}

fn frame(message: &WsMessage) -> Option<Frame<'_>> {
    match message {
        WsMessage::Text(text) => Some(Frame::Text(text)),
        WsMessage::Binary(bytes) => Some(Frame::Binary(bytes)),
        _ => None,
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
