//! Tests of upstream choice and health in virtual time, with scripted dialers.

mod balancing;
mod ejection;
mod lines;
mod state;

use std::{num::NonZero, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::{advance, sleep};
use tower::Service as _;

use super::{health::LaneFailure, places::Capacity, probe::WorkerReport, *};
use crate::vocabulary::{LanePurpose, Mode};

/// Behaviour of a fake upstream.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FakeBehavior {
    #[default]
    Up,
    Down,
    Refusing,
    /// Refuses further sessions.
    Full,
    /// Accepts connections but never answers.
    Mute,
    /// Answers after 7 s.
    Late,
}

#[derive(Debug, Default)]
struct FakeState {
    behavior: FakeBehavior,
    dials: u32,
    probes: u32,
    capacity: Option<Capacity>,
    has_workers_page: bool,
    /// The report of its page on its workers.
    workers: Option<WorkerReport>,
    /// The only purpose; `None` for all.
    serves: Option<LanePurpose>,
}

#[derive(Debug, Default, Clone)]
struct FakeDialer(Arc<Mutex<FakeState>>);

impl FakeDialer {
    fn state(&self) -> std::sync::MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }

    fn set_behavior(&self, behavior: FakeBehavior) {
        self.state().behavior = behavior;
    }

    fn probes(&self) -> u32 {
        self.state().probes
    }

    fn dials(&self) -> u32 {
        self.state().dials
    }
}

impl tower::Service<DialRequest> for FakeDialer {
    type Response = ();
    type Error = DisconnectReason;
    type Future = BoxFuture<'static, Result<(), DisconnectReason>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: DialRequest) -> Self::Future {
        self.state().dials += 1;
        let behavior = self.state().behavior;
        Box::pin(async move {
            match behavior {
                FakeBehavior::Up => Ok(()),
                FakeBehavior::Down => Err(DisconnectReason::Unreachable("connection refused".into())),
                FakeBehavior::Refusing => Err(DisconnectReason::HttpRejected(403)),
                FakeBehavior::Full => Err(DisconnectReason::HttpRejected(503)),
                FakeBehavior::Mute => std::future::pending().await,
                FakeBehavior::Late => {
                    sleep(Duration::from_secs(7)).await;
                    Ok(())
                }
            }
        })
    }
}

impl Probe for FakeDialer {
    fn probe(&self) -> BoxFuture<'static, Result<Option<WorkerReport>, String>> {
        let mut state = self.state();
        state.probes += 1;
        let (behavior, workers) = (state.behavior, state.workers);
        drop(state);
        Box::pin(async move {
            match behavior {
                FakeBehavior::Down => Err("connection refused".to_owned()),
                FakeBehavior::Mute => std::future::pending().await,
                _ => Ok(workers),
            }
        })
    }

    fn reports_workers(&self) -> bool {
        self.state().has_workers_page
    }

    fn capacity(&self) -> Capacity {
        self.state().capacity.unwrap_or(Capacity::QueuesItself)
    }

    fn serves(&self, purpose: LanePurpose, _: Mode) -> bool {
        self.state().serves.is_none_or(|serves| serves == purpose)
    }
}

/// A request for a lane that transcribes.
fn request() -> DialRequest {
    DialRequest { mode: Mode::Chat, purpose: LanePurpose::Transcribe, trace: None }
}

/// A pool of `count` upstreams named "0", "1" and so on.
fn pool(count: usize) -> (Pool<FakeDialer>, Vec<FakeDialer>) {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(count).collect();
    let named = dialers.iter().enumerate().map(|(index, dialer)| (index.to_string(), dialer.clone()));
    (Pool::new(named), dialers)
}

/// Opens a lane of a new session.
fn open_lane(pool: &Pool<FakeDialer>) -> Result<Lease, DisconnectReason> {
    open_lane_in(&mut pool.clone())
}

/// Opens a lane of an existing session.
fn open_lane_in(pool: &mut Pool<FakeDialer>) -> Result<Lease, DisconnectReason> {
    pool.call(request()).now_or_never().expect("the fake dialer answers at once").map(|dialled| dialled.lease)
}

/// A new session for which upstream 0 is next.
fn session_starting_at_first(pool: &Pool<FakeDialer>) -> Pool<FakeDialer> {
    pool.shared.order.lock().unwrap().sort_unstable();
    pool.clone()
}

/// Opens `lanes` lanes, each of its own session; returns the lanes per upstream and the leases.
fn open_lanes(pool: &Pool<FakeDialer>, lanes: usize, count: usize) -> (Vec<usize>, Vec<Lease>) {
    let leases: Vec<Lease> = (0..lanes).map(|_| open_lane(pool).unwrap()).collect();
    let at = |index: usize| leases.iter().filter(|lease| lease.upstream() == index.to_string()).count();
    ((0..count).map(at).collect(), leases)
}

/// Reports a complete, clean lane.
fn serve_to_end(mut lease: Lease) {
    lease.report_ready();
    lease.report_disconnect(&DisconnectReason::Closed(1000, String::new()));
}

fn is_ejected(pool: &Pool<FakeDialer>, index: usize) -> bool {
    pool.shared.members[index].upstream.load().ejected_until.is_some()
}

/// Waits in virtual time until the upstream is readmitted.
async fn wait_until_readmitted(pool: &Pool<FakeDialer>, index: usize) -> Duration {
    let start = Instant::now();
    while is_ejected(pool, index) {
        assert!(start.elapsed() < Duration::from_secs(120), "the upstream is not readmitted");
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}
