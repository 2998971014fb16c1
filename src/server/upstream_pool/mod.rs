//! Pool of upstreams: a [`tower::Service`] from [dial request](super::upstream_pool::dial::DialRequest) to socket, in
//! front of one dialer per upstream.
//!
//! A lane goes to the least loaded upstream in service; among equals, to the one that was chosen longest ago. The load
//! ([`tower::load::Load`]) is the number of open lanes plus the reported queue length; lanes of other processes are not seen.
//! A gateway with a status page also reports its idle workers. Where all do, a lane goes to the less loaded of two random
//! gateways that have one.
//!
//! A failing upstream is ejected for a time that doubles, and probed without occupying a worker until it answers. Every lane
//! holds a [`Lease`], through which its session reports the outcome: a handshake alone does not prove health.
//!
//! tower's own balancer is not used. It compares two random upstreams, which distributes unevenly among so few. It has
//! a single owner, so hundreds of sessions would wait in a buffer in front of it. Its request ends with the response,
//! while a lane starts there, reports a queue position, and may fail much later.
//!
//! - [`health`] is the pure state of one upstream; [`upstream`] adds name, log and probe
//! - [`lease`] is held by a lane, [`lane_leases`] by a session; [`places`] counts the lanes of an upstream that has no queue
//! - [`dial`] connects; [`http_socket`] sends the requests of a lane without a WebSocket
//! - [`probe`] asks an upstream whether it is back, and how many workers are idle

pub mod dial;
mod health;
mod http_page;
pub(crate) mod http_socket;
pub mod lane_leases;
pub mod lease;
mod places;
pub mod probe;
mod upstream;

#[cfg(test)]
mod tests;

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, Interval, MissedTickBehavior, timeout};
use tower::load::Load;
use tracing::debug;

pub use self::{health::UpstreamLoad, places::PlacesStatus, upstream::UpstreamStatus};
use self::{
    lease::{AvoidedUpstream, Lease},
    places::{LineView, PlaceInLine},
    probe::Probe,
    upstream::PooledUpstream,
};
use super::upstream_pool::dial::{DialRequest, Dialer};
use crate::event::{DisconnectReason, LanePurpose, Mode};

/// Dials upstreams. Each session has its own clone, which remembers the upstream that failed it.
pub struct Pool<D = Dialer> {
    shared: Arc<PoolShared<D>>,
    /// The upstreams that may be chosen; `None` for all.
    names: Option<Arc<[String]>>,
    avoided: AvoidedUpstream,
}

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
    attempt: BoxFuture<'static, Result<Attempt<S>, DisconnectReason>>,
}

/// Result of an attempt that has not failed.
enum Attempt<S> {
    Dialled(DialledLane<S>),
    /// The upstream has no place. The lane goes to another, or waits.
    Refused(Dial<S>),
}

/// Reports of where a lane waits for a place, at the pace of a gateway's.
struct LineReports {
    view: LineView,
    interval: Interval,
}

/// Time between two reports.
const LINE_REPORT_INTERVAL: Duration = Duration::from_secs(3);

/// Why such a dial failed.
const UNANSWERED_DIAL: &str = "no answer to the connection within 5 s";

/// Longest dial of a lane that waited for its place. The session counts it as waiting, and so does not limit it.
const DIAL_AFTER_WAIT_MAX: Duration = Duration::from_secs(5);

impl LineReports {
    fn new(line: &PlaceInLine) -> Self {
        let mut interval = tokio::time::interval(LINE_REPORT_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { view: line.view(), interval }
    }
}

impl<S> Dial<S> {
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
    pub fn give_up(&mut self)
    where
        S: Send + 'static,
    {
        if self.line.take().is_some_and(|line| line.view.position().is_some()) {
            self.attempt =
                Box::pin(async { Err(DisconnectReason::Lost("it is no longer needed".to_owned())) });
        }
    }
}

impl<S> Future for Dial<S> {
    type Output = Result<DialledLane<S>, DisconnectReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.attempt.as_mut().poll(cx))? {
                Attempt::Dialled(lane) => return Poll::Ready(Ok(lane)),
                Attempt::Refused(next) => *self = next,
            }
            // The caller asks for the position first.
            if self.line.is_some() {
                cx.waker().wake_by_ref();
            }
        }
    }
}

struct PoolShared<D> {
    members: Vec<PoolMember<D>>,
    /// Indices of the members: those that were chosen longest ago come first. Locked during a choice, so that two concurrent
    /// choices differ.
    order: Mutex<Vec<usize>>,
}

#[derive(Clone)]
struct PoolMember<D> {
    dialer: D,
    upstream: Arc<PooledUpstream>,
}

impl<D> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), names: self.names.clone(), avoided: AvoidedUpstream::default() }
    }
}

