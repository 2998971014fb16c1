//! Audio to the client: samples in, a packet every 20 ms out.
//!
//! The session sends audio ahead of its playback; here it waits for its turn on the clock, so that an interruption
//! leaves at most the packet on its way.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::codec::{Codec, Encoder, PACKET_MS};

const PACKET: Duration = Duration::from_millis(PACKET_MS as u64);
/// Above this much audio that waits, s, the session is not read.
const QUEUED_MAX_S: usize = 120;
/// Packets that are made up for at once after the task had to wait. Beyond, the stream jumps.
const CATCH_UP_MAX: u32 = 10;

/// A packet's place in the stream, and its contents.
pub(super) struct OutgoingPacket {
    pub(super) number: u64,
    /// RTP timestamp.
    pub(super) time: u32,
    /// The first packet after silence.
    pub(super) begins: bool,
    pub(super) payload: Vec<u8>,
}

/// Audio to the client.
pub(super) struct Downlink {
    codec: Codec,
    encoder: Encoder,
    queued: VecDeque<i16>,
    /// When the next packet leaves.
    next_at: Instant,
    number: u64,
    time: u32,
    was_silent: bool,
}

impl Downlink {
    pub(super) fn new(now: Instant, codec: Codec) -> Self {
        Self {
            codec,
            encoder: codec.encoder(),
            queued: VecDeque::new(),
            next_at: now,
            number: u64::from(fastrand::u16(1..0x7fff)),
            time: fastrand::u32(..),
            was_silent: true,
        }
    }

    /// Adds int16 samples.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.queued.extend(bytes.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)));
    }

    /// True while more audio should be taken.
    pub(super) fn has_room(&self) -> bool {
        self.queued.len() < QUEUED_MAX_S * self.codec.rates().out_hz as usize
    }

    /// Discards what was not sent.
    pub(super) fn clear(&mut self) {
        self.queued.clear();
    }

    /// When the next packet leaves.
    pub(super) const fn due(&self) -> Instant {
        self.next_at
    }

    /// The next packet, if it is time.
    pub(super) fn take(&mut self, now: Instant) -> Option<OutgoingPacket> {
        if now < self.next_at {
            return None;
        }
        let ticks = self.codec.clock_hz() / 1000 * PACKET_MS;
        if now > self.next_at + PACKET * CATCH_UP_MAX {
            let skipped = (now - self.next_at).as_millis() as u32 / PACKET_MS;
            self.time = self.time.wrapping_add(ticks.wrapping_mul(skipped));
            self.next_at += PACKET * skipped;
        }
        let is_silent = self.queued.is_empty();
        let count = self.codec.packet_samples();
        let payload = match is_silent {
            true => self.encoder.silence(count),
            false => {
                let mut samples: Vec<i16> = self.queued.drain(..count.min(self.queued.len())).collect();
                samples.resize(count, 0);
                self.encoder.encode(&samples)
            }
        };
        let packet = OutgoingPacket {
            number: self.number,
            time: self.time,
            begins: self.was_silent && !is_silent,
            payload,
        };
        self.was_silent = is_silent;
        self.number += 1;
        self.time = self.time.wrapping_add(ticks);
        self.next_at += PACKET;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::encoding::Encoding;

    fn downlink() -> (Downlink, Instant) {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let now = Instant::now();
        (Downlink::new(now, Codec::G711(Encoding::Mulaw)), now)
    }

    #[test]
    fn packets_leave_by_the_clock_with_silence_between() {
        let (mut downlink, now) = downlink();
        downlink.push(&[1; 2 * 200]);
        let packets: Vec<_> = (0..100)
            .filter_map(|ms| Some((ms, downlink.take(now + Duration::from_millis(ms))?)))
            .map(|(ms, packet)| (ms, packet.begins, packet.payload[0] != 0xff, packet.payload[159] != 0xff))
            .collect();
        let expected = [(0, true, true, true), (20, false, true, false)];
        assert_eq!(packets[..2], expected, "the second packet is filled up with silence");
        assert_eq!(packets.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 20, 40, 60, 80]);
        assert!(packets[2..].iter().all(|it| !it.1 && !it.2));
    }

    #[test]
    fn interruption_leaves_only_silence() {
        let (mut downlink, now) = downlink();
        downlink.push(&[1; 2 * 1600]);
        assert_ne!(downlink.take(now).unwrap().payload[0], 0xff);
        downlink.clear();
        assert!(downlink.take(now + PACKET).unwrap().payload.iter().all(|code| *code == 0xff));
    }

    #[test]
    fn stream_jumps_after_a_long_wait() {
        let (mut downlink, now) = downlink();
        let first = downlink.take(now).unwrap();
        let late = now + Duration::from_secs(3);
        let next = downlink.take(late).unwrap();
        assert_eq!((next.number - first.number, next.time.wrapping_sub(first.time)), (1, 150 * 160));
        assert!(downlink.take(late).is_none());
    }
}
