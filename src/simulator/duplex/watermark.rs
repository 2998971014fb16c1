//! Watermark speech: each sample encodes its turn and its position in the turn.

/// Samples of a ramp. Eight turns of this many levels fill the positive half of 16 bits, without zero.
const RAMP_SAMPLES: usize = 4095;

/// Number of turns that a single sample distinguishes.
const DISTINCT_TURNS: u64 = 8;

/// Returns sample `index` (at 24 kHz) of turn `turn`, counted from 1 over all sessions of a gateway.
///
/// Multiplied by 32768 it is an integer that fits 16 bits and is never zero: `±(1 + turn % 8 * 4095 + index % 4095)`,
/// negative in every other ramp of 4095 samples. A sample therefore survives int16 conversion. One sample identifies
/// the turn (of eight) and the position (of 8190); a lost, repeated or foreign sample breaks the ramp.
pub fn watermark_sample(turn: u64, index: usize) -> f32 {
    let level = 1 + (turn % DISTINCT_TURNS) as usize * RAMP_SAMPLES + index % RAMP_SAMPLES;
    let signed = if (index / RAMP_SAMPLES).is_multiple_of(2) { level as f32 } else { -(level as f32) };
    signed / 32_768.0
}

/// Decodes an int16 sample of [`watermark_sample`]: the turn modulo 8 and the index modulo 8190. Returns `None` for any
/// other sample.
pub fn read_watermark(sample: i16) -> Option<(u64, usize)> {
    let level = usize::from(sample.unsigned_abs()).checked_sub(1)?;
    let turn = (level / RAMP_SAMPLES) as u64;
    let index = level % RAMP_SAMPLES + if sample < 0 { RAMP_SAMPLES } else { 0 };
    (turn < DISTINCT_TURNS).then_some((turn, index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::pcm::to_i16;

    #[test]
    fn watermark_survives_int16_round_trip() {
        for turn in 0..9 {
            for index in 0..20_000 {
                let sample = to_i16(watermark_sample(turn, index));
                assert_ne!(sample, 0);
                assert_eq!(f32::from(sample) / 32_768.0, watermark_sample(turn, index));
                assert_eq!(read_watermark(sample), Some((turn % 8, index % 8190)));
            }
        }
        assert_eq!(
            (read_watermark(0), read_watermark(i16::MAX), read_watermark(i16::MIN)),
            (None, None, None)
        );
    }
}
