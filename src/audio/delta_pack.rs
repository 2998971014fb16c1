//! Lossless, cheap compression of int16 audio that is kept in case it has to be sent again.
//!
//! Each sample is stored as the difference to its predecessor. All differences of a block take the number of bits
//! that its largest one needs. Loud speech shrinks to about 70 %. A codec would do better but cost more time.

/// Samples per block. With 32, every bit width fills whole 32-bit words.
const BLOCK_SAMPLES: usize = 32;

/// Losslessly packed int16 samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedAudio {
    samples: usize,
    /// For each block the bit width, then the differences, lowest bits first.
    bytes: Box<[u8]>,
}

impl PackedAudio {
    /// Packs samples.
    ///
    /// ```
    /// use voxbridge::audio::delta_pack::PackedAudio;
    ///
    /// let audio = [1000, 1007, 1011, 1012, 990];
    /// assert_eq!(PackedAudio::new(&audio).unpack(), audio);
    /// ```
    pub fn new(samples: &[i16]) -> Self {
        let size = delta_blocks(samples).map(|block| 1 + 4 * bit_width(&block)).sum();
        let mut bytes = Vec::with_capacity(size);
        for block in delta_blocks(samples) {
            let width = bit_width(&block);
            bytes.push(width as u8);
            write_block(&block, width, &mut bytes);
        }
        Self { samples: samples.len(), bytes: bytes.into() }
    }

    /// Restores the samples.
    pub fn unpack(&self) -> Vec<i16> {
        let mut samples = Vec::with_capacity(self.samples.next_multiple_of(BLOCK_SAMPLES));
        let (mut rest, mut last) = (&self.bytes[..], 0i16);
        while let Some((width, tail)) = rest.split_first() {
            let (words, tail) = tail.split_at(4 * usize::from(*width));
            rest = tail;
            for difference in read_block(words, u32::from(*width)) {
                last = last.wrapping_add(zigzag_decode(difference));
                samples.push(last);
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

/// Zigzag-coded differences, block by block; the last block is padded with zeros.
fn delta_blocks(samples: &[i16]) -> impl Iterator<Item = [u16; BLOCK_SAMPLES]> {
    let mut last = 0i16;
    samples.chunks(BLOCK_SAMPLES).map(move |chunk| {
        let mut block = [0; BLOCK_SAMPLES];
        block[0] = zigzag_encode(chunk[0].wrapping_sub(last));
        for (difference, pair) in block[1..].iter_mut().zip(chunk.windows(2)) {
            *difference = zigzag_encode(pair[1].wrapping_sub(pair[0]));
        }
        last = chunk[chunk.len() - 1];
        block
    })
}

/// Zigzag code: maps small differences of either sign to small numbers: 0, -1, 1, -2, 2, …
const fn zigzag_encode(difference: i16) -> u16 {
    (difference.cast_unsigned() << 1) ^ (difference >> 15).cast_unsigned()
}

const fn zigzag_decode(number: u16) -> i16 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Number of bits that the largest value of the block needs.
fn bit_width(block: &[u16; BLOCK_SAMPLES]) -> usize {
    (u16::BITS - block.iter().fold(0, |all, number| all | number).leading_zeros()) as usize
}

fn write_block(block: &[u16; BLOCK_SAMPLES], width: usize, bytes: &mut Vec<u8>) {
    let (mut word, mut filled) = (0u64, 0);
    for number in block {
        word |= u64::from(*number) << filled;
        filled += width;
        if filled >= 32 {
            bytes.extend_from_slice(&(word as u32).to_le_bytes());
            word >>= 32;
            filled -= 32;
        }
    }
}

fn read_block(words: &[u8], width: u32) -> impl Iterator<Item = u16> {
    let mut words = words.iter();
    let (mut word, mut filled) = (0u32, 0);
    (0..BLOCK_SAMPLES).map(move |_| {
        while filled < width {
            word |= u32::from(words.next().copied().unwrap_or_default()) << filled;
            filled += 8;
        }
        let number = word & ((1 << width) - 1);
        word >>= width;
        filled -= width;
        number as u16
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{pcm, wav};
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
        assert_eq!(PackedAudio::new(&[0; 16_000]).packed_len(), 500);
    }

    proptest! {
        #[test]
        fn any_samples_round_trip(samples in prop::collection::vec(prop_oneof![any::<i16>(), -9i16..9], 0..200)) {
            prop_assert_eq!(PackedAudio::new(&samples).unpack(), samples);
        }

        #[test]
        fn quiet_samples_round_trip_within_size_bound(samples in prop::collection::vec(-40i16..40, 0..200)) {
            let packed = PackedAudio::new(&samples);
            prop_assert!(packed.packed_len() <= samples.len().div_ceil(BLOCK_SAMPLES) * (1 + 4 * 8));
            prop_assert_eq!(packed.unpack(), samples);
        }
    }
}
