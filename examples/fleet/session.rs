//! One session of a replica: moves messages between its client, its bridge and its lanes. The counterpart of
//! `voxbridge`'s session task without sockets. It has a loop of its own, unlike the tests in `tests/support/world`: the upstream
//! pool dials and leases in tasks, by tokio's clock.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::{Instant, sleep_until};
use tower::Service as _;
use voxbridge::{
    bridge::{Bridge, Input, Output},
    server::upstream_pool::{Dial, DialledLane, Pool, dial::DialRequest, lane_leases::LaneLeases},
    session::Observation,
    vocabulary::{DisconnectReason, Frame, Lane, Message},
};

use crate::{
    dialer::SiteDialer,
    site::{Link, LinkEvent},
};

/// A session.
pub(crate) struct Session {
    bridge: Bridge,
    pool: Pool<SiteDialer>,
    leases: LaneLeases,
    lanes: Vec<(Lane, Transport)>,
    /// Lanes without a transport whose leases stay until the consequences of their end are known.
    left_lanes: Vec<Lane>,
    drain_order: Option<BoxFuture<'static, Duration>>,
}

enum Transport {
    Dialling(Dial<Link>),
    Connected(Link),
}

/// Output of a session, for the client or the statistics.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    ToClient(Message),
    Observed(Observation),
    /// A lane's connection broke.
    LaneLost,
}

/// Why a session stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Something came, and the bridge has it.
    Input,
    /// The order to drain came, and the bridge has it.
    Draining,
    /// The client's own instant came.
    ClientTimer,
}

enum Arrival {
    Drain(Duration),
    InLine(Lane, u32),
    Dialled(Lane, Result<DialledLane<Link>, DisconnectReason>),
    Lane(Lane, LinkEvent),
    Timer,
}

impl Session {
    pub(crate) fn new(
        bridge: Bridge,
        pool: Pool<SiteDialer>,
        drain_order: BoxFuture<'static, Duration>,
    ) -> Self {
        Self {
            bridge,
            pool,
            leases: LaneLeases::default(),
            lanes: Vec::new(),
            left_lanes: Vec::new(),
            drain_order: Some(drain_order),
        }
    }

    /// Gives the bridge an input.
    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.bridge.handle_input(Instant::now().into_std(), input);
    }

    /// Sends a message of the client.
    pub(crate) fn send(&mut self, text: &str) {
        self.feed(Input::Client(Frame::Text(text)));
    }

    /// Carries out the bridge's outputs. Returns its next deadline, or `None` when the session is over.
    pub(crate) fn drain(&mut self, events: &mut Vec<SessionEvent>) -> Option<Option<Instant>> {
        loop {
            match self.bridge.poll_output(Instant::now().into_std()) {
                Output::ToClient(message, _) => events.push(SessionEvent::ToClient(message)),
                Output::OpenLane(lane, mode, purpose) => {
                    let dial = self.pool.call(DialRequest { mode, purpose, trace: None });
                    self.lanes.push((lane, Transport::Dialling(dial)));
                }
                Output::ToLane(lane, Message::Text(text)) => {
                    if let Some((_, Transport::Connected(link))) =
                        self.lanes.iter().find(|(known, _)| *known == lane)
                    {
                        link.send(&text);
                    }
                }
                Output::CloseLane(lane) => {
                    if let Some(Transport::Dialling(dial)) = self.take_transport(lane) {
                        // It would reach a gateway that then waits for its session: it is finished first.
                        tokio::spawn(async move { drop(dial.finish().await) });
                    }
                }
                Output::Observe(observation) => {
                    self.leases.handle_observation(&observation);
                    events.push(SessionEvent::Observed(observation));
                }
                Output::Wait(due) => {
                    let Self { bridge, leases, left_lanes, .. } = self;
                    left_lanes.retain(|lane| {
                        let goes_on = bridge.has_lane(*lane);
                        if !goes_on {
                            leases.remove(*lane);
                        }
                        goes_on
                    });
                    return Some(due.map(Instant::from_std));
                }
                Output::Finished => return None,
                _ => {}
            }
        }
    }

    /// Waits for the next event, until the bridge's deadline or the client's.
    pub(crate) async fn wait(
        &mut self,
        due: Option<Instant>,
        client_due: Option<Instant>,
        events: &mut Vec<SessionEvent>,
    ) -> Woken {
        let wake = due.into_iter().chain(client_due).min();
        let mut sleep = wake.map(|at| Box::pin(sleep_until(at)));
        let arrival = std::future::poll_fn(|cx| {
            if let Some(order) = &mut self.drain_order
                && let Poll::Ready(within) = order.poll_unpin(cx)
            {
                return Poll::Ready(Arrival::Drain(within));
            }
            if let Poll::Ready(arrival) = poll_lanes(&mut self.lanes, cx) {
                return Poll::Ready(arrival);
            }
            match &mut sleep {
                Some(sleep) => sleep.poll_unpin(cx).map(|()| Arrival::Timer),
                None => Poll::Pending,
            }
        })
        .await;
        match arrival {
            Arrival::Drain(within) => {
                self.drain_order = None;
                self.feed(Input::Drain(within));
                return Woken::Draining;
            }
            Arrival::Timer if due.is_none_or(|due| client_due.is_some_and(|at| at < due)) => {
                return Woken::ClientTimer;
            }
            Arrival::Timer => self.feed(Input::Timeout),
            Arrival::InLine(lane, position) => self.feed(Input::LaneQueued(lane, position)),
            Arrival::Dialled(lane, Err(reason)) => self.end_lane(lane, reason),
            Arrival::Dialled(lane, Ok(DialledLane { socket, lease })) => {
                if let Some((_, transport)) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
                    *transport = Transport::Connected(socket);
                    self.leases.insert(lane, lease);
                    self.feed(Input::LaneOpened(lane));
                }
            }
            Arrival::Lane(lane, LinkEvent::Text(text)) => self.feed(Input::Lane(lane, Frame::Text(&text))),
            Arrival::Lane(lane, LinkEvent::End(reason)) => {
                if matches!(reason, DisconnectReason::Lost(_)) {
                    events.push(SessionEvent::LaneLost);
                }
                self.end_lane(lane, reason);
            }
        }
        Woken::Input
    }

    fn end_lane(&mut self, lane: Lane, reason: DisconnectReason) {
        drop(self.take_transport(lane));
        self.leases.lane_ended(lane, &reason);
        self.feed(Input::LaneClosed(lane, reason));
    }

    fn take_transport(&mut self, lane: Lane) -> Option<Transport> {
        let at = self.lanes.iter().position(|(known, _)| *known == lane)?;
        if !self.left_lanes.contains(&lane) {
            self.left_lanes.push(lane);
        }
        Some(self.lanes.swap_remove(at).1)
    }
}

fn poll_lanes(lanes: &mut [(Lane, Transport)], cx: &mut Context<'_>) -> Poll<Arrival> {
    for (lane, transport) in lanes {
        match transport {
            Transport::Dialling(dial) => {
                if let Some(position) = dial.poll_position(cx) {
                    return Poll::Ready(Arrival::InLine(*lane, position));
                }
                if let Poll::Ready(dialled) = dial.poll_unpin(cx) {
                    return Poll::Ready(Arrival::Dialled(*lane, dialled));
                }
            }
            Transport::Connected(link) => {
                if let Poll::Ready(event) = link.events.poll_recv(cx) {
                    let lost = || LinkEvent::End(DisconnectReason::Lost("end of stream".to_owned()));
                    return Poll::Ready(Arrival::Lane(*lane, event.unwrap_or_else(lost)));
                }
            }
        }
    }
    Poll::Pending
}
