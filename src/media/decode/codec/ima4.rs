//! QuickTime's IMA ADPCM ("ima4"): blocks of 34 bytes a channel, 64 samples each, as Apple's TN1081 describes them.
//!
//! A block begins with a sample of only nine bits. Where it agrees with the end of the block before, that end is more precise
//! and goes on, as in QuickTime and ffmpeg. symphonia begins each block anew, which is audible as noise.

use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::errors::Error;

use super::{Decoded, NoCodec};

const BLOCK_BYTES: usize = 34;
const BLOCK_SAMPLES: usize = 64;

/// The first sample of a block is a multiple of this.
const FIRST_SAMPLE_STEP: i32 = 0x80;

/// How each half byte moves the index of the step.
const INDEX_CHANGES: [i32; 8] = [-1, -1, -1, -1, 2, 4, 6, 8];

#[rustfmt::skip]
const STEPS: [i32; 89] = [
    7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 25, 28, 31, 34, 37, 41, 45, 50, 55, 60, 66, 73, 80, 88, 97, 107, 118,
    130, 143, 157, 173, 190, 209, 230, 253, 279, 307, 337, 371, 408, 449, 494, 544, 598, 658, 724, 796, 876, 963, 1060, 1166,
    1282, 1411, 1552, 1707, 1878, 2066, 2272, 2499, 2749, 3024, 3327, 3660, 4026, 4428, 4871, 5358, 5894, 6484, 7132, 7845,
    8630, 9493, 10442, 11487, 12635, 13899, 15289, 16818, 18500, 20350, 22385, 24623, 27086, 29794, 32767,
];

/// Decoder of one track.
pub(in crate::media::decode) struct Ima4Track {
    rate_hz: u32,
    channels: Vec<Channel>,
}

#[derive(Clone, Copy, Default)]
struct Channel {
    sample: i32,
    index: usize,
}

impl Ima4Track {
    pub(super) fn new(params: &AudioCodecParameters) -> Result<Self, NoCodec> {
        let channels = params.channels.as_ref().map_or(0, |channels| channels.count());
        match params.sample_rate {
            Some(rate_hz) if channels > 0 => {
                Ok(Self { rate_hz, channels: vec![Channel::default(); channels] })
            }
            _ => Err(NoCodec::Damaged("the ima4 header is damaged")),
        }
    }

    /// Forgets the packets before: an edit jumps.
    pub(super) fn reset(&mut self) {
        self.channels.fill(Channel::default());
    }

    /// Decodes the complete blocks of a packet. A rest is left out.
    pub(super) fn decode(&mut self, packet: &[u8], interleaved: &mut Vec<f32>) -> Result<Decoded, Error> {
        let count = self.channels.len();
        for blocks in packet.chunks_exact(BLOCK_BYTES * count) {
            let start = interleaved.len();
            interleaved.resize(start + BLOCK_SAMPLES * count, 0.0);
            let places = &mut interleaved[start..];
            for (at, (channel, block)) in
                self.channels.iter_mut().zip(blocks.chunks_exact(BLOCK_BYTES)).enumerate()
            {
                channel.decode(block, places.iter_mut().skip(at).step_by(count));
            }
        }
        Ok(Decoded { rate_hz: self.rate_hz, channels: count, skipped: 0 })
    }
}

impl Channel {
    fn decode<'a>(&mut self, block: &[u8], mut places: impl Iterator<Item = &'a mut f32>) {
        let header = i32::from(i16::from_be_bytes([block[0], block[1]]));
        self.begin(header & !(FIRST_SAMPLE_STEP - 1), (header & (FIRST_SAMPLE_STEP - 1)) as usize);
        for byte in &block[2..] {
            for half in [byte & 15, byte >> 4] {
                if let Some(place) = places.next() {
                    *place = self.next(half) as f32 / 32_768.0;
                }
            }
        }
    }

    /// Begins a block, from the end of the block before if that fits to the first sample.
    fn begin(&mut self, first: i32, index: usize) {
        if index != self.index || (first - self.sample).abs() >= FIRST_SAMPLE_STEP {
            *self = Self { sample: first, index: index.min(STEPS.len() - 1) };
        }
    }

    fn next(&mut self, half: u8) -> i32 {
        let step = STEPS[self.index];
        let bit = |bit: u8, part: i32| if half & bit == 0 { 0 } else { part };
        let change = (step >> 3) + bit(4, step) + bit(2, step >> 1) + bit(1, step >> 2);
        let sample = if half & 8 == 0 { self.sample + change } else { self.sample - change };
        self.sample = sample.clamp(i16::MIN.into(), i16::MAX.into());
        let index = self.index as i32 + INDEX_CHANGES[usize::from(half & 7)];
        self.index = index.clamp(0, STEPS.len() as i32 - 1) as usize;
        self.sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(channels: usize) -> Ima4Track {
        Ima4Track { rate_hz: 44_100, channels: vec![Channel::default(); channels] }
    }

    fn block(header: u16, byte: u8) -> Vec<u8> {
        [&header.to_be_bytes()[..], &[byte; 32]].concat()
    }

    #[test]
    fn block_goes_on_where_the_one_before_ended_if_their_samples_agree() {
        for (header, goes_on) in [(0x0000, true), (0x0100, false), (0x0001, false), (0xff80, false)] {
            let mut track = track(1);
            let mut out = Vec::new();
            // The smallest steps: the sample stays within a first sample's precision, and the index at 0.
            let packet = [block(0, 0x80), block(header, 0x80)].concat();
            track.channels[0].sample = 5;
            track.decode(&packet, &mut out).unwrap();
            assert_eq!(out.len(), 128);
            assert_eq!((out[63] * 32_768.0) as i32, 5, "up and down by the same");
            assert_eq!((out[127] * 32_768.0) as i32 == 5, goes_on, "{header:04x}");
        }
    }

    #[test]
    fn header_and_rests_of_any_value_stay_within_the_range() {
        let mut track = track(2);
        for header in [0x007f, 0x8000, 0x807f, 0x7fff, 0xffff] {
            for byte in [0x00, 0x77, 0x88, 0xff] {
                let mut out = Vec::new();
                let packet = [block(header, byte), block(0, byte), vec![1; 67]].concat();
                let decoded = track.decode(&packet, &mut out).unwrap();
                assert_eq!((decoded.channels, out.len()), (2, 128));
                assert!(out.iter().all(|sample| (-1.0..=1.0).contains(sample)));
            }
        }
    }
}
