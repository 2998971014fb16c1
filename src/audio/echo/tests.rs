use super::*;

/// 20 ms at 16 kHz.
const FRAME: usize = 320;
const FRAME_LENGTH: Duration = Duration::from_millis(20);

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    Instant::now()
}

fn noise(samples: usize, amplitude: i16, seed: u64) -> Vec<i16> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..samples).map(|_| random.i16(-amplitude..=amplitude)).collect()
}

fn sent(at: Instant, samples: &[i16]) -> Playback {
    let samples: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Playback::Sent { at, encoding: Encoding::S16le, rate_hz: SPEECH_RATE_HZ, samples: samples.into() }
}

/// The microphone's audio after cancelling, while this is played from the start on, in frames of 20 ms.
fn cancel(played: &[i16], heard: &[i16]) -> Vec<i16> {
    let (mut echo, mut now, mut out) = (EchoCanceller::default(), start(), Vec::new());
    let mut playback = Some(sent(now, played)).filter(|_| !played.is_empty());
    for frame in heard.chunks(FRAME) {
        now += FRAME_LENGTH;
        echo.begin_frame(now, playback.take());
        let before = out.len();
        out.extend_from_slice(frame);
        echo.cancel(&mut out, before);
    }
    echo.flush(&mut out);
    out
}

fn mean_power(samples: &[i16]) -> f64 {
    samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / samples.len() as f64
}

#[test]
fn audio_is_unchanged_while_nothing_is_played() {
    let heard = noise(20_000, 9_000, 1);
    assert_eq!(cancel(&[], &heard), heard);
    assert_eq!(cancel(&[0; 16_000], &heard), heard, "silence is played");
}

#[test]
fn audio_is_unchanged_again_after_playback() {
    let (played, heard) = (noise(16_000, 9_000, 1), noise(16_000 * 4, 3_000, 2));
    let out = cancel(&played, &heard);
    assert_eq!(out.len(), heard.len());
    assert_eq!(out[16_000 * 3..], heard[16_000 * 3..]);
}

#[test]
fn echo_is_removed_at_any_delay() {
    for delay_ms in [20, 200, 600] {
        let played = noise(16_000 * 6, 9_000, 1);
        let mut heard = vec![0; 16 * delay_ms];
        heard.extend(played.iter().map(|sample| sample / 4));
        heard.truncate(played.len());
        let out = cancel(&played, &heard);
        let (before, after) = (mean_power(&heard[16_000 * 4..]), mean_power(&out[16_000 * 4..]));
        assert!(after * 1_000.0 < before, "{delay_ms} ms: {before} is {after}");
    }
}

#[test]
fn played_audio_lies_on_the_clock_of_the_microphone() {
    let (mut played, start) = (PlayedAudio::default(), start());
    let at = |ms| start + Duration::from_millis(ms);
    let take = |played: &mut PlayedAudio, ms| {
        played.begin_frame(at(ms));
        let mut out = Vec::new();
        played.take(FRAME, &mut out);
        out
    };
    let bytes = |sample: i16, ms: usize| sample.to_le_bytes().repeat(16 * ms);
    played.push(at(30), Encoding::S16le, SPEECH_RATE_HZ, &bytes(1, 20));
    played.push(at(30), Encoding::S16le, SPEECH_RATE_HZ, &bytes(2, 40));
    assert_eq!(take(&mut played, 20), [0; FRAME]);
    assert_eq!(take(&mut played, 40), [[0; FRAME / 2], [1; FRAME / 2]].concat());
    assert_eq!(take(&mut played, 60), [[1; FRAME / 2], [2; FRAME / 2]].concat());
    played.begin_frame(at(70));
    played.skip(FRAME_LENGTH / 2);
    played.cut(at(80));
    assert_eq!(take(&mut played, 90), [[2; FRAME / 2], [0; FRAME / 2]].concat(), "cut at 80 ms");
    played.push(at(95), Encoding::S16le, SPEECH_RATE_HZ, &bytes(3, 40));
    assert_eq!(take(&mut played, 110)[FRAME - 16..], [3; 16], "a new stretch");
}
