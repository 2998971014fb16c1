//! The user's audio at several rates: when its seconds leave, what they hold and where their words are.

use super::{
    harness::{Harness, HarnessConfig},
    *,
};

/// Opens a conversation with a model that answers every unit at once.
fn open(rate_hz: u32) -> Harness {
    let mut config = HarnessConfig {
        profile: "conversation",
        query: format!("model=any&sample_rate={rate_hz}"),
        ..HarnessConfig::default()
    };
    config.simulator.timing.init = ms(0);
    config.simulator.timing.listen_step = ms(0);
    Harness::new(config)
}

/// Speaks for eight seconds in frames of 20 ms. Returns the start and end of the first utterance, ms.
fn speak(harness: &mut Harness, microphone: &mut Microphone) -> [u64; 2] {
    microphone.silence(harness, 2000);
    for second in voices()[0].samples.chunks_exact(16_000).take(6) {
        let before = harness.units.len();
        microphone.record(harness, second);
        assert_eq!(harness.units.len(), before + 1, "{} Hz: a unit waits for a frame", microphone.rate_hz);
    }
    let edges = ["vad.speech_start", "vad.speech_end"].map(|name| harness.events(name).remove(0));
    edges.map(|event| event["timestamp_ms"].as_u64().unwrap())
}

#[test]
fn each_second_leaves_with_its_last_frame_at_every_rate() {
    let mut edges = Vec::new();
    for rate_hz in [16_000, 32_000, 48_000] {
        let (mut harness, mut microphone) = (open(rate_hz), Microphone::new(rate_hz, rate_hz as usize / 25));
        edges.push(speak(&mut harness, &mut microphone));
        let mut expected = Vec::new();
        let mut converter = InputConverter::live(Encoding::S16le, rate_hz, 1).unwrap();
        microphone.sent.iter().for_each(|(_, frame)| converter.push(frame, &mut expected));
        let sent: Vec<i16> = harness
            .units
            .iter()
            .flat_map(|(_, unit)| unit.samples.iter().copied().map(pcm::to_i16))
            .collect();
        assert_eq!(sent.len(), expected.len(), "{rate_hz} Hz");
        assert!(sent == expected, "{rate_hz} Hz: the units hold other audio than the microphone's");
    }
    // Hops of the detector begin elsewhere by the lead-in.
    let hop_ms = 16;
    for other in &edges[1..] {
        assert!(edges[0].iter().zip(other).all(|(one, other)| one.abs_diff(*other) <= hop_ms), "{edges:?}");
    }
}
