//! Tests of sessions that outlast their transport, or end with it.

use super::*;

#[test]
fn lost_transport_is_replaced_and_repeated_events_are_dropped() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.listen();
    lane.append(false);
    lane.take_events();
    assert_eq!(lane.lose(), LaneEnd::Resumes);
    assert_eq!(lane.actions, [CodecAction::Redial]);
    lane.append(false);
    lane.take_sent();
    assert_eq!(lane.codec.handle_opened(lane.now), LaneOpening::Resumed);
    lane.follow();
    let resume = lane.sent.pop().unwrap();
    assert_eq!(
        resume,
        json!({
            "type": "session.resume", "session_id": "duplex-1", "resume_token": "token-1",
            "last_received_server_event_seq": 1,
        })
    );
    lane.created("session.resumed", "token-2");
    assert_eq!(
        lane.take_sent(),
        ["append 3"],
        "what was never sent follows; the unit in flight is not repeated"
    );
    lane.sequence = 0;
    lane.listen();
    assert_eq!(lane.take_events(), [""; 0], "an event that was handled before");
    lane.wait(MS(1_000));
    assert_eq!(lane.take_events(), ["end"]);
    lane.lose();
    lane.codec.handle_opened(lane.now);
    lane.follow();
    assert_eq!(lane.sent.pop().unwrap()["resume_token"], "token-2");
}

#[test]
fn cancellation_that_may_be_lost_is_repeated() {
    let mut lane = Lane::open();
    lane.append(true);
    lane.lose();
    lane.codec.handle_opened(lane.now);
    lane.follow();
    lane.take_sent();
    lane.created("session.resumed", "token-2");
    assert_eq!(lane.take_sent(), ["response.cancel"]);
    lane.delta("r", "Stale.");
    lane.done("r");
    assert_eq!(lane.take_events(), ["listen 1"]);
}

#[test]
fn messages_that_wait_follow_although_the_server_has_room_again() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.error("input_backpressure", Some("1"));
    lane.append(false);
    lane.append(false);
    lane.take_sent();
    lane.wait(MS(500));
    lane.listen();
    lane.wait(MS(500));
    assert_eq!(lane.take_sent(), ["append 1", "append 2", "append 3"]);
}

#[test]
fn session_is_given_up_when_the_server_has_forgotten_it() {
    let mut lane = Lane::open();
    assert_eq!(lane.lose(), LaneEnd::Resumes);
    let (mut redials, lost_at) = (0, lane.now);
    while lane.actions == [CodecAction::Redial] {
        redials += 1;
        lane.actions.clear();
        lane.lose();
        lane.wait(lane.codec.deadline().unwrap() - lane.now);
    }
    assert_eq!((redials, lane.now - lost_at), (11, MS(30_000)));
    assert!(matches!(lane.actions[..], [CodecAction::End(_)]), "{:?}", lane.actions);
    let mut refused = Lane::open();
    refused.lose();
    refused.codec.handle_opened(refused.now);
    refused.receive(&json!({"type": "error", "error": {"code": "invalid_resume_token", "message": "m"}}));
    assert_eq!(refused.take_events(), ["closed Other invalid_resume_token: m"]);
    assert_eq!(refused.lose(), LaneEnd::Over(None));
}

#[test]
fn session_is_over_at_once_when_the_server_is_gone_or_it_is_closed_without_a_transport() {
    let mut gone = Lane::open();
    assert_eq!(gone.lose(), LaneEnd::Resumes);
    let refused = DisconnectReason::Unreachable("connection refused".to_owned());
    assert_eq!(gone.codec.handle_end(gone.now, &refused), LaneEnd::Over(None));
    for is_asked in [false, true] {
        let mut lane = Lane::open();
        lane.lose();
        lane.actions.clear();
        if is_asked {
            lane.codec.handle_opened(lane.now);
        }
        lane.follow();
        lane.take_sent();
        lane.command(LaneRequest::Close);
        let ends = matches!(lane.actions[..], [CodecAction::End(DisconnectReason::Lost(_))]);
        assert_eq!((ends, lane.take_sent().len()), (!is_asked, usize::from(is_asked)));
        assert_eq!((lane.codec.deadline(), lane.lose()), (None, LaneEnd::Over(None)));
    }
}

#[test]
fn session_that_was_closed_before_it_opened_is_not_resumed() {
    let mut lane = Lane::dial();
    lane.command(LaneRequest::Close);
    lane.created("session.created", "token-1");
    assert_eq!(lane.take_events(), [""; 0]);
    assert_eq!(lane.lose(), LaneEnd::Over(None));
    assert_eq!((lane.actions.len(), lane.codec.deadline()), (0, None));
}

#[test]
fn end_of_the_session_is_no_loss_and_a_full_server_is_busy() {
    let mut lane = Lane::open();
    lane.command(LaneRequest::Close);
    assert_eq!(lane.lose(), LaneEnd::Over(None));
    let mut full = Lane::open();
    full.receive(&json!({"type": "error", "error": {"code": "resource_exhausted", "message": "m"}}));
    assert_eq!(full.take_events(), ["closed QueueFull resource_exhausted: m"]);
}
