//! Several utterances at a time: on as many workers as are free, and in the order of speech.

use super::*;

/// Sentences with a pause after each.
fn sentences(count: usize) -> Vec<i16> {
    [sentence(), zeros(800)].concat().repeat(count)
}

/// A session on a gateway whose model takes 3 s for an utterance.
fn open_slow(workers: usize, queue_limit: usize, faults: &[&str]) -> Harness {
    let mut config =
        HarnessConfig { client: "rest", query: String::new(), ..HarnessConfig::with_faults(faults) };
    config.simulator.workers = workers;
    config.simulator.queue_limit = queue_limit;
    config.simulator.timing.first_delta = secs(3);
    Harness::new(config)
}

/// Most utterances that were being transcribed at the same time.
pub(super) fn most_at_a_time(harness: &Harness) -> usize {
    let (mut asked, mut most) = (Vec::new(), 0);
    for (_, traffic) in &harness.traffic {
        match traffic {
            Traffic::Sent(lane, text) if text.contains("input.append") => asked.push(*lane),
            Traffic::Received(lane, text) if text.contains("response.done") => asked.retain(|it| it != lane),
            Traffic::Dropped(lane) | Traffic::Closed(lane, _) => asked.retain(|it| it != lane),
            _ => {}
        }
        most = most.max(asked.len());
    }
    most
}

/// Checks that each utterance has one transcript, in the order of speech.
fn assert_all_transcribed(harness: &Harness, count: usize) {
    let ids: Vec<u64> =
        harness.events("transcript").iter().map(|event| event["segment_id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..count as u64).collect::<Vec<_>>(), "{:?}", harness.names());
    assert!(harness.events("error").is_empty(), "{:?}", harness.events("error"));
}

#[test]
fn utterances_are_transcribed_on_four_workers_in_order() {
    let times = [1, 4, 8].map(|workers| {
        let mut harness = open_slow(workers, 1000, &[]);
        upload(&mut harness, &sentences(12));
        assert_finishes(&mut harness);
        assert_all_transcribed(&harness, 12);
        assert_eq!(most_at_a_time(&harness), workers.min(4));
        harness.log.last().unwrap().0
    });
    assert!(times[1] < times[0] / 3 && times[2] <= times[1], "{times:?}");
}

#[test]
fn late_answer_delays_later_transcripts() {
    let mut harness = open_slow(4, 1000, &["never-answers,times=1"]);
    upload(&mut harness, &sentences(6));
    harness.advance(secs(12));
    assert!(harness.events("transcript").is_empty() && harness.events("speech_end").is_empty());
    assert_finishes(&mut harness);
    assert_all_transcribed(&harness, 6);
}

#[test]
fn further_lanes_leave_the_queue_of_a_busy_upstream_without_a_loss() {
    let mut harness = open_slow(1, 1000, &[]);
    upload(&mut harness, &sentences(12));
    assert_finishes(&mut harness);
    assert_all_transcribed(&harness, 12);
    let leaves = |it: &&Observation| matches!(it, Observation::LaneUnneeded { .. });
    let left = harness.observations.iter().filter(leaves).count();
    assert!(left <= 3 + 12, "each answer tries one more lane: {left}");
    assert!(harness.dial_count() <= 3 + 12, "the next utterance takes over a place in the queue");
    assert_eq!(harness.lost_workers(), 0);
}

#[test]
fn place_in_the_queue_is_reported_for_the_first_lane_only() {
    let mut harness = open_slow(1, 1000, &["stuck-queue"]);
    upload(&mut harness, &sentences(4));
    harness.advance(secs(10));
    let positions: Vec<_> = harness.events("queued").iter().map(|event| &event["position"]).collect();
    assert!((2..=4).contains(&positions.len()) && positions.iter().all(|it| **it == 1), "{positions:?}");
    assert_eq!(harness.events("queued")[1]["waited_ms"], 3000);
    let mut served = open_slow(1, 1000, &[]);
    upload(&mut served, &sentences(4));
    assert_finishes(&mut served);
    let waited = |event: &&Value| event["waited_ms"].as_u64().unwrap() > 100;
    assert!(!served.events("queued").iter().any(waited), "{:?}", served.events("queued"));
}

#[test]
fn refused_further_lanes_lose_no_utterance() {
    let mut harness = open_slow(1, 0, &[]);
    upload(&mut harness, &sentences(12));
    assert_finishes(&mut harness);
    assert_all_transcribed(&harness, 12);
}
