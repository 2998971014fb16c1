//! The C++ back-end (mappings/notes/llama-cpp-omni.md#events): ordinary conversations with its message shapes, end
//! reasons and persistent context.

use super::*;

fn cpp_config(faults: &[&str]) -> HarnessConfig {
    let mut config = HarnessConfig::with_faults(faults);
    config.simulator.backend = Backend::Cpp;
    config
}

#[test]
fn cpp_backend_transcribes_and_speaks() {
    let mut harness = Harness::new(HarnessConfig { latency: ms(10), ..cpp_config(&[]) });
    assert_transcribes(&mut harness);
    assert_speaks(&mut harness);
    // Several parts in one session: context of one part must not leak into the next.
    let long = format!("{LONG} ").repeat(9);
    send_speak(&mut harness, &long, "long");
    assert_eq!(harness.next_event("tts.speaking_end")["cancelled"], false);
    send_speak(&mut harness, LONG, "cut");
    harness.next_event("tts.speaking_start");
    harness.send_json(&json!({"type": "tts.cancel"}));
    assert_transcribes(&mut harness);
    assert_speaks(&mut harness);
    assert_eq!(errors(&harness), []);
    assert_eq!(harness.received_count("client_closed"), harness.received_count("session.closed"));
    assert_closes_cleanly(harness);
}

#[test]
fn voice_sample_reaches_cpp_backend() {
    let spoken = |reference: bool| {
        let mut harness = Harness::new(cpp_config(&[]));
        // A tone of 300 Hz: the simulated voice follows the pitch of its reference.
        let tone = (0..16_000).map(|at| ((f64::from(at) * 0.117_81).sin() * 9000.0) as i16);
        let tone: Vec<u8> = tone.flat_map(i16::to_le_bytes).collect();
        let sample = base64::Engine::encode(&STANDARD, tone);
        let sample = if reference { json!(sample) } else { Value::Null };
        harness.send_json(&json!({"type": "tts.speak", "text": LONG, "ref_audio": sample}));
        harness.next_event("tts.speaking_end");
        harness.audio()
    };
    assert_ne!(spoken(true), spoken(false));
}

#[test]
fn cpp_backend_faults_are_reported_once() {
    for fault in ["die-mid-answer=1,times=2", "drop-mid-answer=1,times=2", "empty-transcript,times=1"] {
        let mut harness = Harness::new(cpp_config(&[fault]));
        harness.stream(&utterance(), 40);
        let ended = harness.run_until(|harness| !harness.events("vad.speech_end").is_empty(), secs(20));
        assert!(ended.is_some(), "{fault}: {:?}", harness.names());
        assert_eq!(errors(&harness).len(), usize::from(!fault.starts_with("empty")), "{fault}");
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}
