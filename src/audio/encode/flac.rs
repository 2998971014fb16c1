//! FLAC (RFC 9639), mono, 16 bits: fixed predictors and Rice codes.
//!
//! Written here because flacenc brings 20 dependencies and rusty_flac returns a file only at its end. Linear
//! prediction would save up to a fifth of the bytes.

use super::bits::{BitWriter, crc8, crc16};

/// Samples in a block, 85 ms at 24 kHz.
const BLOCK_SAMPLES: usize = 2048;

/// Blocks are divided into 2^3 partitions of 256 samples, each with a Rice parameter of its own.
const PARTITION_ORDER: u64 = 3;

/// Highest Rice parameter of four bits; 15 is an escape code (RFC 9639 §9.2.7.1).
const RICE_MAX: u32 = 14;

pub(super) struct FlacStream {
    header: Option<Vec<u8>>,
    pending: Vec<i16>,
    blocks: u64,
}

impl FlacStream {
    pub(super) fn new(rate_hz: u32) -> Self {
        Self { header: Some(stream_header(rate_hz)), pending: Vec::new(), blocks: 0 }
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        out.extend(self.header.take().unwrap_or_default());
        self.pending.extend_from_slice(samples);
        let complete = self.pending.len() - self.pending.len() % BLOCK_SAMPLES;
        for block in self.pending[..complete].chunks_exact(BLOCK_SAMPLES) {
            write_frame(block, self.blocks, out);
            self.blocks += 1;
        }
        self.pending.drain(..complete);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.push(&[], out);
        if !self.pending.is_empty() {
            write_frame(&self.pending, self.blocks, out);
            self.pending.clear();
        }
    }
}

/// Marker and stream information (RFC 9639 §8.2). Zero stands for unknown: frame sizes, length, checksum.
fn stream_header(rate_hz: u32) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.write(u64::from(u32::from_be_bytes(*b"fLaC")), 32);
    bits.write(0x80, 8); // last metadata block, type 0
    bits.write(34, 24);
    bits.write(BLOCK_SAMPLES as u64, 16); // smallest block but the last
    bits.write(BLOCK_SAMPLES as u64, 16); // largest block
    bits.write(0, 48); // frame sizes
    bits.write(u64::from(rate_hz), 20);
    bits.write(0, 3); // channels - 1
    bits.write(15, 5); // bits per sample - 1
    bits.write(0, 36); // samples in the file
    let mut header = bits.finish();
    header.extend([0; 16]); // MD5 sum of the audio
    header
}

/// Header, subframe and checksum (RFC 9639 §9).
fn write_frame(block: &[i16], number: u64, out: &mut Vec<u8>) {
    let mut bits = BitWriter::default();
    bits.write(0xfff8, 16); // sync code, blocks of equal size
    bits.write(0x70, 8); // block size follows in 16 bits, sample rate as in the stream header
    bits.write(0x08, 8); // one channel of 16 bits
    coded_number(number).into_iter().for_each(|byte| bits.write(u64::from(byte), 8));
    bits.write(block.len() as u64 - 1, 16);
    bits.write(u64::from(crc8(bits.bytes())), 8);
    write_subframe(block, &mut bits);
    let frame = bits.finish();
    out.extend_from_slice(&frame);
    out.extend(crc16(&frame).to_be_bytes());
}

/// Number of the frame in the extended UTF-8 of RFC 9639 §9.1.5: up to 36 bits in seven bytes.
fn coded_number(number: u64) -> Vec<u8> {
    if number < 0x80 {
        return vec![number as u8];
    }
    // A sequence of n bytes holds 5 n + 1 bits; n ones mark its first byte.
    let bytes = (2..7).find(|bytes| number >> (5 * bytes + 1) == 0).unwrap_or(7);
    let first = 0xff00u64 >> bytes | number >> (6 * (bytes - 1));
    let rest = (0..bytes - 1).rev().map(|at| 0x80 | (number >> (6 * at) & 0x3f));
    std::iter::once(first).chain(rest).map(|byte| byte as u8).collect()
}

fn write_subframe(block: &[i16], bits: &mut BitWriter) {
    let (order, residual) = predict(block);
    let partition_order = if block.len() == BLOCK_SAMPLES { PARTITION_ORDER } else { 0 };
    let partition_len = block.len() >> partition_order;
    // The first partition is shorter by the samples that the predictor needs.
    let (first, rest) = residual.split_at(partition_len - order);
    let partitions: Vec<_> = std::iter::once(first)
        .chain(rest.chunks(partition_len))
        .map(|part| (best_rice(part), part))
        .collect();
    let coded_bits: u64 = partitions.iter().map(|((_, cost), _)| cost + 4).sum();
    if coded_bits >= 16 * residual.len() as u64 {
        bits.write(0x02, 8); // verbatim: noise that does not compress
        return block.iter().for_each(|sample| bits.write_signed(*sample));
    }
    bits.write(0x10 | (order as u64) << 1, 8);
    block[..order].iter().for_each(|sample| bits.write_signed(*sample));
    bits.write(partition_order, 6); // Rice parameters of four bits
    for ((parameter, _), part) in partitions {
        bits.write(u64::from(parameter), 4);
        part.iter().for_each(|code| bits.write_rice(*code, parameter));
    }
}

/// The fixed predictor (RFC 9639 §9.2.5) with the smallest residual, and its residual in zigzag order: 0, -1, 1, -2.
fn predict(block: &[i16]) -> (usize, Vec<u32>) {
    let mut differences: Vec<i32> = block.iter().map(|sample| i32::from(*sample)).collect();
    let mut best = (0, differences.clone());
    for order in 1..=4.min(block.len() - 1) {
        differences = differences.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Compares over the samples that all orders predict.
        if magnitude(&differences) < magnitude(&best.1[order - best.0..]) {
            best = (order, differences.clone());
        }
    }
    (best.0, best.1.into_iter().map(|value| (value << 1 ^ value >> 31) as u32).collect())
}

fn magnitude(residual: &[i32]) -> u64 {
    residual.iter().map(|value| u64::from(value.unsigned_abs())).sum()
}

/// Rice parameter with the fewest bits, and that number of bits.
fn best_rice(part: &[u32]) -> (u32, u64) {
    let cost = |parameter: u32| {
        let quotients: u64 = part.iter().map(|code| u64::from(code >> parameter)).sum();
        quotients + part.len() as u64 * u64::from(parameter + 1)
    };
    (0..=RICE_MAX)
        .map(|parameter| (parameter, cost(parameter)))
        .min_by_key(|(_, bits)| *bits)
        .unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flac_frame_numbers_are_coded_like_utf8() {
        for (number, code) in [(0x7f, vec![0x7f]), (0x80, vec![0xc2, 0x80]), (0x7ff, vec![0xdf, 0xbf])] {
            assert_eq!(coded_number(number), code, "{number:#x}");
        }
        assert_eq!(coded_number(0x800), [0xe0, 0xa0, 0x80]);
        assert_eq!(coded_number(0x10_ffff), [0xf4, 0x8f, 0xbf, 0xbf]);
        assert_eq!(coded_number(0xf_ffff_ffff), [0xfe, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]);
    }
}