impl<D: Probe + Clone + Send + Sync + 'static> Pool<D> {
    /// Creates a pool of upstreams, each with its name in logs.
    pub fn new(upstreams: impl IntoIterator<Item = (String, D)>) -> Self {
        let member = |(name, dialer): (String, D)| PoolMember {
            upstream: Arc::new(PooledUpstream::new(name, Arc::new(dialer.clone()))),
            dialer,
        };
        Self::from_members(upstreams.into_iter().map(member).collect())
    }

    /// Puts the upstreams into a random order. Replicas that start together would otherwise all dial the first one first.
    pub fn shuffle(&self) {
        fastrand::shuffle(&mut self.shared.order.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A pool that chooses among the upstreams with these names, and shares their state with this one.
    pub fn subset(&self, names: Arc<[String]>) -> Self {
        Self { names: Some(names), ..self.clone() }
    }

    /// Name and status of each upstream.
    pub fn statuses(&self) -> Vec<(String, UpstreamStatus)> {
        let members = self.shared.members.iter();
        members.map(|member| (member.upstream.name().to_owned(), member.upstream.status())).collect()
    }

    /// How many upstreams are known to be in service, and how many there are.
    pub fn usable_and_total(&self) -> (usize, usize) {
        let usable = self.shared.members.iter().filter(|member| member.upstream.is_usable());
        (usable.count(), self.shared.members.len())
    }

    /// Number of lanes that wait in upstreams' queues although nothing needs them.
    pub fn unneeded_count(&self) -> u32 {
        self.statuses().iter().map(|(_, status)| status.unneeded).sum()
    }

    /// Probes every upstream without lanes, so that a dead one is known before a session needs it, and those that report their
    /// workers. At most one probe per upstream runs at a time.
    pub fn probe_idle(&self) {
        for member in self.shared.members.iter().filter(|member| member.upstream.begin_idle_probe()) {
            tokio::spawn(member.upstream.clone().probe_idle());
        }
    }

    /// Probes every upstream at the same time; returns their names with the reasons of failures. Failures change no
    /// state, so that the first session tries an upstream that starts later.
    pub async fn probe_all(self) -> Vec<(String, Result<(), String>)> {
        let probe = |member: &PoolMember<D>| {
            let upstream = member.upstream.clone();
            async move { (upstream.name().to_owned(), upstream.probe().await) }
        };
        join_all(self.shared.members.iter().map(probe)).await
    }

    /// True if no one waits for the worker of this lane, and an upstream that serves such lanes is in service, has room for
    /// another and no lane in its queue. How many workers a gateway has is not known unless it reports them: only its queue
    /// shows that they are all in use.
    pub fn has_free_worker_beside(&self, lane: &Lease, mode: Mode, purpose: LanePurpose) -> bool {
        !lane.is_worker_wanted() && self.has_free_worker(mode, purpose)
    }

    fn has_free_worker(&self, mode: Mode, purpose: LanePurpose) -> bool {
        self.shared.members.iter().any(|PoolMember { dialer, upstream }| {
            let is_named =
                self.names.as_ref().is_none_or(|names| names.iter().any(|it| it == upstream.name()));
            is_named && dialer.serves(purpose, mode) && upstream.has_free_worker()
        })
    }

    fn from_members(members: Vec<PoolMember<D>>) -> Self {
        let order = Mutex::new((0..members.len()).collect());
        Self {
            shared: Arc::new(PoolShared { members, order }),
            names: None,
            avoided: AvoidedUpstream::default(),
        }
    }
}

impl Pool {
    /// Name and dialect of each upstream.
    pub fn dialects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.members.iter().map(|member| (member.upstream.name(), member.dialer.dialect()))
    }

    /// Takes over the state of `other` for upstreams with the same name and URL: open lanes stay and count. Changed
    /// dial settings, such as a new token, clear the failures. The state stays shared, so use only the new pool from
    /// now on.
    pub fn with_state_of(&self, other: &Self) -> Self {
        let member = |member: &PoolMember<Dialer>| {
            let is_same_upstream = |known: &&PoolMember<Dialer>| {
                known.upstream.name() == member.upstream.name() && known.dialer.has_same_url(&member.dialer)
            };
            let Some(known) = other.shared.members.iter().find(is_same_upstream) else {
                return member.clone();
            };
            if !known.dialer.has_same_settings(&member.dialer) {
                known.upstream.replace_probe(Arc::new(member.dialer.clone()));
            }
            PoolMember { dialer: member.dialer.clone(), upstream: known.upstream.clone() }
        };
        Self::from_members(self.shared.members.iter().map(member).collect())
    }
}

impl<D> tower::Service<DialRequest> for Pool<D>
where
    D: tower::Service<DialRequest, Error = DisconnectReason> + Probe + Clone + Send + Sync + 'static,
    D::Future: Send + 'static,
{
    type Response = DialledLane<D::Response>;
    type Error = DisconnectReason;
    type Future = Dial<D::Response>;

    /// Always ready: a full upstream rejects the dial itself, and dialers have nothing to wait for.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: DialRequest) -> Self::Future {
        self.dial(request, None)
    }
}

