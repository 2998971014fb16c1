//! Tests of the floor: when audio leaves, and what is held.

mod endings;
mod formats;

use super::*;
use crate::audio::encoding::Encoding;
use crate::session::outbox::{Observation, lane_outbox::LaneOutbox};

fn format(encoding: Encoding, rate_hz: u32) -> OutputFormat {
    OutputFormat { encoding, rate_hz, bit_rate: None }
}

static SECOND: [f32; MODEL_RATE_HZ as usize] = [0.25; MODEL_RATE_HZ as usize];

fn floor() -> (Floor, Instant) {
    floor_with_hold(0)
}

fn floor_with_hold(hold_max_ms: u32) -> (Floor, Instant) {
    let playout = PlayoutRules { pace: PlayoutPace::RealTime, lead_ms: 300, frame_ms: 100, hold_max_ms };
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    let now = Instant::now();
    let options = FloorOptions {
        frame_max_bytes: 65_536,
        has_fixed_frames: false,
        reports_complete: false,
        confirms_playback: false,
        playout,
        ..FloorOptions::default()
    };
    (Floor::new(options, Actions::default()), now)
}

/// The oldest action. The lanes have none.
fn pop(floor: &mut Floor) -> Option<Action> {
    floor.out.pop(&mut LaneOutbox::default())
}

/// Messages to the client: lengths of audio in ms, and events by their first letters.
fn client_events(floor: &mut Floor) -> Vec<String> {
    let describe = |action| match action {
        Action::ToClient(ClientEvent::Audio(audio)) => Some((audio.bytes.len() / 48).to_string()),
        Action::ToClient(ClientEvent::SpeakingStarted { .. }) => Some("start".to_owned()),
        Action::ToClient(ClientEvent::SpeakingEnded { cancelled, audio_ms, .. }) => {
            Some(format!("end {audio_ms} {cancelled}"))
        }
        Action::ToClient(ClientEvent::Error(_)) => Some("error".to_owned()),
        _ => None,
    };
    std::iter::from_fn(|| pop(floor)).filter_map(describe).collect()
}

#[test]
fn chunks_of_any_size_are_sent_in_whole_frames_at_playout_pace() {
    let (mut floor, now) = floor();
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    for piece in SECOND[..9_600].chunks(1_000) {
        floor.push_audio(now, turn, piece);
    }
    assert_eq!(client_events(&mut floor).len(), 1 + 7, "seven times 41 ms: the lead, and no piece more");
    floor.finish(now, turn);
    let mut at = now;
    while let Some(next) = floor.next_timeout(at) {
        assert!(next > at, "nothing is due that was not done");
        at = next;
        floor.advance(at);
    }
    assert_eq!(
        client_events(&mut floor),
        ["100", "8", "end 400 false"],
        "then in frames of their own length"
    );
    assert_eq!((at - now).as_millis(), 400, "when the last of it was heard");
}

/// A second of the model is 16 packets of 60 ms and 40 ms more, which wait for the next second.
#[test]
fn packets_bridge_the_gap_between_two_seconds_of_the_model() {
    let (mut floor, now) = floor_with_hold(600);
    floor.options.packets = PacketOptions { frame_ms: 60, ..PacketOptions::default() };
    floor.set_format(format(Encoding::Opus, MODEL_RATE_HZ)).unwrap();
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    let (mut underruns, mut at) = (0, now);
    for second in 0..3 {
        let next_second = now + Duration::from_secs(second);
        while let Some(next) = floor.next_timeout(at).filter(|next| *next < next_second) {
            at = next;
            floor.advance(at);
        }
        at = next_second;
        floor.push_audio(at, turn, &SECOND);
        underruns += std::iter::from_fn(|| pop(&mut floor))
            .filter(|action| matches!(action, Action::Observe(Observation::Underrun)))
            .count();
    }
    assert_eq!(underruns, 0);
}

fn transcript(segment_id: u32, text: &str, audio_ms: u64) -> TurnTranscript {
    TurnTranscript {
        segment_id,
        text: text.to_owned(),
        audio_ms,
        is_reported: true,
        has_partials: true,
        calls: Vec::new(),
        usage: Default::default(),
        hit_limit: false,
    }
}

