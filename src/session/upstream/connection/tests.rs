//! One link, by hand.

use super::*;
use crate::{
    event::{EndMeaning, Ending, LaneEvent, Why},
    mapping::Library,
};

fn start() -> (Instant, Host, UpstreamConnection) {
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    let now = Instant::now();
    let times = Library::embedded().unwrap().profile("speech").unwrap().lanes;
    let mut host = Host::of_times(times);
    let link = UpstreamConnection::open(now, (Purpose::Speak, Mode::Chat), LaneCommand::Init(None), &mut host);
    (now, host, link)
}

fn actions(host: &mut Host) -> Vec<Action> {
    std::iter::from_fn(|| host.out.pop()).filter(|action| !matches!(action, Action::Observe(_))).collect()
}

#[test]
fn nothing_is_sent_on_a_transport_that_is_gone() {
    let (mut now, mut host, mut link) = start();
    // The upstream takes the connection, grants a worker and then breaks, until the attempts are used up.
    loop {
        let lane = link.lane();
        assert_eq!(actions(&mut host), [Action::OpenLane(lane, Mode::Chat)]);
        link.opened(now, &mut host);
        link.event(now, &LaneEvent::Granted, &mut host);
        assert_eq!(actions(&mut host), [Action::ToLane(lane, LaneCommand::Init(None))]);
        if matches!(link.closed(now, &Why::Lost("reset".into()), &mut host), News::Failed(_)) {
            break;
        }
        now = link.next_timeout(&host.times).unwrap();
        link.timeout(now, &mut host);
    }
    assert_eq!(actions(&mut host), []);
    assert!(link.is_gone());
}

const QUEUED: LaneEvent<'_> = LaneEvent::Queued { position: Some(1), length: None, wait_s: None };

#[test]
fn a_late_word_of_the_queue_ends_neither_a_goodbye_nor_another_attempt() {
    let (now, mut host, mut link) = start();
    link.opened(now, &mut host);
    link.event(now, &LaneEvent::Granted, &mut host);
    link.close(now, &mut host);
    actions(&mut host);
    link.event(now, &QUEUED, &mut host);
    assert_eq!((actions(&mut host), link.is_gone()), (vec![], false), "the worker says goodbye");

    let (now, mut host, mut link) = start();
    link.opened(now, &mut host);
    let over = Ending { meaning: EndMeaning::Over, words: String::new() };
    link.event(now, &LaneEvent::Closed(over), &mut host);
    link.event(now, &QUEUED, &mut host);
    link.closed(now, &Why::Closed(1000, String::new()), &mut host);
    assert!(link.next_timeout(&host.times).is_some(), "another attempt follows");
}

#[test]
fn a_transport_that_is_given_up_is_dropped_once() {
    let (_, mut host, mut link) = start();
    loop {
        let now = link.next_timeout(&host.times).unwrap();
        let failed = matches!(link.timeout(now, &mut host), News::Failed(_));
        let dropped = actions(&mut host).into_iter().filter(|action| matches!(action, Action::DropLane(_)));
        assert!(dropped.count() <= 1);
        if failed {
            break;
        }
    }
}

#[test]
fn an_answer_for_nobody_is_not_waited_out_once_time_is_up() {
    for (late, drains) in [(0, true), (11, false)] {
        let (now, mut host, mut link) = start();
        link.opened(now, &mut host);
        link.event(now, &LaneEvent::Granted, &mut host);
        link.event(now, &LaneEvent::Ready { session_id: None }, &mut host);
        link.ask(now, LaneCommand::Close, &mut host);
        host.hurry(now + Duration::from_secs(10));
        actions(&mut host);
        let now = now + Duration::from_secs(late);
        let lane = link.lane();
        link.retire(now, &mut host);
        assert_eq!(host.leaving[0].is_draining(), drains);
        assert!(host.leaving[0].next_timeout(&host.times).unwrap() > now, "no deadline in the past");
        let goodbye = Action::ToLane(lane, LaneCommand::Close);
        assert_eq!(actions(&mut host).contains(&goodbye), !drains);
    }
}
