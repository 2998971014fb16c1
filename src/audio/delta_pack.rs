//! Lossless, cheap compression of int16 audio that is kept in case it has to be sent again.
//!
//! Each sample is stored as the difference to its predecessor. All differences of a block take the number of bits
//! that its largest one needs. Loud speech shrinks to about 70 %. A codec would do better but cost more time. A second
//! of speech takes 6 instructions a sample.
//!
//! A block is a table of [`LANES`] columns. Each column is packed into words of its own, so that vector instructions
//! pack a row at a time.

/// Columns of a block: the words of a vector register that every processor has.
const LANES: usize = 8;
/// Rows of a block: the bits of a word. A column with `n` bits per difference then fills `n` words.
const ROWS: usize = 16;
const BLOCK_SAMPLES: usize = LANES * ROWS;

/// A word of each column, or a difference of each.
type Row = [u16; LANES];

/// Losslessly packed int16 samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedAudio {
    samples: usize,
    /// For each block the bit width, then the words of the columns, row by row.
    bytes: Box<[u8]>,
}

impl PackedAudio {
    /// Packs samples.
    ///
    /// ```
    /// use voxbridge_audio::delta_pack::PackedAudio;
    ///
    /// let audio = [1000, 1007, 1011, 1012, 990];
    /// assert_eq!(PackedAudio::new(&audio).unpack(), audio);
    /// ```
    pub fn new(samples: &[i16]) -> Self {
        let mut bytes = Vec::with_capacity(samples.len().div_ceil(BLOCK_SAMPLES) * (1 + 2 * BLOCK_SAMPLES));
        let mut last = 0;
        for chunk in samples.chunks(BLOCK_SAMPLES) {
            let differences = differences(last, chunk);
            last = chunk[chunk.len() - 1];
            let width = bit_width(&differences);
            bytes.push(width as u8);
            write_block(differences.as_chunks().0, width, &mut bytes);
        }
        Self { samples: samples.len(), bytes: bytes.into() }
    }

    /// Restores the samples.
    pub fn unpack(&self) -> Vec<i16> {
        let mut samples = Vec::with_capacity(self.samples.next_multiple_of(BLOCK_SAMPLES));
        let (mut rest, mut last) = (&self.bytes[..], 0i16);
        while let Some((width, tail)) = rest.split_first() {
            let (words, tail) = tail.split_at(2 * LANES * usize::from(*width));
            rest = tail;
            for row in 0..ROWS {
                for lane in 0..LANES {
                    last = last.wrapping_add(zigzag_decode(read_number(words, *width, row, lane)));
                    samples.push(last);
                }
            }
        }
        samples.truncate(self.samples);
        samples
    }

    /// Size of the packed audio in bytes.
    pub fn packed_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Zigzag-coded differences of a block to the samples before; a short block is padded with zeros.
fn differences(last: i16, chunk: &[i16]) -> [u16; BLOCK_SAMPLES] {
    let mut samples = [chunk[chunk.len() - 1]; BLOCK_SAMPLES + 1];
    samples[0] = last;
    samples[1..=chunk.len()].copy_from_slice(chunk);
    std::array::from_fn(|at| zigzag_encode(samples[at + 1].wrapping_sub(samples[at])))
}

/// Zigzag code: maps small differences of either sign to small numbers: 0, -1, 1, -2, 2, …
const fn zigzag_encode(difference: i16) -> u16 {
    (difference.cast_unsigned() << 1) ^ (difference >> 15).cast_unsigned()
}

const fn zigzag_decode(number: u16) -> i16 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Number of bits that the largest value of the block needs.
fn bit_width(block: &[u16; BLOCK_SAMPLES]) -> u32 {
    u16::BITS - block.iter().fold(0, |all, number| all | number).leading_zeros()
}

/// Packs each column into `width` words, lowest bits first.
fn write_block(rows: &[Row], width: u32, bytes: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mut block = [0; 2 * BLOCK_SAMPLES];
    let mut free_rows = block.as_chunks_mut::<{ 2 * LANES }>().0.iter_mut();
    let (mut words, mut filled) = ([0; LANES], 0);
    for row in rows {
        words = std::array::from_fn(|lane| words[lane] | row[lane] << filled);
        filled += width;
        if filled >= u16::BITS {
            if let Some(free_row) = free_rows.next() {
                free_row.copy_from_slice(words.map(u16::to_le_bytes).as_flattened());
            }
            filled -= u16::BITS;
            // All bits of the number were written if none are left.
            words = row.map(|number| number.checked_shr(width - filled).unwrap_or(0));
        }
    }
    bytes.extend_from_slice(&block[..2 * LANES * width as usize]);
}

/// The number of this row and column.
fn read_number(words: &[u8], width: u8, row: usize, lane: usize) -> u16 {
    let word = |at: usize| {
        let at = 2 * (at * LANES + lane);
        words.get(at..at + 2).map_or(0, |two| u32::from(u16::from_le_bytes([two[0], two[1]])))
    };
    let from = row * usize::from(width);
    let two_words = word(from / 16) | word(from / 16 + 1) << 16;
    (two_words >> (from % 16) & ((1 << width) - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pcm, wav};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn speech_shrinks_and_silence_takes_almost_no_bytes() {
        let speech = include_bytes!("../../examples/speech/jfk_16k.wav");
        let (samples, _) = wav::read(speech, Duration::from_secs(60)).unwrap();
        let samples: Vec<i16> = samples.into_iter().map(pcm::to_i16).collect();
        let packed = PackedAudio::new(&samples);
        let part = packed.packed_len() as f64 / (2 * samples.len()) as f64;
        assert!(part < 0.72, "packed to {part} of the original size");
        assert_eq!(packed.unpack(), samples);
        assert_eq!(PackedAudio::new(&[0; 16_000]).packed_len(), 125);
    }

    proptest! {
        #[test]
        fn any_samples_round_trip(samples in prop::collection::vec(prop_oneof![any::<i16>(), -9i16..9], 0..600)) {
            prop_assert_eq!(PackedAudio::new(&samples).unpack(), samples);
        }

        #[test]
        fn quiet_samples_round_trip_within_size_bound(samples in prop::collection::vec(-40i16..40, 0..600)) {
            let packed = PackedAudio::new(&samples);
            prop_assert!(packed.packed_len() <= samples.len().div_ceil(BLOCK_SAMPLES) * (1 + BLOCK_SAMPLES));
            prop_assert_eq!(packed.unpack(), samples);
        }
    }
}
