//! Quirks of the real back-ends: thoughts, control tokens, duplicate ends, duplicate text, slow units, and
//! half a minute of speech at once.

use super::{harness::ClientFrame, support::*, *};

/// Texts of the model's turns.
fn finals(conversation: &Conversation) -> Vec<&str> {
    conversation
        .harness
        .events("transcript.final")
        .iter()
        .map(|event| event["text"].as_str().unwrap())
        .collect()
}

#[test]
fn thoughts_and_control_tokens_are_removed() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &["think"]));
        conversation.ask();
        conversation.ask();
        assert!(
            finals(&conversation)
                .iter()
                .all(|text| text.starts_with("I heard ") && text.ends_with(" speech."))
        );
        for event in [
            conversation.harness.events("transcript.partial"),
            conversation.harness.events("tts.speaking_start"),
        ]
        .concat()
        {
            let text = event["text"].as_str().unwrap();
            assert!(!text.contains(['<', '>', '|']) && !text.contains("spoke to me"), "{backend:?}: {text}");
        }
        let turns = conversation.turns();
        assert!(turns.len() == 2 && turns.iter().all(|(_, samples)| samples % 24_000 == 14_400), "{turns:?}");
        conversation.assert_continues();
    }
}

#[test]
fn duplicate_events_are_counted_once() {
    for backend in BACKENDS {
        for fault in ["double-terminal", "repeats-text"] {
            let (mut conversation, mut plain) =
                (Conversation::new(config(backend, &[fault])), Conversation::new(config(backend, &[])));
            for conversation in [&mut conversation, &mut plain] {
                for _ in 0..5 {
                    conversation.ask();
                    conversation.stream_silence(1_500);
                }
                conversation.assert_turns_complete(5);
            }
            assert_eq!(finals(&conversation), finals(&plain), "{backend:?} {fault}");
            assert!(
                !conversation.harness.observations.contains(&Observation::Underrun),
                "{backend:?} {fault}: no gap in its speech"
            );
            let seconds = conversation.harness.now().as_secs() as usize;
            assert!(
                (seconds - 2..=seconds).contains(&conversation.heard_units),
                "{backend:?} {fault}: one unit per second"
            );
            conversation.assert_continues();
        }
    }
}

#[test]
fn slow_units_drop_oldest_audio_and_report_it() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &["slow-steps=1.4,times=30"]));
        for _ in 0..4 {
            conversation.stream_silence(3_000);
            conversation.send_question();
            conversation.stream_silence(5_000);
        }
        assert!(conversation.dropped() >= 16_000, "{backend:?}");
        let slow = conversation
            .harness
            .observations
            .iter()
            .filter(|observations| matches!(observations, Observation::SlowStep { .. }));
        assert_eq!(slow.count(), 1, "{backend:?}: one report in thirty units");
        conversation.stream_silence(10_000);
        let before = conversation.dropped();
        conversation.assert_continues_with(|conversation| assert_eq!(conversation.dropped(), before));
    }
}

/// Seconds of audio the client has received, and seconds it can have played.
fn leads(conversation: &Conversation) -> Vec<(f64, f64)> {
    let (mut first, mut got, mut leads) = (None, 0.0, Vec::new());
    for (at, frame) in &conversation.harness.log {
        if let ClientFrame::Binary(bytes) = frame {
            let at = at.as_secs_f64();
            got += bytes.len() as f64 / 48_000.0;
            leads.push((got, at - *first.get_or_insert(at)));
        }
    }
    leads
}

#[test]
fn burst_of_speech_is_played_in_real_time() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &["burst=34"]));
        conversation.ask();
        assert_eq!(conversation.turns(), [(1, 34 * 24_000 + 14_400)], "{backend:?}");
        let leads = leads(&conversation);
        assert!(leads.iter().all(|(got, played)| got - played < 0.41), "the lead stays below 410 ms");
        assert!(leads.iter().skip(1).all(|(got, played)| got - played > 0.0), "the playback never starves");
        assert!(!conversation.harness.observations.contains(&Observation::Underrun));
        conversation.assert_continues();
    }
}

