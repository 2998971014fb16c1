//! Pool of upstreams: a [`tower::Service`] from [dial request](super::upstream_pool::dial::DialRequest) to socket, in
//! front of one dialer per upstream.
//!
//! A lane goes to the least loaded upstream in service; among equals, to the one that was chosen longest ago. The load
//! ([`tower::load::Load`]) is the number of open lanes plus the reported queue length; lanes of other processes are not seen.
//! A gateway with a status page also reports its idle workers. Where all do, a lane goes to the less loaded of two random
//! gateways that have one. A lane in a gateway's queue moves to another upstream as soon as that has room.
//!
//! A failing upstream is ejected for a time that doubles, and probed without occupying a worker until it answers. Every lane
//! holds a [`Lease`], through which its session reports the outcome: a handshake alone does not prove health.
//!
//! tower's own balancer is not used. It compares two random upstreams, which distributes unevenly among so few. It has
//! a single owner, so hundreds of sessions would wait in a buffer in front of it. Its request ends with the response,
//! while a lane starts there, reports a queue position, and may fail much later.
//!
//! - [`health`] is the pure state of one upstream; [`upstream`] adds name, log and probe
//! - [`lease`] is held by a lane, [`lane_leases`] by a session
//! - [`places`] counts the lanes of an upstream that has no queue; those without a place wait in the pool's [`mod@line`]
//! - [`signals`] tell the lanes in line, and the probes, of a change
//! - [`attempt`] is a lane on its way to an upstream
//! - [`dial`] connects; [`http_socket`] sends the requests of a lane without a WebSocket
//! - [`probe`] asks an upstream whether it is back, and how many workers are idle: by its [`status_page`], if it has one

mod attempt;
pub mod dial;
mod health;
pub(crate) mod http_page;
pub(crate) mod http_socket;
pub mod lane_leases;
pub mod lease;
mod line;
pub(crate) mod places;
pub mod probe;
mod signals;
mod status_page;
mod upstream;

#[cfg(test)]
mod tests;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use tokio::time::{Instant, sleep_until, timeout};
use tower::load::Load;
use tracing::debug;

use self::{
    attempt::{Connecting, DialStage},
    lane_leases::LaneLeases,
    lease::{AvoidedUpstream, Lease},
    line::{DialNumber, Line, PlaceInLine},
    probe::Probe,
    upstream::PooledUpstream,
};
pub use self::{
    attempt::{Dial, DialledLane},
    health::UpstreamLoad,
    places::PlacesStatus,
    upstream::UpstreamStatus,
};
use super::upstream_pool::dial::{DialRequest, Dialer};
use crate::vocabulary::{DisconnectReason, Lane, LanePurpose, Mode};

/// Dials upstreams. Each session has its own clone, which remembers the upstream that failed it.
pub struct Pool<D = Dialer> {
    shared: Arc<PoolShared<D>>,
    /// The upstreams that may be chosen; `None` for all.
    names: Option<Arc<[String]>>,
    avoided: AvoidedUpstream,
}

/// Longest dial of a lane that waited for its place. The session counts it as waiting, and so does not limit it.
const DIAL_AFTER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why such a dial failed.
const UNANSWERED_DIAL: &str = "no answer to the connection within 5 s";

struct PoolShared<D> {
    members: Vec<PoolMember<D>>,
    /// Indices of the members: those that were chosen longest ago come first. Locked during a choice, so that two concurrent
    /// choices differ.
    order: Mutex<Vec<usize>>,
    /// The lanes that wait for a place.
    line: Line,
}

/// Result of a choice.
enum Choice<D> {
    /// An upstream with a place for the lane.
    Place(D, Lease),
    /// All are full. This one is the best.
    Full(Arc<PooledUpstream>),
}

#[derive(Clone)]
struct PoolMember<D> {
    dialer: D,
    upstream: Arc<PooledUpstream>,
}

impl<D: Probe + Clone + Send + Sync + 'static> PoolMember<D> {
    fn new(name: String, dialer: D, line: &Line) -> Self {
        let upstream = PooledUpstream::new(name, Arc::new(dialer.clone()), line.signals().clone());
        Self { dialer, upstream: Arc::new(upstream) }
    }
}

