//! Failures, ejections and probes.

use super::*;
use crate::server::websocket::session_socket::OUT_OF_MEMORY;

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
async fn upstream_that_leaves_a_dial_unanswered_is_ejected_as_the_session_gives_up() {
    let (pool, dialers) = pool(1);
    dialers[0].set_behavior(FakeBehavior::Late);
    let begun = Instant::now();
    let mut dial = pool.clone().call(request());
    let _ = timeout(Duration::from_secs(5), &mut dial).await;
    assert!(!is_ejected(&pool, 0));
    let finishing = tokio::spawn(dial.finish());
    sleep(Duration::from_millis(1)).await;
    assert!(is_ejected(&pool, 0));
    assert_eq!(begun.elapsed().as_secs(), 5);
    let late = finishing.await.unwrap().expect("the connection is still established, to be closed");
    assert_eq!(begun.elapsed().as_secs(), 7);
    drop(late);
    assert_eq!((pool.statuses()[0].1.failures, pool.statuses()[0].1.load.lanes), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn unneeded_dial_leaves_the_line_or_is_finished() {
    let dialer = FakeDialer::default();
    dialer.state().capacity = NonZero::new(1).map(Capacity::AtMost);
    let pool = Pool::new([("0".to_owned(), dialer)]);
    let dialled = pool.clone().call(request()).finish().await.expect("the upstream answers");
    assert!(pool.clone().call(request()).finish().now_or_never().expect("it does not wait").is_none());
    drop(dialled);
    assert_eq!(pool.statuses()[0].1.failures, 0);
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
async fn readmitted_upstream_has_the_others_probed_at_once() {
    let (pool, dialers) = pool(4);
    dialers.iter().for_each(|dialer| dialer.set_behavior(FakeBehavior::Down));
    while (0..4).any(|at| !is_ejected(&pool, at)) {
        assert!(open_lane(&pool).is_err());
    }
    sleep(Duration::from_secs(120)).await;
    dialers[..3].iter().for_each(|dialer| dialer.set_behavior(FakeBehavior::Up));
    let probes_before = dialers[3].probes();
    while (0..3).all(|at| is_ejected(&pool, at)) {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(10)).await;
    assert!((0..3).all(|at| !is_ejected(&pool, at)), "all three are found");
    assert!(is_ejected(&pool, 3) && dialers[3].probes() > probes_before);
    dialers[3].set_behavior(FakeBehavior::Up);
    assert!(wait_until_readmitted(&pool, 3).await <= Duration::from_secs(30), "its ejection is no longer");
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

/// Lets lanes of many sessions be refused.
fn refuse(pool: &Pool<FakeDialer>, count: usize, complaint: Option<&str>) {
    for _ in 0..count {
        let mut lease =
            session_starting_at_first(pool).call(request()).now_or_never().unwrap().unwrap().lease;
        lease.report_ready();
        lease.report_refused(complaint);
        // Reports after the refusal add nothing.
        lease.report_failure("the connection closed");
        lease.report_disconnect(&DisconnectReason::Lost("reset".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_eject_no_upstream() {
    let (pool, _dialers) = pool(1);
    refuse(&pool, 20, None);
    assert_eq!((is_ejected(&pool, 0), pool.statuses()[0].1.failures), (false, 0));
    refuse(&pool, 20, Some("HTTP 401"));
    assert_eq!((is_ejected(&pool, 0), pool.statuses()[0].1.failures), (false, 20), "operators see it");
}

#[tokio::test(start_paused = true)]
async fn misconfigured_upstream_is_the_second_choice() {
    let (pool, _dialers) = pool(2);
    refuse(&pool, 1, Some("HTTP 401"));
    assert_eq!(open_lanes(&pool, 10, 2).0, [0, 10]);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(open_lanes(&pool, 10, 2).0, [5, 5], "it is tried again");
}

#[tokio::test(start_paused = true)]
async fn poisonous_question_ejects_no_upstream_that_serves_others() {
    let (pool, _dialers) = pool(1);
    let mut conversation = open_lane(&pool).unwrap();
    conversation.report_ready();
    for _ in 0..50 {
        conversation.report_answered();
        let mut poisoned = open_lane(&pool).unwrap();
        poisoned.report_ready();
        poisoned.report_failure("the upstream lost the connection");
        sleep(Duration::from_secs(1)).await;
    }
    assert!(!is_ejected(&pool, 0));
    conversation.report_failure("the upstream lost the connection");
    for _ in 0..2 {
        let mut dead = open_lane(&pool).unwrap();
        dead.report_ready();
        dead.report_failure("the upstream lost the connection");
    }
    assert!(is_ejected(&pool, 0), "it serves no one");
}

#[tokio::test(start_paused = true)]
async fn lanes_broken_by_a_clients_memory_limit_eject_no_upstream() {
    let (pool, _dialers) = pool(1);
    for _ in 0..9 {
        let mut lease = open_lane(&pool).unwrap();
        lease.report_ready();
        lease.report_disconnect(&DisconnectReason::Lost(OUT_OF_MEMORY.to_owned()));
        lease.report_failure("the upstream lost the connection");
    }
    assert_eq!((is_ejected(&pool, 0), pool.statuses()[0].1.failures), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn misconfigured_upstream_is_no_choice_for_its_purpose_while_another_has_one() {
    let dialers: Vec<FakeDialer> = std::iter::repeat_with(FakeDialer::default).take(3).collect();
    dialers[1].state().capacity = NonZero::new(1).map(Capacity::AtMost);
    dialers[2].set_behavior(FakeBehavior::Down);
    let pool = Pool::new(dialers.iter().enumerate().map(|(at, it)| (at.to_string(), it.clone())));
    let mut session = session_starting_at_first(&pool);
    let mut first = open_lane_in(&mut session).unwrap();
    assert_eq!((first.upstream(), pool.has_other_for(&first)), ("0", true));
    first.report_refused(Some("HTTP 401"));
    let mut second = open_lane_in(&mut session).unwrap();
    assert_eq!(second.upstream(), "1", "it is asked next");
    assert!(open_lane_in(&mut session.clone()).is_err(), "the third does not answer, and is ejected");
    assert!(!pool.has_other_for(&second), "the only one that is left");
    assert!(pool.has_other_for(&first));
    // The one that may serve the lane has no place: the lane waits rather than being refused.
    let mut waiting = pool.clone().call(request());
    assert!((&mut waiting).now_or_never().is_none());
    // Lanes of other purposes go to the first, past the lane that waits.
    let speak = DialRequest { purpose: LanePurpose::Speak, ..request() };
    let speaking = pool.clone().call(speak).now_or_never().unwrap().unwrap();
    assert_eq!(speaking.lease.upstream(), "0");
    second.report_refused(Some("HTTP 404"));
    assert!(!pool.has_other_for(&first), "all refuse");
    drop(second);
    assert!(waiting.now_or_never().is_some());
}
