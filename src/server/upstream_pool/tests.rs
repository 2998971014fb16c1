//! The choice among upstreams and their standing, in virtual time, with dialers that do as they are told.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{advance, sleep};
use tower::Service as _;

use super::{health::Failing, *};
use crate::event::Mode;

/// What a fake upstream does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Is {
    #[default]
    Up,
    Down,
    Refusing,
    /// Takes connections and says nothing.
    Mute,
}

#[derive(Debug, Default)]
struct Fake {
    is: Is,
    dials: u32,
    probes: u32,
}

#[derive(Debug, Default, Clone)]
struct FakeDialer(Arc<Mutex<Fake>>);

impl FakeDialer {
    fn fake(&self) -> std::sync::MutexGuard<'_, Fake> {
        self.0.lock().unwrap()
    }

    fn is(&self, is: Is) {
        self.fake().is = is;
    }

    fn probes(&self) -> u32 {
        self.fake().probes
    }

    fn dials(&self) -> u32 {
        self.fake().dials
    }
}

impl tower::Service<Mode> for FakeDialer {
    type Response = ();
    type Error = Why;
    type Future = BoxFuture<'static, Result<(), Why>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Why>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Mode) -> Self::Future {
        self.fake().dials += 1;
        let is = self.fake().is;
        Box::pin(async move {
            match is {
                Is::Up => Ok(()),
                Is::Down => Err(Why::Unreachable("connection refused".into())),
                Is::Refusing => Err(Why::Refused(403)),
                Is::Mute => std::future::pending().await,
            }
        })
    }
}

impl Probe for FakeDialer {
    fn probe(&self) -> BoxFuture<'static, Result<(), String>> {
        self.fake().probes += 1;
        let is = self.fake().is;
        Box::pin(async move {
            match is {
                Is::Down => Err("connection refused".to_owned()),
                Is::Mute => std::future::pending().await,
                Is::Up | Is::Refusing => Ok(()),
            }
        })
    }
}

/// A pool of so many, called "0", "1" and so on.
fn pool(count: usize) -> (Pool<FakeDialer>, Vec<FakeDialer>) {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(count).collect();
    let named = dialers.iter().enumerate().map(|(index, dialer)| (index.to_string(), dialer.clone()));
    (Pool::new(named), dialers)
}

/// A lane of another session.
fn lane(pool: &Pool<FakeDialer>) -> Result<Lease, Why> {
    again(&mut pool.clone())
}

/// Another lane of the same session.
fn again(pool: &mut Pool<FakeDialer>) -> Result<Lease, Why> {
    pool.call(Mode::Chat).now_or_never().expect("the fake answers at once").map(|dialled| dialled.lease)
}

/// Another session, when it is the first one's turn.
fn begin_with_the_first(pool: &Pool<FakeDialer>) -> Pool<FakeDialer> {
    *pool.shared.turn.lock().unwrap() = 0;
    pool.clone()
}

/// Where so many lanes go, each of a session of its own, all of them kept.
fn spread(pool: &Pool<FakeDialer>, lanes: usize, count: usize) -> (Vec<usize>, Vec<Lease>) {
    let leases: Vec<Lease> = (0..lanes).map(|_| lane(pool).unwrap()).collect();
    let at = |index: usize| leases.iter().filter(|lease| lease.upstream() == index.to_string()).count();
    ((0..count).map(at).collect(), leases)
}

/// Serves a lane from its first word to its last.
fn serve(mut lease: Lease) {
    lease.ready();
    lease.ended(&Why::Closed(1000, String::new()));
}

fn is_out(pool: &Pool<FakeDialer>, index: usize) -> bool {
    pool.shared.ways[index].upstream.load().out_until.is_some()
}

