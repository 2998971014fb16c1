//! What a session waits for: the first thing that happens, or the time of something.
//!
//! A client that streams is not listened to while nothing can be decided by what it sends, but looked at when [`glances`](crate::server::adaptive_read::scheduler)
//! says.

use std::{future::poll_fn, task::Poll};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::{Driver, Place};
use crate::server::{
    adaptive_read::wake_slots::Ticks,
    session_task::socket_poll::{Happened, Patience, poll_sockets},
    websocket::{
        outbox::{Came, Socket},
        pausable_stream::ReadByClock,
    },
};

impl<C: AsyncRead + AsyncWrite + ReadByClock + Unpin + Send + 'static> Driver<C> {
    /// Waits for one thing to happen.
    pub(super) async fn next(&mut self, due: Option<Instant>) -> Happened {
        let (held, behind) = (self.holds_back(), self.is_lane_behind());
        if !held && let Some(message) = self.kept.pop() {
            return Happened::Client(Came::Message(message));
        }
        let more = self.client.as_mut().filter(|client| !held && !client.is_drained());
        if let Some(came) = self.together.read(more).await {
            return Happened::Client(came);
        }
        let sockets = self.client.iter().map(Socket::next_tick);
        let sockets = sockets.chain(self.lanes.iter().filter_map(|(_, line)| line.next_tick()));
        let due = sockets.chain(due).min();
        // A socket that is never empty must not keep deadlines from coming.
        if due.is_some_and(|due| due <= Instant::now()) && !std::mem::replace(&mut self.was_due, true) {
            return Happened::Due;
        }
        self.was_due = false;
        self.lanes_first = !self.lanes_first;
        let patience = Patience { paced: self.bridge.paces(), held: held && self.kept.is_full() };
        loop {
            let ticks = Ticks::here();
            let look = self.look(ticks);
            let looked =
                self.client.as_mut().filter(|client| !held && !client.is_drained() && client.is_by_clock());
            if let Some(came) = self.together.read(looked).await {
                return Happened::Client(came);
            }
            let due = due.map(|due| ticks.at_or_after(due));
            if let Some(happened) = self.wait((due, look), patience, behind).await {
                return happened;
            }
        }
    }

    /// Waits until then, or until the client is to be looked at, which is nothing.
    async fn wait(
        &mut self,
        (due, look): (Option<Instant>, Option<Instant>),
        patience: Patience,
        behind: bool,
    ) -> Option<Happened> {
        let wake = due.into_iter().chain(look).min();
        if let Some(wake) = wake {
            self.sleep.as_mut().reset(wake);
        }
        let Self { client, lanes, stop, place, sleep, lanes_first, .. } = self;
        let event = poll_fn(|cx| {
            if let Some(Poll::Ready(within)) = stop.as_mut().map(|stop| stop.as_mut().poll(cx)) {
                return Poll::Ready(Some(Happened::Drain(within)));
            }
            if let Some(Place { orders, .. }) = place
                && let Poll::Ready(Some(order)) = orders.poll_recv(cx)
            {
                return Poll::Ready(Some(Happened::Ordered(order)));
            }
            if let Poll::Ready(happened) = poll_sockets(client, lanes, *lanes_first, patience, cx) {
                return Poll::Ready(Some(happened));
            }
            if behind && !lanes.iter().any(|(_, line)| line.is_behind()) {
                return Poll::Ready(Some(Happened::Relieved));
            }
            let unwatched = |client: &Socket<C>| client.is_by_clock() && client.is_drained();
            if look.is_none() && client.as_ref().is_some_and(unwatched) {
                // It was looked at in vain, and nothing wakes anybody up who is to look again.
                return Poll::Ready(None);
            }
            if wake.is_some() && sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(due.filter(|due| Some(*due) == wake).map(|_| Happened::Due));
            }
            Poll::Pending
        });
        event.await
    }

    /// When the client is to be looked at; if that is now, it is read once more. None if it is listened to.
    fn look(&mut self, ticks: Ticks) -> Option<Instant> {
        let client = self.client.as_mut().filter(|client| client.is_drained())?;
        let now = Instant::now();
        let mut lull = self.bridge.lull(now.into_std());
        if let Some(lull) = &mut lull {
            lull.frame /= self.together.usual();
        }
        let at = self.glances.next(now, ticks, lull, !client.is_by_clock());
        client.read_by_clock(at.is_some());
        self.together.limit(lull.filter(|_| at.is_some()));
        if at? > now {
            return at;
        }
        self.glances.look(now, lull);
        client.look();
        None
    }

    /// The client has sent enough for now.
    pub(super) fn holds_back(&self) -> bool {
        self.bridge.holds_back() || self.is_lane_behind()
    }

    /// What a relayed client sends waits for its upstream. In other sessions the bridge itself bounds what it sends.
    fn is_lane_behind(&self) -> bool {
        self.bridge.relays() && self.lanes.iter().any(|(_, line)| line.is_behind())
    }
}
