//! Converts client audio to the internal format: interleaved bytes in any [`Encoding`] and at any rate in, int16
//! mono at 16 kHz ([`SPEECH_RATE_HZ`]) out.
//!
//! Only the first channel is used, as in Macaw; of Opus, the average of both. Frames may end anywhere, even within a sample: incomplete bytes
//! are carried over to the next frame. Mono int16 at 16 kHz passes through bit for bit. Every
//! sample group (one sample of each channel) is accounted for as pending, output or skipped.

use std::collections::VecDeque;

use super::encoding::Encoding;
use super::format::{FormatError, MAX_CHANNELS};
use super::opus::{self, DECODED_RATE_HZ, PacketDecoder, PacketError};
use super::resample::{BLOCK_SAMPLES, Resampler};
use super::{SPEECH_RATE_HZ, pcm, scratch};

/// Converter for the audio of one client.
#[derive(Debug)]
pub struct InputConverter {
    resampler: Resampler,
    /// Sample groups per second: at the client's rate, and at [`DECODED_RATE_HZ`] for Opus.
    pub rate_hz: u32,
    /// The rate is [`SPEECH_RATE_HZ`]: samples are copied, not resampled.
    passthrough: bool,
    /// Decoder of a client that sends Opus.
    packets: Option<PacketDecoder>,
    encoding: Encoding,
    group_bytes: usize,
    carry: Carry,
    input_samples: u64,
    skipped_samples: u64,
    held: HeldAudio,
}

/// Audio that waits unconverted, because it may never be needed.
#[derive(Debug, Default)]
struct HeldAudio {
    /// The newest samples, unconverted.
    bytes: VecDeque<u8>,
    /// Sample groups before them that were let go.
    dropped_groups: u64,
}

impl InputConverter {
    /// Converter for interleaved int16 at `rate_hz` with `channels` channels.
    ///
    /// # Errors
    /// [`FormatError`] for a rate outside 8 to 192 kHz or one that Opus does not have, for zero channels and for more than
    /// [`MAX_CHANNELS`].
    pub fn new(rate_hz: u32, channels: u16) -> Result<Self, FormatError> {
        Self::with_encoding(Encoding::S16le, rate_hz, channels)
    }

