//! Lifecycle of lanes: attempts, closing, draining.

use std::time::{Duration, Instant};

use super::{
    ask::{Ask, AskAgain},
    backoff::BusyAnswer,
    *,
};
use crate::{
    error::ErrorKind,
    session::outbox::{Action, lane_outbox::LaneAction, numbered::Numbered},
    spelling::Library,
    vocabulary::{EndKind, LanePurpose, Sound, UpstreamEnd},
};

/// The lanes of a session; one of them speaks a text.
struct Bench {
    now: Instant,
    lanes: Lanes,
    id: LaneId,
}

impl Bench {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let times = Library::embedded().unwrap().profile("speech").unwrap().lanes;
        let mut lanes = Lanes::new(times, VoiceEncodingChoice::new([].into()), 1);
        let id = lanes.open(now, Owner::Synthesizer, Mode::Chat, Some(LaneRequest::Init(None)));
        Self { now, lanes, id }
    }

    fn actions(&mut self) -> Vec<LaneAction> {
        let is_told = |action: &LaneAction| !matches!(action, LaneAction::Observe(_));
        let of_client = Numbered::<Action>::default();
        std::iter::from_fn(|| self.lanes.shared.out.pop_before(&of_client)).filter(is_told).collect()
    }

    fn open_transport(&mut self) {
        self.lanes.handle_opened(self.now, self.lanes.lane(self.id));
    }

    /// Opens the transport, and initialises a worker.
    fn make_ready(&mut self) {
        self.open_transport();
        self.receive(&LaneEvent::Granted);
        self.receive(&LaneEvent::Ready { session_id: None });
    }

    /// A ready lane whose upstream was asked.
    fn asked() -> Self {
        let mut bench = Self::new();
        bench.make_ready();
        bench.lanes.request(bench.now, bench.id, LaneRequest::Cancel);
        bench
    }

    fn receive(&mut self, event: &LaneEvent<'_>) {
        let lane = self.lanes.lane(self.id);
        self.lanes.handle_event(self.now, lane, event, MessageMeta::default());
    }

    fn close_transport(&mut self, reason: &DisconnectReason) -> ConnectionChange {
        let lane = self.lanes.lane(self.id);
        self.lanes.handle_closed(self.now, lane, reason).unwrap().change
    }

    /// Lets the deadline of the lane expire.
    fn time_out(&mut self) -> ConnectionChange {
        self.now = self.lanes.deadline().unwrap();
        self.lanes.handle_timeout(self.now, self.id).unwrap().change
    }
}

#[test]
fn request_is_asked_again_while_that_is_possible_and_attempts_are_left() {
    for (attempts_max, is_possible, expected) in [(3, true, 3), (3, false, 1), (1, true, 1)] {
        let mut bench = Bench::new();
        let mut ask = Ask::new(Owner::Synthesizer);
        let again = AskAgain { attempts_max, is_possible, error_kind: ErrorKind::SpeakFailed };
        let mut attempts = 0;
        let error = loop {
            bench.id = bench.lanes.dial(bench.now, &mut ask, LaneRequest::Init(None));
            bench.open_transport();
            bench.receive(&LaneEvent::Granted);
            assert!(!ask.is_ready(&bench.lanes), "not initialised");
            bench.receive(&LaneEvent::Ready { session_id: None });
            assert!(ask.is_ready(&bench.lanes));
            bench.lanes.ask(bench.now, &mut ask, LaneRequest::Cancel);
            attempts += 1;
            bench.now += Duration::from_secs(1);
            let ConnectionChange::Failed(failure) =
                bench.close_transport(&DisconnectReason::Lost("reset".into()))
            else {
                panic!("the lane was in use")
            };
            if let Some(error) = bench.lanes.fail(bench.now, &mut ask, failure, again) {
                break error;
            }
            assert_eq!(ask.lane(), None, "the next attempt has another lane");
        };
        assert_eq!((attempts, error.kind), (expected, ErrorKind::SpeakFailed));
        let count = format!("({attempts} attempts in {attempts}.0 s)");
        assert_eq!(error.detail.ends_with(&count), attempts > 1, "{}", error.detail);
    }
}

