//! The one task of a session: moves frames between sockets and the bridge, dials lanes, waits.
//!
//! The bridge makes every decision. Each round drains the bridge into the outboxes, then waits for one event: a frame, the end
//! of a socket, a dialled lane, a deadline or an order. One stuck side never stalls the other: every socket has its own outbox,
//! and [`flow`] holds audio and lanes back while the client is behind. [`client_end`] is the client: a socket, or a port within this
//! process. [`event_loop`] waits, [`inputs`] passes events to the
//! bridge, [`outputs`] carries out the bridge's orders, [`pauses`] passes on its questions about pauses,
//! [`super::adaptive_read`] schedules the reads of a client that streams, and [`large_messages`] moves long messages to other
//! threads.

mod client_end;
mod event_loop;
mod flow;
mod inputs;
mod large_messages;
mod outputs;
mod pauses;
mod room_search;
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
use tracing::{Instrument as _, info};

pub(super) use self::{client_end::ClientEnd, large_messages::MessageThreads};
use super::{
    adaptive_read::{AdaptiveReader, backlog::ReadBacklog},
    identify::Identified,
    memory::{Eviction, MemoryBudget},
    queue_keeper::QueueKeeper,
    recordings::{RecordingNews, SessionRecording},
    registry::{OperatorOrder, RegistryEntry, observer::Observer},
    session_task::{
        pauses::PauseQuestions,
        room_search::RoomSearch,
        slice::TimeSlice,
        socket_poll::{LaneSocket, Wakeup},
    },
    tap::{Tap, TapFrame, TapPoint},
    tool_servers::SessionTools,
    trace_files::SessionTrace,
    turn_judge::TurnJudge,
    upstream_pool::{Pool, lane_leases::LaneLeases},
    websocket::{WebSocket, pausable_stream::PausableRead, session_socket::SocketEvent},
};
use crate::{
    bridge::{Bridge, Input},
    error::ErrorKind,
    session::SessionReport,
    telemetry::context::TraceContext,
    vocabulary::{FlowControl, Lane, SpeechId},
};

/// Time for an upstream to answer the close frame.
const LANE_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running session's registration, its operator orders and its observer.
pub(super) struct SessionRegistration {
    /// Dropping it ends the registration.
    pub(super) entry: RegistryEntry,
    pub(super) orders: mpsc::Receiver<OperatorOrder>,
    pub(super) observer: Observer,
}

/// A client whose first message is of another protocol than its session's.
pub(super) struct OtherClient<C> {
    pub(super) client: WebSocket<C>,
    pub(super) first_message: WsMessage,
    pub(super) identified: Identified,
}

/// Everything a session needs from its server.
pub(super) struct SessionContext {
    pub(super) tap: Option<Arc<dyn Tap>>,
    /// The budget for messages in transit, and its bound in bytes.
    pub(super) memory: (Arc<MemoryBudget>, usize),
    /// Due when others need the memory that the client holds.
    pub(super) eviction: Arc<Eviction>,
    /// A client whose first message may be of another protocol.
    pub(super) undecided: Option<Identified>,
    /// The client's errors may contain the addresses of upstreams.
    pub(super) tells_upstream_addresses: bool,
    /// Where the session is recorded.
    pub(super) traces: Vec<SessionTrace>,
    /// The recording of the session, if it is recorded.
    pub(super) recording: Option<SessionRecording>,
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
    /// Judges the ends of turns, if a model is loaded.
    pub(super) turn_judge: Option<TurnJudge>,
    /// Tool servers that the profile offers.
    pub(super) tools: Option<SessionTools>,
    /// Handle large messages.
    pub(super) message_threads: MessageThreads,
}

