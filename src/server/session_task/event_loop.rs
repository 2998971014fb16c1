//! Waits for the next event of a session: a message, a dialled lane, an order or a deadline.
//!
//! [The adaptive reader](crate::server::adaptive_read) schedules the reads of a client that streams.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::{ClientEnd, SessionRegistration, SessionTask, flow::flow_control};
use crate::net::turn::wake_after_others;
use crate::server::{
    adaptive_read::wake_slots::WakeSlots,
    session_task::socket_poll::{LaneSocket, ReadGate, Wakeup, poll_sockets, reads_no_answers},
    websocket::{
        pausable_stream::PausableRead,
        session_socket::{SessionSocket, SocketEvent},
    },
};

/// A deadline that is noticed this late comes after a stall of the process or its machine: the network has not been polled for as
/// long.
const STALL_MIN: Duration = Duration::from_millis(100);

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    /// Waits for one event. `due` is the bridge's deadline.
    pub(super) async fn next_wakeup(&mut self, due: Option<Instant>) -> Wakeup {
        let flow = flow_control(self.client.as_ref(), &self.report, self.memory.1);
        if flow != self.flow {
            return Wakeup::Flow(flow);
        }
        let is_held = self.is_client_held();
        let lane_was_behind = is_held && !self.report.needs_backpressure;
        if !is_held && let Some(message) = self.backlog.pop() {
            return Wakeup::HeldBack(message);
        }
        let may_read = |client: &SessionSocket<C>| {
            !is_held && !reads_no_answers(client.outbox.bytes()) && !client.fully_read
        };
        if let Some(event) = self.read_client(may_read).await {
            return Wakeup::Client(event);
        }
        let lanes = self.lanes.iter().filter_map(|(_, lane_socket)| match lane_socket {
            LaneSocket::Connected(socket) => Some(socket.timer_deadline()),
            LaneSocket::Dialling(_) | LaneSocket::Redialling(_) | LaneSocket::Http(_) => None,
        });
        let due = self.client.iter().filter_map(ClientEnd::timer_deadline).chain(lanes).chain(due).min();
        // Deadlines must come through even if a socket always has data.
        if due.is_some_and(|due| due <= Instant::now()) && !std::mem::replace(&mut self.last_was_timer, true)
        {
            return Wakeup::Timer;
        }
        self.last_was_timer = false;
        self.lanes_first = !self.lanes_first;
        // The requests of a port wait in it.
        let is_client_paused =
            is_held && (self.backlog.is_full() || matches!(self.client, Some(ClientEnd::Port(_))));
        loop {
            let slots = WakeSlots::of_current_thread();
            let read_at = self.schedule_read(slots);
            let may_read = |client: &SessionSocket<C>| may_read(client) && client.stream.io.is_read_paused();
            if let Some(event) = self.read_client(may_read).await {
                return Wakeup::Client(event);
            }
            let due = due.map(|due| slots.slot_at_or_after(due));
            let waited = self.wait_for_wakeup(due, read_at, is_client_paused, lane_was_behind);
            if let Some(wakeup) = waited.await {
                return wakeup;
            }
        }
    }

    /// Reads a message that has arrived, if the client may be read. Does not wait.
    async fn read_client(&mut self, may_read: impl Fn(&SessionSocket<C>) -> bool) -> Option<SocketEvent> {
        let socket = self.client.as_mut().and_then(ClientEnd::socket_mut);
        let mut client = socket.filter(|client| may_read(client));
        poll_fn(|cx| Poll::Ready(self.reader.read(client.take(), cx))).await
    }

    /// Waits for an event until `due`. Returns `None` at `read_at`, when the client must be read.
    async fn wait_for_wakeup(
        &mut self,
        due: Option<Instant>,
        read_at: Option<Instant>,
        is_client_paused: bool,
        lane_was_behind: bool,
    ) -> Option<Wakeup> {
        let wake = due.into_iter().chain(read_at).min();
        if let Some(wake) = wake {
            self.sleep.as_mut().reset(wake);
        }
        let (mut has_waited, mut has_polled_network) = (false, false);
        let mut at_deadline = move |cx: &mut Context<'_>| {
            // Messages that arrived during the stall have not been seen yet.
            let is_late = wake.is_some_and(|wake| Instant::now() >= wake + STALL_MIN);
            if is_late && !std::mem::replace(&mut has_polled_network, true) {
                wake_after_others(cx);
                return Poll::Pending;
            }
            Poll::Ready(due.filter(|due| Some(*due) == wake).map(|_| Wakeup::Timer))
        };
        let wakeup = poll_fn(|cx| {
            // Looked at before the sockets, which may use up the task's budget: one that always has bytes, and never a
            // message, must not keep the deadline waiting.
            let is_over = std::mem::replace(&mut has_waited, true)
                && wake.is_some()
                && self.sleep.as_mut().poll(cx).is_ready();
            if let Poll::Ready(wakeup) = self.poll_orders(cx) {
                return Poll::Ready(Some(wakeup));
            }
            let (flow, bridge) = (self.flow, &self.bridge);
            let gate = ReadGate {
                is_client_paused,
                is_lane_held: &|lane| flow.are_lanes_held && bridge.is_lane_held(lane),
            };
            if let Poll::Ready(wakeup) =
                poll_sockets(&mut self.client, &mut self.lanes, self.lanes_first, gate, cx)
            {
                return Poll::Ready(Some(wakeup));
            }
            if is_over {
                return at_deadline(cx);
            }
            // The client may have read.
            let flow_now = flow_control(self.client.as_ref(), &self.report, self.memory.1);
            if flow_now != self.flow {
                return Poll::Ready(Some(Wakeup::Flow(flow_now)));
            }
            if lane_was_behind && !self.lanes.iter().any(|(_, lane_socket)| lane_socket.is_behind()) {
                return Poll::Ready(Some(Wakeup::LaneDrained));
            }
            let is_exhausted =
                |client: &mut ClientEnd<C>| client.socket_mut().is_some_and(|socket| socket.is_exhausted());
            if read_at.is_none() && self.client.as_mut().is_some_and(is_exhausted) {
                // The read found nothing and registered no wake-up, so schedule the next one.
                return Poll::Ready(None);
            }
            if wake.is_some() && self.sleep.as_mut().poll(cx).is_ready() {
                return at_deadline(cx);
            }
            self.slice.end();
            Poll::Pending
        });
        wakeup.await
    }

    /// Polls what comes neither from a socket nor from the clock: orders, news of tools, and verdicts on pauses.
    fn poll_orders(&mut self, cx: &mut Context<'_>) -> Poll<Wakeup> {
        if let Some(drain_order) = &mut self.drain_order
            && let Poll::Ready(timeout) = drain_order.as_mut().poll(cx)
        {
            return Poll::Ready(Wakeup::Drain(timeout));
        }
        if let Some(eviction) = &mut self.eviction
            && eviction.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Wakeup::OutOfMemory);
        }
        if let Some(SessionRegistration { orders, .. }) = &mut self.registration
            && let Poll::Ready(Some(order)) = orders.poll_recv(cx)
        {
            return Poll::Ready(Wakeup::OperatorOrder(order));
        }
        if let Some(tools) = &mut self.tools
            && let Poll::Ready(news) = tools.poll_news(cx)
        {
            return Poll::Ready(Wakeup::ToolNews(news));
        }
        self.pauses.poll_verdict(cx).map(|(pause, probability)| Wakeup::TurnJudged(pause, probability))
    }

    /// When to read the client next; allows a read that is due now. `None` if the client is read on events or now.
    fn schedule_read(&mut self, slots: WakeSlots) -> Option<Instant> {
        let client =
            self.client.as_mut().and_then(ClientEnd::socket_mut).filter(|client| client.fully_read)?;
        let now = Instant::now();
        let at =
            self.reader.next_poll(now, slots, self.report.read_window, !client.stream.io.is_read_paused());
        client.set_read_paused(at.is_some());
        if at? > now {
            return at;
        }
        self.reader.on_read(now);
        client.allow_read();
        None
    }

    /// True while back-pressure holds the client's messages back: the bridge's, or that of a relay's upstream.
    pub(super) fn is_client_held(&self) -> bool {
        self.report.needs_backpressure
            || self.report.waits_for_lanes
                && self.lanes.iter().any(|(_, lane_socket)| lane_socket.is_behind())
    }
}