impl<D> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), names: self.names.clone(), avoided: AvoidedUpstream::default() }
    }
}

impl<D: Probe + Clone + Send + Sync + 'static> Pool<D> {
    /// Creates a pool of upstreams, each with its name in logs.
    pub fn new(upstreams: impl IntoIterator<Item = (String, D)>) -> Self {
        let line = Line::default();
        let members = upstreams.into_iter().map(|(name, dialer)| PoolMember::new(name, dialer, &line));
        Self::from_members(members.collect(), line)
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
        let status = |PoolMember { upstream, .. }: &PoolMember<D>| {
            let waiting = self.shared.line.waiting_at(upstream);
            (upstream.name().to_owned(), upstream.status(waiting))
        };
        self.shared.members.iter().map(status).collect()
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
        !self.has_queue(lane.pooled_upstream()) && self.has_free_worker(mode, purpose)
    }

    /// Name of an upstream that has a free worker for a lane that waits in its own upstream's queue. A session that waits in a
    /// gateway's queue already finds no room there.
    pub fn room_beside(&self, lane: Lane, leases: &LaneLeases) -> Option<String> {
        let (purpose, mode) = leases.get(lane)?.request();
        let request = DialRequest { mode, purpose, trace: None };
        let has_room = |upstream: &Arc<PooledUpstream>| {
            upstream.has_free_worker()
                && !upstream.is_misconfigured(purpose)
                && !self.shared.line.is_wanted(upstream)
                && !leases.wait_at(upstream)
                && !self.avoided.is_avoided(upstream)
        };
        let candidates = self.upstreams_for(&request).into_iter().filter(has_room);
        Some(candidates.min_by_key(|upstream| upstream.load())?.name().to_owned())
    }

    fn has_free_worker(&self, mode: Mode, purpose: LanePurpose) -> bool {
        let request = DialRequest { mode, purpose, trace: None };
        let is_free = |upstream: &Arc<PooledUpstream>| {
            upstream.has_free_worker()
                && !upstream.is_misconfigured(purpose)
                && !self.shared.line.is_wanted(upstream)
        };
        self.upstreams_for(&request).iter().any(is_free)
    }

    /// True if another upstream in service serves such lanes, and has not refused their requests because of its configuration.
    pub fn has_other_for(&self, lane: &Lease) -> bool {
        let (purpose, mode) = lane.request();
        let is_other = |upstream: &Arc<PooledUpstream>| {
            !std::ptr::eq(&**upstream, lane.pooled_upstream())
                && upstream.is_in_service()
                && !upstream.is_misconfigured(purpose)
        };
        self.upstreams_for(&DialRequest { mode, purpose, trace: None }).iter().any(is_other)
    }

    /// True if a lane waits for a worker of the upstream, in its own queue or in line.
    fn has_queue(&self, upstream: &PooledUpstream) -> bool {
        upstream.has_queue() || self.shared.line.is_wanted(upstream)
    }

    /// The same pool of the same session, which still avoids the upstream that failed it.
    fn same_session(&self) -> Self {
        Self { avoided: self.avoided.clone(), ..self.clone() }
    }

    fn from_members(members: Vec<PoolMember<D>>, line: Line) -> Self {
        let order = Mutex::new((0..members.len()).collect());
        Self {
            shared: Arc::new(PoolShared { members, order, line }),
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
                let name = member.upstream.name().to_owned();
                return PoolMember::new(name, member.dialer.clone(), &other.shared.line);
            };
            if !known.dialer.has_same_settings(&member.dialer) {
                known.upstream.replace_probe(Arc::new(member.dialer.clone()));
            }
            PoolMember { dialer: member.dialer.clone(), upstream: known.upstream.clone() }
        };
        let members = self.shared.members.iter().map(member).collect();
        let pool = Self::from_members(members, other.shared.line.clone());
        // Replicas are often reloaded together.
        pool.shuffle();
        pool
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
        self.dial(request, self.shared.line.next_number())
    }
}

