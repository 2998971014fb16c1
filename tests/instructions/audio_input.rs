//! User audio: real speech, and a quiet room.

use std::io::Cursor;

use voxbridge::audio::{SPEECH_RATE_HZ, pcm, wav};

/// Sample rate of a microphone, unless a scenario says otherwise.
pub(crate) const RATE_HZ: usize = 48_000;

/// Embedded in the program, so that no file path influences the counts.
const RECORDING: &[u8] = include_bytes!("../../examples/speech/librivox_0870_16k.wav");

/// Recorded speech at 16 kHz.
pub(crate) fn recording_16k() -> Vec<i16> {
    let wav = hound::WavReader::new(Cursor::new(RECORDING)).unwrap();
    wav.into_samples().map(Result::unwrap).collect()
}

/// Recorded speech.
pub(crate) fn speech(rate_hz: usize) -> Vec<i16> {
    let speech: Vec<f32> = recording_16k().into_iter().map(pcm::to_f32).collect();
    let speech = wav::resample_all(&speech, SPEECH_RATE_HZ, rate_hz as u32).unwrap();
    speech.into_iter().map(pcm::to_i16).collect()
}

/// Seven seconds of a quiet room: noise far below speech.
pub(crate) fn quiet_room(rate_hz: usize) -> Vec<i16> {
    let mut noise = fastrand::Rng::with_seed(1);
    (0..7 * rate_hz).map(|_| noise.i16(-8..=8)).collect()
}

/// Speech followed by a quiet room, during which the answer arrives.
pub(crate) fn speech_then_quiet(rate_hz: usize) -> Vec<i16> {
    let mut sound = speech(rate_hz);
    sound.truncate(3 * rate_hz);
    sound.extend(quiet_room(rate_hz));
    sound
}

/// Encodes samples as int16 bytes.
pub(crate) fn to_le_bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}
