//! The C++ back-end's ways (field notes §1.7): the same conversations, with its shapes, its reasons and its memory.

use voxbridge::simulator::Backend;

use super::*;

fn on_cpp(faults: &[&str]) -> PairConfig {
    let mut config = PairConfig::with_faults(faults);
    config.simulator.backend = Backend::Cpp;
    config
}

#[test]
fn it_hears_and_speaks() {
    let mut pair = Pair::new(PairConfig { latency: ms(10), ..on_cpp(&[]) });
    is_understood(&mut pair);
    is_spoken(&mut pair);
    // Several parts in one session: what it keeps of the one must not come with the next.
    let long = format!("{LONG} ").repeat(9);
    say(&mut pair, &long, "long");
    assert_eq!(pair.next_event("tts.speaking_end")["cancelled"], false);
    say(&mut pair, LONG, "cut");
    pair.next_event("tts.speaking_start");
    pair.client(&json!({"type": "tts.cancel"}));
    is_understood(&mut pair);
    is_spoken(&mut pair);
    assert_eq!(errors(&pair), []);
    assert_eq!(pair.received_count("client_closed") as u64, pair.received_count("session.closed") as u64);
    ends_well(pair);
}

#[test]
fn a_voice_reaches_it_by_the_only_way_it_takes() {
    let spoken = |reference: bool| {
        let mut pair = Pair::new(on_cpp(&[]));
        // A tone of 300 Hz: the simulator's voice follows its reference's pitch.
        let tone = (0..16_000).map(|at| ((f64::from(at) * 0.117_81).sin() * 9000.0) as i16);
        let tone: Vec<u8> = tone.flat_map(i16::to_le_bytes).collect();
        let sample = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, tone);
        let sample = if reference { json!(sample) } else { Value::Null };
        pair.client(&json!({"type": "tts.speak", "text": LONG, "ref_audio": sample}));
        pair.next_event("tts.speaking_end");
        pair.audio()
    };
    assert_ne!(spoken(true), spoken(false));
}

#[test]
fn what_goes_wrong_there_is_told_and_gone_with_the_next_sentence() {
    for fault in ["die-mid-answer=1,times=2", "drop-mid-answer=1,times=2", "empty-transcript,times=1"] {
        let mut pair = Pair::new(on_cpp(&[fault]));
        pair.stream(&utterance(), 40);
        let ended = pair.run_until(|pair| !pair.events("vad.speech_end").is_empty(), secs(20));
        assert!(ended.is_some(), "{fault}: {:?}", pair.names());
        assert_eq!(errors(&pair).len(), usize::from(!fault.starts_with("empty")), "{fault}");
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}
