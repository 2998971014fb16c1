//! Sounds in the room while the model speaks: noise must not end an answer, and speech must.

use std::f64::consts::TAU;

use super::{
    barge_in::assert_speech_start_precedes_cancel,
    harness::{Harness, HarnessConfig},
    *,
};

/// Samples of the simulated answer: 6.6 s.
const ANSWER_SAMPLES: usize = 158_400;

/// Fate of an answer during which a sound was heard.
#[derive(Debug, Default)]
struct Outcome {
    /// Time from the sound's begin until playback paused, at the earliest.
    paused_after: Option<Duration>,
    /// Time from the start of the sound to the event that cancels the answer.
    cut_after: Option<Duration>,
}

/// Plays a sound `after_ms` into an answer, and checks the client's events and audio.
fn play(sound: &[i16], after_ms: u64) -> Outcome {
    let mut config =
        HarnessConfig { profile: "conversation", ..HarnessConfig::with_faults(&["burst=6,times=1"]) };
    ServerKind::Pytorch.configure(&mut config);
    config.simulator.force_listen_count = 1;
    let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
    microphone.record(&mut harness, &room(1200));
    ask(&mut harness, &mut microphone, 2);
    while harness.events("tts.speaking_start").is_empty() {
        microphone.record(&mut harness, &room(20));
    }
    microphone.record(&mut harness, &room(after_ms));
    let began = harness.now();
    let background = room(sound.len() as u64 / 16);
    let heard: Vec<i16> = sound.iter().zip(background).map(|(a, b)| a.saturating_add(b)).collect();
    microphone.record(&mut harness, &heard);
    microphone.record(&mut harness, &room(7000));
    let first = spoken_texts(&harness).swap_remove(0);
    let ended = first.ended.expect("the answer ends");
    let detection = Detection::of(&microphone, began);
    let is_cut = first.is_cancelled();
    assert_eq!(harness.observations.contains(&Observation::Interrupted), is_cut);
    if is_cut {
        assert_speech_start_precedes_cancel(&harness);
        assert_eq!(detection.decided, Some(ended), "cut by another frame than the deciding one");
    } else {
        assert_eq!((first.model_turn(), first.samples.len()), (1, ANSWER_SAMPLES), "a part is lost");
        assert_eq!(first.end["audio_ms"], ANSWER_SAMPLES / 24);
    }
    close_and_check(harness);
    Outcome {
        paused_after: detection.suspected.map(|at| at - began).filter(|_| detection.suspected <= Some(ended)),
        cut_after: is_cut.then(|| ended - began),
    }
}

/// White noise of a quiet room, about −66 dBFS.
fn room(ms: u64) -> Vec<i16> {
    white_noise(16 * ms as usize, 28.0, ms)
}

fn white_noise(samples: usize, amplitude: f64, seed: u64) -> Vec<i16> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..samples).map(|_| ((rng.f64() * 2.0 - 1.0) * amplitude) as i16).collect()
}

/// Sum of sines of these frequencies, each with four softer harmonics if `rich`.
fn chord(ms: usize, hz: &[f64], rich: bool, level: impl Fn(f64) -> f64) -> Vec<i16> {
    let harmonics = if rich { 5 } else { 1 };
    let wave = |at: f64, hz: f64| -> f64 {
        (1..=harmonics).map(|n| (TAU * hz * f64::from(n) * at).sin() / f64::from(n)).sum()
    };
    let sample = |at: usize| {
        let at = at as f64 / 16_000.0;
        (hz.iter().map(|hz| wave(at, *hz)).sum::<f64>() * level(at)) as i16
    };
    (0..16 * ms).map(sample).collect()
}

/// Bursts of noise, each decaying within `decay_ms`, at these times.
fn bursts(ms: usize, at_ms: &[usize], decay_ms: f64, amplitude: f64) -> Vec<i16> {
    let noise = white_noise(16 * ms, amplitude, 5);
    let level = |at: usize| {
        let since = at_ms.iter().filter(|start| 16 * **start <= at).map(|start| at - 16 * start).min();
        since.map_or(0.0, |since| (-(since as f64) / 16.0 / decay_ms).exp())
    };
    noise.iter().enumerate().map(|(at, sample)| (f64::from(*sample) * level(at)) as i16).collect()
}

/// Noise with most of its power below 2 kHz, which swells and fades.
fn breath(ms: usize, amplitude: f64, smoothing: f64) -> Vec<i16> {
    let (mut low, total) = (0.0, 16.0 * ms as f64);
    let noise = white_noise(16 * ms, amplitude, 9);
    let sample = |(at, sample): (usize, &i16)| {
        low += smoothing * (f64::from(*sample) - low);
        (low * (std::f64::consts::PI * at as f64 / total).sin()) as i16
    };
    noise.iter().enumerate().map(sample).collect()
}

/// White noise whose level changes every `step_ms`.
fn stepping_noise(step_ms: usize, levels: &[f64]) -> Vec<i16> {
    (0..).zip(levels).flat_map(|(seed, level)| white_noise(16 * step_ms, *level, seed)).collect()
}

fn with_gain(samples: &[i16], db: f64) -> Vec<i16> {
    let gain = 10f64.powf(db / 20.0);
    samples.iter().map(|sample| (f64::from(*sample) * gain) as i16).collect()
}

