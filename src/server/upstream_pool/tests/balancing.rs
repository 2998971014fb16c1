//! Which upstream a lane goes to.

use super::*;

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
async fn replicas_that_start_together_spread_over_all_upstreams() {
    fastrand::seed(1);
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(10).collect();
    let replica = || Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
    let open_first = |_| {
        let replica = replica();
        replica.shuffle();
        open_lane(&replica).unwrap()
    };
    let lanes: Vec<Lease> = (0..500).map(open_first).collect();
    let counts: Vec<u32> = dialers.iter().map(FakeDialer::dials).collect();
    assert!(counts.iter().all(|count| (25..=75).contains(count)), "{counts:?} of {}", lanes.len());
}

/// Sets what upstreams report of their workers, and lets the pool ask them.
async fn report_workers(pool: &Pool<FakeDialer>, dialers: &[FakeDialer], idle: &[u32]) {
    for (dialer, idle) in dialers.iter().zip(idle) {
        let mut state = dialer.state();
        state.has_workers_page = true;
        state.workers = Some(WorkerReport { total: 100, idle: *idle, queued: 0 });
    }
    pool.probe_idle();
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn lanes_avoid_upstreams_whose_workers_others_use() {
    fastrand::seed(1);
    let (pool, dialers) = pool(4);
    report_workers(&pool, &dialers, &[0, 50, 50, 50]).await;
    let (counts, leases) = open_lanes(&pool, 120, 4);
    assert_eq!(counts[0], 0, "{counts:?}");
    assert!(counts[1..].iter().all(|count| (35..=45).contains(count)), "own lanes count at once: {counts:?}");
    drop(leases);
    // Lanes that are open do not keep the pool from asking again.
    let _open = open_lanes(&pool, 8, 4);
    report_workers(&pool, &dialers, &[90, 0, 0, 0]).await;
    assert_eq!(open_lanes(&pool, 50, 4).0, [50, 0, 0, 0]);
    sleep(Duration::from_secs(30)).await;
    let (counts, _leases) = open_lanes(&pool, 40, 4);
    assert!(counts.iter().all(|count| *count >= 8), "old reports say nothing: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn many_replicas_do_not_all_choose_the_upstream_that_was_idle() {
    fastrand::seed(1);
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(10).collect();
    let named = || dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone()));
    let mut lanes = Vec::new();
    for _ in 0..100 {
        let replica = Pool::new(named());
        report_workers(&replica, &dialers, &[60, 40, 40, 40, 40, 40, 40, 40, 40, 40]).await;
        lanes.push(open_lane(&replica).unwrap());
    }
    let most = dialers.iter().map(FakeDialer::dials).max().unwrap();
    assert!(most <= 30, "a fifth of all is expected there: {most}");
}

#[tokio::test(start_paused = true)]
async fn upstream_without_a_report_is_no_better_than_one_whose_workers_are_busy() {
    let (pool, dialers) = pool(2);
    report_workers(&pool, &dialers[..1], &[0]).await;
    let (counts, mut leases) = open_lanes(&pool, 4, 2);
    assert_eq!(counts, [0, 4], "nothing is known against the other");
    leases[0].report_queued(2);
    let (counts, _more) = open_lanes(&pool, 7, 2);
    assert_eq!(counts, [6, 1], "then both are busy, and the loads are equal after six");
    report_workers(&pool, &dialers[..1], &[50]).await;
    assert_eq!(open_lanes(&pool, 4, 2).0, [4, 0]);
}

#[tokio::test(start_paused = true)]
async fn upstream_that_refuses_a_lane_is_avoided_although_it_reports_idle_workers() {
    let (pool, dialers) = pool(2);
    report_workers(&pool, &dialers, &[75, 25]).await;
    let mut refused = open_lane(&pool).unwrap();
    assert_eq!(refused.upstream(), "0");
    refused.report_busy(None);
    drop(refused);
    assert_eq!(open_lanes(&pool, 10, 2).0, [0, 10]);
    advance(Duration::from_secs(10)).await;
    assert_eq!(open_lanes(&pool, 10, 2).0, [10, 0], "a refusal counts for ten seconds");
}

