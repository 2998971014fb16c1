//! Level of a recording: raises quiet speech, so that the detector and the model hear it.
//!
//! A recording is there before it is listened to, so that its gain is known before the first quiet word, unlike that of a
//! microphone ([`super::agc`]). The gain is chosen for each half second, from the blocks within 5 s of it that stand out from the
//! room. Speech at [`TARGET_DBFS`] or above stays as it is, sample for sample.

use std::{collections::VecDeque, mem::take};

use super::{SPEECH_RATE_HZ, vad::rms_dbfs};

/// Length of a block: 20 ms.
const BLOCK_SAMPLES: usize = SPEECH_RATE_HZ as usize / 50;
/// Length of a step, for which a gain is chosen: 500 ms.
const STEP_SAMPLES: usize = 25 * BLOCK_SAMPLES;
/// Steps that are heard before a step and after it: 5 s, which hold words of most speakers.
const CONTEXT_STEPS: usize = 10;
/// Level of the louder blocks of speech that is loud enough, dB of full scale. Where the peaks are at −3, it is some −15.
const TARGET_DBFS: f32 = -28.0;
/// Largest gain, dB. Speech that needs more has too few of its 16 bits left.
const GAIN_MAX_DB: f32 = 36.0;
/// The room is not raised above this level, dB of full scale: the detector takes louder noise for speech.
const ROOM_MAX_DBFS: f32 = -45.0;
/// Level of digital silence, dB of full scale.
const LOWEST_DBFS: f32 = -90.0;
/// A block that is this much louder than the room may be speech, dB.
const SPEECH_ABOVE_ROOM_DB: f32 = 10.0;

/// Raises one recording, which comes in pieces.
#[derive(Debug, Default)]
pub struct RecordingLevel {
    /// The last steps that were raised, the next one, and what follows it.
    steps: VecDeque<Step>,
    /// Place of the next step.
    next: usize,
    /// Samples of the step that is not complete.
    partial: Vec<i16>,
    /// Gain at the end of the last step, a factor; `None` before the first.
    gain: Option<f32>,
}

#[derive(Debug)]
struct Step {
    /// Samples that are not raised yet.
    samples: Vec<i16>,
    /// Levels of its blocks, dB of full scale.
    levels: Vec<f32>,
}

impl RecordingLevel {
    /// Takes a piece, and appends to `out` what is raised: all but the last 5 s.
    pub fn push(&mut self, samples: &[i16], out: &mut Vec<i16>) {
        let mut rest = samples;
        while !rest.is_empty() {
            let taken = rest.len().min(STEP_SAMPLES - self.partial.len());
            self.partial.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if self.partial.len() == STEP_SAMPLES {
                self.end_step();
                if self.steps.len() - self.next > CONTEXT_STEPS {
                    self.raise_step(out);
                }
            }
        }
    }

    /// Appends the rest to `out` at the end of the recording.
    pub fn finish(&mut self, out: &mut Vec<i16>) {
        self.end_step();
        while self.next < self.steps.len() {
            self.raise_step(out);
        }
    }

    fn end_step(&mut self) {
        let samples = take(&mut self.partial);
        let levels = samples.chunks(BLOCK_SAMPLES).map(|block| rms_dbfs(block).max(LOWEST_DBFS)).collect();
        self.steps.push_back(Step { samples, levels });
    }

    fn raise_step(&mut self, out: &mut Vec<i16>) {
        let levels = self.steps.iter().flat_map(|step| &step.levels).copied().collect();
        let before = self.gain;
        let after = gain_for(levels).or(before).unwrap_or(1.0);
        self.gain = Some(after);
        let samples = take(&mut self.steps[self.next].samples);
        raise(&samples, before.unwrap_or(after), after, out);
        self.next += 1;
        if self.next > CONTEXT_STEPS {
            self.steps.pop_front();
            self.next -= 1;
        }
    }
}

/// The gain that speech with these blocks needs, a factor; `None` if there is none.
fn gain_for(mut levels: Vec<f32>) -> Option<f32> {
    levels.sort_by(f32::total_cmp);
    let room = *levels.get(levels.len() / 10)?;
    let speech = &levels[levels.partition_point(|level| *level < room + SPEECH_ABOVE_ROOM_DB)..];
    let loud = *speech.get(speech.len() * 4 / 5)?;
    let gain_db = (TARGET_DBFS - loud).min(ROOM_MAX_DBFS - room).clamp(0.0, GAIN_MAX_DB);
    Some(10_f32.powf(gain_db / 20.0))
}

