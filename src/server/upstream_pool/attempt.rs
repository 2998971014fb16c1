//! A lane on its way to an upstream: first in line for a place, if it needs one, then connecting.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{Interval, MissedTickBehavior, timeout, timeout_at};

use super::{lease::Lease, line::LineView};
use crate::vocabulary::DisconnectReason;

/// Time between two reports.
const LINE_REPORT_INTERVAL: Duration = Duration::from_secs(3);

/// Time for an upstream to answer the connection of a lane that is no longer needed. Then it counts as unreachable.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Further time for such a connection to be established, so that it can be closed.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(5);

/// A dialled connection with its lease.
#[derive(Debug)]
pub struct DialledLane<S> {
    /// The connection.
    pub socket: S,
    /// Lease to keep as long as the lane lasts.
    pub lease: Lease,
}

/// A lane on its way to an upstream.
pub struct Dial<S> {
    line: Option<LineReports>,
    stage: DialStage<S>,
    /// Begins again after a refusal: the lane goes to another upstream, or waits.
    begin_again: Box<dyn Fn() -> Self + Send>,
}

/// A connection that is being established.
pub(super) type Connecting<S> = BoxFuture<'static, Result<S, DisconnectReason>>;

/// Stage of a dial.
pub(super) enum DialStage<S> {
    InLine(BoxFuture<'static, (Lease, Connecting<S>)>),
    Connecting(Lease, Connecting<S>),
    /// Over; an error that was not returned yet.
    Over(Option<DisconnectReason>),
}

impl<S> DialStage<S> {
    fn unneeded() -> Self {
        Self::Over(Some(DisconnectReason::Lost("it is no longer needed".to_owned())))
    }
}

/// Reports of where a lane waits for a place, at the pace of a gateway's.
struct LineReports {
    view: LineView,
    interval: Interval,
}

impl LineReports {
    fn new(view: LineView) -> Self {
        let mut interval = tokio::time::interval(LINE_REPORT_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { view, interval }
    }
}

impl<S> Dial<S> {
    pub(super) fn new(
        line: Option<LineView>,
        stage: DialStage<S>,
        begin_again: impl Fn() -> Self + Send + 'static,
    ) -> Self {
        Self { line: line.map(LineReports::new), stage, begin_again: Box::new(begin_again) }
    }

    /// A dial that is over because nothing needs the lane.
    fn unneeded() -> Self
    where
        S: 'static,
    {
        Self::new(None, DialStage::unneeded(), Self::unneeded)
    }

    /// Position at which the lane waits for a place at its upstream: at once, and then from time to time.
    pub fn poll_position(&mut self, cx: &mut Context<'_>) -> Option<u32> {
        let LineReports { view, interval } = self.line.as_mut()?;
        if interval.poll_tick(cx).is_pending() {
            return None;
        }
        let position = view.position();
        if position.is_none() {
            self.line = None;
        }
        position
    }

    /// Gives up: the lane ends instead of waiting. A lane that has its place already is dialled to the end.
    pub fn give_up(&mut self) {
        if matches!(self.stage, DialStage::InLine(_)) {
            self.line = None;
            self.stage = DialStage::unneeded();
        }
    }

    /// Establishes a connection that is no longer needed, so that it can be closed: the upstream would wait for its session.
    /// Leaves the line at once, and reports an upstream that does not answer as soon as that is certain.
    pub async fn finish(mut self) -> Option<DialledLane<S>>
    where
        S: 'static,
    {
        self.give_up();
        self.begin_again = Box::new(Self::unneeded);
        if let DialStage::Connecting(lease, _) = &self.stage
            && let Some(since) = lease.dialling_since()
        {
            if let Ok(dialled) = timeout_at(since + ANSWER_MAX, &mut self).await {
                return dialled.ok();
            }
            if let DialStage::Connecting(lease, _) = &mut self.stage {
                lease.report_failure("connecting timed out");
            }
        }
        timeout(LATE_ANSWER_MAX, self).await.ok()?.ok()
    }
}

impl<S> Future for Dial<S> {
    type Output = Result<DialledLane<S>, DisconnectReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let result = match &mut self.stage {
                DialStage::InLine(waiting) => {
                    let (lease, connecting) = ready!(waiting.as_mut().poll(cx));
                    self.stage = DialStage::Connecting(lease, connecting);
                    continue;
                }
                DialStage::Connecting(_, connecting) => ready!(connecting.as_mut().poll(cx)),
                DialStage::Over(error) => match error.take() {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => return Poll::Pending,
                },
            };
            let stage = std::mem::replace(&mut self.stage, DialStage::Over(None));
            let DialStage::Connecting(mut lease, _) = stage else { continue };
            match result {
                Ok(socket) => {
                    lease.mark_connected();
                    return Poll::Ready(Ok(DialledLane { socket, lease }));
                }
                Err(reason) if lease.is_refused_for_room(&reason) => {}
                Err(reason) => {
                    lease.dial_failed(&reason);
                    return Poll::Ready(Err(reason));
                }
            }
            lease.report_busy(None);
            drop(lease);
            let next = (self.begin_again)();
            *self = next;
            // The caller asks for the position first.
            if self.line.is_some() {
                cx.waker().wake_by_ref();
            }
        }
    }
}
