//! The floor: a requested text beside an answer, in both orders, with upstreams lost in between.

use super::{ms, voice, *};

/// Virtual time until every conversation of these tests is at rest.
const REST: Duration = Duration::from_secs(25);

fn connect() -> Harness {
    connect_with(2)
}

fn connect_with(workers: usize) -> Harness {
    let config =
        HarnessConfig { profile: "assistant", latency: ms(5), ..HarnessConfig::default() }.workers(workers);
    Harness::new(config)
}

/// One stretch of playback: its request, the samples of its audio, and whether it ended as cancelled; `None` if it never
/// ended.
#[derive(Debug, Clone, PartialEq)]
struct Playback {
    request_id: String,
    samples: usize,
    cancelled: Option<bool>,
}

/// Everything that the client played, in order. Panics on audio outside a start and an end, and on two starts in a row.
fn playbacks(harness: &Harness) -> Vec<Playback> {
    let mut all: Vec<Playback> = Vec::new();
    let mut is_playing = false;
    for (at, frame) in &harness.log {
        match frame {
            ClientFrame::Event(event) if event["type"] == "tts.speaking_start" => {
                assert!(!std::mem::replace(&mut is_playing, true), "two starts at {at:?}: {all:?}");
                let request_id = event["request_id"].as_str().unwrap().to_owned();
                all.push(Playback { request_id, samples: 0, cancelled: None });
            }
            ClientFrame::Event(event) if event["type"] == "tts.speaking_end" => {
                assert!(std::mem::take(&mut is_playing), "an end without a start at {at:?}: {all:?}");
                let last = all.last_mut().unwrap();
                assert_eq!(event["request_id"], last.request_id.as_str());
                last.cancelled = event["cancelled"].as_bool();
            }
            ClientFrame::Binary(bytes) => {
                assert!(is_playing, "audio outside a text at {at:?}: {all:?}");
                all.last_mut().unwrap().samples += bytes.len() / 2;
            }
            _ => {}
        }
    }
    all
}

/// Samples of a text when nothing else happens.
fn samples_of(text: &str) -> usize {
    let mut harness = connect();
    send_speak(&mut harness, text, "text");
    harness.advance(REST);
    playbacks(&harness)[0].samples
}

/// Samples of [`LONG`]: alone, and from a worker that still generates for a lost session. No client of such a worker can
/// avoid what the worker says before the text.
fn possible_samples(has_loss: bool) -> Vec<usize> {
    let mut all = vec![samples_of(LONG)];
    if has_loss {
        all.push(samples_of(&format!("{CORRUPTED_PREFIX}{LONG}")));
    }
    all
}

/// One trial: an utterance of 1.2 s, and a text that is asked for `offset_ms` after the utterance's first sample. The
/// upstream sessions are lost at `lost_ms` after that. Returns whether the text was asked for after the user's last
/// word, and what was played.
fn trial(offset_ms: u64, lost_ms: Option<u64>) -> (bool, Harness) {
    const UTTERANCE_MS: u64 = 1200;
    let mut harness = connect();
    let microphone = [voice(UTTERANCE_MS), zeros(2800)].concat();
    for (at_ms, frame) in (0..).step_by(20).zip(microphone.chunks(320)) {
        if at_ms == offset_ms {
            send_speak(&mut harness, LONG, "text");
        }
        if lost_ms.is_some_and(|lost_ms| at_ms == offset_ms + lost_ms) {
            harness.break_lanes();
        }
        harness.stream(frame, 20);
    }
    harness.advance(REST);
    (offset_ms >= UTTERANCE_MS, harness)
}

/// Fails unless each start has its end and each text arrives whole or ends as cancelled.
fn check(offset_ms: u64, lost_ms: Option<u64>, whole: &[usize]) {
    let (is_after_last_word, harness) = trial(offset_ms, lost_ms);
    let played = playbacks(&harness);
    let context = || format!("text at {offset_ms} ms, lost {lost_ms:?}: {played:?}, {:?}", harness.names());
    assert!(played.iter().all(|it| it.cancelled.is_some()), "a start without its end: {}", context());
    let has_error = !harness.events("error").is_empty();
    let text = played.iter().filter(|it| it.request_id == "text").collect::<Vec<_>>();
    match text[..] {
        // The user's speech cut it before its first sample, so it was never announced
        // (tests/golden/macaw/c10e_tts_cancel_before_first_chunk.json).
        [] => assert!(!is_after_last_word || has_error, "forgotten: {}", context()),
        [it] if it.cancelled == Some(false) && !has_error => {
            assert!(whole.contains(&it.samples), "{}", context());
        }
        [it] => {
            assert!(it.samples <= whole[whole.len() - 1], "{}", context());
            assert!(!is_after_last_word || has_error, "cut without a cause: {}", context());
        }
        _ => panic!("announced twice: {}", context()),
    }
    assert_eq!(harness.connections(), 0, "upstream sessions are left open: {}", context());
}

#[test]
fn text_beside_an_utterance_arrives_whole_and_every_start_has_its_end() {
    let whole = possible_samples(false);
    for offset_ms in some_of((300..=2300).step_by(20), 26) {
        check(offset_ms, None, &whole);
    }
}

#[test]
fn lost_upstreams_leave_no_start_without_an_end() {
    let whole = possible_samples(true);
    let offsets = (300..=2300).step_by(20).zip([20, 100, 300, 600, 1000].into_iter().cycle());
    for (offset_ms, lost_ms) in some_of(offsets, 26) {
        check(offset_ms, Some(lost_ms), &whole);
    }
}

#[test]
fn answer_is_heard_after_the_text_that_the_client_asked_for_before_it() {
    let (_, harness) = trial(1300, None);
    let played = playbacks(&harness);
    let ids: Vec<_> = played.iter().map(|it| (it.request_id == "text", it.cancelled)).collect();
    assert_eq!(ids, [(true, Some(false)), (false, Some(false))], "{played:?}");
}

#[test]
fn single_worker_speaks_a_text_before_it_answers() {
    let mut harness = connect_with(1);
    let microphone = [voice(1200), zeros(2800)].concat();
    for (at_ms, frame) in (0..).step_by(20).zip(microphone.chunks(320)) {
        if at_ms == 1300 {
            send_speak(&mut harness, LONG, "text");
        }
        harness.stream(frame, 20);
    }
    harness.advance(REST);
    let played = playbacks(&harness);
    assert_eq!((played[0].request_id.as_str(), played.len()), ("text", 2), "{played:?}");
    assert!(harness.events("error").is_empty());
    let text_at =
        harness.log.iter().find(|(_, frame)| frame.name() == "tts.speaking_start").map(|(at, _)| *at);
    assert!(text_at.unwrap() < ms(4000), "the text waits for the answer's worker: {text_at:?}");
}

#[test]
fn answer_that_waits_for_a_text_outlasts_the_next_text() {
    let mut harness = connect();
    let microphone = [voice(1200), zeros(4800)].concat();
    for (at_ms, frame) in (0..).step_by(20).zip(microphone.chunks(320)) {
        if at_ms == 1300 {
            send_speak(&mut harness, LONG, "text");
        }
        if at_ms == 4000 {
            send_speak(&mut harness, LONG, "text2");
        }
        harness.stream(frame, 20);
    }
    harness.advance(REST);
    let played = playbacks(&harness);
    let ids: Vec<_> = played.iter().map(|it| (it.request_id.starts_with("text"), it.cancelled)).collect();
    assert_eq!(ids, [(true, Some(true)), (true, Some(false)), (false, Some(false))], "{played:?}");
}