/// Appends the samples with a gain that changes from one factor to another.
fn raise(samples: &[i16], from: f32, to: f32, out: &mut Vec<i16>) {
    if (from, to) == (1.0, 1.0) {
        return out.extend_from_slice(samples);
    }
    let change = (to - from) / samples.len().max(1) as f32;
    let gains = (0..samples.len()).map(|at| change.mul_add(at as f32, from));
    // The conversion saturates.
    out.extend(samples.iter().zip(gains).map(|(sample, gain)| (f32::from(*sample) * gain).round() as i16));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bursts of a tone over a hiss, as levels of both in dB of full scale.
    fn speech(seconds: usize, loud_dbfs: f32, room_dbfs: f32) -> Vec<i16> {
        let amplitude = |dbfs: f32| 32_768.0 * 10_f32.powf(dbfs / 20.0);
        let mut seed = 1_u32;
        let sample = |at: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = (seed >> 8) as f32 / 8_388_608.0 - 1.0;
            let tone = (at as f32 * 0.2).sin() * 1.414;
            let is_loud = at / 4800 % 2 == 1;
            let voice = if is_loud { tone * amplitude(loud_dbfs) } else { 0.0 };
            (voice + hiss * 1.73 * amplitude(room_dbfs)) as i16
        };
        (0..seconds * SPEECH_RATE_HZ as usize).map(sample).collect()
    }

    fn raised(samples: &[i16], piece: usize) -> Vec<i16> {
        let (mut level, mut out) = (RecordingLevel::default(), Vec::new());
        samples.chunks(piece.max(1)).for_each(|samples| level.push(samples, &mut out));
        level.finish(&mut out);
        out
    }

    /// Level of the loudest block.
    fn loudest(samples: &[i16]) -> f32 {
        samples.chunks_exact(BLOCK_SAMPLES).map(rms_dbfs).fold(LOWEST_DBFS, f32::max)
    }

    #[test]
    fn quiet_speech_is_raised_from_its_first_word_on() {
        for (loud, room, expected) in [
            (-15.0, -60.0, -15.0),
            (-27.0, -60.0, -27.0),
            (-40.0, -80.0, -28.0),
            (-60.0, -90.0, -28.0),
            // No further than the room allows, and no further than the bits allow.
            (-45.0, -60.0, -30.0),
            (-75.0, -96.0, -39.0),
        ] {
            let out = raised(&speech(20, loud, room), 4096);
            for part in [&out[..SPEECH_RATE_HZ as usize], &out[out.len() - SPEECH_RATE_HZ as usize..]] {
                let level = loudest(part);
                assert!((level - expected).abs() < 2.0, "{loud} over {room} dBFS: {level}, not {expected}");
            }
        }
    }

    #[test]
    fn loud_speech_and_noise_stay_as_they_are() {
        for samples in [speech(12, -20.0, -50.0), speech(12, -90.0, -50.0), vec![0; 100_000], vec![]] {
            assert_eq!(raised(&samples, 1000), samples);
        }
    }

    #[test]
    fn quiet_speaker_after_a_loud_one_is_raised() {
        let samples = [speech(20, -15.0, -70.0), speech(20, -50.0, -70.0)].concat();
        let out = raised(&samples, 1000);
        assert_eq!(out[..10 * SPEECH_RATE_HZ as usize], samples[..10 * SPEECH_RATE_HZ as usize]);
        let end = loudest(&out[35 * SPEECH_RATE_HZ as usize..]);
        assert!((end + 28.0).abs() < 2.0, "{end}");
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(12))]
        #[test]
        fn pieces_do_not_matter_and_none_is_lost(seconds in 0_usize..16, cut in 0_usize..16_000, piece in 1_usize..20_000) {
            let mut samples = speech(seconds, -45.0, -80.0);
            samples.truncate(samples.len().saturating_sub(cut));
            let out = raised(&samples, piece);
            prop_assert_eq!(out.len(), samples.len());
            prop_assert_eq!(out, raised(&samples, 1_000_000));
        }
    }
}
