//! Opus in Ogg (RFC 7845).

use opus_pure::{Application, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead, RateControl};

use crate::opus::PacketOptions;

/// Bit rate at which mono speech cannot be told from the original. Stereo takes half as much again.
const BIT_RATE: u32 = 48_000;

/// Payload of a page, about 0.1 s. Every page has 27 bytes of header and more.
const PAGE_BYTES: usize = 600;

/// Clock of granule positions (RFC 7845 §4).
const CLOCK_HZ: usize = 48_000;

/// Encodes packets of 20 ms.
pub struct OpusStream {
    encoder: OpusEncoder,
    /// `None` after the end.
    writer: Option<OggOpusWriter<Vec<u8>>>,
    pre_skip: usize,
    /// Interleaved channels.
    channels: usize,
    /// Samples of a channel in a packet.
    frame: usize,
    /// Samples for which no packet is complete.
    pending: Vec<i16>,
    /// Samples of a channel that came.
    samples_in: usize,
    packets: usize,
    packet: Vec<u8>,
}

impl std::fmt::Debug for OpusStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpusStream").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl OpusStream {
    /// A stream of one or two interleaved channels. `None` at a rate that Opus does not have.
    pub fn new(rate_hz: u32, channels: usize, bit_rate: Option<u32>) -> Option<Self> {
        let mut encoder =
            OpusEncoder::new(i32::try_from(rate_hz).ok()?, channels, Application::Audio).ok()?;
        let rates = PacketOptions::BIT_RATES;
        let usual = if channels == 1 { BIT_RATE } else { BIT_RATE * 3 / 2 };
        encoder.bitrate_bps = bit_rate.unwrap_or(usual).clamp(*rates.start(), *rates.end()) as i32;
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
            channels,
            frame: rate_hz as usize / 50,
            pending: Vec::new(),
            samples_in: 0,
            packets: 0,
            packet: vec![0; MAX_PACKET_BYTES],
        })
    }

    /// Encodes samples and appends the pages that are complete to `out`.
    pub fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        self.encode_packets(samples, false);
        self.drain(out);
    }

    /// Like [`OpusStream::push`], and completes the page of the last packet.
    pub fn push_page(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        self.encode_packets(samples, true);
        self.drain(out);
    }

    /// Encodes all packets that are complete with these samples.
    fn encode_packets(&mut self, samples: &[i16], ends_page: bool) {
        self.samples_in += samples.len() / self.channels;
        self.pending.extend_from_slice(samples);
        let packet = self.frame * self.channels;
        let complete = self.pending.len() - self.pending.len() % packet;
        let rest = self.pending.split_off(complete);
        let frames = std::mem::replace(&mut self.pending, rest);
        for (number, frame) in frames.chunks_exact(packet).enumerate() {
            if ends_page && (number + 1) * packet == complete {
                self.set_page_target(1);
            }
            self.encode(frame, None);
        }
        if ends_page && self.packets >= 2 {
            self.set_page_target(PAGE_BYTES);
        }
    }

    fn set_page_target(&mut self, bytes: usize) {
        self.writer.iter_mut().for_each(|writer| writer.set_page_target(bytes));
    }

    /// Flushes the encoder's delay with silence, and states in the last granule position where the audio ends
    /// (RFC 7845 §4.4).
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let ticks = CLOCK_HZ / (self.frame * 50);
        let packets = (self.samples_in + self.pre_skip.div_ceil(ticks)).div_ceil(self.frame);
        let end_granule = self.pre_skip + self.samples_in * ticks;
        let mut frame = std::mem::take(&mut self.pending);
        while self.packets < packets {
            frame.resize(self.frame * self.channels, 0);
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
