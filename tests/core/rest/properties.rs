//! The guarantees hold for random recordings and random failures.

use proptest::prelude::*;

use super::*;

/// A part of a random recording, or an event while it is uploaded.
#[derive(Debug, Clone)]
enum Part {
    /// Speech and the silence after it, ms.
    Phrase(u64, u64),
    /// The client waits.
    Wait(u64),
    /// All upstream connections are lost.
    BreakLanes,
}

const FAULTS: &str = "queue-full,times=5 busy,times=3 403-after-queue=2 stuck-queue,times=1 slow-init=7,times=2 \
    slow-init=70,times=1 die-before-created,times=2 never-answers,times=1 \
    die-mid-answer=1,times=3 drop-mid-answer=0,times=4 drop-mid-answer=1,times=2";

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        18 => (100u64..3_000, 50u64..1_500).prop_map(|(speech, pause)| Part::Phrase(speech, pause)),
        1 => (20_000u64..40_000, 0u64..500).prop_map(|(speech, pause)| Part::Phrase(speech, pause)),
        2 => (0u64..20_000).prop_map(Part::Wait),
        2 => Just(Part::BreakLanes),
    ]
}

/// A random request.
#[derive(Debug, Clone)]
struct Request {
    parts: Vec<Part>,
    faults: Vec<&'static str>,
    workers: usize,
    queue_limit: usize,
    latency_ms: u64,
    frame_samples: usize,
}

fn any_request() -> impl Strategy<Value = Request> {
    (
        vec(any_part(), 1..16),
        prop::sample::subsequence(listed(FAULTS), 0..3),
        select(vec![0, 1, 2, 4, 4, 6]),
        select(vec![0, 1, 1000]),
        0u64..60,
        1usize..40_000,
    )
        .prop_map(|(parts, faults, workers, queue_limit, latency_ms, frame_samples)| Request {
            parts,
            faults,
            workers,
            queue_limit,
            latency_ms,
            frame_samples,
        })
}

impl Request {
    /// Uploads the recording until the session is closed. Returns the number of samples sent.
    fn play(&self) -> (Harness, usize) {
        let mut config = HarnessConfig {
            client: "rest",
            query: String::new(),
            ..HarnessConfig::with_faults(&self.faults)
        }
        .workers(self.workers);
        config.simulator.queue_limit = self.queue_limit;
        config.latency = Duration::from_millis(self.latency_ms);
        let mut harness = Harness::new(config);
        let sent = self.parts.iter().map(|part| self.send_part(&mut harness, part)).sum();
        harness.send_json(&json!({"type": "finish"}));
        (harness, sent)
    }

    fn send_part(&self, harness: &mut Harness, part: &Part) -> usize {
        let samples = match part {
            Part::Phrase(speech_ms, pause_ms) => {
                let speech = sentence().into_iter().cycle().take(16 * *speech_ms as usize);
                speech.chain(zeros(*pause_ms)).collect::<Vec<_>>()
            }
            Part::Wait(ms) => {
                harness.advance(Duration::from_millis(*ms));
                return 0;
            }
            Part::BreakLanes => {
                harness.break_lanes();
                return 0;
            }
        };
        for frame in samples.chunks(self.frame_samples) {
            let free = harness.run_until(|harness| !harness.report().needs_backpressure, secs(1200));
            assert!(free.is_some(), "back-pressure never ends: {:?}", harness.names());
            harness.send_binary(&bytes_of(frame));
        }
        samples.len()
    }
}

/// Each utterance has one transcript or one error, in the order of speech.
fn assert_each_is_answered_once(harness: &Harness) {
    let ids = |name: &str| -> Vec<u64> {
        harness.events(name).iter().filter_map(|event| event["segment_id"].as_u64()).collect()
    };
    let answers = harness.log.iter().filter_map(|(_, frame)| match frame {
        ClientFrame::Event(event) if event["type"] == "transcript" || event["type"] == "error" => {
            event["segment_id"].as_u64()
        }
        _ => None,
    });
    let answered: Vec<u64> = answers.collect();
    assert_eq!(answered, ids("speech_start"), "{:?}", harness.names());
    assert_eq!(answered, ids("speech_end"), "{:?}", harness.names());
    assert!(answered.is_sorted() && answered.iter().collect::<BTreeSet<_>>().len() == answered.len());
    let ends: Vec<u64> =
        harness.events("transcript").iter().map(|event| event["end_ms"].as_u64().unwrap()).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

/// Each sample is in an utterance or was silence, and each utterance was asked about.
fn assert_samples_are_accounted_for(harness: &Harness, sent: usize) {
    let (counts, dropped) = harness.bridge().sample_counts();
    assert_eq!((counts.received, counts.muted, dropped), (sent as u64, 0, 0), "{counts:?}");
    assert_eq!(counts.recorded + counts.silent + counts.pending, sent as u64, "{counts:?}");
}

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn each_utterance_is_answered_once_and_in_order(request in any_request()) {
        let (mut harness, sent) = request.play();
        assert_finishes(&mut harness);
        assert_each_is_answered_once(&harness);
        assert_samples_are_accounted_for(&harness, sent);
    }

    #[test]
    fn client_that_leaves_at_any_time_frees_all_workers(request in any_request(), after_ms in 0u64..30_000) {
        let (mut harness, sent) = request.play();
        harness.advance(Duration::from_millis(after_ms));
        if !harness.is_closed() {
            harness.close_client();
        }
        harness.advance(secs(120));
        prop_assert!(harness.is_over());
        assert_samples_are_accounted_for(&harness, sent);
    }
}

/// Guards against vacuous properties.
#[test]
fn generated_requests_have_transcripts_and_errors_on_several_lanes() {
    let mut runner = TestRunner::deterministic();
    let (mut transcripts, mut errors, mut most) = (0, 0, 0);
    for _ in 0..12 {
        let request = any_request().new_tree(&mut runner).unwrap().current();
        let (mut harness, _) = request.play();
        assert_finishes(&mut harness);
        transcripts += harness.events("transcript").len();
        errors += harness.events("error").iter().filter(|event| event["segment_id"].is_u64()).count();
        most = most.max(parallel::most_at_a_time(&harness));
    }
    assert!(transcripts > 20 && errors > 5 && most == 4, "{transcripts} {errors} {most}");
}