#[test]
fn final_transcript_of_an_interrupted_burst_has_the_words_that_were_heard() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &["burst=34"]));
        conversation.send_question();
        while conversation.harness.events("tts.speaking_start").is_empty() {
            conversation.stream_silence(100);
        }
        conversation.stream_silence(4_000);
        assert_eq!(
            conversation.said(),
            [""; 0],
            "{backend:?}: a final transcript before the end of playback"
        );
        conversation.harness.send_json(&json!({"type": "tts.cancel"}));
        let end = conversation.harness.events("tts.speaking_end")[0].clone();
        let partial = conversation.harness.events("transcript.partial").last().unwrap()["text"].clone();
        let last = conversation.harness.events("transcript.final")[0].clone();
        let (all, heard) = (partial.as_str().unwrap(), last["text"].as_str().unwrap());
        let heard_ms = end["audio_ms"].as_u64().unwrap();
        assert_eq!(last["end_ms"].as_u64(), Some(heard_ms), "{backend:?}: {last} {end}");
        assert!((3_500..5_000).contains(&heard_ms), "{backend:?}: {end}");
        assert!(all.starts_with(heard) && !heard.is_empty(), "{backend:?}: {heard:?} of {all:?}");
        let heard_share = heard.len() as f64 / all.len() as f64;
        assert!(heard_share <= heard_ms as f64 / 34_600.0, "{backend:?}: {heard:?} in {heard_ms} ms");
        conversation.stream_silence(3_000);
        conversation.send_question();
        conversation.stream_until_answered(1);
        conversation.close_and_check();
    }
}

#[test]
fn text_during_playback_delays_no_audio() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &["burst=34"]));
        conversation.send_question();
        while conversation.harness.events("tts.speaking_start").is_empty() {
            conversation.stream_silence(100);
        }
        let lane = conversation.harness.lanes()[0];
        let delta = json!({"type": "response.output.delta", "kind": "text", "text": "and "}).to_string();
        // Without the microphone, whose frames would send the audio along.
        for _ in 0..100 {
            conversation.harness.inject_upstream_text(lane, &delta);
            conversation.harness.advance(ms(20));
        }
        let leads = leads(&conversation);
        let (got, played) = *leads.last().unwrap();
        assert!(played > 1.9 && got > played, "{backend:?}: {got} s sent in {played} s");
        assert!(!conversation.harness.observations.contains(&Observation::Underrun), "{backend:?}");
    }
}

#[test]
fn interrupted_burst_is_not_played() {
    for backend in BACKENDS {
        for by_voice in [false, true] {
            for after_ms in some_of((0..6_000).step_by(1_900), 2) {
                let mut conversation = Conversation::new(config(backend, &["burst=34"]));
                conversation.send_question();
                while conversation.harness.events("tts.speaking_start").is_empty() {
                    conversation.stream_silence(100);
                }
                conversation.stream_silence(after_ms);
                if by_voice {
                    conversation.send_question();
                } else {
                    conversation.harness.send_json(&json!({"type": "tts.cancel"}));
                }
                let end = conversation.harness.events("tts.speaking_end")[0].clone();
                assert_eq!(end["cancelled"], true, "{backend:?} {by_voice} {after_ms}");
                let cancelled =
                    conversation.harness.log.iter().position(|(_, frame)| frame.name() == "tts.speaking_end");
                let later_frames = conversation.harness.log[cancelled.unwrap()..].iter();
                assert!(
                    later_frames.clone().all(|(_, frame)| !matches!(frame, ClientFrame::Binary(_))),
                    "{backend:?}"
                );
                conversation.stream_silence(3_000);
                if !by_voice {
                    conversation.send_question();
                }
                let before = conversation.turns_ended;
                conversation.stream_until_answered(before);
                let turns = conversation.turns();
                assert_eq!(turns[1..], [(2, 34 * 24_000 + 14_400)], "{backend:?} {by_voice} {after_ms}");
                let seconds = turns[0].1 as f64 / 24_000.0;
                assert!(seconds < after_ms as f64 / 1_000.0 + 3.5, "{backend:?} {after_ms}: {seconds}");
                conversation.assert_all_heard();
                conversation.close_and_check();
            }
        }
    }
}

#[test]
fn partials_of_a_turn_that_never_ends_are_bounded() {
    let mut conversation = Conversation::new(config(BACKENDS[0], &[]));
    conversation.ask();
    let lane = conversation.harness.lanes()[0];
    let before = conversation.harness.events("transcript.partial").len();
    let piece = json!({"type": "response.output.delta", "kind": "text", "text": "and so on "}).to_string();
    for _ in 0..20_000 {
        conversation.harness.inject_upstream_text(lane, &piece);
    }
    let partials = conversation.harness.events("transcript.partial").len() - before;
    assert!((205..1_000).contains(&partials), "all of the first 2 KiB, then fewer: {partials}");
    let bytes: usize = conversation.harness.texts.iter().map(String::len).sum();
    assert!(bytes < 5_000_000, "{bytes} bytes");
}