impl<D> Pool<D>
where
    D: tower::Service<DialRequest, Error = DisconnectReason> + Probe + Clone + Send + Sync + 'static,
    D::Future: Send + 'static,
{
    /// Dials this upstream if it still has room for the lane, and otherwise any, as a call of the service does.
    pub fn call_at(&self, upstream: String, request: DialRequest) -> Dial<D::Response> {
        let number = self.shared.line.next_number();
        let has_room = |it: &PoolMember<D>| it.upstream.name() == upstream && it.upstream.has_free_worker();
        let has_room = self.shared.members.iter().any(has_room);
        let narrowed = Self { names: Some([upstream].into()), ..self.same_session() };
        match has_room.then(|| narrowed.choose(&request, number)).flatten() {
            Some(Choice::Place(dialer, lease)) => self.connect(dialer, lease, request, number),
            _ => self.dial(request, number),
        }
    }

    /// Connects a lane that has its place. If it is refused for lack of room, it goes to any upstream.
    fn connect(
        &self,
        mut dialer: D,
        lease: Lease,
        request: DialRequest,
        number: DialNumber,
    ) -> Dial<D::Response> {
        let this = self.same_session();
        let stage = DialStage::Connecting(lease, Box::pin(dialer.call(request.clone())));
        Dial::new(None, stage, move || this.dial(request.clone(), number))
    }

    /// Dials an upstream. One that refuses the lane for lack of room is no failure: the lane goes to another that has room,
    /// or waits in line, where it keeps its number.
    fn dial(&self, request: DialRequest, number: DialNumber) -> Dial<D::Response> {
        let this = self.same_session();
        let (line, stage) = match this.choose(&request, number) {
            None => {
                let (purpose, mode) = (request.purpose.name(), request.mode.name());
                let words = format!("no upstream serves `{purpose}` (mode {mode})");
                (None, DialStage::Over(Some(DisconnectReason::Unreachable(words))))
            }
            Some(Choice::Place(dialer, lease)) => return self.connect(dialer, lease, request, number),
            Some(Choice::Full(upstream)) => {
                let place =
                    self.shared.line.join(number, upstream, self.upstreams_for(&request), request.purpose);
                let reports = place.view();
                let this = self.same_session();
                let waiting = this.wait_for_place(request.clone(), number, place);
                (Some(reports), DialStage::InLine(Box::pin(waiting)))
            }
        };
        Dial::new(line, stage, move || this.dial(request.clone(), number))
    }

    /// Connects a lane whose transport is gone to its upstream again. The lane keeps its place, so it needs no other. `None` if
    /// the upstream is not in this pool.
    pub fn redial(&self, lease: &Lease, request: DialRequest) -> Option<D::Future> {
        let is_own = |member: &&PoolMember<D>| std::ptr::eq(&*member.upstream, lease.pooled_upstream());
        let member = self.shared.members.iter().find(is_own)?;
        Some(member.dialer.clone().call(request))
    }

    /// Waits in line for a place at any upstream that serves the lane, then connects.
    async fn wait_for_place(
        self,
        request: DialRequest,
        number: DialNumber,
        place: PlaceInLine,
    ) -> (Lease, Connecting<D::Response>) {
        loop {
            let mut changed = pin!(self.shared.line.signals().places_changed());
            changed.as_mut().enable();
            match self.choose(&request, number) {
                Some(Choice::Place(mut dialer, lease)) => {
                    let dialling = timeout(DIAL_AFTER_WAIT_MAX, dialer.call(request));
                    let unanswered = || DisconnectReason::Unreachable(UNANSWERED_DIAL.to_owned());
                    let connecting = dialling.map(move |it| it.unwrap_or_else(|_| Err(unanswered())));
                    return (lease, Box::pin(connecting));
                }
                Some(Choice::Full(upstream)) => place.stand_at(upstream),
                None => {}
            }
            let upstreams = self.upstreams_for(&request);
            match upstreams.iter().filter_map(|upstream| upstream.places().changes_at()).min() {
                Some(instant) => tokio::select! { () = changed => {} () = sleep_until(instant) => {} },
                None => changed.await,
            }
        }
    }
}

impl<D: Probe + Clone> Pool<D> {
    /// True if this upstream may be chosen for such a lane.
    fn can_serve(&self, PoolMember { dialer, upstream }: &PoolMember<D>, request: &DialRequest) -> bool {
        let is_named = self.names.as_ref().is_none_or(|names| names.iter().any(|it| it == upstream.name()));
        is_named && dialer.serves(request.purpose, request.mode)
    }