#[test]
fn audio_too_far_ahead_is_dropped_from_one_point_on_and_reported_once() {
    let (mut floor, now) = floor();
    let turn = floor.begin_turn(now, 7, "t".into(), String::new());
    for minute in 1..=16 {
        let dropped = floor.push_audio(now, turn, &SECOND.repeat(60));
        assert_eq!(dropped, if minute > 15 { 60 * SECOND.len() } else { 0 }, "{minute}");
        assert!(floor.is_far_ahead(now));
        assert_eq!(floor.must_upstreams_wait(now), minute > 10, "{minute}");
    }
    assert_eq!(floor.unplayed_length(now).as_secs(), 900);
    assert_eq!(client_events(&mut floor).iter().filter(|event| *event == "error").count(), 1);
    let later = now + Duration::from_secs(60);
    floor.advance(later);
    assert_eq!(floor.push_audio(later, turn, &SECOND), SECOND.len(), "there is room again");
    floor.set_transcript(turn, transcript(7, "one two three four", 1200 * 1000));
    floor.finish(later, turn);
    let mut at = later;
    while let Some(next) = floor.next_timeout(at) {
        at = next;
        floor.advance(at);
    }
    let ends: Vec<_> = std::iter::from_fn(|| pop(&mut floor))
        .filter_map(|action| match action {
            Action::ToClient(ClientEvent::TranscriptFinal { text, duration_ms, .. }) => {
                Some(format!("{text} {duration_ms}"))
            }
            Action::ToClient(ClientEvent::AnswerEnded { cancelled, hit_limit, .. }) => {
                Some(format!("{cancelled} {hit_limit}"))
            }
            _ => None,
        })
        .collect();
    assert_eq!(ends, ["one two three 900000", "true true"]);
}

#[test]
fn one_piece_of_audio_that_is_too_long_is_cut_and_reported() {
    let (mut floor, now) = floor();
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    assert_eq!(floor.push_audio(now, turn, &SECOND.repeat(1000)), 100 * SECOND.len());
    assert_eq!(floor.unplayed_length(now).as_secs(), 900);
    assert!(client_events(&mut floor).contains(&"error".to_owned()));
}

#[test]
fn audio_waits_while_the_client_is_behind() {
    let (mut floor, now) = floor();
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    floor.set_client_behind(now, true);
    floor.push_audio(now, turn, &SECOND);
    floor.finish(now, turn);
    assert!(
        client_events(&mut floor).is_empty() && floor.next_timeout(now).is_none() && !floor.may_send(now)
    );
    let later = now + Duration::from_secs(60);
    floor.set_client_behind(later, false);
    assert!(!client_events(&mut floor).is_empty() && floor.next_timeout(later).is_some());
    assert!(
        floor.unplayed_length(later).as_millis() == 1000,
        "the time meanwhile does not count as playback"
    );
}

/// How long the first audio of a text with such first pieces is held, ms.
fn hold_ms(source: SpeechSource, pieces: &[usize], hold_max_ms: u32) -> u128 {
    let (mut floor, now) = floor_with_hold(hold_max_ms);
    let turn = floor.begin(now, source, "t".into(), String::new());
    for piece in pieces {
        floor.push_audio(now, turn, &SECOND[..*piece]);
    }
    let events = client_events(&mut floor);
    let due = if events.is_empty() { floor.next_timeout(now).unwrap() } else { now };
    (due - now).as_millis()
}

#[test]
fn turn_with_short_first_chunk_is_held_until_the_next_is_due() {
    assert_eq!(hold_ms(SpeechSource::Model, &[12_000], 600), 500);
    assert_eq!(hold_ms(SpeechSource::Model, &[2_400], 600), 600, "no longer than the profile says");
    assert_eq!(hold_ms(SpeechSource::Model, &[12_000], 0), 0);
    assert_eq!(hold_ms(SpeechSource::Model, &[24_000], 600), 0, "nothing for a whole unit");
    assert_eq!(hold_ms(SpeechSource::Model, &[2_400; 10], 600), 0, "in however many pieces");
    assert_eq!(hold_ms(SpeechSource::Text, &[12_000], 600), 0, "nothing for a text");
    let (mut floor, now) = floor_with_hold(600);
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    floor.push_audio(now, turn, &SECOND[..12_000]);
    assert_eq!(client_events(&mut floor), [""; 0]);
    floor.finish(now, turn);
    assert_eq!(
        client_events(&mut floor),
        ["start", "100", "100", "100"],
        "a turn that is over waits for nothing"
    );
}

#[test]
fn turn_of_a_model_that_streams_is_not_held() {
    let (held, now) = floor_with_hold(600);
    let options = FloorOptions { has_streamed_turns: true, ..held.options };
    let mut floor = Floor::new(options, Actions::default());
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    floor.push_audio(now, turn, &SECOND[..2_400]);
    assert_eq!(client_events(&mut floor), ["start", "100"]);
}

