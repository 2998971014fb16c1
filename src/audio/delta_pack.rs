//! Audio that is kept in case it is needed again: smaller, and bit for bit what it was.
//!
//! Each sample is the difference to the one before; of a block of them as many bits are kept as its largest difference
//! needs. Loud speech takes about 70 % of its size so; a codec would do better, and take longer.

/// Samples of a block: whatever their bits, they fill whole words of 32 bits.
const BLOCK: usize = 32;

/// Packed samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    samples: usize,
    /// Of each block the number of bits, then the differences, lowest bits first.
    bytes: Box<[u8]>,
}

impl Packed {
    /// Packs samples.
    ///
    /// ```
    /// use voxbridge::audio::packed::Packed;
    ///
    /// let audio = [1000, 1007, 1011, 1012, 990];
    /// assert_eq!(Packed::new(&audio).unpack(), audio);
    /// ```
    #[must_use]
    pub fn new(samples: &[i16]) -> Self {
        let size = blocks(samples).map(|block| 1 + 4 * width(&block)).sum();
        let mut bytes = Vec::with_capacity(size);
        for block in blocks(samples) {
            let width = width(&block);
            bytes.push(width as u8);
            put(&block, width, &mut bytes);
        }
        Self { samples: samples.len(), bytes: bytes.into() }
    }

    /// The samples.
    #[must_use]
    pub fn unpack(&self) -> Vec<i16> {
        let mut samples = Vec::with_capacity(self.samples.next_multiple_of(BLOCK));
        let (mut rest, mut last) = (&self.bytes[..], 0i16);
        while let Some((width, tail)) = rest.split_first() {
            let (words, tail) = tail.split_at(4 * usize::from(*width));
            rest = tail;
            for difference in take(words, u32::from(*width)) {
                last = last.wrapping_add(signed(difference));
                samples.push(last);
            }
        }
        samples.truncate(self.samples);
        samples
    }

    /// Bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The differences, block by block; what is missing of the last one is none.
fn blocks(samples: &[i16]) -> impl Iterator<Item = [u16; BLOCK]> {
    let mut last = 0i16;
    samples.chunks(BLOCK).map(move |chunk| {
        let mut block = [0; BLOCK];
        block[0] = unsigned(chunk[0].wrapping_sub(last));
        for (difference, pair) in block[1..].iter_mut().zip(chunk.windows(2)) {
            *difference = unsigned(pair[1].wrapping_sub(pair[0]));
        }
        last = chunk[chunk.len() - 1];
        block
    })
}

/// Small numbers for small differences of either sign: 0, -1, 1, -2, 2, …
const fn unsigned(difference: i16) -> u16 {
    (difference.cast_unsigned() << 1) ^ (difference >> 15).cast_unsigned()
}

const fn signed(number: u16) -> i16 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// The bits that the largest of them needs.
fn width(block: &[u16; BLOCK]) -> usize {
    (u16::BITS - block.iter().fold(0, |all, number| all | number).leading_zeros()) as usize
}

fn put(block: &[u16; BLOCK], width: usize, bytes: &mut Vec<u8>) {
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

fn take(words: &[u8], width: u32) -> impl Iterator<Item = u16> {
    let mut words = words.iter();
    let (mut word, mut filled) = (0u32, 0);
    (0..BLOCK).map(move |_| {
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
    fn speech_becomes_smaller_and_silence_nothing() {
        let speech = include_bytes!("../../examples/speech/jfk_16k.wav");
        let (samples, _) = wav::read(speech, Duration::from_secs(60)).unwrap();
        let samples: Vec<i16> = samples.into_iter().map(pcm::to_i16).collect();
        let packed = Packed::new(&samples);
        let part = packed.bytes() as f64 / (2 * samples.len()) as f64;
        assert!(part < 0.72, "{part} of it is left");
        assert_eq!(packed.unpack(), samples);
        assert_eq!(Packed::new(&[0; 16_000]).bytes(), 500);
    }

    proptest! {
        #[test]
        fn nothing_changes(samples in prop::collection::vec(prop_oneof![any::<i16>(), -9i16..9], 0..200)) {
            prop_assert_eq!(Packed::new(&samples).unpack(), samples);
        }

        #[test]
        fn nor_does_what_is_quiet(samples in prop::collection::vec(-40i16..40, 0..200)) {
            let packed = Packed::new(&samples);
            prop_assert!(packed.bytes() <= samples.len().div_ceil(BLOCK) * (1 + 4 * 8));
            prop_assert_eq!(packed.unpack(), samples);
        }
    }
}
