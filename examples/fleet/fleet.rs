//! The fleet: gateways, replicas, and the cluster's balancer that gives clients to replicas.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use voxbridge::{
    server::upstream_pool::Pool,
    spelling::{ClientMapping, Library, UpstreamMapping, profile::Profile},
};

use crate::{
    dialer::SiteDialer,
    options::{ClientKind, Options, SubsetKind},
    site::Site,
    tally::Tally,
};

/// Time for sessions to finish when their replica stops (`[drain] timeout_ms`).
pub(crate) const DRAIN: Duration = Duration::from_secs(25);
/// Interval of the probes of idle upstreams in `voxbridge serve`.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// One replica of voxbridge, from its start to its end.
pub(crate) struct Replica {
    pub(crate) pool: Pool<SiteDialer>,
    /// Set when its sessions must finish.
    pub(crate) drain: watch::Sender<Option<Duration>>,
    is_ready: AtomicBool,
}

/// Everything that is simulated.
pub(crate) struct Fleet {
    pub(crate) options: Options,
    pub(crate) protocols: Protocols,
    pub(crate) sites: Vec<Arc<Site>>,
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// The gateways that each replica knows, as indices.
    known: Vec<Vec<usize>>,
    rng: Mutex<fastrand::Rng>,
    tally: Mutex<Tally>,
}

/// Protocols of the clients and the gateways, and the profile between them.
pub(crate) struct Protocols {
    pub(crate) client: Arc<ClientMapping>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) upstream: Arc<UpstreamMapping>,
}

impl Protocols {
    fn new(clients: ClientKind) -> Result<Self, String> {
        let library = Library::embedded().map_err(|error| error.to_string())?;
        let (client, profile) = match clients {
            ClientKind::Conversations => ("minicpm-o", "relay"),
            ClientKind::Questions => ("openai-realtime", "assistant"),
        };
        Ok(Self {
            client: library.client(client)?,
            profile: library.profile(profile)?,
            upstream: library.upstream("minicpm-o")?,
        })
    }
}

impl Fleet {
    pub(crate) fn start(options: Options) -> Result<Arc<Self>, String> {
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let site = |at: usize| {
            let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(at as u64 * 1000);
            Site::start(format!("gateway-{at}"), at % options.zones, options.workers_each(), seed)
        };
        let sites: Vec<_> = (0..options.gateway_count()).map(site).collect();
        let known = subsets(&options, &mut rng);
        let fleet = Arc::new(Self {
            protocols: Protocols::new(options.clients)?,
            sites,
            replicas: Mutex::default(),
            known,
            rng: Mutex::new(rng),
            tally: Mutex::default(),
            options,
        });
        let replicas = (0..fleet.options.replica_count()).map(|at| fleet.start_replica(at)).collect();
        *lock(&fleet.replicas) = replicas;
        Ok(fleet)
    }

    fn start_replica(&self, at: usize) -> Arc<Replica> {
        let upstreams = self.known[at].iter().map(|site| {
            let site = &self.sites[*site];
            let has_status = !self.options.without_status;
            (site.name.clone(), SiteDialer { site: Arc::clone(site), has_status })
        });
        let pool = Pool::new(upstreams);
        pool.shuffle();
        let replica =
            Arc::new(Replica { pool, drain: watch::channel(None).0, is_ready: AtomicBool::new(true) });
        let (pool, weak) = (replica.pool.clone(), Arc::downgrade(&replica));
        let first_probe_after = IDLE_PROBE_INTERVAL.mul_f64(self.random(fastrand::Rng::f64));
        tokio::spawn(async move {
            sleep(first_probe_after).await;
            let mut ticks = interval(IDLE_PROBE_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while weak.upgrade().is_some_and(|replica| replica.is_ready.load(Relaxed)) {
                pool.probe_idle();
                ticks.tick().await;
            }
        });
        replica
    }

    /// Puts a new replica in the place of this one, which drains.
    pub(crate) fn restart_replica(&self, at: usize) {
        let next = self.start_replica(at);
        let old = std::mem::replace(&mut lock(&self.replicas)[at], next);
        old.is_ready.store(false, Relaxed);
        old.drain.send_replace(Some(DRAIN));
    }

    /// The replica of the next client.
    pub(crate) fn pick_replica(&self) -> Arc<Replica> {
        let replicas = lock(&self.replicas);
        Arc::clone(&replicas[self.random(|rng| rng.usize(..replicas.len()))])
    }

    /// Draws from the fleet's random numbers.
    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut lock(&self.rng))
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gateways that each replica knows.
fn subsets(options: &Options, rng: &mut fastrand::Rng) -> Vec<Vec<usize>> {
    let (count, replicas) = (options.gateway_count(), options.replica_count());
    let all: Vec<usize> = (0..count).collect();
    if options.known == 0 || options.known == count {
        return vec![all; replicas];
    }
    match options.subset {
        SubsetKind::Random => (0..replicas).map(|_| rng.choose_multiple(0..count, options.known)).collect(),
        SubsetKind::Even => {
            // Replicas take their gateways from one shuffled deck after the other.
            let mut deck = Vec::new();
            let mut deal = |taken: &[usize]| {
                loop {
                    if let Some(at) = deck.iter().rposition(|site| !taken.contains(site)) {
                        return deck.remove(at);
                    }
                    let mut more = all.clone();
                    rng.shuffle(&mut more);
                    drop(deck.splice(0..0, more));
                }
            };
            let hand = |_| {
                let mut taken = Vec::with_capacity(options.known);
                while taken.len() < options.known {
                    let site = deal(&taken);
                    taken.push(site);
                }
                taken
            };
            (0..replicas).map(hand).collect()
        }
    }
}