#[test]
fn request_that_an_upstream_refuses_is_not_asked_again() {
    for (kind, is_asked_again) in [
        (EndKind::Other, true),
        (EndKind::BackendLost, true),
        (EndKind::QueueFull, true),
        (EndKind::TimeLimitReached, true),
        (EndKind::LimitReached, true),
        (EndKind::Refused, false),
        (EndKind::RefusedForGood, false),
        // No other upstream could serve it.
        (EndKind::Misconfigured, false),
    ] {
        let mut bench = Bench::asked();
        let mut ask = Ask::new(Owner::Synthesizer);
        ask.use_lane(Some(bench.id));
        let lane = bench.lanes.lane(bench.id);
        let end = LaneEvent::Closed(UpstreamEnd { kind, detail: String::new() });
        let signal = bench.lanes.handle_event(bench.now, lane, &end, MessageMeta::default());
        let Some(LaneSignal { change: ConnectionChange::Failed(failure), .. }) = signal else {
            panic!("{kind:?}: the lane was in use")
        };
        let again = AskAgain { attempts_max: 3, is_possible: true, error_kind: ErrorKind::SpeakFailed };
        let error = bench.lanes.fail(bench.now, &mut ask, failure, again);
        assert_eq!(error.is_none(), is_asked_again, "{kind:?}: {error:?}");
    }
}

#[test]
fn abandoned_dial_that_still_succeeds_is_closed_politely() {
    let mut bench = Bench::new();
    let lane = bench.lanes.lane(bench.id);
    bench.actions();
    bench.lanes.close(bench.now, bench.id);
    assert_eq!(bench.actions(), [], "nothing can be sent yet, and nothing is dropped");
    bench.open_transport();
    assert_eq!(bench.actions(), [LaneAction::Send(lane, LaneRequest::Close)]);
    assert!(!bench.lanes.get(bench.id).unwrap().is_gone(), "the upstream confirms the close");
    bench.close_transport(&DisconnectReason::Closed(1000, String::new()));
    assert!(bench.lanes.get(bench.id).unwrap().is_gone());
}

#[test]
fn reply_deadline_stands_still_while_lanes_are_held_and_begins_anew_after_it() {
    let mut bench = Bench::asked();
    let wait = bench.lanes.deadline().unwrap() - bench.now;
    bench.lanes.set_held(bench.now, true);
    assert_eq!(bench.lanes.deadline(), None);
    bench.now += 10 * wait;
    bench.lanes.set_held(bench.now, true);
    assert_eq!(bench.lanes.deadline(), None);
    bench.lanes.set_held(bench.now, false);
    assert_eq!(bench.lanes.deadline(), Some(bench.now + wait));
    assert!(matches!(bench.time_out(), ConnectionChange::Failed(_)));
}

#[test]
fn closed_transport_receives_no_messages() {
    let mut bench = Bench::new();
    // The upstream accepts the connection, assigns a worker and then breaks, until the attempts are used up.
    loop {
        let lane = bench.lanes.lane(bench.id);
        assert_eq!(bench.actions(), [LaneAction::Open(lane, Mode::Chat, LanePurpose::Speak)]);
        bench.open_transport();
        bench.receive(&LaneEvent::Granted);
        assert_eq!(bench.actions(), [LaneAction::Send(lane, LaneRequest::Init(None))]);
        if let ConnectionChange::Failed(_) = bench.close_transport(&DisconnectReason::Lost("reset".into())) {
            break;
        }
        bench.time_out();
    }
    assert_eq!(bench.actions(), []);
    assert!(bench.lanes.get(bench.id).unwrap().is_gone(), "the owner still has it");
    bench.lanes.retire(bench.now, bench.id);
    assert!(bench.lanes.are_gone());
}

const QUEUED: LaneEvent<'_> =
    LaneEvent::Queued { position: Some(1), length: None, wait_s: None, ticket: None };

#[test]
fn late_queue_message_cancels_neither_close_nor_retry() {
    let mut bench = Bench::new();
    bench.open_transport();
    bench.receive(&LaneEvent::Granted);
    bench.lanes.close(bench.now, bench.id);
    bench.actions();
    bench.receive(&QUEUED);
    assert_eq!(
        (bench.actions(), bench.lanes.get(bench.id).unwrap().is_gone()),
        (vec![], false),
        "the worker still confirms the close"
    );

    let mut bench = Bench::new();
    bench.open_transport();
    bench.receive(&LaneEvent::Closed(UpstreamEnd { kind: EndKind::Other, detail: String::new() }));
    bench.receive(&QUEUED);
    bench.close_transport(&DisconnectReason::Closed(1000, String::new()));
    assert!(bench.lanes.deadline().is_some(), "another attempt follows");
}

#[test]
fn abandoned_transport_is_dropped_once() {
    let mut bench = Bench::new();
    loop {
        let failed = matches!(bench.time_out(), ConnectionChange::Failed(_));
        let dropped = bench.actions().into_iter().filter(|action| matches!(action, LaneAction::Drop(_)));
        assert!(dropped.count() <= 1);
        if failed {
            break;
        }
    }
}

