//! Audio from the client: packets in, samples out, with lost ones made up for.

use std::{sync::Arc, time::Instant};

use str0m::{media::Pt, rtp::RtpPacket};

use super::{
    codec::{Codec, Decoder, PACKET_MS},
    jitter::{JitterBuffer, JitterStats},
};

/// Longest concealment, ms. The rest of a gap is silent: repeated audio would be heard as speech.
const CONCEALED_MAX_MS: u32 = 120;
/// Longest gap that is filled, ms. A client that sends nothing is quiet, and its pauses count.
const FILLED_MAX_MS: u32 = 1000;

/// A packet of the client's audio.
pub(super) struct Packet {
    pub(super) pt: Pt,
    /// RTP timestamp without wrapping.
    pub(super) time: u64,
    pub(super) payload: Arc<[u8]>,
}

impl From<RtpPacket> for Packet {
    fn from(packet: RtpPacket) -> Self {
        Self { pt: packet.header.payload_type, time: packet.time.numer(), payload: packet.payload }
    }
}

/// The client's audio.
pub(super) struct Uplink {
    codec: Codec,
    /// Payload types that may come.
    types: Vec<(Pt, Codec)>,
    decoder: (Pt, Decoder),
    buffer: JitterBuffer<Packet>,
    /// Timestamp after the last packet.
    expected: Option<u64>,
    /// The last packet's samples.
    heard: Vec<i16>,
    /// Samples that were made up.
    concealed: u64,
}

impl Uplink {
    /// Audio of these payload types. The sample rate of `codec` holds; others come only at the same rate.
    pub(super) fn new(pt: Pt, codec: Codec, types: Vec<(Pt, Codec)>) -> Self {
        Self {
            codec,
            types,
            decoder: (pt, codec.decoder()),
            buffer: JitterBuffer::default(),
            expected: None,
            heard: Vec::new(),
            concealed: 0,
        }
    }

    pub(super) fn stats(&self) -> JitterStats {
        self.buffer.stats
    }

    /// Audio that was made up, s.
    pub(super) fn concealed_s(&self) -> f64 {
        self.concealed as f64 / f64::from(self.codec.rates().in_hz)
    }

    /// Takes a packet from the network.
    pub(super) fn push(&mut self, now: Instant, number: u64, packet: Packet) {
        self.buffer.push(now, number, packet);
    }

    /// Another source begins, with numbers and times of its own.
    pub(super) fn restart(&mut self) {
        self.buffer.restart();
        self.expected = None;
    }

    /// When audio is due although no packet comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.buffer.deadline()
    }

    /// Adds the samples that are due.
    pub(super) fn take(&mut self, now: Instant, out: &mut Vec<i16>) {
        while let Some((lost, packet)) = self.buffer.pop(now) {
            // Browsers probe the path with packets of padding only; these are no audio.
            if !packet.payload.is_empty() {
                self.decode(lost > 0, &packet, out);
            }
        }
    }

    fn decode(&mut self, was_lost: bool, packet: &Packet, out: &mut Vec<i16>) {
        let Some((pt, codec)) = self.types.iter().find(|(pt, _)| *pt == packet.pt).copied() else { return };
        if codec.rates() != self.codec.rates() {
            return;
        }
        if pt != self.decoder.0 {
            self.decoder = (pt, codec.decoder());
        }
        let ticks = packet.time.saturating_sub(self.expected.unwrap_or(packet.time));
        let per_tick = u64::from(codec.rates().in_hz / codec.clock_hz());
        let gap = ticks.saturating_mul(per_tick).min(u64::from(self.samples(FILLED_MAX_MS))) as usize;
        // Timestamps of some clients jitter.
        let gap = if gap < self.samples(PACKET_MS / 4) as usize { 0 } else { gap };
        let concealed = if was_lost { gap.min(self.samples(CONCEALED_MAX_MS) as usize) } else { 0 };
        // Audio that was not sent is silent.
        out.resize(out.len() + gap - concealed, 0);
        let before = out.len();
        self.concealed += self.decoder.1.decode(concealed, &packet.payload, &self.heard, out) as u64;
        let begin = (before + concealed).min(out.len());
        self.heard.clear();
        self.heard.extend_from_slice(&out[begin..]);
        // A time before the first one has wrapped around.
        self.expected = Some(packet.time.wrapping_add((self.heard.len() as u64) / per_tick));
    }

    const fn samples(&self, ms: u32) -> u32 {
        self.codec.rates().in_hz / 1000 * ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::encoding::Encoding;

    #[test]
    fn another_source_is_heard_at_once() {
        let (pt, codec) = (0.into(), Codec::G711(Encoding::Mulaw));
        let mut uplink = Uplink::new(pt, codec, vec![(pt, codec)]);
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let (now, mut samples) = (Instant::now(), Vec::new());
        for first in [2000, 1000] {
            uplink.restart();
            for number in first..first + 50 {
                uplink.push(now, number, Packet { pt, time: number * 160, payload: [0; 160].into() });
                uplink.take(now, &mut samples);
            }
        }
        assert_eq!(samples.len(), 2 * 50 * 160);
        assert_eq!(uplink.stats(), JitterStats { received: 100, ..JitterStats::default() });
    }
}