#[tokio::test(start_paused = true)]
async fn gateway_whose_report_was_lost_is_asked_again_while_it_has_lanes() {
    let (pool, dialers) = pool(2);
    report_workers(&pool, &dialers, &[50, 50]).await;
    let _open = open_lanes(&pool, 8, 2);
    // The ejection makes the report of upstream 0 obsolete, and no probe reads another one.
    dialers[0].state().workers = None;
    let upstream = pool.shared.members[0].upstream.clone();
    upstream.lane_failed(LaneFailure::Unreachable, "no answer");
    wait_until_readmitted(&pool, 0).await;
    assert_eq!(upstream.utilisation(), None);
    report_workers(&pool, &dialers, &[90, 50]).await;
    assert_eq!(upstream.utilisation(), Some(100));
    assert_eq!(open_lanes(&pool, 10, 2).0, [10, 0]);
}

#[tokio::test(start_paused = true)]
async fn gateway_with_lanes_is_ejected_only_after_three_missing_pages() {
    let (pool, dialers) = pool(2);
    report_workers(&pool, &dialers, &[50, 50]).await;
    let _open = open_lanes(&pool, 8, 2);
    dialers[0].set_behavior(FakeBehavior::Down);
    let upstream = pool.shared.members[0].upstream.clone();
    for is_in_service in [true, true, false] {
        assert!(upstream.begin_idle_probe());
        upstream.clone().probe_idle().await;
        assert_eq!(upstream.is_in_service(), is_in_service);
    }
}

#[tokio::test(start_paused = true)]
async fn burst_is_shared_although_only_one_upstream_has_a_queue() {
    let (pool, _) = pool(2);
    let (_, mut leases) = open_lanes(&pool, 2, 2);
    leases[0].report_queued(1);
    let (counts, _more) = open_lanes(&pool, 21, 2);
    assert_eq!(counts, [10, 11]);
}

/// A pool of a gateway with a queue and a server with this many places, both without a report.
fn gateway_and_places(places: u32) -> (Pool<FakeDialer>, [FakeDialer; 2]) {
    let dialers = [FakeDialer::default(), FakeDialer::default()];
    dialers[1].state().capacity = NonZero::new(places).map(Capacity::AtMost);
    let named = dialers.iter().enumerate().map(|(at, dialer)| (at.to_string(), dialer.clone()));
    (Pool::new(named), dialers)
}

#[tokio::test(start_paused = true)]
async fn known_room_is_preferred_to_a_queue_for_any_number_of_lanes() {
    let (pool, _) = gateway_and_places(8);
    let server: Vec<Lease> =
        (0..4).map(|_| open_lane(&pool.subset(["1".to_owned()].into())).unwrap()).collect();
    let mut gateway = open_lane(&pool.subset(["0".to_owned()].into())).unwrap();
    gateway.report_queued(1);
    let (counts, more) = open_lanes(&pool, 4, 2);
    assert_eq!(counts, [0, 4], "half of the server is free");
    assert_eq!(open_lane(&pool).unwrap().upstream(), "0", "its places are taken");
    drop((server, gateway, more));
}

#[tokio::test(start_paused = true)]
async fn lane_in_a_queue_finds_room_as_soon_as_another_upstream_has_it() {
    let (pool, _) = gateway_and_places(1);
    let part = |name: &str| pool.subset([name.to_owned()].into());
    let place = open_lane(&part("1")).unwrap();
    let (mut leases, lane) = (LaneLeases::default(), Lane(7));
    let mut queued = open_lane(&part("0")).unwrap();
    queued.report_queued(2);
    leases.insert(lane, queued);
    assert_eq!(pool.room_beside(lane, &leases), None, "the other is full");
    drop(place);
    assert_eq!(pool.room_beside(lane, &leases).as_deref(), Some("1"));
    assert_eq!(pool.room_beside(Lane(8), &leases), None, "an unknown lane");
    // A lane of the session that waits there already is no reason for another.
    let mut moved = open_lane(&part("1")).unwrap();
    moved.report_queued(1);
    leases.insert(Lane(9), moved);
    assert_eq!(pool.room_beside(lane, &leases), None);
}
