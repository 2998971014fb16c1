//! Tests of upstream choice and health in virtual time, with scripted dialers.

use std::{num::NonZero, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::{advance, sleep};
use tower::Service as _;

use super::{health::LaneFailure, places::Capacity, *};
use crate::event::{LanePurpose, Mode};

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
}

#[derive(Debug, Default)]
struct FakeState {
    behavior: FakeBehavior,
    dials: u32,
    probes: u32,
    capacity: Option<Capacity>,
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
            }
        })
    }
}

impl Probe for FakeDialer {
    fn probe(&self) -> BoxFuture<'static, Result<(), String>> {
        self.state().probes += 1;
        let behavior = self.state().behavior;
        Box::pin(async move {
            match behavior {
                FakeBehavior::Down => Err("connection refused".to_owned()),
                FakeBehavior::Mute => std::future::pending().await,
                FakeBehavior::Up | FakeBehavior::Refusing | FakeBehavior::Full => Ok(()),
            }
        })
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
    *pool.shared.next_index.lock().unwrap() = 0;
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

#[tokio::test(start_paused = true)]
async fn least_loaded_upstream_is_chosen_and_ties_rotate() {
    let (pool, _) = pool(3);
    for round in 0..2 {
        for index in 0..3 {
            assert_eq!(
                open_lane(&pool).unwrap().upstream(),
                index.to_string(),
                "idle upstreams in round {round}"
            );
        }
    }
    let (counts, mut leases) = open_lanes(&pool, 50, 3);
    assert_eq!(counts.iter().max().unwrap() - counts.iter().min().unwrap(), 1, "{counts:?}");
    leases.retain(|lease| lease.upstream() != "1");
    let (counts, _more) = open_lanes(&pool, 16, 3);
    assert_eq!(counts, [0, 16, 0], "ended lanes release their load");
}

#[tokio::test(start_paused = true)]
async fn pool_subset_shares_load_and_health() {
    let (pool, dialers) = pool(3);
    let part = pool.subset(Arc::from(["1".to_owned(), "2".to_owned()]));
    let used: Vec<Lease> = (0..6).map(|_| open_lane(&part).unwrap()).collect();
    let at = |name: &str| used.iter().filter(|lease| lease.upstream() == name).count();
    assert_eq!([at("0"), at("1"), at("2")], [0, 3, 3]);
    assert_eq!(open_lanes(&pool, 3, 3).0, [3, 0, 0], "subsets share the load");
    dialers[2].set_behavior(FakeBehavior::Down);
    drop(used);
    while open_lane(&part).is_ok() {}
    assert!(is_ejected(&pool, 2), "and so is their failure");
    assert!(open_lane(&pool.subset(Arc::from([]))).is_err());
}

#[tokio::test(start_paused = true)]
async fn reported_queue_counts_as_load_for_ten_seconds() {
    let (pool, _) = pool(2);
    let (_, mut leases) = open_lanes(&pool, 2, 2);
    leases[0].report_queued(4);
    assert_eq!(open_lanes(&pool, 4, 2).0, [0, 4]);
    advance(Duration::from_secs(10)).await;
    assert_eq!(open_lanes(&pool, 4, 2).0, [2, 2]);
    leases[0].report_busy(None);
    assert_eq!(open_lanes(&pool, 16, 2).0, [0, 16], "a busy upstream is avoided");
}

#[tokio::test(start_paused = true)]
async fn unreachable_upstream_is_ejected_at_once_and_readmitted_by_probe() {
    let (pool, dialers) = pool(2);
    dialers[0].set_behavior(FakeBehavior::Down);
    let mut session = pool.clone();
    assert!(open_lane_in(&mut session).is_err());
    assert_eq!(open_lane_in(&mut session).unwrap().upstream(), "1");
    assert_eq!(open_lanes(&pool, 10, 2).0, [0, 10]);
    // Probes become rarer: after about 1, 2, 4, 8, 16, 30 s.
    sleep(Duration::from_secs(60)).await;
    let (probes, dials) = (dialers[0].probes(), dialers[0].dials());
    assert!((5..=8).contains(&probes) && dials == 1, "{probes} probes, {dials} dials");
    dialers[0].set_behavior(FakeBehavior::Up);
    assert!(wait_until_readmitted(&pool, 0).await <= Duration::from_secs(31));
    assert_eq!(open_lanes(&pool, 10, 2).0, [5, 5], "the readmitted upstream gets lanes again");
    assert_eq!(dialers[1].probes(), 0);
}

#[tokio::test(start_paused = true)]
async fn unanswered_dial_is_a_failure_cancelled_dial_is_not() {
    let (pool, dialers) = pool(2);
    dialers[0].set_behavior(FakeBehavior::Mute);
    drop(pool.clone().call(request()));
    assert!(!is_ejected(&pool, 0));
    let _other = open_lane(&pool).unwrap();
    let dial = pool.clone().call(request());
    assert_eq!(pool.shared.members[0].upstream.load().lanes, 1, "a dialling lane counts as load");
    sleep(Duration::from_secs(5)).await;
    drop(dial);
    assert!(is_ejected(&pool, 0));
    assert_eq!(pool.shared.members[0].upstream.load().lanes, 0);
    // An unanswered probe times out, and others follow.
    sleep(Duration::from_secs(30)).await;
    assert!((2..=4).contains(&dialers[0].probes()), "{}", dialers[0].probes());
}

#[tokio::test(start_paused = true)]
async fn refusal_redirects_the_session_and_three_eject_the_upstream() {
    let (pool, dialers) = pool(2);
    dialers[0].set_behavior(FakeBehavior::Refusing);
    for _ in 0..3 {
        assert!(!is_ejected(&pool, 0));
        let mut session = session_starting_at_first(&pool);
        assert!(open_lane_in(&mut session).is_err());
        assert_eq!(
            open_lane_in(&mut session).unwrap().upstream(),
            "1",
            "the retry goes to the other upstream"
        );
    }
    assert!(is_ejected(&pool, 0));
    // The probe succeeds, so the upstream is readmitted; the next refusal ejects it.
    wait_until_readmitted(&pool, 0).await;
    assert!(open_lane_in(&mut session_starting_at_first(&pool)).is_err() && is_ejected(&pool, 0));
    // A clean lane clears the failures.
    dialers[0].set_behavior(FakeBehavior::Up);
    wait_until_readmitted(&pool, 0).await;
    serve_to_end(open_lane_in(&mut session_starting_at_first(&pool)).unwrap());
    open_lane_in(&mut session_starting_at_first(&pool)).unwrap().report_failure("one failure");
    assert!(!is_ejected(&pool, 0));
}

#[tokio::test(start_paused = true)]
async fn sessions_dying_after_handshake_eject_the_upstream() {
    let (pool, _) = pool(2);
    for _ in 0..3 {
        let mut dies = open_lane_in(&mut session_starting_at_first(&pool)).unwrap();
        dies.report_ready();
        dies.report_disconnect(&DisconnectReason::Lost("reset".into()));
        dies.report_failure("connection lost before the answer");
    }
    assert!(is_ejected(&pool, 0));
    assert_eq!(open_lanes(&pool, 5, 2).0, [0, 5]);
}

#[tokio::test(start_paused = true)]
async fn busy_closes_and_clean_ends_do_not_eject() {
    let (pool, _) = pool(1);
    for _ in 0..20 {
        let mut lost_after_goodbye = open_lane(&pool).unwrap();
        lost_after_goodbye.report_ready();
        lost_after_goodbye.report_disconnect(&DisconnectReason::Lost("end of stream".into()));
        drop(lost_after_goodbye);
        let mut full = open_lane(&pool).unwrap();
        full.report_disconnect(&DisconnectReason::Closed(1013, "Queue full".into()));
        full.report_failure("the upstream ended the session: queue_full");
        drop(full);
        drop(open_lane(&pool).unwrap());
    }
    assert!(!is_ejected(&pool, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_avoids_the_failed_upstream_until_a_lane_is_ready() {
    let (pool, _) = pool(2);
    let mut session = pool.clone();
    open_lane_in(&mut session).unwrap().report_disconnect(&DisconnectReason::Closed(1013, String::new()));
    sleep(Duration::from_secs(10)).await;
    let _load: Vec<Lease> = (0..8).map(|_| open_lane_in(&mut session).unwrap()).collect();
    assert!(_load.iter().all(|lease| lease.upstream() == "1"), "regardless of load");
    open_lane_in(&mut session).unwrap().report_ready();
    assert_eq!(open_lane_in(&mut session).unwrap().upstream(), "0", "the failure is forgotten");
}

#[tokio::test(start_paused = true)]
async fn earliest_ejected_upstream_is_tried_when_all_are_ejected() {
    let (pool, dialers) = pool(2);
    dialers.iter().for_each(|dialer| dialer.set_behavior(FakeBehavior::Down));
    for _ in 0..4 {
        assert!(matches!(open_lane(&pool), Err(DisconnectReason::Unreachable(_))));
    }
    assert!(is_ejected(&pool, 0) && is_ejected(&pool, 1));
    let first = (0..2).min_by_key(|index| pool.shared.members[*index].upstream.load().ejected_until).unwrap();
    dialers[first].set_behavior(FakeBehavior::Up);
    let mut found = open_lane(&pool).unwrap();
    assert_eq!(found.upstream(), first.to_string(), "the one that is probed first");
    found.report_ready();
    assert!(!is_ejected(&pool, first), "a ready lane readmits before the probe");
    let (none, _) = self::pool(0);
    assert!(matches!(open_lane(&none), Err(DisconnectReason::Unreachable(_))));
}

#[tokio::test(start_paused = true)]
async fn single_probe_task_ends_with_the_pool() {
    let (pool, dialers) = pool(1);
    for _ in 0..3 {
        dialers[0].set_behavior(FakeBehavior::Down);
        assert!(open_lane(&pool).is_err());
        dialers[0].set_behavior(FakeBehavior::Up);
        let mut found = open_lane(&pool).unwrap();
        found.report_ready();
        serve_to_end(found);
    }
    dialers[0].set_behavior(FakeBehavior::Down);
    assert!(open_lane(&pool).is_err());
    let before = dialers[0].probes();
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(dialers[0].probes(), before + 1);
    drop(pool);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(dialers[0].probes(), before + 1);
}

/// A pool whose upstream has the same URL but these credentials.
fn pool_with(token: &str, ca: Option<&std::path::Path>) -> Pool {
    let mapping = crate::mapping::Library::embedded().unwrap().upstream("minicpm-o").unwrap();
    let dialer = Dialer::new("wss://127.0.0.1:9", ca, None, mapping).unwrap();
    let dialer = dialer.with_token(None, &crate::secret::Secret::new(token)).unwrap();
    Pool::new([("gpu".to_owned(), dialer)])
}

#[tokio::test(start_paused = true)]
async fn reload_keeps_load_and_new_credentials_reset_failures() {
    let ca = std::env::temp_dir().join(format!("voxbridge-pool-{}.pem", std::process::id()));
    let authority = || rcgen::generate_simple_self_signed(["gpu".to_owned()]).unwrap().cert.pem();
    std::fs::write(&ca, authority()).unwrap();
    let old = pool_with("a", Some(&ca));
    let upstream = old.shared.members[0].upstream.clone();
    let lane = Lease::new(upstream.clone(), AvoidedUpstream::default());
    upstream.lane_failed(LaneFailure::Unreachable, "no answer");
    let status_of = |pool: &Pool| {
        let (_, UpstreamStatus { load, failures, .. }) = pool.statuses().remove(0);
        (load.lanes, failures, load.ejected_until.is_none())
    };
    let same = pool_with("a", Some(&ca)).with_state_of(&old);
    assert_eq!(status_of(&same), (1, 1, false), "unchanged settings keep the state");

    let other_token = pool_with("b", Some(&ca)).with_state_of(&same);
    assert_eq!(status_of(&other_token), (1, 1, true), "a new token clears the failures");
    upstream.lane_failed(LaneFailure::Unreachable, "no answer");
    std::fs::write(&ca, authority()).unwrap();
    let other_ca = pool_with("b", Some(&ca)).with_state_of(&other_token);
    assert_eq!(status_of(&other_ca), (1, 2, true), "the file contains a new authority");
    std::fs::remove_file(&ca).unwrap();
    drop(lane);
    assert_eq!(status_of(&other_ca), (0, 2, true));
}

#[tokio::test(start_paused = true)]
async fn idle_probes_find_usable_and_dead_upstreams() {
    let (pool, dialers) = pool(3);
    dialers[1].set_behavior(FakeBehavior::Down);
    dialers[2].set_behavior(FakeBehavior::Mute);
    assert_eq!(pool.usable_and_total(), (0, 3), "no probe has started");
    pool.probe_idle();
    pool.probe_idle();
    assert_eq!(pool.usable_and_total(), (0, 3), "no probe has answered");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.usable_and_total(), (1, 3));
    let probes: Vec<_> = dialers.iter().map(FakeDialer::probes).collect();
    assert_eq!(probes, [1, 1, 1], "one probe at a time");
    sleep(Duration::from_secs(6)).await;
    assert!(is_ejected(&pool, 2), "an unanswered probe ejects");

    let mut busy = open_lane(&pool).unwrap();
    busy.report_ready();
    let before = dialers[0].probes();
    pool.probe_idle();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(dialers[0].probes(), before, "an upstream with a lane is not probed");
    serve_to_end(busy);
    dialers[0].set_behavior(FakeBehavior::Down);
    pool.probe_idle();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.usable_and_total(), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn ready_lane_makes_the_upstream_usable() {
    let (pool, _) = pool(1);
    let mut first = open_lane(&pool).unwrap();
    assert_eq!(pool.usable_and_total(), (0, 1));
    first.report_ready();
    assert_eq!(pool.usable_and_total(), (1, 1));
}

/// The report of where a lane waits, if one is due.
async fn position<S>(dial: &mut Dial<S>) -> Option<u32> {
    std::future::poll_fn(|cx| Poll::Ready(dial.poll_position(cx))).await
}

#[tokio::test(start_paused = true)]
async fn lane_that_waits_is_told_how_the_line_moves_until_it_leaves_it() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost);
    let mut pool = Pool::new([("0".to_owned(), dialer)]);
    let first = open_lane(&pool).unwrap();
    let (mut second, mut third) = (pool.call(request()), pool.call(request()));
    assert_eq!([position(&mut second).await, position(&mut third).await], [Some(1), Some(2)]);
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    drop(first);
    let second_lane = (&mut second).now_or_never().expect("its place is free").unwrap();
    advance(Duration::from_secs(3)).await;
    assert_eq!([position(&mut second).await, position(&mut third).await], [None, Some(1)]);
    second.give_up();
    third.give_up();
    assert!(third.now_or_never().expect("it left the line").is_err());
    drop(second_lane);
}

#[tokio::test(start_paused = true)]
async fn lanes_wait_in_order_for_the_places_of_an_upstream_without_a_queue() {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(2).collect();
    dialers.iter().for_each(|dialer| dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost));
    let mut pool = Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
    let (first, second) = (open_lane(&pool).unwrap(), open_lane(&pool).unwrap());
    assert_ne!(first.upstream(), second.upstream(), "each has one place");
    let (mut third, mut fourth) = (pool.call(request()), pool.call(request()));
    assert_eq!([position(&mut third).await, position(&mut fourth).await], [Some(1), Some(1)]);
    let mut fifth = pool.call(request());
    assert_eq!(
        [position(&mut fifth).await, position(&mut fifth).await],
        [Some(2), None],
        "one report at a time"
    );
    assert!((&mut third).now_or_never().is_none() && (&mut fifth).now_or_never().is_none());
    assert_eq!(dialers.iter().map(FakeDialer::dials).sum::<u32>(), 2);
    drop(first);
    let third = third.now_or_never().expect("its place is free").unwrap().lease;
    assert!((&mut fifth).now_or_never().is_none(), "third was first");
    // A lane that leaves the line makes room behind it, and a wait is no failure of the upstream.
    advance(Duration::from_secs(1)).await;
    drop(fourth);
    assert_eq!(position(&mut pool.call(request())).await, Some(1));
    drop(third);
    assert!(fifth.now_or_never().expect("its place is free").is_ok());
    assert!(pool.statuses().iter().all(|(_, status)| (status.failures, status.ejections) == (0, 0)));
    drop(second);
    assert!(pool.statuses().iter().all(|(_, status)| status.load.lanes == 0));
}

#[tokio::test(start_paused = true)]
async fn worker_that_others_wait_for_is_not_free_although_another_upstream_has_one() {
    let (pool, _) = pool(2);
    let find = |lane: &Lease| pool.has_free_worker_beside(lane, Mode::Chat, LanePurpose::Transcribe);
    let mut lanes = [(); 3].map(|()| open_lane(&session_starting_at_first(&pool)).unwrap());
    lanes.sort_by(|one, other| one.upstream().cmp(other.upstream()));
    let [own, waiting, elsewhere] = &mut lanes;
    assert_eq!([own.upstream(), waiting.upstream(), elsewhere.upstream()], ["0", "0", "1"]);
    assert!(find(own) && find(elsewhere));
    waiting.report_queued(1);
    assert!(!find(own), "the other lane waits for this worker");
    assert!(find(elsewhere));
    elsewhere.report_queued(1);
    assert!(!find(own) && !find(elsewhere));
}

#[tokio::test(start_paused = true)]
async fn upstream_that_another_program_uses_is_busy_and_not_ejected() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost);
    let pool = Pool::new([("0".to_owned(), dialer)]);
    for _ in 0..5 {
        let mut lease = open_lane(&pool).unwrap();
        lease.report_disconnect(&DisconnectReason::Closed(1000, String::new()));
        lease.report_failure("the upstream ended the session");
        drop(lease);
        let mut next = pool.clone().call(request());
        assert_eq!(position(&mut next).await, Some(1));
        advance(Duration::from_secs(1)).await;
        assert!(next.now_or_never().is_some());
    }
    let status = pool.statuses()[0].1;
    assert_eq!((status.failures, status.load.ejected_until), (0, None));
}