/// Two seconds of a recording, from 100 ms before its first loud sound.
fn said(voice: usize) -> Vec<i16> {
    let voice = &voices()[voice];
    let from = voice.onset.saturating_sub(1600);
    voice.samples[from..(from + 32_000).min(voice.samples.len())].to_vec()
}

/// All recordings at once, this far below one of them.
fn babble(below_db: f64) -> Vec<i16> {
    let quiet: Vec<Vec<i16>> =
        (0..voices().len()).map(|voice| with_gain(&voices()[voice].samples, -below_db - 8.0)).collect();
    (0..32_000)
        .map(|at| {
            quiet.iter().enumerate().map(|(n, of)| i32::from(of[(at + 3000 * n) % of.len()])).sum::<i32>()
                as i16
        })
        .collect()
}

/// The sounds that are no speech at all.
fn noises() -> Vec<(&'static str, Vec<i16>)> {
    let ring = |at: f64| 2500.0 * (TAU * 20.0 * at).sin().abs();
    vec![
        ("tone 440+480 Hz", chord(1500, &[440.0, 480.0], false, |_| 3000.0)),
        ("ring", chord(1500, &[440.0, 480.0], false, ring)),
        ("typing", bursts(1500, &[0, 130, 210, 390, 480, 620, 840, 950, 1100, 1260], 6.0, 9000.0)),
        ("door knock", bursts(1200, &[0, 260, 500], 35.0, 14_000.0)),
        ("breath", breath(700, 4000.0, 0.4)),
        ("loud breath", breath(1200, 8000.0, 0.2)),
        (
            "stepping noise",
            stepping_noise(150, &[200.0, 2000.0, 600.0, 5000.0, 300.0, 3000.0, 1000.0, 8000.0]),
        ),
        ("rising noise", stepping_noise(300, &[100.0, 300.0, 1000.0, 3000.0, 10_000.0])),
        ("cough", voices()[0].samples[voices()[0].onset..][..16 * 200].to_vec()),
    ]
}

/// Sounds that the detector may take for speech: music, and speech of others.
fn ambiguous() -> Vec<(&'static str, Vec<i16>)> {
    let melody = [[262.0, 330.0, 392.0], [220.0, 262.0, 330.0], [175.0, 220.0, 262.0], [196.0, 247.0, 294.0]];
    let chords = melody.iter().flat_map(|hz| chord(400, hz, true, |_| 1200.0)).collect();
    vec![
        ("chords", chords),
        ("babble at -20 dB", babble(20.0)),
        ("babble at -10 dB", babble(10.0)),
        ("babble at -5 dB", babble(5.0)),
    ]
}

/// Plays each sound in an answer of its own and prints a row. Returns the number of answers paused and cut.
fn measure(name: &str, sounds: &[Vec<i16>]) -> (usize, usize) {
    let after_ms = (0..).map(|n| 603 + 604 * (n % 3));
    let outcomes: Vec<Outcome> =
        sounds.iter().zip(after_ms).map(|(sound, after_ms)| play(sound, after_ms)).collect();
    let range = |pick: fn(&Outcome) -> Option<Duration>| {
        let mut found: Vec<u128> = outcomes.iter().filter_map(pick).map(|after| after.as_millis()).collect();
        found.sort_unstable();
        let span = found.first().map(|first| format!("{first}..{} ms", found[found.len() - 1]));
        (found.len(), span.unwrap_or_default())
    };
    let ((paused, pause_delay), (cut, cut_delay)) =
        (range(|outcome| outcome.paused_after), range(|outcome| outcome.cut_after));
    let all = outcomes.len();
    println!("| {name} | {paused} of {all} | {pause_delay} | {cut} of {all} | {cut_delay} |");
    (paused, cut)
}

/// Prints, for each sound, how often and when playback paused (the old criterion of a barge-in) and was cut.
#[test]
fn noise_does_not_end_an_answer_and_speech_does() {
    println!("| sound | paused | after | cut | after |\n|---|---|---|---|---|");
    let mut noise_pauses = 0;
    for (name, sound) in noises() {
        let (paused, cut) = measure(name, &[sound.clone(), sound.clone(), sound]);
        assert_eq!(cut, 0, "{name} ended an answer");
        noise_pauses += paused;
    }
    assert!(noise_pauses >= 3, "only {noise_pauses} of the noises were suspected at all");
    for (name, sound) in ambiguous() {
        measure(name, &[sound.clone(), sound.clone(), sound]);
    }
    let recordings: Vec<Vec<i16>> = (0..voices().len()).map(said).collect();
    let quieter = |said: &Vec<i16>| with_gain(said, -10.0);
    let over_babble = |said: &Vec<i16>| -> Vec<i16> {
        said.iter().zip(babble(10.0)).map(|(a, b)| a.saturating_add(b)).collect()
    };
    for (name, sounds) in [
        ("recordings", recordings.clone()),
        ("recordings at -10 dB", recordings.iter().map(quieter).collect()),
        ("recordings over babble at -10 dB", recordings.iter().map(over_babble).collect()),
    ] {
        let (_, cut) = measure(name, &sounds);
        assert_eq!(cut, recordings.len(), "{name}: speech did not end an answer");
    }
}
