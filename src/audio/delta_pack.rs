//! Audio that is kept in case it is needed again: smaller, and bit for bit what it was.
//!
//! Each sample is the difference to the one before; of a block of them as many bits are kept as its largest difference
//! needs. Loud speech takes about 70 % of its size so; a codec would do better, and take longer.

/// Samples of a block: whatever their bits, they fill whole words of 32 bits.
const BLOCK_SAMPLES: usize = 32;

/// Packed samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedAudio {
    samples: usize,
    /// Of each block the number of bits, then the differences, lowest bits first.
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
    #[must_use]
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

    /// The samples.
    #[must_use]
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

    /// Bytes it takes.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The differences, block by block; what is missing of the last one is none.
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

/// Small numbers for small differences of either sign: 0, -1, 1, -2, 2, …
const fn zigzag_encode(difference: i16) -> u16 {
    (difference.cast_unsigned() << 1) ^ (difference >> 15).cast_unsigned()
}

const fn zigzag_decode(number: u16) -> i16 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// The bits that the largest of them needs.
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
        assert!(part < 0.72, "{part} of it is left");
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
