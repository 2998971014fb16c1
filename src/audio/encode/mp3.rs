//! MP3 at a constant bit rate, mono.
//!
//! Each frame is complete without the frames before it (no bit reservoir), so that it leaves at once at every sample rate. The
//! stream-level encoder of the library holds back all frames at 32 kHz and above.

use rusty_mp3::{
    Mp3Encode,
    encode::lametag::{ENCODER_DELAY, frames_for},
    encoder_header,
    header::{FrameHeader, MpegVersion},
};

/// At 24 kHz mono, the noise is then below that of LAME at the same rate.
const BIT_RATE: u32 = 96_000;
/// Highest bit rate at 12 kHz and below, and at 24 kHz and below. More bits than a frame's header can count are padding.
const LOW_BIT_RATE_MAX: u32 = 64_000;
const HALF_BIT_RATE_MAX: u32 = 160_000;

/// All sample rates of MPEG-1, 2 and 2.5.
pub(super) const RATES_HZ: &[u32] = &[8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];

pub(super) struct Mp3Stream {
    encoder: Box<Mp3Encode>,
    header: FrameHeader,
    /// Samples for which no frame is complete.
    pending: Vec<f32>,
    samples_in: u64,
    frames: u64,
    /// Part of a byte that the frames so far lack of the bit rate, in units of 1 / `sample_rate`.
    lacking: u32,
}

impl Mp3Stream {
    /// `None` at a rate that MP3 does not have.
    pub(super) fn new(rate_hz: u32, bit_rate: Option<u32>) -> Option<Self> {
        let max = match rate_hz {
            ..=12_000 => LOW_BIT_RATE_MAX,
            12_001..=24_000 => HALF_BIT_RATE_MAX,
            _ => u32::MAX,
        };
        let kbps = bit_rate.unwrap_or(BIT_RATE).min(max) / 1000;
        let header = encoder_header(rate_hz, 1, kbps).ok()?;
        let encoder = Box::default();
        Some(Self { encoder, header, pending: Vec::new(), samples_in: 0, frames: 0, lacking: 0 })
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        self.samples_in += samples.len() as u64;
        self.pending.extend(samples.iter().map(|sample| f32::from(*sample) / 32_768.0));
        self.encode_frames(out);
    }

    /// Pads the audio with silence until all of it has passed the delays of encoder and decoder. A file without audio has two
    /// silent frames, the shortest that players accept.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let frame = self.header.version.samples_per_frame();
        let frames = frames_for(self.samples_in, ENCODER_DELAY, frame);
        self.pending.resize((frames - self.frames) as usize * frame, 0.0);
        self.encode_frames(out);
    }

    fn encode_frames(&mut self, out: &mut Vec<u8>) {
        let frame = self.header.version.samples_per_frame();
        let complete = self.pending.len() - self.pending.len() % frame;
        for samples in self.pending[..complete].chunks_exact(frame) {
            self.header.padding = pads_frame(&self.header, &mut self.lacking);
            // It never fails.
            let encoded = self.encoder.encode_frame(&self.header, &[samples], None);
            out.extend(encoded.unwrap_or_default());
            self.frames += 1;
        }
        self.pending.drain(..complete);
    }
}

/// True if the next frame needs a byte more to keep the bit rate, which is no whole number of bytes a frame at 11 025 Hz and its
/// multiples.
fn pads_frame(header: &FrameHeader, lacking: &mut u32) -> bool {
    let eighth = if header.version == MpegVersion::V1 { 144 } else { 72 };
    *lacking += eighth * header.bitrate_kbps * 1000 % header.sample_rate;
    let pads = *lacking >= header.sample_rate;
    if pads {
        *lacking -= header.sample_rate;
    }
    pads
}
