//! Tests of ends: how much of a speech was heard, and who may speak after it.

use super::*;

#[test]
fn cancelled_text_counts_only_audio_that_was_played() {
    for (after_ms, played_ms) in [(0, 0), (100, 100), (450, 450)] {
        let (mut floor, now) = floor();
        let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND);
        let cancelled_at = now + Duration::from_millis(after_ms);
        for ms in (0..=after_ms).step_by(50) {
            floor.advance(now + Duration::from_millis(ms));
        }
        floor.cancel(cancelled_at, SpeechSource::Model);
        assert_eq!(client_events(&mut floor).pop(), Some(format!("end {played_ms} true")));
    }
}

#[test]
fn truncated_text_is_played_and_ends_as_cancelled() {
    let (mut floor, now) = floor();
    let turn = floor.begin(now, SpeechSource::Model, "t".into(), String::new());
    floor.push_audio(now, turn, &SECOND[..4_800]);
    floor.truncate(turn);
    floor.finish(now, turn);
    floor.advance(now + Duration::from_millis(200));
    assert_eq!(client_events(&mut floor), ["start", "100", "100", "end 200 true"]);
}

#[test]
fn text_on_the_floor_decides_who_may_speak() {
    let (mut floor, now) = floor();
    let claims = [Claim::QueuedText, Claim::Answer, Claim::Turn];
    let decisions = |floor: &Floor| claims.map(|claim| floor.may_speak(claim));
    assert_eq!(decisions(&floor), [Permission::Now; 3], "nobody speaks");
    let turn = floor.begin(now, SpeechSource::Model, "m".into(), String::new());
    assert_eq!(
        decisions(&floor),
        [Permission::Now; 3],
        "the model is cut by a text, and continues otherwise"
    );
    floor.finish(now, turn);
    let text = floor.begin(now, SpeechSource::Text, "t".into(), "hello".into());
    let waits = Permission::After(text);
    assert_eq!(decisions(&floor), [waits, waits, Permission::Refused]);
    floor.push_audio(now, text, &SECOND[..2_400]);
    floor.finish(now, text);
    assert_eq!(decisions(&floor), [waits, waits, Permission::Refused], "until it was heard");
    floor.advance(now + Duration::from_millis(100));
    assert_eq!(decisions(&floor), [Permission::Now; 3]);
}

#[test]
fn cancel_silences_one_source() {
    let (mut floor, now) = floor();
    let text = floor.begin(now, SpeechSource::Text, "t".into(), "hello".into());
    let turn = floor.begin(now, SpeechSource::Model, "m".into(), String::new());
    floor.push_audio(now, turn, &SECOND[..2_400]);
    floor.cancel(now, SpeechSource::Model);
    assert_eq!(
        (client_events(&mut floor), floor.is_busy()),
        (vec![], true),
        "the client never learns of the turn"
    );
    floor.push_audio(now, turn, &SECOND[..2_400]);
    floor.push_audio(now, text, &SECOND[..2_400]);
    floor.finish(now, text);
    floor.advance(now + Duration::from_millis(100));
    assert_eq!(
        client_events(&mut floor),
        ["start", "100", "end 100 false"],
        "late audio of the turn is dropped"
    );
}

/// Ends of speeches: words, length of what was heard, and whether they were cut.
fn ends(floor: &mut Floor) -> Vec<String> {
    client_events(floor).into_iter().filter(|event| event.starts_with("end")).collect()
}

#[test]
fn cut_speech_was_heard_no_further_than_written_and_than_sent() {
    let ms = Duration::from_millis;
    // After this time, this part of the messages that were sent waits to be written.
    for (after_ms, (waiting, total), heard_ms) in [
        (500, (0, 0), 500),
        (500, (0, 100), 500),
        (500, (10, 100), 500),
        (500, (50, 100), 400),
        (500, (100, 100), 0),
        (500, (200, 100), 0),
        (0, (0, 0), 0),
    ] {
        let (mut floor, now) = floor();
        let turn = floor.begin_turn(now, 1, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND);
        let mut at = now;
        while let Some(next) = floor.next_timeout(at).filter(|next| *next <= now + ms(after_ms)) {
            at = next;
            floor.advance(at);
        }
        let sent_ms = floor.speeches[0].sent_samples / 24;
        assert!(sent_ms >= after_ms + 200, "{sent_ms}");
        let cut_at = now + ms(after_ms);
        floor.advance(cut_at);
        let sent_ms = floor.speeches[0].sent_samples / 24;
        floor.note_unwritten(turn, waiting, total);
        client_events(&mut floor);
        floor.cancel(cut_at, SpeechSource::Model);
        let expected = if (waiting, total) == (50, 100) { sent_ms / 2 } else { heard_ms };
        assert_eq!(ends(&mut floor), [format!("end {expected} true")], "{waiting} of {total} wait");
    }
}

#[test]
fn speech_that_was_played_to_its_end_is_not_cut_any_more() {
    let ms = Duration::from_millis;
    for (after_ms, is_unwritten, end) in [
        (900, false, "end 900 true"),
        (1000, false, "end 1000 false"),
        (1200, false, "end 1000 false"),
        (1200, true, "end 500 true"),
    ] {
        let (mut floor, now) = floor();
        floor.options.tail = ms(500);
        let turn = floor.begin_turn(now, 1, "t".into(), String::new());
        floor.push_audio(now, turn, &SECOND);
        floor.finish(now, turn);
        let cut_at = now + ms(after_ms);
        let mut at = now;
        while let Some(next) = floor.next_timeout(at).filter(|next| *next <= cut_at) {
            at = next;
            floor.advance(at);
        }
        if is_unwritten {
            floor.note_unwritten(turn, 1, 2);
        }
        assert!(floor.is_audible(), "its end is not reported yet");
        client_events(&mut floor);
        floor.cancel(cut_at, SpeechSource::Model);
        assert_eq!(ends(&mut floor), [end], "{after_ms} ms");
    }
}
