//! Tests that audio held in silence changes nothing about the utterances found.

use super::*;
use crate::{audio::resample::Resampler, spelling::Library};

const RATE_HZ: u32 = 48_000;
/// 20 ms of int16.
const FRAME_BYTES: usize = RATE_HZ as usize / 50 * 2;
const RECORDINGS: [&[u8]; 4] = [
    include_bytes!("../../../../examples/speech/arctic_a0007_16k.wav"),
    include_bytes!("../../../../examples/speech/goforward_16k.wav"),
    include_bytes!("../../../../examples/speech/jfk_16k.wav"),
    include_bytes!("../../../../examples/speech/librivox_0920_16k.wav"),
];

fn speech_input(pre_roll_ms: u32) -> SpeechInput {
    let speech = Library::embedded().unwrap().profile("speech").unwrap();
    let rules = ListenRules { pre_roll_ms, ..speech.listen.clone() };
    let settings = InputSettings {
        encoding: Encoding::S16le,
        rate_hz: RATE_HZ,
        channels: 1,
        sensitivity: Sensitivity::Normal,
        end_silence_ms: rules.end_ms,
        segment_max_ms: rules.segment_max_ms,
        cut_after_ms: u32::MAX,
        cut_pause_ms: 0,
        cut_max_ms: u32::MAX,
        is_manual: false,
        pauses: PauseUse::default(),
    };
    SpeechInput::new(rules, settings, InputUse { records_utterances: true, streams_audio: false })
}

/// A room's noise with a recording after 4 seconds of it and again 5 s later, as bytes at 48 kHz.
fn room_with_speech(wav: &[u8], gain_db: f32, noise_dbfs: f32, pole: f32) -> Vec<u8> {
    let reader = hound::WavReader::new(wav).unwrap();
    let speech: Vec<f32> =
        reader.into_samples::<i16>().map(|sample| f32::from(sample.unwrap()) / 32_768.0).collect();
    let mut at_48k: Vec<f32> = Vec::new();
    let mut resampler = Resampler::new(SPEECH_RATE_HZ, RATE_HZ).unwrap();
    resampler.push(&speech, &mut at_48k);
    resampler.flush(&mut at_48k);
    let second = RATE_HZ as usize;
    let starts = [4 * second, 9 * second + at_48k.len()];
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = 0.0;
    let mut audio: Vec<f32> = (0..starts[1] + at_48k.len() + second)
        .map(|_| {
            last = pole * last + random.f32() - 0.5;
            last
        })
        .collect();
    let rms = (audio.iter().map(|sample| sample * sample).sum::<f32>() / audio.len() as f32).sqrt();
    let scale = 10f32.powf(noise_dbfs / 20.0) / rms;
    audio.iter_mut().for_each(|sample| *sample *= scale);
    for start in starts {
        for (sample, speech) in audio[start..].iter_mut().zip(&at_48k) {
            *sample += speech * 10f32.powf(gain_db / 20.0);
        }
    }
    audio.iter().flat_map(|sample| ((sample * 32_768.0) as i16).to_le_bytes()).collect()
}

/// Utterances found: their starts and ends in ms, their audio, and the number of frames after which audio was held.
#[derive(Debug, Default)]
struct Heard {
    starts_ms: Vec<u64>,
    ends_ms: Vec<u64>,
    audio: Vec<Arc<Vec<i16>>>,
    held_frames: usize,
}

/// Plays the audio in frames. Frames that begin within a sample cannot be held.
fn listen(audio: &[u8], pre_roll_ms: u32, within_sample: bool) -> Heard {
    let (mut input, mut events, mut heard) = (speech_input(pre_roll_ms), Vec::new(), Heard::default());
    let (first, rest) = audio.split_at(usize::from(within_sample));
    let (mut received, mut listened_ms) = (0, 0);
    for frame in std::iter::once(first).chain(rest.chunks(FRAME_BYTES)) {
        received += frame.len() as u64;
        input.push_frame(frame, &mut events);
        heard.held_frames += usize::from(input.converter.is_holding());
        for event in events.drain(..) {
            match event {
                SpeechEvent::Started { at_ms, .. } => heard.starts_ms.push(at_ms),
                SpeechEvent::Segment(segment) => {
                    heard.ends_ms.push(segment.end_ms);
                    heard.audio.push(segment.audio);
                }
                _ => {}
            }
        }
        let counts = input.sample_counts();
        assert_eq!(counts.received, received / 2);
        let placed = counts.recorded + counts.silent + counts.pending;
        let pending_max = u64::from(SPEECH_RATE_HZ) / 20;
        assert!((placed..=placed + pending_max).contains(&(counts.received / 3)), "{counts:?}");
        assert!(input.listened_ms() >= listened_ms, "the position went back");
        listened_ms = input.listened_ms();
        assert!(received / 96 - listened_ms <= 60, "{listened_ms} ms of {} ms", received / 96);
    }
    heard
}