impl<D> Pool<D>
where
    D: tower::Service<DialRequest, Error = DisconnectReason> + Probe + Clone + Send + Sync + 'static,
    D::Future: Send + 'static,
{
    /// Dials an upstream. One that refuses the lane for lack of room is no failure: the lane goes to another that has room,
    /// or waits in line.
    fn dial(&self, request: DialRequest, refused_by: Option<&Arc<PooledUpstream>>) -> Dial<D::Response> {
        let Some((mut dialer, mut lease)) =
            self.shared.choose(self.names.as_deref(), &request, &self.avoided)
        else {
            let words =
                format!("no upstream serves `{}` (mode {})", request.purpose.name(), request.mode.name());
            let error = DisconnectReason::Unreachable(words);
            return Dial { line: None, attempt: Box::pin(async { Err(error) }) };
        };
        debug!(upstream = lease.upstream(), "upstream chosen");
        let line = lease.request_place(refused_by);
        let reports = line.as_ref().map(LineReports::new);
        let this = Self { avoided: self.avoided.clone(), ..self.clone() };
        let attempt = Box::pin(async move {
            let dialled = match line {
                None => dialer.call(request.clone()).await,
                Some(line) => {
                    lease.wait_for_place(line).await;
                    let dialled = timeout(DIAL_AFTER_WAIT_MAX, dialer.call(request.clone())).await;
                    dialled.unwrap_or_else(|_| Err(DisconnectReason::Unreachable(UNANSWERED_DIAL.to_owned())))
                }
            };
            match dialled {
                Ok(socket) => {
                    lease.mark_connected();
                    Ok(Attempt::Dialled(DialledLane { socket, lease }))
                }
                Err(reason) => {
                    let full = lease.dial_failed(&reason).ok_or(reason)?;
                    drop(lease);
                    Ok(Attempt::Refused(this.dial(request, Some(&full))))
                }
            }
        });
        Dial { line: reports, attempt }
    }
}

impl<D: Probe + Clone> PoolShared<D> {
    /// Chooses among the upstreams in service that serve the lane ([`best_place`]), and avoids the one that failed this session
    /// last. If none is in service, it chooses the upstream whose probe is due first, so that a session always gets an attempt.
    /// The lanes pace their attempts themselves.
    fn choose(
        &self,
        names: Option<&[String]>,
        DialRequest { mode, purpose, .. }: &DialRequest,
        avoided: &AvoidedUpstream,
    ) -> Option<(D, Lease)> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |place: &usize| {
            let PoolMember { dialer, upstream } = &self.members[order[*place]];
            let is_named = names.is_none_or(|names| names.iter().any(|name| name == upstream.name()));
            is_named && dialer.serves(*purpose, *mode)
        };
        let standing_at = |place: usize| {
            let upstream = &self.members[order[place]].upstream;
            Standing::new(place, upstream, avoided.is_avoided(upstream))
        };
        let place = best_place((0..order.len()).filter(is_wanted).map(standing_at).collect())?;
        let at = order.remove(place);
        order.push(at);
        let chosen = &self.members[at];
        Some((chosen.dialer.clone(), Lease::new(chosen.upstream.clone(), avoided.clone())))
    }
}

/// Rank of an upstream. The least class is the best, then the least load.
struct Standing {
    /// Place in the order of the pool.
    place: usize,
    /// Ejected until; has no room; failed this session last; says that no worker is idle.
    class: (Option<Instant>, bool, bool, bool),
    /// The load of everyone, if the upstream reports it.
    utilisation: Option<u32>,
    /// The load of this process.
    lanes: u32,
}

impl Standing {
    fn new(place: usize, upstream: &PooledUpstream, is_avoided: bool) -> Self {
        let (load, utilisation) = (upstream.load(), upstream.utilisation());
        let class =
            (load.ejected_until, upstream.is_full(), is_avoided, utilisation.is_some_and(health::is_busy));
        Self { place, class, utilisation, lanes: load.lanes }
    }
}

/// The place of the best upstream. If all of the best class report their load, it is the less loaded of two random ones: the
/// reports are seconds old, and many replicas would otherwise send all their lanes to the one that was idle then.
fn best_place(mut standings: Vec<Standing>) -> Option<usize> {
    let class = standings.iter().map(|standing| standing.class).min()?;
    standings.retain(|standing| standing.class == class);
    let all_report = standings.iter().all(|standing| standing.utilisation.is_some());
    if all_report {
        while standings.len() > 2 {
            standings.remove(fastrand::usize(..standings.len()));
        }
    } else {
        standings.iter_mut().for_each(|standing| standing.utilisation = None);
    }
    standings
        .iter()
        .min_by_key(|standing| (standing.utilisation, standing.lanes))
        .map(|standing| standing.place)
}