    /// Like [`InputConverter::new`], for audio in another encoding.
    ///
    /// # Errors
    /// As for [`InputConverter::new`].
    pub fn with_encoding(encoding: Encoding, rate_hz: u32, channels: u16) -> Result<Self, FormatError> {
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(FormatError::Channels { actual: channels });
        }
        let rate_hz = group_rate(encoding, rate_hz)?;
        Ok(Self {
            resampler: Resampler::new(rate_hz, SPEECH_RATE_HZ)?,
            rate_hz,
            passthrough: rate_hz == SPEECH_RATE_HZ,
            packets: (encoding == Encoding::Opus).then(PacketDecoder::default),
            encoding,
            group_bytes: usize::from(channels) * encoding.bytes_per_sample(),
            carry: Carry::default(),
            input_samples: 0,
            skipped_samples: 0,
            held: HeldAudio::default(),
        })
    }

    /// Like [`InputConverter::with_encoding`], for a live conversation: each stretch begins with the filter's delay, so that a
    /// unit is complete with its last frame ([`Resampler::with_lead_in`]).
    ///
    /// # Errors
    /// As for [`InputConverter::new`].
    pub fn live(encoding: Encoding, rate_hz: u32, channels: u16) -> Result<Self, FormatError> {
        let resampler = Resampler::with_lead_in(group_rate(encoding, rate_hz)?, SPEECH_RATE_HZ)?;
        Ok(Self { resampler, ..Self::with_encoding(encoding, rate_hz, channels)? })
    }

    /// Like [`InputConverter::with_encoding`], with another rate of the output.
    ///
    /// # Errors
    /// As for [`InputConverter::with_encoding`].
    pub fn to_rate(
        encoding: Encoding,
        rate_hz: u32,
        channels: u16,
        output_hz: u32,
    ) -> Result<Self, FormatError> {
        let converter = Self::with_encoding(encoding, rate_hz, channels)?;
        let resampler = Resampler::new(converter.rate_hz, output_hz)?;
        Ok(Self { resampler, passthrough: converter.rate_hz == output_hz, ..converter })
    }

    /// Encoding of the input.
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Interleaved channels of the input.
    pub fn channels(&self) -> u16 {
        (self.group_bytes / self.encoding.bytes_per_sample()) as u16
    }

    /// Converts a frame and appends the samples that are ready to `out`. Held audio must be released before.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<i16>) {
        debug_assert!(!self.is_holding(), "held audio comes first");
        if self.packets.is_some() {
            return self.push_packet(bytes, out);
        }
        let (encoding, group_bytes) = (self.encoding, self.group_bytes);
        let (completed, whole) = self.carry.split(bytes, group_bytes);
        self.input_samples += (completed.is_some() as usize + whole.len() / group_bytes) as u64;
        if self.passthrough {
            out.extend(completed.map(|group| encoding.decode_first(&group)));
            return encoding.append_first_channel(whole, group_bytes, out);
        }
        if let Some(group) = completed {
            let sample = pcm::to_f32(encoding.decode_first(&group));
            self.resampler.push_with(1, |block| block.fill(sample), out);
        }
        self.resample(whole, out);
    }

    /// Decodes and converts a packet, and the audio that was lost before it.
    fn push_packet(&mut self, packet: &[u8], out: &mut Vec<i16>) {
        let mut audio = scratch::take::<f32>();
        if let Some(decoder) = &mut self.packets {
            decoder.decode(packet, &mut audio);
        }
        self.input_samples += audio.len() as u64;
        self.resampler.push(&audio, out);
        scratch::put_back(audio);
    }

    /// Notes that this many sample groups were lost before the next packet, which fills the gap as far as it is short
    /// ([`PacketDecoder::note_lost`]). Other encodings cannot fill one.
    pub fn note_lost(&mut self, groups: usize) {
        if let Some(decoder) = &mut self.packets {
            decoder.note_lost(groups);
        }
    }

    /// Resamples whole sample groups.
    fn resample(&mut self, whole: &[u8], out: &mut Vec<i16>) {
        let (encoding, group_bytes) = (self.encoding, self.group_bytes);
        for groups in whole.chunks(BLOCK_SAMPLES * group_bytes) {
            self.resampler.push_with(
                groups.len() / group_bytes,
                |block| encoding.decode_first_channel(groups, group_bytes, block),
                out,
            );
        }
    }

    /// True if [`hold`](Self::hold) can take this frame: whole samples of mono int16 that need resampling.
    pub fn can_hold(&self, bytes: &[u8]) -> bool {
        self.encoding == Encoding::S16le
            && self.group_bytes == 2
            && self.carry.len == 0
            && bytes.len().is_multiple_of(2)
            && self.resampler.can_skip()
    }

    /// Takes in a frame without converting it, for [`release`](Self::release). Keeps the newest `max_groups` sample groups. Returns
    /// true if it lets held audio go for the first time.
    pub fn hold(&mut self, bytes: &[u8], max_groups: usize) -> bool {
        // The filter needs two chunks after dropped audio as its past.
        let max_bytes = 2 * max_groups.max(self.resampler.blurred_len());
        let held = &mut self.held;
        if held.bytes.capacity() == 0 {
            held.bytes.reserve_exact(max_bytes);
        }
        let newest = &bytes[bytes.len().saturating_sub(max_bytes)..];
        let excess = (held.bytes.len() + newest.len()).saturating_sub(max_bytes);
        held.bytes.drain(..excess);
        held.bytes.extend(newest);
        let dropped_groups = ((excess + bytes.len() - newest.len()) / 2) as u64;
        let begins_gap = held.dropped_groups == 0 && dropped_groups > 0;
        held.dropped_groups += dropped_groups;
        self.input_samples += (bytes.len() / 2) as u64;
        begins_gap
    }

    /// True if audio is held.
    pub fn is_holding(&self) -> bool {
        !self.held.bytes.is_empty()
    }

    /// Output samples that held audio has, or would have had.
    pub fn held_samples(&self) -> u64 {
        self.resampler.ready_len(self.held.dropped_groups + self.held.bytes.len() as u64 / 2)
    }

    /// Converts the held audio and appends it to `out`. Returns the number of output samples before it that are left out.
    pub fn release(&mut self, out: &mut Vec<i16>) -> u64 {
        let mut held = std::mem::take(&mut self.held);
        let start = out.len();
        let skipped = if held.dropped_groups > 0 { self.resampler.skip(held.dropped_groups) } else { 0 };
        self.resample(held.bytes.make_contiguous(), out);
        if held.dropped_groups == 0 {
            return 0;
        }
        let blurred = self.resampler.ready_len(self.resampler.blurred_len() as u64);
        out.drain(start..start + blurred as usize);
        skipped + blurred
    }

    /// Skips a frame of muted audio: keeps the byte alignment, discards the samples and returns their number
    /// of sample groups. Call [`flush`](Self::flush) before muting, or pending samples come out after the
    /// gap.
    pub fn skip_muted(&mut self, bytes: &[u8]) -> usize {
        let groups = match &mut self.packets {
            None => {
                let (completed, whole) = self.carry.split(bytes, self.group_bytes);
                completed.is_some() as usize + whole.len() / self.group_bytes
            }
            Some(decoder) => {
                decoder.skip();
                opus::packet_samples(bytes).unwrap_or(0)
            }
        };
        self.skipped_samples += groups as u64;
        groups
    }

    /// Drops a frame: keeps the byte alignment and counts nothing.
    pub fn discard(&mut self, bytes: &[u8]) {
        match &mut self.packets {
            None => drop(self.carry.split(bytes, self.group_bytes)),
            Some(decoder) => decoder.skip(),
        }
    }

    /// Number of sample groups that a frame completes.
    ///
    /// # Errors
    /// The fault of a frame that is no Opus packet. A frame without a byte is no audio.
    pub fn groups_of(&self, frame: &[u8]) -> Result<usize, PacketError> {
        match self.packets {
            Some(_) if !frame.is_empty() => opus::packet_samples(frame),
            Some(_) => Ok(0),
            None => Ok((self.carry.len + frame.len()) / self.group_bytes),
        }
    }

    /// True if frames may be joined to one, because their boundaries carry no meaning.
    pub const fn can_join_frames(&self) -> bool {
        self.packets.is_none()
    }

    /// Ends a stretch of audio: appends all pending samples to `out`. The bytes of an incomplete sample group
    /// wait for the next frame. Held audio must be released before.
    pub fn flush(&mut self, out: &mut Vec<i16>) {
        debug_assert!(!self.is_holding(), "held audio comes first");
        self.resampler.flush(out);
    }

    /// Whole sample groups converted so far, at the client's rate; skipped groups are not included.
    pub const fn input_samples(&self) -> u64 {
        self.input_samples
    }

    /// Whole sample groups discarded by [`skip_muted`](Self::skip_muted) so far.
    pub const fn skipped_samples(&self) -> u64 {
        self.skipped_samples
    }

    /// Takes the number of samples that the filter's delay has added to the output since the last call: 5 ms of silence before
    /// each stretch, and none at 16 kHz.
    pub const fn take_lead_in(&mut self) -> u64 {
        std::mem::replace(&mut self.resampler.lead_in_samples, 0)
    }

    /// Samples that the delay has added before the current stretch.
    pub fn stretch_lead_in(&self) -> u64 {
        self.resampler.stretch_lead_in()
    }

    /// Sample groups taken in but neither output nor held, at the client's rate: at most 50 ms, zero after a flush.
    pub fn pending_groups(&self) -> u64 {
        if self.passthrough { 0 } else { self.resampler.pending_samples() }
    }
}

