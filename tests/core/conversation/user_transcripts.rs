//! Transcripts of the user in a conversation: a second lane hears the user, if the profile enables it.

use super::{
    harness::{Harness, HarnessConfig},
    *,
};

/// A conversation with user transcripts.
fn open_conversation(backend: ServerKind, workers: usize, latency_ms: u64) -> (Harness, Microphone) {
    let mut config = HarnessConfig { latency: ms(latency_ms), ..HarnessConfig::transcribed_conversation() };
    backend.configure(&mut config);
    config.simulator.workers = workers;
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Harness::new(config), Microphone::of_ms(20))
}

fn finals(harness: &Harness) -> Vec<&Value> {
    harness.events("transcript.final")
}

fn texts_by_speaker<'p>(transcripts: &[&'p Value], speaker: &str) -> Vec<&'p str> {
    let by_speaker = transcripts.iter().filter(|transcripts| transcripts["speaker"] == speaker);
    by_speaker.map(|transcripts| transcripts["text"].as_str().unwrap()).collect()
}

#[test]
fn user_and_model_are_transcribed_by_speaker() {
    for (backend, latency_ms) in
        ServerKind::WITH_CHAT.into_iter().flat_map(|backend| [(backend, 0), (backend, 120)])
    {
        let (mut harness, mut microphone) = open_conversation(backend, 2, latency_ms);
        microphone.silence(&mut harness, 1500);
        for turn in 1..=3 {
            ask(&mut harness, &mut microphone, 2);
            microphone.wait_until(&mut harness, |harness| turns_heard(harness) == turn, 20_000);
            assert_complete_turn(&spoken_texts(&harness)[turn - 1], turn as u64, 5);
        }
        let told = finals(&harness);
        assert_eq!(told.len(), 6, "{told:#?}");
        for (place, told) in told.iter().enumerate() {
            let (speaker, source, words) = if place % 2 == 0 {
                ("user", "transcription", "simulated transcript")
            } else {
                ("assistant", "model", "I heard")
            };
            assert_eq!((&told["speaker"], &told["source"]), (&json!(speaker), &json!(source)), "{place}");
            assert!(told["text"].as_str().unwrap().starts_with(words), "{told}");
            assert_eq!(told["segment_id"], place);
        }
        for told in harness.events("transcript.partial") {
            let source = if told["speaker"] == "user" { "transcription" } else { "model" };
            assert_eq!(told["source"], source);
        }
        assert!(harness.events("error").is_empty());
        close_and_check(harness);
    }
}

#[test]
fn user_is_not_transcribed_by_default() {
    let (mut harness, mut microphone) = (
        Harness::new(HarnessConfig { profile: "conversation", ..HarnessConfig::default() }),
        Microphone::of_ms(20),
    );
    microphone.silence(&mut harness, 3000);
    ask(&mut harness, &mut microphone, 2);
    microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 1, 20_000);
    assert_eq!(
        (
            texts_by_speaker(&finals(&harness), "user").len(),
            texts_by_speaker(&finals(&harness), "assistant").len()
        ),
        (0, 1)
    );
    assert_eq!(harness.openings.len(), 1);
    close_and_check(harness);
}

#[test]
fn interrupting_speech_is_transcribed() {
    for backend in ServerKind::WITH_CHAT {
        let (mut harness, mut microphone) = open_conversation(backend, 2, 20);
        microphone.silence(&mut harness, 1500);
        ask(&mut harness, &mut microphone, 2);
        microphone.wait_until(
            &mut harness,
            |harness| !harness.events("tts.speaking_start").is_empty(),
            20_000,
        );
        microphone.silence(&mut harness, 900);
        ask(&mut harness, &mut microphone, 0);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        assert_eq!(texts_by_speaker(&finals(&harness), "user").len(), 2);
        assert_eq!(texts_by_speaker(&finals(&harness), "assistant").len(), 2);
        close_and_check(harness);
    }
}

#[test]
fn conversation_continues_without_transcription_worker() {
    for backend in ServerKind::WITH_CHAT {
        let (mut harness, mut microphone) = open_conversation(backend, 1, 10);
        microphone.silence(&mut harness, 1500);
        for turn in 1..=4 {
            ask(&mut harness, &mut microphone, 2);
            microphone.wait_until(&mut harness, |harness| turns_heard(harness) == turn, 20_000);
            assert_complete_turn(&spoken_texts(&harness)[turn - 1], turn as u64, 5);
        }
        let names = harness.names();
        let count = |name: &str| names.iter().filter(|other| *other == name).count();
        assert_eq!(count("vad.speech_start"), count("vad.speech_end"), "{names:?}");
        assert_eq!(rollover_reasons(&harness), []);
        // Waiting transcriptions must not delay a text.
        harness.send_json(&json!({"type": "tts.speak", "text": "Excuse me.", "request_id": "text"}));
        let spoken = |harness: &Harness| {
            spoken_texts(harness).last().is_some_and(|last| !last.is_model_turn() && last.ended.is_some())
        };
        microphone.wait_until(&mut harness, spoken, 30_000);
        ask(&mut harness, &mut microphone, 2);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 5, 40_000);
        assert!(
            texts_by_speaker(&finals(&harness), "user")
                .iter()
                .all(|text| text.starts_with("simulated transcript"))
        );
        close_and_check(harness);
    }
}

/// With one worker, the transcript of the question waits. The start of the interrupting speech does not.
#[test]
fn interruption_follows_its_speech_start_while_a_transcript_is_pending() {
    let (mut harness, mut microphone) = open_conversation(ServerKind::Pytorch, 1, 0);
    microphone.silence(&mut harness, 1500);
    ask(&mut harness, &mut microphone, 2);
    let has_begun = |harness: &Harness| !harness.events("tts.speaking_start").is_empty();
    microphone.wait_until(&mut harness, has_begun, 15_000);
    assert!(harness.events("vad.speech_end").is_empty(), "the transcript is pending");
    ask(&mut harness, &mut microphone, 2);
    let edges = |name: &String| name.starts_with("vad.speech_") || name == "tts.speaking_end";
    let edges: Vec<String> = harness.names().into_iter().filter(edges).take(4).collect();
    assert_eq!(edges, ["vad.speech_start", "vad.speech_end", "vad.speech_start", "tts.speaking_end"]);
    assert!(spoken_texts(&harness)[0].is_cancelled());
}
