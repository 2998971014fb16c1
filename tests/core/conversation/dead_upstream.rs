//! Conversations that cannot continue: the upstream never answers, or voxbridge stops.

use super::{
    support::{Conversation, config, secs},
    *,
};

#[test]
fn drain_does_not_wait_for_model_to_open() {
    for backend in ServerKind::ALL {
        let mut conversation = Conversation::new(config(backend, &["slow-init=40"]));
        conversation.stream_silence(1000);
        conversation.harness.drain();
        assert_eq!(conversation.harness.events("session.closed")[0]["reason"], "server_shutdown");
        // 10 s, and 3 s for the close: less than a stopping server waits for its sessions.
        conversation.wait_without_audio(secs(14));
        assert!(conversation.harness.finished, "the session waits for an unneeded worker");
        assert_eq!(protocol_checks::find_violations(&conversation.harness), [""; 0]);
    }
}

/// The client hears of the queue early and again, long before the queue counts as stuck.
#[test]
fn queue_is_reported_every_few_seconds() {
    let mut conversation = Conversation::new(config(ServerKind::Pytorch, &["stuck-queue,times=1"]));
    conversation.stream_silence(14_000);
    let notices = conversation.harness.log.iter().filter(|(_, frame)| frame.name() == "session.hold");
    let times: Vec<_> = notices.map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [2, 7, 12]);
    let notice = conversation.harness.events("session.hold")[0].clone();
    assert_eq!(
        ["queue_position", "timestamp_ms", "hold_timeout_ms"].map(|key| &notice[key]),
        [1, 2000, 120_000]
    );
    assert_eq!(conversation.errors(), []);
    conversation.harness.break_lanes();
    conversation.stream_silence(20_000);
    assert_eq!(conversation.harness.events("session.hold").len(), 3, "no notice once a worker is free");
    conversation.assert_continues();
}

#[test]
fn queue_notices_have_the_present_place() {
    let mut conversation = Conversation::new(config(ServerKind::Pytorch, &["stuck-queue,times=1"]));
    conversation.stream_silence(1000);
    for position in [3, 2] {
        let moved = format!(
            r#"{{"type":"session.queued","position":{position},"queue_length":3,"estimated_wait_s":5}}"#
        );
        let lane = conversation.harness.lanes()[0];
        conversation.harness.inject_upstream_text(lane, &moved);
        conversation.stream_silence(5000);
    }
    let notices = conversation.harness.events("session.hold").into_iter();
    assert_eq!(notices.map(|notice| notice["queue_position"].clone()).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn accepting_but_silent_upstream_is_given_up() {
    for backend in ServerKind::ALL {
        let mut conversation = Conversation::new(config(backend, &["never-answers"]));
        while !conversation.harness.is_closed() {
            conversation.harness.stream(&[1; 16_000], 100);
            assert!(conversation.harness.now() < secs(120), "{:?}", conversation.harness.names());
        }
        assert!(conversation.harness.now() > secs(60), "{:?}", conversation.harness.now());
        assert_eq!(conversation.harness.events("session.closed")[0]["reason"], "upstream_lost");
        assert_eq!(protocol_checks::find_violations(&conversation.harness), [""; 0]);
    }
}
