//! Lines for the places of upstreams without a queue.

use super::*;

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
    assert_eq!([position(&mut third).await, position(&mut fourth).await], [Some(1), Some(2)]);
    let mut fifth = pool.call(request());
    assert_eq!(
        [position(&mut fifth).await, position(&mut fifth).await],
        [Some(3), None],
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
    assert_eq!(position(&mut pool.call(request())).await, Some(2));
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

/// A pool of upstreams with one place each, named "0", "1" and so on.
fn pool_of_single_places(count: usize) -> (Pool<FakeDialer>, Vec<FakeDialer>) {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(count).collect();
    dialers.iter().for_each(|dialer| dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost));
    let named = dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone()));
    (Pool::new(named), dialers)
}

#[tokio::test(start_paused = true)]
async fn lane_in_line_takes_the_first_place_at_any_upstream() {
    let (pool, _) = pool_of_single_places(2);
    let lanes = [open_lane(&pool).unwrap(), open_lane(&pool).unwrap()];
    let mut waiting = [(); 3].map(|()| pool.clone().call(request()));
    // The first stands at upstream 0. The place of the other upstream becomes free, and a newcomer does not overtake.
    let [first, second] = lanes;
    assert_eq!((first.upstream(), second.upstream()), ("0", "1"));
    drop(second);
    let mut newcomer = pool.clone().call(request());
    assert!((&mut newcomer).now_or_never().is_none(), "others came before");
    let lane = (&mut waiting[0]).now_or_never().expect("upstream 1 has a place").unwrap().lease;
    assert_eq!(lane.upstream(), "1");
    assert!((&mut waiting[1]).now_or_never().is_none() && (&mut waiting[2]).now_or_never().is_none());
    drop(first);
    let lane_after = (&mut waiting[1]).now_or_never().expect("upstream 0 has a place").unwrap().lease;
    assert_eq!(lane_after.upstream(), "0");
    drop((lane, lane_after));
    assert!((&mut waiting[2]).now_or_never().is_some_and(|dialled| dialled.is_ok()));
    assert!(newcomer.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn lane_in_line_is_not_held_up_by_an_earlier_one_for_another_upstream() {
    let (pool, dialers) = pool_of_single_places(2);
    dialers[0].state().serves = Some(LanePurpose::Converse);
    dialers[1].state().serves = Some(LanePurpose::Transcribe);
    let converse = || DialRequest { purpose: LanePurpose::Converse, ..request() };
    let _conversation = pool.clone().call(converse()).await.unwrap();
    let transcription = open_lane(&pool).unwrap();
    let (mut earlier, later) = (pool.clone().call(converse()), pool.clone().call(request()));
    drop(transcription);
    assert!(later.now_or_never().is_some_and(|dialled| dialled.is_ok()));
    assert!((&mut earlier).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn lanes_in_line_leave_an_upstream_that_is_ejected() {
    let (pool, dialers) = pool_of_single_places(2);
    dialers[0].set_behavior(FakeBehavior::Mute);
    let unanswered = pool.clone().call(request());
    let served = open_lane(&pool).unwrap();
    let mut waiting = [(); 4].map(|()| pool.clone().call(request()));
    assert_eq!(pool.statuses()[0].1.places.waiting, 2);
    sleep(Duration::from_secs(5)).await;
    drop(unanswered);
    assert!(is_ejected(&pool, 0));
    assert!(waiting.iter_mut().all(|dial| dial.now_or_never().is_none()), "the other upstream is full");
    assert_eq!(pool.statuses()[0].1.places.waiting, 0, "they wait at the other");
    drop(served);
    for mut dial in waiting {
        let lane = (&mut dial).now_or_never().expect("upstream 1 has a place").unwrap().lease;
        assert_eq!(lane.upstream(), "1");
    }
    assert_eq!(dialers[0].dials(), 1, "no other lane tries the silent upstream");
}

#[tokio::test(start_paused = true)]
async fn lane_in_line_goes_to_an_upstream_that_is_readmitted() {
    let (pool, dialers) = pool_of_single_places(2);
    dialers[0].set_behavior(FakeBehavior::Down);
    assert!(open_lane(&pool).is_err());
    let _served = open_lane(&pool).unwrap();
    let mut waiting = pool.clone().call(request());
    assert!((&mut waiting).now_or_never().is_none());
    dialers[0].set_behavior(FakeBehavior::Up);
    assert_eq!(waiting.await.unwrap().lease.upstream(), "0");
    assert!(!is_ejected(&pool, 0));
}

#[tokio::test(start_paused = true)]
async fn refusal_without_a_time_does_not_shorten_the_pause_that_was_named() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = Some(Capacity::Unknown);
    let pool = Pool::new([("0".to_owned(), dialer)]);
    let mut lanes = [(); 3].map(|()| open_lane(&pool).unwrap());
    lanes[0].report_busy(Some(Duration::from_secs(30)));
    lanes[1].report_busy(None);
    drop(lanes);
    let begun = Instant::now();
    assert!(pool.clone().call(request()).await.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn lane_that_finds_its_room_taken_goes_to_any_upstream() {
    for (at, names) in [("1", ["0", "1"]), ("0", ["1", "0"])] {
        let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(2).collect();
        dialers.iter().for_each(|dialer| dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost));
        let pool = Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
        let lane = |name: &str| pool.subset([name.to_owned()].into()).call(request()).now_or_never();
        let taken = lane(at).unwrap().unwrap();
        let other = pool.call_at(at.to_owned(), request()).now_or_never().expect("there is another").unwrap();
        assert_eq!(other.lease.upstream(), names[0]);
        // Both are full: the lane takes the first place that gets free, wherever it is.
        let mut held = Vec::new();
        for free in [other, taken] {
            let mut waiting = pool.call_at(at.to_owned(), request());
            assert!((&mut waiting).now_or_never().is_none());
            let name = free.lease.upstream().to_owned();
            drop(free);
            held.push(waiting.now_or_never().expect("a place is free").unwrap());
            assert_eq!(held.last().unwrap().lease.upstream(), name);
        }
        drop(held);
        let room = pool.call_at(at.to_owned(), request()).now_or_never().unwrap().unwrap();
        assert_eq!(room.lease.upstream(), at, "there is room");
    }
}