/// Lets time pass until the watch has brought it back.
async fn until_back(pool: &Pool<FakeDialer>, index: usize) -> Duration {
    let start = Instant::now();
    while is_out(pool, index) {
        assert!(start.elapsed() < Duration::from_secs(120), "it does not come back");
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn equal_upstreams_take_turns_and_the_least_loaded_is_chosen() {
    let (pool, _) = pool(3);
    for round in 0..2 {
        for index in 0..3 {
            assert_eq!(lane(&pool).unwrap().upstream(), index.to_string(), "idle ones in round {round}");
        }
    }
    let (counts, mut leases) = spread(&pool, 50, 3);
    assert_eq!(counts.iter().max().unwrap() - counts.iter().min().unwrap(), 1, "{counts:?}");
    leases.retain(|lease| lease.upstream() != "1");
    let (counts, _more) = spread(&pool, 16, 3);
    assert_eq!(counts, [0, 16, 0], "what ended gives its load back");
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_pool_shares_what_is_known_of_its_upstreams() {
    let (pool, dialers) = pool(3);
    let part = pool.only(|name| name != "0");
    let used: Vec<Lease> = (0..6).map(|_| lane(&part).unwrap()).collect();
    let at = |name: &str| used.iter().filter(|lease| lease.upstream() == name).count();
    assert_eq!([at("0"), at("1"), at("2")], [0, 3, 3]);
    assert_eq!(spread(&pool, 3, 3).0, [3, 0, 0], "their load is the whole pool's");
    dialers[2].is(Is::Down);
    drop(used);
    while lane(&part).is_ok() {}
    assert!(is_out(&pool, 2), "and so is their failure");
    assert!(lane(&pool.only(|_| false)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_load_for_a_while() {
    let (pool, _) = pool(2);
    let (_, mut leases) = spread(&pool, 2, 2);
    leases[0].queued(4);
    assert_eq!(spread(&pool, 4, 2).0, [0, 4]);
    advance(Duration::from_secs(10)).await;
    assert_eq!(spread(&pool, 4, 2).0, [2, 2]);
    leases[0].busy();
    assert_eq!(spread(&pool, 16, 2).0, [0, 16], "who takes nobody is spared");
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_reached_is_left_out_at_once_and_found_again() {
    let (pool, dialers) = pool(2);
    dialers[0].is(Is::Down);
    let mut session = pool.clone();
    assert!(again(&mut session).is_err());
    assert_eq!(again(&mut session).unwrap().upstream(), "1");
    assert_eq!(spread(&pool, 10, 2).0, [0, 10]);
    // It is probed ever more rarely: after about 1, 2, 4, 8, 16, 30 s.
    sleep(Duration::from_secs(60)).await;
    let (probes, dials) = (dialers[0].probes(), dialers[0].dials());
    assert!((5..=8).contains(&probes) && dials == 1, "{probes} probes, {dials} dials");
    dialers[0].is(Is::Up);
    assert!(until_back(&pool, 0).await <= Duration::from_secs(31));
    assert_eq!(spread(&pool, 10, 2).0, [5, 5], "load returns");
    assert_eq!(dialers[1].probes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dial_without_an_answer_is_a_failure_and_one_that_is_called_off_is_none() {
    let (pool, dialers) = pool(2);
    dialers[0].is(Is::Mute);
    drop(pool.clone().call(Mode::Chat));
    assert!(!is_out(&pool, 0));
    let _other = lane(&pool).unwrap();
    let dial = pool.clone().call(Mode::Chat);
    assert_eq!(pool.shared.ways[0].upstream.load().lanes, 1, "a lane that is dialled is load");
    sleep(Duration::from_secs(5)).await;
    drop(dial);
    assert!(is_out(&pool, 0));
    assert_eq!(pool.shared.ways[0].upstream.load().lanes, 0);
    // A probe that is not answered is given up, and others follow.
    sleep(Duration::from_secs(30)).await;
    assert!((2..=4).contains(&dialers[0].probes()), "{}", dialers[0].probes());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_moves_the_session_and_three_in_a_row_the_others() {
    let (pool, dialers) = pool(2);
    dialers[0].is(Is::Refusing);
    for _ in 0..3 {
        assert!(!is_out(&pool, 0));
        let mut session = begin_with_the_first(&pool);
        assert!(again(&mut session).is_err());
        assert_eq!(again(&mut session).unwrap().upstream(), "1", "its retry is elsewhere");
    }
    assert!(is_out(&pool, 0));
    // It connects, so it is let in again, and out at its first refusal.
    until_back(&pool, 0).await;
    assert!(again(&mut begin_with_the_first(&pool)).is_err() && is_out(&pool, 0));
    // A lane that is served clears it.
    dialers[0].is(Is::Up);
    until_back(&pool, 0).await;
    serve(again(&mut begin_with_the_first(&pool)).unwrap());
    again(&mut begin_with_the_first(&pool)).unwrap().failed("one failure");
    assert!(!is_out(&pool, 0));
}

#[tokio::test(start_paused = true)]
async fn sessions_that_die_count_though_their_handshake_succeeds() {
    let (pool, _) = pool(2);
    for _ in 0..3 {
        let mut dies = again(&mut begin_with_the_first(&pool)).unwrap();
        dies.ready();
        dies.ended(&Why::Lost("reset".into()));
        dies.failed("it lost the connection before it had answered");
    }
    assert!(is_out(&pool, 0));
    assert_eq!(spread(&pool, 5, 2).0, [0, 5]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_failure_leaves_nobody_out() {
    let (pool, _) = pool(1);
    for _ in 0..20 {
        let mut lost_after_goodbye = lane(&pool).unwrap();
        lost_after_goodbye.ready();
        lost_after_goodbye.ended(&Why::Lost("end of stream".into()));
        drop(lost_after_goodbye);
        let mut full = lane(&pool).unwrap();
        full.ended(&Why::Closed(1013, "Queue full".into()));
        full.failed("the upstream ended the session: queue_full");
        drop(full);
        drop(lane(&pool).unwrap());
    }
    assert!(!is_out(&pool, 0));
}

#[tokio::test(start_paused = true)]
async fn a_retry_avoids_who_failed_it_until_a_lane_is_ready() {
    let (pool, _) = pool(2);
    let mut session = pool.clone();
    again(&mut session).unwrap().ended(&Why::Closed(1013, String::new()));
    sleep(Duration::from_secs(10)).await;
    let _load: Vec<Lease> = (0..8).map(|_| again(&mut session).unwrap()).collect();
    assert!(_load.iter().all(|lease| lease.upstream() == "1"), "whatever the load");
    again(&mut session).unwrap().ready();
    assert_eq!(again(&mut session).unwrap().upstream(), "0", "what it met is forgotten");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_without_a_try() {
    let (pool, dialers) = pool(2);
    dialers.iter().for_each(|dialer| dialer.is(Is::Down));
    for _ in 0..4 {
        assert!(matches!(lane(&pool), Err(Why::Unreachable(_))));
    }
    assert!(is_out(&pool, 0) && is_out(&pool, 1));
    let first = (0..2).min_by_key(|index| pool.shared.ways[*index].upstream.load().out_until).unwrap();
    dialers[first].is(Is::Up);
    let mut found = lane(&pool).unwrap();
    assert_eq!(found.upstream(), first.to_string(), "the one that is to be probed first");
    found.ready();
    assert!(!is_out(&pool, first), "that it works is noticed before the probe");
    let (none, _) = self::pool(0);
    assert!(matches!(lane(&none), Err(Why::Unreachable(_))));
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_with_the_pool_and_there_is_one_at_a_time() {
    let (pool, dialers) = pool(1);
    for _ in 0..3 {
        dialers[0].is(Is::Down);
        assert!(lane(&pool).is_err());
        dialers[0].is(Is::Up);
        let mut found = lane(&pool).unwrap();
        found.ready();
        serve(found);
    }
    dialers[0].is(Is::Down);
    assert!(lane(&pool).is_err());
    let before = dialers[0].probes();
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(dialers[0].probes(), before + 1);
    drop(pool);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(dialers[0].probes(), before + 1);
}

/// An upstream at the same place, gone to in this way.
fn way(token: &str, ca: Option<&std::path::Path>) -> Pool {
    let mapping = crate::mapping::Library::embedded().unwrap().upstream("minicpm-o").unwrap();
    let dialer = Dialer::new("wss://127.0.0.1:9", ca, None, mapping).unwrap();
    let dialer = dialer.with_token(None, &crate::secret::Secret::new(token)).unwrap();
    Pool::new([("gpu".to_owned(), dialer)])
}

#[tokio::test(start_paused = true)]
async fn what_carries_lanes_still_carries_them_after_a_reload_whatever_it_is_shown() {
    let ca = std::env::temp_dir().join(format!("voxbridge-pool-{}.pem", std::process::id()));
    let authority = || rcgen::generate_simple_self_signed(["gpu".to_owned()]).unwrap().cert.pem();
    std::fs::write(&ca, authority()).unwrap();
    let old = way("a", Some(&ca));
    let upstream = old.shared.ways[0].upstream.clone();
    let lane = Lease::new(upstream.clone(), Memory::default());
    upstream.failed(Failing::Unreachable, "no answer");
    let stands = |pool: &Pool| {
        let (_, Standing { burden, failures, .. }) = pool.standing().remove(0);
        (burden.lanes, failures, burden.out_until.is_none())
    };
    let same = way("a", Some(&ca)).keeping(&old);
    assert_eq!(stands(&same), (1, 1, false), "nothing is new");

    let other_token = way("b", Some(&ca)).keeping(&same);
    assert_eq!(stands(&other_token), (1, 1, true), "by a new token it may do");
    upstream.failed(Failing::Unreachable, "no answer");
    std::fs::write(&ca, authority()).unwrap();
    let other_ca = way("b", Some(&ca)).keeping(&other_token);
    assert_eq!(stands(&other_ca), (1, 2, true), "the same file holds another");
    std::fs::remove_file(&ca).unwrap();
    drop(lane);
    assert_eq!(stands(&other_ca), (0, 2, true));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_usable_before_it_has_answered_and_who_dies_unused_is_found_out() {
    let (pool, dialers) = pool(3);
    dialers[1].is(Is::Down);
    dialers[2].is(Is::Mute);
    assert_eq!(pool.usable(), (0, 3), "nobody has asked");
    pool.look();
    pool.look();
    assert_eq!(pool.usable(), (0, 3), "nobody has answered");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.usable(), (1, 3));
    let probes: Vec<_> = dialers.iter().map(FakeDialer::probes).collect();
    assert_eq!(probes, [1, 1, 1], "one question at a time");
    sleep(Duration::from_secs(6)).await;
    assert!(is_out(&pool, 2), "who does not answer in time is not there");

    let mut busy = lane(&pool).unwrap();
    busy.ready();
    let before = dialers[0].probes();
    pool.look();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(dialers[0].probes(), before, "its lane tells");
    serve(busy);
    dialers[0].is(Is::Down);
    pool.look();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.usable(), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_gets_ready_tells_as_much_as_a_look() {
    let (pool, _) = pool(1);
    let mut first = lane(&pool).unwrap();
    assert_eq!(pool.usable(), (0, 1));
    first.ready();
    assert_eq!(pool.usable(), (1, 1));
}