/// Sample groups per second of audio in this format.
fn group_rate(encoding: Encoding, rate_hz: u32) -> Result<u32, FormatError> {
    match encoding {
        Encoding::Opus => opus::check_rate(rate_hz).map(|()| DECODED_RATE_HZ),
        file if file.is_file() => Err(FormatError::OutputOnly { name: file.description() }),
        _ => Ok(rate_hz),
    }
}

/// Buffer for the largest possible sample group.
type SampleGroup = [u8; MAX_CHANNELS as usize * Encoding::MAX_BYTES_PER_SAMPLE];

/// Bytes of an incomplete sample group.
#[derive(Debug, Default)]
struct Carry {
    bytes: SampleGroup,
    len: usize,
}

impl Carry {
    /// Splits `bytes` into the carried group that they complete, if any, and the whole groups after it. Keeps
    /// the remainder.
    fn split<'a>(&mut self, bytes: &'a [u8], group_bytes: usize) -> (Option<SampleGroup>, &'a [u8]) {
        if self.len == 0 && bytes.len().is_multiple_of(group_bytes) {
            return (None, bytes);
        }
        let mut completed = None;
        let mut rest = bytes;
        if self.len > 0 {
            rest = self.fill_from(rest, group_bytes);
            if self.len < group_bytes {
                return (None, rest);
            }
            completed = Some(self.bytes);
            self.len = 0;
        }
        let (whole, remainder) = rest.split_at(rest.len() - rest.len() % group_bytes);
        self.fill_from(remainder, group_bytes);
        (completed, whole)
    }

    /// Fills the carried group and returns the unused part of `bytes`.
    fn fill_from<'a>(&mut self, bytes: &'a [u8], group_bytes: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(group_bytes - self.len));
        self.bytes[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }

    #[test]
    fn unsupported_formats_are_rejected() {
        assert_eq!(InputConverter::new(16_000, 0).unwrap_err(), FormatError::Channels { actual: 0 });
        assert_eq!(
            InputConverter::new(16_000, 9).unwrap_err().to_string(),
            "9 audio channels are not supported (expected 1 to 8)"
        );
        assert!(
            InputConverter::new(4_000, 1)
                .unwrap_err()
                .to_string()
                .contains("4000 Hz is not supported (expected 8000 to")
        );
    }

    #[test]
    fn full_scale_square_wave_clips_instead_of_wrapping() {
        let square: Vec<i16> =
            (0..4_800).map(|i| if i / 24 % 2 == 0 { i16::MAX } else { i16::MIN }).collect();
        let mut converter = InputConverter::live(Encoding::S16le, 48_000, 1).unwrap();
        let mut out = Vec::new();
        converter.push(&bytes(&square), &mut out);
        assert_eq!(out.len(), 1_600, "nothing waits for more");
        converter.flush(&mut out);
        assert_eq!(out.len() as u64, 1_600 + converter.take_lead_in());
        assert!(out.contains(&i16::MAX) && out.contains(&i16::MIN), "the filter overshoots");
        let wrapped = out.windows(2).skip(8).any(|pair| pair[0] > 30_000 && pair[1] < -30_000);
        assert!(!wrapped, "a band-limited square wave never jumps from end to end between two samples");
    }

    #[test]
    fn muting_keeps_byte_alignment() {
        let mut converter = InputConverter::new(16_000, 2).unwrap();
        let audio = bytes(&[1, -1, 2, -2, 3, -3, 4, -4]);
        let mut out = Vec::new();
        converter.push(&audio[..3], &mut out);
        assert_eq!(converter.skip_muted(&audio[3..9]), 2, "the carried group and one more");
        converter.flush(&mut out);
        converter.push(&audio[9..], &mut out);
        assert_eq!(out, [3, 4]);
        assert_eq!((converter.input_samples(), converter.skipped_samples()), (2, 2));
    }

    #[test]
    fn discarding_keeps_byte_alignment() {
        let mut converter = InputConverter::new(16_000, 1).unwrap();
        let audio = bytes(&[1, 2, 3, 4]);
        let mut out = Vec::new();
        converter.push(&audio[..1], &mut out);
        assert_eq!(converter.groups_of(&audio[1..5]), Ok(2), "the carried group and one more");
        converter.discard(&audio[1..5]);
        converter.push(&audio[5..], &mut out);
        assert_eq!(out, [3, 4]);
        assert_eq!((converter.input_samples(), converter.skipped_samples()), (2, 0));
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(64))]

        #[test]
        fn input_at_16_khz_is_copied_for_any_framing(
            samples in prop::collection::vec(any::<i16>(), 0..600), channels in 1u16..=8,
            cuts in prop::collection::vec(1usize..50, 0..60),
        ) {
            let audio = bytes(&samples);
            let mut converter = InputConverter::new(16_000, channels).unwrap();
            let (mut out, mut rest) = (Vec::new(), &audio[..]);
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                rest = tail;
                converter.push(head, &mut out);
            }
            converter.push(rest, &mut out);
            let firsts: Vec<i16> =
                samples.chunks_exact(usize::from(channels)).map(|group| group[0]).collect();
            prop_assert_eq!(converter.input_samples(), firsts.len() as u64);
            prop_assert_eq!(out, firsts);
        }

        #[test]
        fn held_audio_is_converted_as_if_it_had_not_been_held(
            rate_hz in prop::sample::select(vec![8_000u32, 22_050, 24_000, 44_100, 48_000]),
            frames in prop::collection::vec((1usize..3_000, any::<bool>()), 1..40),
            max_groups in 1usize..6_000,
        ) {
            let mut random = fastrand::Rng::with_seed(max_groups as u64);
            let (mut held, mut plain) =
                [(); 2].map(|()| InputConverter::new(rate_hz, 1).unwrap()).into();
            let (mut expected, mut out, mut at) = (Vec::new(), Vec::new(), 0);
            // Output of the converter that holds, with its position in the other's.
            let mut stretches: Vec<(usize, Vec<i16>)> = Vec::new();
            for (samples, may_hold) in frames {
                let frame: Vec<u8> = (0..2 * samples).map(|_| random.u8(..)).collect();
                plain.push(&frame, &mut expected);
                if may_hold && held.can_hold(&frame) {
                    held.hold(&frame, max_groups);
                    continue;
                }
                let skipped = held.held_samples();
                at += held.release(&mut out) as usize;
                prop_assert!(out.len() as u64 <= skipped);
                held.push(&frame, &mut out);
                stretches.push((at, std::mem::take(&mut out)));
                at += stretches.last().map_or(0, |(_, stretch)| stretch.len());
            }
            at += held.release(&mut out) as usize;
            stretches.push((at, out));
            prop_assert_eq!(held.input_samples(), plain.input_samples());
            prop_assert_eq!(at + stretches.last().unwrap().1.len(), expected.len());
            for (at, stretch) in stretches {
                let worst = stretch.iter().zip(&expected[at..]).map(|(one, other)| one.abs_diff(*other)).max();
                prop_assert!(worst.unwrap_or(0) <= 1, "off by {:?} after sample {}", worst, at);
            }
        }

        #[test]
        fn every_sample_is_accounted_for(
            rate_hz in prop::sample::select(vec![8_000u32, 12_345, 44_100, 48_000]),
            frames in prop::collection::vec((0usize..4_000, prop::bool::weighted(0.2)), 1..12),
        ) {
            let mut converter = InputConverter::new(rate_hz, 2).unwrap();
            let (mut out, mut total, mut lead_in) = (Vec::new(), 0u64, 0);
            for (len, muted) in frames {
                total += len as u64;
                let frame = vec![7u8; len];
                if muted { converter.skip_muted(&frame); } else { converter.push(&frame, &mut out); }
                lead_in += converter.take_lead_in();
                let heard = (out.len() as u64).saturating_sub(lead_in);
                let out_at_input_rate = heard * u64::from(rate_hz) / 16_000;
                prop_assert!(converter.pending_groups() <= u64::from(rate_hz) / 20, "{} pending", converter.pending_groups());
                prop_assert!((out_at_input_rate + converter.pending_groups()).abs_diff(converter.input_samples()) <= 1);
                prop_assert_eq!(converter.input_samples() + converter.skipped_samples(), total / 4);
            }
            converter.flush(&mut out);
            prop_assert_eq!(converter.pending_groups(), 0);
            let heard = out.len() as u64 - lead_in;
            prop_assert_eq!(heard, (converter.input_samples() * 16_000).div_ceil(u64::from(rate_hz)));
        }
    }
}
