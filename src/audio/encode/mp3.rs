//! MP3 at a constant bit rate, mono.

use rusty_mp3::{Mp3Encoder, Mp3EncoderConfig};

/// At 24 kHz mono, the noise is then below that of LAME at the same rate.
const BITRATE_KBPS: u32 = 96;

/// Highest rate that streams: above, MPEG-1 begins, where the encoder holds back everything until the end.
pub(super) const RATES_HZ: &[u32] = &[8_000, 11_025, 12_000, 16_000, 22_050, 24_000];

pub(super) struct Mp3Stream {
    encoder: Mp3Encoder,
    rate_hz: u32,
    /// The encoder's first packet is a table of contents that it completes at the end, when it has left long ago.
    is_first: bool,
}

impl Mp3Stream {
    pub(super) fn new(rate_hz: u32) -> Self {
        let config = Mp3EncoderConfig { bitrate_kbps: BITRATE_KBPS, vbr_quality: None };
        Self { encoder: Mp3Encoder::new(config), rate_hz, is_first: true }
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        let pushed = self.encoder.push_pcm_s16(samples, 1, self.rate_hz);
        debug_assert!(pushed.is_ok(), "fails only at other rates");
        self.drain(out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        // Without any audio, this makes the encoder write two silent frames, the shortest file that players accept.
        self.push(&[], out);
        self.encoder.finish();
        self.drain(out);
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        while let Ok(packet) = self.encoder.next_packet() {
            if !std::mem::take(&mut self.is_first) {
                out.extend(packet);
            }
        }
    }
}
