//! Opus in Ogg (RFC 7845).

use opus_pure::{Application, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead, RateControl};

use crate::opus::PacketOptions;

/// Bit rate at which mono speech cannot be told from the original.
const BIT_RATE: u32 = 48_000;

/// Payload of a page, about 0.1 s. Every page has 27 bytes of header and more.
const PAGE_BYTES: usize = 600;

/// Clock of granule positions (RFC 7845 §4).
const CLOCK_HZ: usize = 48_000;

/// Encodes packets of 20 ms.
pub(super) struct OpusStream {
    encoder: OpusEncoder,
    /// `None` after the end.
    writer: Option<OggOpusWriter<Vec<u8>>>,
    pre_skip: usize,
    /// Samples in a packet.
    frame: usize,
    /// Samples for which no packet is complete.
    pending: Vec<i16>,
    samples_in: usize,
    packets: usize,
    packet: Vec<u8>,
}

impl OpusStream {
    /// `None` at a rate that Opus does not have.
    pub(super) fn new(rate_hz: u32, bit_rate: Option<u32>) -> Option<Self> {
        let mut encoder = OpusEncoder::new(i32::try_from(rate_hz).ok()?, 1, Application::Audio).ok()?;
        let rates = PacketOptions::BIT_RATES;
        encoder.bitrate_bps = bit_rate.unwrap_or(BIT_RATE).clamp(*rates.start(), *rates.end()) as i32;
        encoder.rate_control = RateControl::Vbr;
        let head = OpusHead::for_encoder(&encoder, rate_hz);
        let pre_skip = usize::from(head.pre_skip);
        let mut writer = OggOpusWriter::new(Vec::new(), head).ok()?;
        // The first packet gets a page of its own, so that it leaves at once.
        writer.set_page_target(1);
        Some(Self {
            encoder,
            writer: Some(writer),
            pre_skip,
            frame: rate_hz as usize / 50,
            pending: Vec::new(),
            samples_in: 0,
            packets: 0,
            packet: vec![0; MAX_PACKET_BYTES],
        })
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        self.samples_in += samples.len();
        self.pending.extend_from_slice(samples);
        let complete = self.pending.len() - self.pending.len() % self.frame;
        let rest = self.pending.split_off(complete);
        let frames = std::mem::replace(&mut self.pending, rest);
        frames.chunks_exact(self.frame).for_each(|frame| self.encode(frame, None));
        self.drain(out);
    }

    /// Flushes the encoder's delay with silence, and states in the last granule position where the audio ends
    /// (RFC 7845 §4.4).
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let ticks = CLOCK_HZ / (self.frame * 50);
        let packets = (self.samples_in + self.pre_skip.div_ceil(ticks)).div_ceil(self.frame);
        let end_granule = self.pre_skip + self.samples_in * ticks;
        let mut frame = std::mem::take(&mut self.pending);
        while self.packets < packets {
            frame.resize(self.frame, 0);
            let is_last = self.packets + 1 == packets;
            self.encode(&frame, is_last.then_some(end_granule));
            frame.clear();
        }
        if let Some(done) = self.writer.take().and_then(|writer| writer.finish().ok()) {
            out.extend(done);
        }
    }

    /// Encodes one packet; `end_granule` is the end of the audio if it is the last one. The encoder fails only for
    /// other frame sizes and smaller buffers, and the writer only if its sink fails, which a `Vec` never does.
    fn encode(&mut self, frame: &[i16], end_granule: Option<usize>) {
        let bytes = self.encoder.encode_s16(frame, self.frame, &mut self.packet).unwrap_or(0);
        self.packets += 1;
        if let (Some(writer), Some(packet)) = (&mut self.writer, self.packet.get(..bytes)) {
            let written = match end_granule {
                Some(end) => {
                    let duration = (end as u64).saturating_sub(writer.granule().unsigned_abs());
                    writer.write_packet_with_duration(packet, duration as u32)
                }
                None => writer.write_packet(packet),
            };
            debug_assert!(written.is_ok(), "{written:?}");
            if self.packets == 2 {
                writer.set_page_target(PAGE_BYTES);
            }
        }
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        if let Some(bytes) = self.writer.as_mut().and_then(OggOpusWriter::get_mut) {
            out.append(bytes);
        }
    }
}
