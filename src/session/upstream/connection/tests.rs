//! Transitions of one connection.

use super::*;
use crate::{
    event::{DisconnectReason, EndKind, LaneEvent, UpstreamEnd},
    mapping::Library,
};

fn start() -> (Instant, LaneContext, UpstreamConnection) {
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    let now = Instant::now();
    let times = Library::embedded().unwrap().profile("speech").unwrap().lanes;
    let mut context = LaneContext::for_lane_tests(times);
    let connection = UpstreamConnection::open(
        now,
        (LanePurpose::Speak, Mode::Chat),
        LaneCommand::Init(None),
        &mut context,
    );
    (now, context, connection)
}

fn actions(context: &mut LaneContext) -> Vec<Action> {
    std::iter::from_fn(|| context.out.pop()).filter(|action| !matches!(action, Action::Observe(_))).collect()
}

#[test]
fn closed_transport_receives_no_messages() {
    let (mut now, mut context, mut connection) = start();
    // The upstream accepts the connection, assigns a worker and then breaks, until the attempts are used up.
    loop {
        let lane = connection.lane();
        assert_eq!(actions(&mut context), [Action::OpenLane(lane, Mode::Chat)]);
        connection.handle_opened(now, &mut context);
        connection.handle_event(now, &LaneEvent::Granted, &mut context);
        assert_eq!(actions(&mut context), [Action::ToLane(lane, LaneCommand::Init(None))]);
        if matches!(
            connection.handle_closed(now, &DisconnectReason::Lost("reset".into()), &mut context),
            ConnectionEvent::Failed(_)
        ) {
            break;
        }
        now = connection.deadline().unwrap();
        connection.handle_timeout(now, &mut context);
    }
    assert_eq!(actions(&mut context), []);
    assert!(connection.is_gone());
}

const QUEUED: LaneEvent<'_> = LaneEvent::Queued { position: Some(1), length: None, wait_s: None };

#[test]
fn late_queue_message_cancels_neither_close_nor_retry() {
    let (now, mut context, mut connection) = start();
    connection.handle_opened(now, &mut context);
    connection.handle_event(now, &LaneEvent::Granted, &mut context);
    connection.close(now, &mut context);
    actions(&mut context);
    connection.handle_event(now, &QUEUED, &mut context);
    assert_eq!(
        (actions(&mut context), connection.is_gone()),
        (vec![], false),
        "the worker still confirms the close"
    );

    let (now, mut context, mut connection) = start();
    connection.handle_opened(now, &mut context);
    let end = UpstreamEnd { kind: EndKind::Other, detail: String::new() };
    connection.handle_event(now, &LaneEvent::Closed(end), &mut context);
    connection.handle_event(now, &QUEUED, &mut context);
    connection.handle_closed(now, &DisconnectReason::Closed(1000, String::new()), &mut context);
    assert!(connection.deadline().is_some(), "another attempt follows");
}

#[test]
fn abandoned_transport_is_dropped_once() {
    let (_, mut context, mut connection) = start();
    loop {
        let now = connection.deadline().unwrap();
        let failed = matches!(connection.handle_timeout(now, &mut context), ConnectionEvent::Failed(_));
        let dropped =
            actions(&mut context).into_iter().filter(|action| matches!(action, Action::DropLane(_)));
        assert!(dropped.count() <= 1);
        if failed {
            break;
        }
    }
}

#[test]
fn unwanted_answer_is_not_drained_after_the_drain_deadline() {
    for (late, drains) in [(0, true), (11, false)] {
        let (now, mut context, mut connection) = start();
        connection.handle_opened(now, &mut context);
        connection.handle_event(now, &LaneEvent::Granted, &mut context);
        connection.handle_event(now, &LaneEvent::Ready { session_id: None }, &mut context);
        connection.send_request(now, LaneCommand::Close, &mut context);
        context.set_drain_deadline(now + Duration::from_secs(10));
        actions(&mut context);
        let now = now + Duration::from_secs(late);
        let lane = connection.lane();
        connection.retire(now, &mut context);
        assert_eq!(context.closing[0].is_draining(), drains);
        assert!(context.closing[0].deadline().unwrap() > now, "no deadline in the past");
        let close = Action::ToLane(lane, LaneCommand::Close);
        assert_eq!(actions(&mut context).contains(&close), !drains);
    }
}