/// Asserts that the utterances are the same. In a room whose noise level drifts, skipped hops make the floor less exact, so that
/// an utterance may begin a little earlier.
fn assert_same_utterances(held: &Heard, plain: &Heard) {
    assert_eq!((plain.held_frames, held.starts_ms.len()), (0, plain.starts_ms.len()));
    for (held, plain) in held.ends_ms.iter().zip(&plain.ends_ms) {
        assert!(held.abs_diff(*plain) <= 16, "ends at {held} ms, not {plain} ms");
    }
    let starts = held.starts_ms.iter().zip(&plain.starts_ms);
    for ((held_ms, plain_ms), (held, plain)) in starts.zip(held.audio.iter().zip(&plain.audio)) {
        assert!((*held_ms..=held_ms + 80).contains(plain_ms), "starts at {held_ms} ms, not {plain_ms} ms");
        if held_ms == plain_ms && held.len() == plain.len() {
            let worst = held.iter().zip(plain.iter()).map(|(held, plain)| held.abs_diff(*plain)).max();
            assert!(worst.unwrap_or(0) <= 1, "the audio of an utterance differs by {worst:?}");
        } else {
            assert!(held.len() + 16 * 16 >= plain.len(), "{} samples, not {}", held.len(), plain.len());
        }
    }
}

#[test]
fn held_silence_changes_no_utterance() {
    // Rooms with soft speech, with brown noise and with a hissing microphone.
    for (gain_db, noise_dbfs, pole, pre_roll_ms) in
        [(-30.0, -72.0, 0.9, 750), (-10.0, -50.0, 0.97, 750), (0.0, -45.0, 0.0, 0)]
    {
        for wav in RECORDINGS {
            let audio = room_with_speech(wav, gain_db, noise_dbfs, pole);
            let (held, plain) = (listen(&audio, pre_roll_ms, false), listen(&audio, pre_roll_ms, true));
            assert!(held.held_frames > 200, "{} frames were held", held.held_frames);
            assert_same_utterances(&held, &plain);
        }
    }
}

#[test]
fn everything_that_needs_held_audio_gets_it() {
    let room = room_with_speech(RECORDINGS[0], 0.0, -60.0, 0.9);
    let quiet = &room[..3 * 96_000];
    let is_holding = |input: &SpeechInput| input.converter.is_holding();
    let acts: [fn(&mut SpeechInput, &mut Vec<SpeechEvent>); 4] = [
        |input, out| input.mute_frame(&[0; 1_920], out),
        |input, out| {
            let settings = InputSettings { rate_hz: 24_000, ..input.settings.clone() };
            input.apply_settings(settings, out).unwrap();
        },
        |input, out| {
            let settings = InputSettings { is_manual: true, ..input.settings.clone() };
            input.apply_settings(settings, out).unwrap();
            input.push_frame(&[0; 1_920], out);
        },
        |input, out| {
            input.push_frame(&[0; 1], out);
        },
    ];
    for act in acts {
        let (mut input, mut events) = (speech_input(750), Vec::new());
        for frame in quiet.chunks(FRAME_BYTES) {
            input.push_frame(frame, &mut events);
        }
        assert!(is_holding(&input));
        let before = input.sample_counts();
        act(&mut input, &mut events);
        assert!(!is_holding(&input));
        let after = input.sample_counts();
        let placed = |counts: SampleCounts| counts.recorded + counts.silent + counts.pending;
        assert!((0..=400).contains(&(placed(after) - placed(before))), "{before:?}, then {after:?}");
    }
}

/// However an utterance ends: 20 ms of the resampler's delay, or a hop, must not be missing from it.
#[test]
fn utterance_has_its_last_sample_however_it_ends() {
    type Act = fn(&mut SpeechInput, &mut Vec<SpeechEvent>);
    let to_manual: Act = |input, out| {
        let settings = InputSettings { is_manual: true, ..input.settings.clone() };
        input.apply_settings(settings, out).unwrap();
    };
    let to_other_rate: Act = |input, out| {
        let settings = InputSettings { rate_hz: 24_000, ..input.settings.clone() };
        input.apply_settings(settings, out).unwrap();
    };
    let room = room_with_speech(RECORDINGS[2], 0.0, -72.0, 0.9);
    // In the middle of the first sentence, and of a frame.
    let audio = &room[..6 * 96_000 + 962];
    let ends: [(&str, Option<Act>, Act); 6] = [
        ("commit", Some(to_manual), |input, out| input.commit_manual(out)),
        ("cut", None, |input, out| input.commit_segment(out)),
        ("end", None, |input, out| input.end_utterance(EndCause::Timeout, out)),
        ("detection off", None, to_manual),
        ("another rate, end", None, to_other_rate),
        ("muted, end", None, |input, out| input.mute_frame(&[0; 1_920], out)),
    ];
    for (name, before, end) in ends {
        let (mut input, mut events) = (speech_input(750), Vec::new());
        before.into_iter().for_each(|act| act(&mut input, &mut events));
        for frame in audio.chunks(FRAME_BYTES) {
            input.push_frame(frame, &mut events);
        }
        let received = (audio.len() as u64 / 2).div_ceil(3);
        let waits = input.sample_counts();
        assert!(waits.recorded + waits.silent + waits.pending < received, "{name}: the resampler has a rest");
        end(&mut input, &mut events);
        if name.ends_with(", end") {
            input.end_utterance(EndCause::Timeout, &mut events);
        }
        let placed = input.sample_counts();
        assert_eq!(placed.recorded + placed.silent + placed.pending, received, "{name}: {placed:?}");
        let segment = events.iter().rev().find_map(|event| match event {
            SpeechEvent::Segment(segment) => Some(segment),
            _ => None,
        });
        assert_eq!(segment.map(|segment| segment.audio.len() as u64), Some(placed.recorded), "{name}");
        assert_eq!(placed.pending, 0, "{name}");
    }
}