#[test]
fn unwanted_answer_is_not_drained_after_the_drain_deadline() {
    for (late, drains) in [(0, true), (11, false)] {
        let mut bench = Bench::new();
        bench.make_ready();
        bench.lanes.request(bench.now, bench.id, LaneRequest::Close);
        bench.lanes.set_drain_deadline(bench.now + Duration::from_secs(10));
        bench.actions();
        bench.now += Duration::from_secs(late);
        let lane = bench.lanes.lane(bench.id);
        bench.lanes.retire(bench.now, bench.id);
        assert_eq!(bench.lanes.get(bench.id).unwrap().is_draining(), drains);
        assert!(bench.lanes.deadline().unwrap() > bench.now, "no deadline in the past");
        let close = LaneAction::Send(lane, LaneRequest::Close);
        assert_eq!(bench.actions().contains(&close), !drains);
    }
}

#[test]
fn output_without_audible_or_visible_progress_does_not_prolong_an_answer() {
    let listen = LaneEvent::Listen;
    for (name, event, is_progress) in [
        ("words", LaneEvent::Text("word"), true),
        ("audio", LaneEvent::Audio(Sound::Samples(&[0.1])), true),
        ("an empty text", LaneEvent::Text(""), false),
        ("white space", LaneEvent::Text(" \n"), false),
        ("empty audio", LaneEvent::Audio(Sound::NONE), false),
        ("listen", listen, false),
    ] {
        let mut bench = Bench::asked();
        bench.receive(&LaneEvent::Text("first"));
        let due = bench.lanes.deadline().unwrap();
        for _ in 0..1000 {
            bench.now += Duration::from_millis(10);
            if bench.now < due {
                bench.receive(&event);
            }
        }
        assert_eq!(bench.lanes.deadline().unwrap() > due, is_progress, "{name}");
        assert!(is_progress || matches!(bench.time_out(), ConnectionChange::Failed(_)), "{name}");
    }
}

#[test]
fn held_lane_is_dialled_after_the_pause_that_a_full_queue_asks_for() {
    let mut bench = Bench::new();
    let (times, purpose) = (*bench.lanes.times(), LanePurpose::Speak);
    let LaneShared { busy, rng, .. } = &mut bench.lanes.shared;
    let full = BusyAnswer { detail: "queue full", retry_after: None };
    busy.record_refusal(bench.now, purpose, full, &times, rng);
    let pause_ends = busy.next_at(purpose).unwrap();
    let slot = &mut bench.lanes.slots[0];
    slot.connection.hold(bench.now, &times);
    bench.actions();
    bench.lanes.dial_waiting(bench.now);
    assert_eq!(bench.actions(), [], "not before {:?}", pause_ends - bench.now);
    assert_eq!(bench.lanes.deadline(), Some(pause_ends));
    assert_eq!(bench.time_out(), ConnectionChange::None);
    let lane = bench.lanes.lane(bench.id);
    assert_eq!(bench.actions(), [LaneAction::Open(lane, Mode::Chat, LanePurpose::Speak)]);
    // Without a pause it is dialled at once.
    bench.lanes.shared.busy.forget(purpose);
    bench.lanes.slots[0].connection.hold(bench.now, &times);
    bench.lanes.dial_waiting(bench.now);
    assert_eq!(bench.actions().len(), 1);
}

/// Text without an end, in pieces of this length at this interval.
fn push_endless_text(bench: &mut Bench, chars: usize, interval: Duration) -> Duration {
    let (since, text) = (bench.now, "a".repeat(chars));
    while bench.lanes.get(bench.id).unwrap().is_awaiting_reply() {
        bench.now += interval;
        bench.receive(&LaneEvent::Text(&text));
        assert!(bench.now - since < Duration::from_secs(1000), "it goes on");
    }
    bench.now - since
}

#[test]
fn text_without_audio_ends_an_answer_by_its_length_and_by_time() {
    let second = Duration::from_secs(1);
    let mut bench = Bench::asked();
    assert_eq!(push_endless_text(&mut bench, 1000, second), 68 * second, "66 Ki characters");
    let mut bench = Bench::asked();
    let took = push_endless_text(&mut bench, 1, second);
    assert!(took > 600 * second && took <= 602 * second, "{took:?}");
    // Audio begins the count anew.
    let mut bench = Bench::asked();
    for _ in 0..50 {
        let text = "a".repeat(60_000);
        bench.now += second;
        bench.receive(&LaneEvent::Text(&text));
        bench.receive(&LaneEvent::Audio(Sound::Samples(&[0.0])));
    }
    assert!(bench.lanes.get(bench.id).unwrap().is_awaiting_reply());
}
