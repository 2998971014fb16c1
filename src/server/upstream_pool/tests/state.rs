//! A pool's knowledge of its upstreams, over reloads and without lanes.

use super::*;

/// A pool whose upstream has the same URL but these credentials.
fn pool_with(token: &str, ca: Option<&std::path::Path>) -> Pool {
    let mapping = crate::spelling::Library::embedded().unwrap().upstream("minicpm-o").unwrap();
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
    let place = upstream.places().take().unwrap();
    let lane =
        Lease::new(upstream.clone(), AvoidedUpstream::default(), place, LanePurpose::Speak, Mode::Chat);
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
async fn reload_changes_the_number_of_places() {
    let pool = |sessions_max: u32| {
        let file = include_str!("../../../../mappings/upstream/llama-cpp-omni.toml");
        let file = file.replace("sessions_max = 1", &format!("sessions_max = {sessions_max}"));
        let mut library = crate::spelling::Library::default();
        library.add("llama-cpp-omni.toml", &file).unwrap();
        let mapping = library.upstream("llama-cpp-omni").unwrap();
        let dialer = Dialer::new("ws://127.0.0.1:9/backend", None, None, mapping).unwrap();
        Pool::new([("gpu".to_owned(), dialer)])
    };
    let one = pool(1);
    let upstream = one.shared.members[0].upstream.clone();
    let _first = upstream.places().take().expect("it has a place");
    assert!(upstream.places().take().is_none());
    let two = pool(2).with_state_of(&one);
    assert_eq!(two.statuses()[0].1.places.max, Some(2));
    let second = upstream.places().take().expect("it has a second place, and the first is still taken");
    assert!(upstream.places().take().is_none());
    let one_again = pool(1).with_state_of(&two);
    drop(second);
    assert!(!one_again.shared.members[0].upstream.places().has_place(), "the first is still taken");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_reload_together_spread_over_all_upstreams() {
    fastrand::seed(1);
    let pool = || {
        let mapping = crate::spelling::Library::embedded().unwrap().upstream("minicpm-o").unwrap();
        let dialer =
            |at: usize| Dialer::new(&format!("ws://127.0.0.1:{}", at + 1), None, None, mapping.clone());
        Pool::new((0..4).map(|at| (at.to_string(), dialer(at).unwrap())))
    };
    let mut firsts = [0; 4];
    for _ in 0..100 {
        let reloaded = pool().with_state_of(&pool());
        firsts[reloaded.shared.order.lock().unwrap()[0]] += 1;
    }
    assert!(firsts.iter().all(|count| (10..=40).contains(count)), "{firsts:?}");
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