#[tokio::test]
async fn lane_goes_to_an_upstream_that_serves_its_purpose() {
    let (pool, dialers) = pool(3);
    dialers[0].state().serves = Some(LanePurpose::Converse);
    dialers[1].state().serves = Some(LanePurpose::Transcribe);
    dialers[2].state().serves = Some(LanePurpose::Converse);
    let lanes = [open_lane(&pool).unwrap(), open_lane(&pool).unwrap()];
    assert!(lanes.iter().all(|lane| lane.upstream() == "1"));
    let speak = DialRequest { purpose: LanePurpose::Speak, ..request() };
    let refused = pool.clone().call(speak).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("no upstream serves `speak`"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn number_of_places_is_learnt_from_a_refusal_and_forgotten_later() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = Some(Capacity::Unknown);
    let pool = Pool::new([("0".to_owned(), dialer.clone())]);
    let first = open_lane(&pool).unwrap();
    let second = open_lane(&pool).unwrap();
    dialer.set_behavior(FakeBehavior::Full);
    let mut third = pool.clone().call(request());
    assert_eq!(position(&mut third).await, None);
    assert!((&mut third).now_or_never().is_none(), "it has two places");
    assert_eq!(position(&mut third).await, Some(1), "the refused lane waits in line");
    dialer.set_behavior(FakeBehavior::Up);
    let status = pool.statuses()[0].1;
    assert_eq!((status.sessions, status.places), (2, PlacesStatus { max: Some(2), waiting: 1 }));
    drop(second);
    let third = third.now_or_never().expect("a place is free").unwrap().lease;
    let mut fourth = pool.clone().call(request());
    assert_eq!((&mut fourth).now_or_never().map(drop), None);
    advance(Duration::from_secs(61)).await;
    assert!(fourth.await.is_ok(), "the number may have grown");
    let status = pool.statuses()[0].1;
    assert_eq!((status.failures, status.ejections), (0, 0), "a full upstream is no failure");
    drop((first, third));
}

#[tokio::test(start_paused = true)]
async fn lane_goes_to_the_least_busy_upstream_with_room_whatever_its_kind() {
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(4).collect();
        let places = [None, NonZero::new(2), NonZero::new(5), NonZero::new(9)];
        for (dialer, places) in dialers.iter().zip(places) {
            dialer.state().capacity = places.map(Capacity::AtMost);
        }
        let pool = Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
        let mut leases: Vec<Lease> = Vec::new();
        for _ in 0..200 {
            if !leases.is_empty() && rng.u8(..) < 110 {
                leases.swap_remove(rng.usize(..leases.len()));
                continue;
            }
            let busy_at = |at: usize| leases.iter().filter(|it| it.upstream() == at.to_string()).count();
            let has_room = |at: &usize| places[*at].is_none_or(|count| busy_at(*at) < count.get() as usize);
            let least = (0..4).filter(has_room).map(busy_at).min().unwrap();
            let lease = open_lane(&pool).unwrap();
            let chosen: usize = lease.upstream().parse().unwrap();
            assert!(has_room(&chosen) && busy_at(chosen) == least, "seed {seed}: upstream {chosen}");
            leases.push(lease);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lane_waits_for_an_upstream_that_others_use() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = Some(Capacity::Unknown);
    let pool = Pool::new([("0".to_owned(), dialer.clone())]);
    dialer.set_behavior(FakeBehavior::Full);
    let mut first = pool.clone().call(request());
    assert!((&mut first).now_or_never().is_none());
    assert_eq!(position(&mut first).await, Some(1));
    let mut second = pool.clone().call(request());
    assert_eq!(position(&mut second).await, Some(2));
    // The first is refused again and again, but stays the first.
    for _ in 0..3 {
        advance(Duration::from_secs(1)).await;
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert_eq!(position(&mut first).await, Some(1));
    }
    assert_eq!(dialer.dials(), 4);
    dialer.set_behavior(FakeBehavior::Up);
    let begun = Instant::now();
    let first = first.await.unwrap();
    assert_eq!((dialer.dials(), begun.elapsed().as_secs()), (5, 1));
    assert!((&mut second).now_or_never().is_none(), "it has one place as far as is known");
    drop(first);
    assert!(second.await.is_ok());
    assert_eq!(pool.statuses()[0].1.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn refused_lane_goes_to_an_upstream_with_room() {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(2).collect();
    dialers.iter().for_each(|dialer| dialer.state().capacity = Some(Capacity::Unknown));
    let pool = Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
    dialers[0].set_behavior(FakeBehavior::Full);
    for _ in 0..3 {
        let lane = open_lane_in(&mut session_starting_at_first(&pool)).unwrap();
        assert_eq!(lane.upstream(), "1");
    }
    assert_eq!(dialers[0].dials(), 1, "a full upstream is left alone for a while");
}

#[tokio::test(start_paused = true)]
async fn busy_server_is_asked_again_after_the_time_that_it_names() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = Some(Capacity::Unknown);
    let pool = Pool::new([("0".to_owned(), dialer)]);
    for (named_s, waited_s) in [(7, 7), (1_000_000, 60)] {
        open_lane(&pool).unwrap().report_busy(Some(Duration::from_secs(named_s)));
        let begun = Instant::now();
        assert!(pool.clone().call(request()).await.is_ok());
        assert_eq!(begun.elapsed().as_secs(), waited_s);
    }
}
