//! Allocations of the hot path, counted by the allocator of this test program.
//!
//! An ordinary frame of 20 ms decides nothing and completes no unit. Once the buffers have their size, it allocates nothing.

use voxbridge::audio::SPEECH_RATE_HZ;

use super::{harness::BridgeStep, *};

/// Frames before the count. They begin with speech, at which the detector allocates its state.
const WARM_UP_FRAMES: usize = 50 * 6;

/// Messages of the model above this size are a second of audio.
const DELTA_BYTES: usize = 100_000;

/// Speech, a quiet room, speech again, and a quiet room in which the speech is answered.
fn microphone(rate_hz: u32) -> Vec<i16> {
    let mut noise = fastrand::Rng::with_seed(1);
    let mut quiet = |seconds: usize| -> Vec<i16> {
        (0..seconds * SPEECH_RATE_HZ as usize).map(|_| noise.i16(-8..=8)).collect()
    };
    let speech = recording("jfk_16k.wav");
    let samples = [&speech[..2 * SPEECH_RATE_HZ as usize], &quiet(6), &speech, &quiet(6)].concat();
    let floats: Vec<f32> = samples.into_iter().map(pcm::to_f32).collect();
    let floats = wav::resample_all(&floats, SPEECH_RATE_HZ, rate_hz).unwrap();
    floats.into_iter().map(pcm::to_i16).collect()
}

/// Steps after the warm-up, with the microphone in frames of 20 ms; also the number of utterances.
fn steps(profile: &'static str, rate_hz: u32) -> (Vec<BridgeStep>, usize) {
    let query = format!("model=any&sample_rate={rate_hz}");
    let mut harness = Harness::new(HarnessConfig { profile, query, ..HarnessConfig::default() });
    let mut warm_up_steps = 0;
    for (number, frame) in microphone(rate_hz).chunks_exact(rate_hz as usize / 50).enumerate() {
        if number == WARM_UP_FRAMES {
            warm_up_steps = harness.steps.len();
        }
        harness.send_binary(&bytes_of(frame));
        harness.advance(Duration::from_millis(20));
    }
    (harness.steps.split_off(warm_up_steps), harness.events("vad.speech_start").len())
}

/// Allocations of the ordinary frames that allocate.
fn allocations_of_ordinary_frames(steps: &[BridgeStep]) -> Vec<u64> {
    let ordinary: Vec<u64> = steps
        .iter()
        .filter(|step| step.is_from_client && step.outputs == 0)
        .map(|step| step.cost.count_total)
        .collect();
    assert!(ordinary.len() > 800, "{} ordinary frames", ordinary.len());
    ordinary.into_iter().filter(|count| *count > 0).collect()
}

#[test]
fn ordinary_frame_of_a_conversation_allocates_nothing() {
    for rate_hz in [48_000, 16_000] {
        let (steps, _) = steps("conversation", rate_hz);
        assert_eq!(allocations_of_ordinary_frames(&steps), [0; 0], "{rate_hz} Hz");
    }
}

#[test]
fn ordinary_frame_of_the_speech_profile_allocates_only_for_a_growing_utterance() {
    for rate_hz in [48_000, 16_000] {
        let (steps, utterances) = steps("speech", rate_hz);
        let allocations = allocations_of_ordinary_frames(&steps);
        // The recording of an utterance doubles its memory when it is full; held silence and the pre-roll have theirs.
        assert!(allocations.len() <= 8 * utterances, "{rate_hz} Hz: {allocations:?}");
        // The first silence that a thread converts at once plans a transform of its length.
        let most: usize = allocations.iter().filter(|count| **count > 2).count();
        assert!(most <= 1, "{rate_hz} Hz: {allocations:?}");
    }
}

#[test]
fn delta_allocates_its_samples_and_the_bytes_for_the_client() {
    let (steps, _) = steps("conversation", 48_000);
    let deltas: Vec<&BridgeStep> =
        steps.iter().filter(|step| !step.is_from_client && step.frame_bytes > DELTA_BYTES).collect();
    assert!(deltas.len() >= 2, "{} deltas", deltas.len());
    for delta in deltas {
        let samples = delta.frame_bytes / 4 * 3 / 4;
        let (bytes, count) = (delta.cost.bytes_total as usize, delta.cost.count_total);
        assert!(bytes < samples * (4 + 2) + 4_000 && count <= 40, "{bytes} bytes in {count} allocations");
    }
}