    fn upstreams_for(&self, request: &DialRequest) -> Vec<Arc<PooledUpstream>> {
        let members = self.shared.members.iter().filter(|member| self.can_serve(member, request));
        members.map(|member| member.upstream.clone()).collect()
    }

    /// Chooses among the upstreams that serve the lane ([`best_standing`]), and takes a place there. If none is in service, it
    /// chooses the upstream whose probe is due first, so that a session always gets an attempt. The lanes pace their attempts
    /// themselves. `None` if no upstream serves the lane.
    fn choose(&self, request: &DialRequest, number: DialNumber) -> Option<Choice<D>> {
        let PoolShared { members, order, line } = &*self.shared;
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = (0..order.len()).filter(|place| self.can_serve(&members[order[*place]], request));
        let standing_at = |place: usize| {
            let upstream = &members[order[place]].upstream;
            let has_room = upstream.places().has_place() && !line.has_earlier(number, upstream);
            Standing::new(place, upstream, request.purpose, !has_room, self.avoided.is_avoided(upstream))
        };
        let best = best_standing(serving.map(standing_at).collect())?;
        let at = order[best.place];
        let PoolMember { dialer, upstream } = &members[at];
        let place = if best.is_full() { None } else { upstream.places().take() };
        let Some(place) = place else {
            return Some(Choice::Full(upstream.clone()));
        };
        order.remove(best.place);
        order.push(at);
        debug!(upstream = upstream.name(), "upstream chosen");
        let (avoided, DialRequest { purpose, mode, .. }) = (self.avoided.clone(), request);
        let lease = Lease::new(upstream.clone(), avoided, place, *purpose, *mode);
        Some(Choice::Place(dialer.clone(), lease))
    }
}

/// Rank of an upstream. The least class is the best, then the least load.
struct Standing {
    /// Place in the order of the pool.
    place: usize,
    class: StandingClass,
    /// The load of everyone, if the upstream reports it.
    utilisation: Option<u32>,
    /// The load of this process.
    lanes: u32,
    /// True if the upstream's number of sessions is known and it has room for another.
    has_sure_room: bool,
}

/// The class of an upstream; what comes first weighs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StandingClass {
    is_ejected: bool,
    /// It refused requests of this purpose because of its configuration.
    is_misconfigured: bool,
    /// It has no place, or earlier lanes want it.
    is_full: bool,
    ejected_until: Option<Instant>,
    /// It failed this session last.
    is_avoided: bool,
    /// It says that no worker is idle, or a lane of this process has just found none.
    is_busy: bool,
}

impl Standing {
    fn new(
        place: usize,
        upstream: &PooledUpstream,
        purpose: LanePurpose,
        is_full: bool,
        is_avoided: bool,
    ) -> Self {
        let (UpstreamLoad { ejected_until, lanes }, utilisation) = (upstream.load(), upstream.utilisation());
        let is_ejected = ejected_until.is_some();
        // A report may be old, and a gateway may refuse sessions for another reason.
        let is_busy = utilisation.is_some_and(health::is_busy) || upstream.has_queue();
        let is_misconfigured = upstream.is_misconfigured(purpose);
        let class =
            StandingClass { is_ejected, is_misconfigured, is_full, ejected_until, is_avoided, is_busy };
        let has_sure_room = !is_full && upstream.places().max().is_some();
        Self { place, class, utilisation, lanes, has_sure_room }
    }

    const fn is_full(&self) -> bool {
        self.class.is_full
    }
}

/// The best upstream. If all of the best class report their load, it is the less loaded of two random ones: the
/// reports are seconds old, and many replicas would otherwise send all their lanes to the one that was idle then.
fn best_standing(mut standings: Vec<Standing>) -> Option<Standing> {
    if standings.iter().all(|standing| standing.utilisation.is_none() && !standing.has_sure_room) {
        // The lanes of this process, and their queues, are all that is known. They count by their number: a burst would all go
        // to an upstream whose queue was empty for a moment.
        standings.iter_mut().for_each(|standing| standing.class.is_busy = false);
    }
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
    standings.into_iter().min_by_key(|standing| (standing.utilisation, standing.lanes))
}
