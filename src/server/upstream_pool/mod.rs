//! Several upstreams as one: a [`tower::Service`] from [call](super::upstream_pool::dial::Call) to socket in front of one dialer each.
//!
//! A lane goes to the least loaded upstream that is in service; equal ones take turns. Load is a [`tower::load::Load`]:
//! the lanes an upstream carries and what its queue said. An upstream that fails is left out for a while that doubles, and
//! probed without taking a worker until it answers. Every lane holds a [`Lease`], by which its session says what became of
//! it: a handshake alone is no sign of health.
//!
//! tower's own balancer is not used. It compares two upstreams at random, of which there are too few here for that to be
//! even; it is owned by one caller, so that hundreds of sessions would wait in a buffer before it; and what it balances is
//! over with the response, while a lane begins with it, tells its place in a queue, and may fail much later.
//!
//! - [`health`] is what is known of one upstream, pure; [`upstream`] is that with a name, a log and a probe
//! - [`lease`] is what a lane holds; [`probe`] asks an upstream that was left out whether it is back

pub mod dial;
mod health;
pub mod lease;
pub mod probe;
mod upstream;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::load::Load;
use tracing::debug;

pub use self::{health::Burden, upstream::Standing};
use self::{
    lease::{Lease, Memory},
    probe::Probe,
    upstream::Upstream,
};
use super::upstream_pool::dial::Dialer;
use crate::event::Why;

/// The way to all upstreams. A clone is another session's: what one met is not another's memory.
pub struct Pool<D = Dialer> {
    shared: Arc<Shared<D>>,
    memory: Memory,
}

/// A connection, and what it is held by.
#[derive(Debug)]
pub struct Dialled<S> {
    /// The connection.
    pub socket: S,
    /// To be kept as long as the lane lasts.
    pub lease: Lease,
}

struct Shared<D> {
    ways: Vec<Way<D>>,
    /// Where the next choice among equals begins. Locked while one chooses, so that two do not choose the same.
    turn: Mutex<usize>,
}

#[derive(Clone)]
struct Way<D> {
    dialer: D,
    upstream: Arc<Upstream>,
}

impl<D> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), memory: Memory::default() }
    }
}

impl<D: Probe + Clone + Send + Sync + 'static> Pool<D> {
    /// These upstreams, by the names that logs call them.
    pub fn new(upstreams: impl IntoIterator<Item = (String, D)>) -> Self {
        let way = |(name, dialer): (String, D)| Way {
            upstream: Arc::new(Upstream::new(name, Arc::new(dialer.clone()))),
            dialer,
        };
        Self::of(upstreams.into_iter().map(way).collect())
    }

    /// The same upstreams, but only those whose names are wanted: what is known of one is known in every pool it is in.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self::of(self.shared.ways.iter().filter(|way| wanted(way.upstream.name())).cloned().collect())
    }

    /// Each upstream's name, and how it stands.
    #[must_use]
    pub fn standing(&self) -> Vec<(String, Standing)> {
        let ways = self.shared.ways.iter();
        ways.map(|way| (way.upstream.name().to_owned(), way.upstream.standing())).collect()
    }

    /// Whether there is one by this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.shared.ways.iter().any(|way| way.upstream.name() == name)
    }

    /// How many upstreams are known to be in service, and how many there are.
    #[must_use]
    pub fn usable(&self) -> (usize, usize) {
        let usable = self.shared.ways.iter().filter(|way| way.upstream.is_usable());
        (usable.count(), self.shared.ways.len())
    }

    /// Asks every upstream that carries no lane whether it is there, so that one that is not is known before a session
    /// needs it. One question to each at a time.
    pub fn look(&self) {
        for way in self.shared.ways.iter().filter(|way| way.upstream.begin_look()) {
            tokio::spawn(probe::look(way.upstream.clone()));
        }
    }

    fn of(ways: Vec<Way<D>>) -> Self {
        Self { shared: Arc::new(Shared { ways, turn: Mutex::new(0) }), memory: Memory::default() }
    }
}

impl Pool {
    /// This, with what another one knows of upstreams that both have by the same name at the same place: the lanes that
    /// they carry stay, and count. One that is gone to in another way, with a new token as it may be, has a new chance; it is
    /// for both to know, so this one is to be used from now on.
    #[must_use]
    pub fn keeping(&self, other: &Self) -> Self {
        let way = |way: &Way<Dialer>| {
            let is_it = |known: &&Way<Dialer>| {
                known.upstream.name() == way.upstream.name() && known.dialer.leads_where(&way.dialer)
            };
            let Some(known) = other.shared.ways.iter().find(is_it) else { return way.clone() };
            if !known.dialer.goes_like(&way.dialer) {
                known.upstream.reached_by(Arc::new(way.dialer.clone()));
            }
            Way { dialer: way.dialer.clone(), upstream: known.upstream.clone() }
        };
        Self::of(self.shared.ways.iter().map(way).collect())
    }
}

impl<D, R> tower::Service<R> for Pool<D>
where
    R: std::fmt::Debug,
    D: tower::Service<R, Error = Why> + Clone,
    D::Future: Send + 'static,
{
    type Response = Dialled<D::Response>;
    type Error = Why;
    type Future = BoxFuture<'static, Result<Self::Response, Why>>;

    /// Always: an upstream that has no room says so itself, and dialers have nothing to wait for.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Why>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Some((mut dialer, mut lease)) = self.shared.choose(&self.memory) else {
            return Box::pin(async { Err(Why::Unreachable("there is no upstream".to_owned())) });
        };
        debug!(upstream = lease.upstream(), ?request, "chosen");
        let dial = dialer.call(request);
        Box::pin(async move {
            match dial.await {
                Ok(socket) => {
                    lease.connected();
                    Ok(Dialled { socket, lease })
                }
                Err(why) => {
                    lease.not_connected(&why);
                    Err(why)
                }
            }
        })
    }
}

impl<D: Clone> Shared<D> {
    /// The least loaded that is in service, rather not the one that failed this session last; when none is, the one that is
    /// to be probed first: nobody is refused without a try, and the lanes pace their attempts themselves.
    fn choose(&self, memory: &Memory) -> Option<(D, Lease)> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, from) = (self.ways.len(), *turn);
        let order = (0..count).map(|step| (from + step) % count);
        let rank_of = |way: &Way<D>| rank(way.upstream.load(), memory.avoids(&way.upstream));
        let at = order.min_by_key(|at| rank_of(&self.ways[*at]))?;
        let chosen = &self.ways[at];
        *turn = (at + 1) % count;
        Some((chosen.dialer.clone(), Lease::new(chosen.upstream.clone(), memory.clone())))
    }
}

/// The least comes first.
const fn rank(burden: Burden, avoided: bool) -> (Option<Instant>, bool, u32) {
    (burden.out_until, avoided, burden.lanes)
}
