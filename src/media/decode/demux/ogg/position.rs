//! The meaning of the positions of Ogg's pages: gaps, and padding at the end.

use super::Page;
use crate::media::decode::packet::{Nanos, Packet, nanos};

/// Greatest difference between a position and the packets that still agrees.
const TOLERANCE_MS: i64 = 60;

/// Compares positions with the lengths of packets.
pub(super) struct Positions {
    rate_hz: u32,
    /// Samples before the time zero (RFC 7845 §4.3).
    pre_skip: i64,
    /// Position of the last page.
    last: Option<i64>,
    /// Samples so far, with gaps.
    samples: i64,
    /// Pages whose position agreed with their packets, less those where it did not.
    agreeing: i32,
}

impl Positions {
    pub(super) const fn new(rate_hz: u32, pre_skip: i64) -> Self {
        Self { rate_hz, pre_skip, last: None, samples: 0, agreeing: 0 }
    }

    /// Length of this many samples.
    fn time(&self, samples: i64) -> Nanos {
        nanos(samples, self.rate_hz)
    }

    /// Places the packets that end on a page.
    pub(super) fn place(&mut self, page: &Page, packets: &mut [Packet]) {
        let samples: i64 = packets.iter().map(|packet| packet.samples as i64).sum();
        let position = page.position.and_then(|position| i64::try_from(position).ok());
        if let Some(position) = position.filter(|_| !packets.is_empty()) {
            self.compare(position, samples, page.is_last());
            if page.is_last() {
                self.trim(position, packets);
            }
            self.last = Some(position);
        }
        for packet in packets {
            packet.at = Some(self.time(self.samples.saturating_sub(self.pre_skip)));
            self.samples = self.samples.saturating_add(packet.samples as i64);
        }
    }

    /// Notes a gap before the page.
    fn compare(&mut self, position: i64, samples: i64, is_last: bool) {
        let tolerance = i64::from(self.rate_hz) * TOLERANCE_MS / 1000;
        let Some(last) = self.last else {
            // A recording may begin later, but not before the start (RFC 7845 §4.5).
            let is_early = position.saturating_add(tolerance) < samples;
            let is_at_start = position.abs_diff(samples) <= tolerance.unsigned_abs();
            self.agreeing += i32::from(is_at_start) - i32::from(is_early && !is_last);
            return;
        };
        let missing = position.saturating_sub(last).saturating_sub(samples);
        if missing.abs() <= tolerance || (is_last && missing < 0) {
            self.agreeing += 1;
        } else if missing > 0 && self.agreeing > 0 {
            self.samples = self.samples.saturating_add(missing);
            self.agreeing -= 1;
        } else {
            self.agreeing = (self.agreeing - 1).max(-1000);
        }
    }

    /// Removes the padding behind the position of the last page (RFC 7845 §4.4). Without a page before it, only from its last
    /// packet.
    fn trim(&self, position: i64, packets: &mut [Packet]) {
        let samples: i64 = packets.iter().map(|packet| packet.samples as i64).sum();
        let mut padding = self.last.unwrap_or(0).saturating_add(samples).saturating_sub(position);
        let last_packet = packets.last().map_or(0, |packet| packet.samples as i64);
        let is_credible = match self.last {
            Some(_) => self.agreeing > 0 && padding < samples.max(1),
            None => padding < last_packet.max(1),
        };
        if padding <= 0 || !is_credible {
            return;
        }
        for packet in packets.iter_mut().rev() {
            let trimmed = padding.min(packet.samples as i64);
            packet.trim_end = self.time(trimmed);
            padding -= trimmed;
        }
    }
}