/// A session, its client and its sockets.
pub(super) struct SessionTask<C> {
    bridge: Bridge,
    /// The bridge's report after the last input.
    report: SessionReport,
    client: Option<ClientEnd<C>>,
    reader: AdaptiveReader,
    /// Messages of the client under back-pressure.
    backlog: ReadBacklog,
    /// Flow control as last reported to the bridge.
    flow: FlowControl,
    /// The speech whose messages wait to be written to the client, as told to the bridge.
    told_unwritten: Option<(SpeechId, u64, u64)>,
    lanes: Vec<(Lane, LaneSocket)>,
    /// Lanes without a socket whose leases stay until the consequences of their end are known.
    left_lanes: Vec<Lane>,
    pool: Pool,
    lane_leases: LaneLeases,
    room_search: RoomSearch,
    /// The budget for messages in transit, and its bound in bytes.
    memory: (Arc<MemoryBudget>, usize),
    tap: Option<Arc<dyn Tap>>,
    traces: Vec<SessionTrace>,
    recording: Option<SessionRecording>,
    trace_context: Arc<TraceContext>,
    /// `None` for a connection that is rejected.
    registration: Option<SessionRegistration>,
    /// The order to drain; `None` after it came. It is a future so that it registers once, not in every round.
    drain_order: Option<BoxFuture<'static, Duration>>,
    /// Completes when others need the memory that the client holds; `None` after that.
    eviction: Option<BoxFuture<'static, ()>>,
    undecided: Option<Identified>,
    tells_upstream_addresses: bool,
    close_timeout: Duration,
    /// Held until the session and its closing handshakes end.
    drain_guard: mpsc::Sender<()>,
    queue_keeper: QueueKeeper,
    message_threads: MessageThreads,
    pauses: PauseQuestions,
    tools: Option<SessionTools>,
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
    pub(super) fn new(bridge: Bridge, client: ClientEnd<C>, pool: Pool, context: SessionContext) -> Self {
        let SessionContext {
            memory,
            eviction,
            undecided,
            tells_upstream_addresses,
            tap,
            traces,
            recording,
            trace_context,
            registration,
            drain,
            close_timeout,
            drain_guard,
            queue_keeper,
            turn_judge,
            tools,
            message_threads,
        } = context;
        Self {
            drain_order: Some(Box::pin(wait_for_drain_order(drain))),
            eviction: Some(Box::pin(eviction.wait())),
            undecided,
            tells_upstream_addresses,
            close_timeout,
            report: bridge.report(std_now()),
            bridge,
            client: Some(client),
            reader: AdaptiveReader::new(Instant::now()),
            backlog: ReadBacklog::default(),
            flow: FlowControl::default(),
            told_unwritten: None,
            lanes: Vec::new(),
            left_lanes: Vec::new(),
            pool,
            lane_leases: LaneLeases::default(),
            room_search: RoomSearch::default(),
            memory,
            tap,
            traces,
            recording,
            trace_context,
            registration,
            drain_guard,
            queue_keeper,
            message_threads,
            pauses: PauseQuestions::new(turn_judge),
            tools,
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
        if let Some(offered) = self.tools.as_ref().and_then(SessionTools::offered) {
            self.feed_bridge(Input::ToolServers(offered));
        }
        let first_message = match self.undecided.take() {
            None => first_message,
            Some(undecided) => {
                let first_message = self.run_to_first_message().await;
                let another = |message: &WsMessage| undecided.another(message);
                let found = match first_message.clone() {
                    Some(message) => self.message_threads.examine(message, another).await.flatten(),
                    None => None,
                };
                if let Some((first_message, identified)) = first_message.clone().zip(found) {
                    let client = self.client.take()?.into_websocket()?;
                    // The next session closes the client when others need its memory.
                    self.eviction = None;
                    self.with_observer(|observer| {
                        observer.client_closed(true, Some(CloseCode::Normal.into()));
                    });
                    self.feed_bridge(Input::ClientClosed);
                    // Closing the upstream sessions takes time.
                    tokio::spawn(self.run_to_end(None).in_current_span());
                    return Some(OtherClient { client, first_message, identified });
                }
                first_message
            }
        };
        self.run_to_end(first_message).await;
        None
    }

    /// Runs the session until the client's first message, or its end.
    async fn run_to_first_message(&mut self) -> Option<WsMessage> {
        while let Some(due) = self.drain_bridge() {
            match self.next_wakeup(due).await {
                Wakeup::Client(SocketEvent::Message(message)) => return Some(message),
                wakeup => self.handle_wakeup(wakeup),
            }
        }
        None
    }

    /// Runs the session to its end.
    async fn run_to_end(mut self: Box<Self>, mut first_message: Option<WsMessage>) {
        while let Some(due) = self.drain_bridge().filter(|_| !self.report.only_waits_in_queue) {
            // A peer whose messages never end, or cost much, must not keep the thread from other sessions.
            if self.slice.is_over {
                tokio::task::yield_now().await;
                self.slice.end();
            } else {
                tokio::task::coop::consume_budget().await;
            }
            let wakeup = match first_message.take() {
                Some(message) => Wakeup::Client(SocketEvent::Message(message)),
                None => self.next_wakeup(due).await,
            };
            let Some(task) = self.handle_event(wakeup).await else { return };
            self = task;
        }
        self.close_client();
        self.traces.clear();
        self.recording = None;
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

    /// Shows a frame to the tap.
    fn show_tap<'a>(&self, point: TapPoint, frame: impl Into<TapFrame<'a>>) {
        if let Some(tap) = &self.tap {
            tap.on_frame(self.bridge.session_id(), std_now(), point, frame.into());
        }
    }

    /// Passes news on to the recording, if there is one.
    fn record(&self, at: std::time::Instant, news: impl FnOnce() -> Option<RecordingNews>) {
        if let Some(recording) = &self.recording
            && let Some(news) = news()
        {
            recording.push(at, news);
        }
    }

    /// Calls the session's observer.
    fn with_observer(&mut self, act: impl FnOnce(&mut Observer)) {
        if let Some(registration) = &mut self.registration {
            act(&mut registration.observer);
        }
    }
}

/// A session that is cut off is reported as well.
impl<C> Drop for SessionTask<C> {
    fn drop(&mut self) {
        if let Some(SessionRegistration { observer, .. }) = self.registration.take() {
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