#[test]
fn pause_holds_audio_back_and_loses_nothing() {
    for (resumed_after_ms, continues_after_ms) in [(Some(400), 400), (None, 600)] {
        let (mut floor, now) = floor();
        let at = |ms: u64| now + Duration::from_millis(ms);
        let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND);
        floor.finish(now, turn);
        assert_eq!(client_events(&mut floor), ["start", "100", "100", "100"]);
        floor.pause(now);
        floor.advance(at(300));
        assert_eq!(client_events(&mut floor), [""; 0]);
        assert_eq!(floor.next_timeout(at(300)), Some(at(600)), "a pause ends by itself");
        match resumed_after_ms {
            Some(ms) => floor.resume(at(ms)),
            None => floor.advance(at(600)),
        }
        assert_eq!(floor.unplayed_length(at(continues_after_ms)).as_millis(), 700);
        assert_eq!(client_events(&mut floor), ["100", "100", "100"], "and no underrun is counted");
        assert_eq!(floor.pace.next_hold(), Duration::ZERO);
        for later in (continues_after_ms..2_000).step_by(20) {
            floor.advance(at(later));
        }
        assert_eq!(client_events(&mut floor), ["100", "100", "100", "100", "end 1000 false"]);
    }
}

#[test]
fn held_audio_waits_for_the_client_whatever_the_user_does() {
    for (released_after_ms, continues_after_ms) in [(Some(5_000), 5_000), (None, 60_000)] {
        let (mut floor, now) = floor();
        let at = |ms: u64| now + Duration::from_millis(ms);
        floor.hold(now);
        let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND);
        floor.finish(now, turn);
        floor.pause(at(1_000));
        floor.resume(at(1_200));
        floor.advance(at(4_000));
        assert_eq!((client_events(&mut floor), floor.may_send(at(4_000))), (vec![], false));
        assert_eq!(
            floor.next_timeout(at(4_000)),
            Some(at(60_000)),
            "a client that never goes on is not waited for"
        );
        match released_after_ms {
            Some(ms) => floor.release(at(ms)),
            None => floor.advance(at(60_000)),
        }
        assert_eq!(client_events(&mut floor), ["start", "100", "100", "100"]);
        for later in (continues_after_ms..continues_after_ms + 2_000).step_by(20) {
            floor.advance(at(later));
        }
        let mut rest = vec!["100"; 7];
        rest.push("end 1000 false");
        assert_eq!(client_events(&mut floor), rest, "nothing is lost");
    }
}

#[test]
fn held_audio_outlasts_its_speech() {
    let (mut floor, now) = floor();
    let speak = |floor: &mut Floor| {
        let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND[..2_400]);
        floor.finish(now, turn);
    };
    floor.release(now);
    speak(&mut floor);
    floor.hold(now);
    floor.cancel(now, SpeechSource::Model);
    client_events(&mut floor);
    speak(&mut floor);
    assert_eq!(client_events(&mut floor), [""; 0], "the client's buffer is still full");
    floor.release(now);
    assert_eq!(client_events(&mut floor), ["start", "100"]);
}

#[test]
fn client_that_takes_audio_again_does_not_lift_the_pause_for_the_user() {
    let (mut floor, now) = floor();
    let at = |ms: u64| now + Duration::from_millis(ms);
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    floor.push_audio(now, turn, &SECOND);
    client_events(&mut floor);
    floor.hold(at(50));
    floor.pause(at(100));
    floor.release(at(200));
    floor.advance(at(600));
    assert_eq!(client_events(&mut floor), [""; 0], "the user may be about to speak");
    floor.advance(at(700));
    assert_eq!(client_events(&mut floor), ["100"; 3]);
}

#[test]
fn pause_ends_with_its_text() {
    let (mut floor, now) = floor();
    let at = |ms: u64| now + Duration::from_millis(ms);
    for (ms, ended_by_cancel) in [(0, true), (1_000, false)] {
        let turn = floor.begin(at(ms), SpeechSource::Model, "t".into(), String::new());
        floor.push_audio(at(ms), turn, &SECOND[..2_400]);
        floor.finish(at(ms), turn);
        floor.pause(at(ms));
        if ended_by_cancel {
            floor.cancel(at(ms), SpeechSource::Model);
        }
        floor.advance(at(ms + 100));
        client_events(&mut floor);
        let turn = floor.begin(at(ms + 100), SpeechSource::Model, "u".into(), String::new());
        floor.push_audio(at(ms + 100), turn, &SECOND[..2_400]);
        assert_eq!(client_events(&mut floor), ["start", "100"]);
        floor.cancel(at(ms + 100), SpeechSource::Model);
        client_events(&mut floor);
    }
}
