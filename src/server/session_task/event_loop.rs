//! What a session waits for: the first thing that happens, or the time of something.
//!
//! A client that streams is not listened to while nothing can be decided by what it sends, but looked at when [the read scheduler](crate::server::adaptive_read::scheduler)
//! says.

use std::{future::poll_fn, task::Poll};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::{SessionRegistration, SessionTask};
use crate::server::{
    adaptive_read::wake_slots::WakeSlots,
    session_task::socket_poll::{ReadGate, Wakeup, poll_sockets},
    websocket::{
        outbox::{SessionSocket, SocketEvent},
        pausable_stream::PausableRead,
    },
};

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    /// Waits for one thing to happen.
    pub(super) async fn next_wakeup(&mut self, due: Option<Instant>) -> Wakeup {
        let (is_held, lane_was_behind) = (self.is_client_held(), self.is_lane_behind());
        if !is_held && let Some(message) = self.backlog.pop() {
            return Wakeup::Client(SocketEvent::Message(message));
        }
        let readable_client = self.client.as_mut().filter(|client| !is_held && !client.is_fully_read());
        if let Some(event) = self.frame_batcher.read(readable_client).await {
            return Wakeup::Client(event);
        }
        let deadlines = self.client.iter().map(SessionSocket::timer_deadline);
        let deadlines =
            deadlines.chain(self.lanes.iter().filter_map(|(_, lane_socket)| lane_socket.timer_deadline()));
        let due = deadlines.chain(due).min();
        // A socket that is never empty must not keep deadlines from coming.
        if due.is_some_and(|due| due <= Instant::now()) && !std::mem::replace(&mut self.last_was_timer, true)
        {
            return Wakeup::Timer;
        }
        self.last_was_timer = false;
        self.lanes_first = !self.lanes_first;
        let gate =
            ReadGate { is_paced: self.bridge.is_paced(), is_client_held: is_held && self.backlog.is_full() };
        loop {
            let slots = WakeSlots::of_current_thread();
            let read_at = self.schedule_read(slots);
            let readable_client = self
                .client
                .as_mut()
                .filter(|client| !is_held && !client.is_fully_read() && client.is_read_paused());
            if let Some(event) = self.frame_batcher.read(readable_client).await {
                return Wakeup::Client(event);
            }
            let due = due.map(|due| slots.slot_at_or_after(due));
            if let Some(wakeup) = self.wait_for_wakeup((due, read_at), gate, lane_was_behind).await {
                return wakeup;
            }
        }
    }

    /// Waits until then, or until the client is to be looked at, which is nothing.
    async fn wait_for_wakeup(
        &mut self,
        (due, read_at): (Option<Instant>, Option<Instant>),
        gate: ReadGate,
        lane_was_behind: bool,
    ) -> Option<Wakeup> {
        let wake = due.into_iter().chain(read_at).min();
        if let Some(wake) = wake {
            self.sleep.as_mut().reset(wake);
        }
        let Self { client, lanes, drain_order, registration, sleep, lanes_first, .. } = self;
        let wakeup = poll_fn(|cx| {
            if let Some(Poll::Ready(timeout)) =
                drain_order.as_mut().map(|drain_order| drain_order.as_mut().poll(cx))
            {
                return Poll::Ready(Some(Wakeup::Drain(timeout)));
            }
            if let Some(SessionRegistration { orders, .. }) = registration
                && let Poll::Ready(Some(order)) = orders.poll_recv(cx)
            {
                return Poll::Ready(Some(Wakeup::OperatorOrder(order)));
            }
            if let Poll::Ready(wakeup) = poll_sockets(client, lanes, *lanes_first, gate, cx) {
                return Poll::Ready(Some(wakeup));
            }
            if lane_was_behind && !lanes.iter().any(|(_, lane_socket)| lane_socket.is_behind()) {
                return Poll::Ready(Some(Wakeup::LaneDrained));
            }
            let is_unwatched = |client: &SessionSocket<C>| client.is_read_paused() && client.is_fully_read();
            if read_at.is_none() && client.as_ref().is_some_and(is_unwatched) {
                // It was looked at in vain, and nothing wakes anybody up who is to look again.
                return Poll::Ready(None);
            }
            if wake.is_some() && sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(due.filter(|due| Some(*due) == wake).map(|_| Wakeup::Timer));
            }
            Poll::Pending
        });
        wakeup.await
    }

    /// When the client is to be looked at; if that is now, it is read once more. None if it is listened to.
    fn schedule_read(&mut self, slots: WakeSlots) -> Option<Instant> {
        let client = self.client.as_mut().filter(|client| client.is_fully_read())?;
        let now = Instant::now();
        let mut window = self.bridge.read_window(now.into_std());
        if let Some(window) = &mut window {
            window.last_frame_length /= self.frame_batcher.last_audio_frames();
        }
        let at = self.read_scheduler.next_read(now, slots, window, !client.is_read_paused());
        client.set_read_paused(at.is_some());
        self.frame_batcher.set_read_window(window.filter(|_| at.is_some()));
        if at? > now {
            return at;
        }
        self.read_scheduler.on_read(now, window);
        client.allow_read();
        None
    }

    /// The client has sent enough for now.
    pub(super) fn is_client_held(&self) -> bool {
        self.bridge.needs_backpressure() || self.is_lane_behind()
    }

    /// What a relayed client sends waits for its upstream. In other sessions the bridge itself bounds what it sends.
    fn is_lane_behind(&self) -> bool {
        self.bridge.is_relay() && self.lanes.iter().any(|(_, lane_socket)| lane_socket.is_behind())
    }
}
