//! Jitter buffer of the uplink: puts packets in order, and finds out which are lost.
//!
//! A model hears a packet when it comes, so that a packet in order is never delayed. Only a gap makes the packets after it wait,
//! as long as packets lately came late: 20 to 120 ms.

use std::{
    collections::BTreeMap,
    ops::Add,
    time::{Duration, Instant},
};

/// Bounds of the wait for a missing packet.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(120);
/// The wait beyond the longest delay that was seen lately.
const MARGIN: Duration = Duration::from_millis(10);
/// Most packets that wait. A longer gap counts as lost at once.
const HELD_MAX: usize = 32;
/// A number that is further away than this begins a new stream.
const JUMP: u64 = 3000;
/// This many consecutive packets with smaller numbers, and no others in between, also begin a new stream: the sender restarted.
const RESTART_PACKETS: usize = 3;
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// Counts of a buffer's packets by their fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JitterStats {
    pub(super) received: u64,
    /// Never came, or too late.
    pub(super) lost: u64,
    /// Came after its time.
    pub(super) late: u64,
    /// Came out of order, but in time.
    pub(super) reordered: u64,
}

impl Add for JitterStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            lost: self.lost + other.lost,
            late: self.late + other.late,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// A buffer of packets `T` by their sequence numbers.
#[derive(Debug)]
pub(super) struct JitterBuffer<T> {
    /// Number of the next packet, once there was one.
    next: Option<u64>,
    held: BTreeMap<u64, (Instant, T)>,
    /// Longest delay of packets that came late; decays.
    delay: Duration,
    /// When the gap before `next` was given up last.
    given_up_at: Option<Instant>,
    /// Packets before `next`, each with its time, as long as each follows the one before it: perhaps a new stream.
    behind: Vec<(u64, Instant, T)>,
    pub(super) stats: JitterStats,
}

impl<T> Default for JitterBuffer<T> {
    fn default() -> Self {
        Self {
            next: None,
            held: BTreeMap::new(),
            delay: Duration::ZERO,
            given_up_at: None,
            behind: Vec::new(),
            stats: JitterStats::default(),
        }
    }
}

impl<T> JitterBuffer<T> {
    /// The present wait for a missing packet.
    pub(super) fn wait(&self) -> Duration {
        (self.delay + MARGIN).clamp(WAIT_MIN, WAIT_MAX)
    }

    /// Adds a packet.
    pub(super) fn push(&mut self, now: Instant, number: u64, packet: T) {
        self.stats.received += 1;
        let next = *self.next.get_or_insert(number);
        if number.abs_diff(next) > JUMP {
            self.held.clear();
            self.next = Some(number);
        } else if number < next {
            self.stats.late += 1;
            if let Some(given_up_at) = self.given_up_at {
                self.note_delay(self.wait() + (now - given_up_at));
            }
            return self.push_behind(now, number, packet);
        } else if let Some((first, (first_at, _))) = self.held.first_key_value()
            && number < *first
        {
            self.stats.reordered += 1;
            self.note_delay(now - *first_at);
        }
        self.behind.clear();
        self.held.insert(number, (now, packet));
    }

    /// Keeps a packet that came too late for its place. If it completes a new stream, starts that stream with the kept packets.
    fn push_behind(&mut self, now: Instant, number: u64, packet: T) {
        let follows = self.behind.last().is_none_or(|(last, ..)| number > *last);
        if !follows || self.behind.len() == HELD_MAX {
            self.behind.clear();
        }
        self.behind.push((number, now, packet));
        let has_lasted = self.behind.first().is_some_and(|(_, since, _)| now - *since >= RESTART_AFTER);
        if has_lasted && self.behind.len() >= RESTART_PACKETS {
            self.stats.late -= self.behind.len() as u64;
            self.held = self.behind.drain(..).map(|(number, at, packet)| (number, (at, packet))).collect();
            self.next = self.held.first_key_value().map(|(first, _)| *first);
        }
    }

    /// Forgets the packets and their numbers.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        self.behind.clear();
        self.next = None;
        self.given_up_at = None;
    }

    fn note_delay(&mut self, delay: Duration) {
        self.delay = self.delay.max(delay).min(WAIT_MAX);
    }

    /// The next packet in order, and the number of packets lost before it; `None` while none is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(u64, T)> {
        let (number, (at, _)) = self.held.first_key_value()?;
        let (number, missing) = (*number, number - self.next.unwrap_or(*number));
        if missing > 0 {
            if now < *at + self.wait() && self.held.len() < HELD_MAX {
                return None;
            }
            self.given_up_at = Some(now);
            self.stats.lost += missing;
        }
        self.delay -= self.delay / 256;
        // A number before the first one has wrapped around.
        self.next = Some(number.wrapping_add(1));
        self.held.pop_first().map(|(_, (_, packet))| (missing, packet))
    }

    /// When a missing packet is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.held.first_key_value().map(|(_, (at, _))| *at + self.wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets by their number, each at its time in ms. Returns what leaves, with the time, and how many were lost before.
    fn run(packets: &[(u64, u64)]) -> (Vec<(u64, u64, u64)>, JitterBuffer<u64>) {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        let (mut buffer, mut left, mut packets) =
            (JitterBuffer::default(), Vec::new(), packets.iter().peekable());
        for ms in 0..2000 {
            let now = start + Duration::from_millis(ms);
            while let Some((_, number)) = packets.next_if(|(at, _)| *at == ms) {
                buffer.push(now, *number, *number);
            }
            while let Some((lost, number)) = buffer.pop(now) {
                left.push((ms, number, lost));
            }
        }
        (left, buffer)
    }

    #[test]
    fn packets_in_order_leave_at_once() {
        let (left, buffer) = run(&[(0, 7), (20, 8), (45, 9), (60, 10)]);
        assert_eq!(left, [(0, 7, 0), (20, 8, 0), (45, 9, 0), (60, 10, 0)]);
        assert_eq!(buffer.stats, JitterStats { received: 4, ..JitterStats::default() });
    }

    #[test]
    fn missing_packet_is_awaited_and_then_lost() {
        let (left, buffer) = run(&[(0, 1), (40, 3), (60, 4)]);
        assert_eq!(left, [(0, 1, 0), (60, 3, 1), (60, 4, 0)]);
        assert_eq!(buffer.stats.lost, 1);
    }

    #[test]
    fn reordered_packets_leave_in_order() {
        let (left, buffer) = run(&[(0, 1), (40, 3), (50, 2), (60, 4)]);
        assert_eq!(left, [(0, 1, 0), (50, 2, 0), (50, 3, 0), (60, 4, 0)]);
        assert_eq!((buffer.stats.lost, buffer.stats.reordered), (0, 1));
    }

    #[test]
    fn late_packets_lengthen_the_wait_up_to_its_bound() {
        let (left, buffer) = run(&[(0, 1), (40, 3), (100, 2), (120, 5), (180, 4)]);
        assert_eq!(left, [(0, 1, 0), (60, 3, 1), (180, 4, 0), (180, 5, 0)], "2 came late, 4 in time");
        assert_eq!((buffer.stats.late, buffer.stats.lost), (1, 1));
        let late: Vec<_> = (0..10).map(|at| (at * 100 + 50 * (at % 2), 1000 - at * 7)).collect();
        assert!(run(&late).1.wait() <= WAIT_MAX);
    }

    #[test]
    fn many_packets_after_a_gap_do_not_wait() {
        let packets: Vec<_> = [(0, 0)].into_iter().chain((0..40).map(|at| (1, 5 + at))).collect();
        let (left, buffer) = run(&packets);
        assert_eq!(left.len(), 41);
        assert!(left.iter().all(|(ms, ..)| *ms <= 1), "{left:?}");
        assert_eq!(buffer.stats.lost, 4);
    }

    #[test]
    fn as_many_packets_wait_as_are_held_at_most() {
        for (count, leaves_ms) in [(HELD_MAX - 1, 21), (HELD_MAX, 1)] {
            let held = (0..count as u64).map(|at| (1, 5 + at));
            let (left, _) = run(&[(0, 0)].into_iter().chain(held).collect::<Vec<_>>());
            assert_eq!(left[1], (leaves_ms, 5, 4), "{count} packets after a gap");
        }
        // Late packets of less than 100 ms do not begin a stream yet. As many as are held at most are forgotten with the next.
        for (late, is_whole) in [(HELD_MAX - 1, true), (HELD_MAX, false)] {
            let first = (0..=50).map(|at| (at, 1000 + at));
            let second = (0..late as u64).map(|at| (100 + at, 500 + at)).chain([(200, 500 + late as u64)]);
            let (left, _) = run(&first.chain(second).collect::<Vec<_>>());
            assert_eq!(left.len(), 51 + if is_whole { late + 1 } else { 0 }, "{late} late packets");
        }
    }

    #[test]
    fn stream_that_begins_anew_slightly_lower_loses_nothing() {
        for lower in [10, 50, 999] {
            let first = (0..50).map(|at| (at * 20, 1000 + at));
            let second = (0..40).map(|at| (1000 + at * 20, 1050 - lower + at));
            let packets: Vec<_> = first.chain(second).collect();
            let (left, buffer) = run(&packets);
            let numbers: Vec<_> = left.iter().map(|(_, number, _)| *number).collect();
            assert_eq!(numbers, packets.iter().map(|(_, number)| *number).collect::<Vec<_>>(), "{lower}");
            assert_eq!((buffer.stats.lost, buffer.stats.late), (0, 0), "{lower}");
            let longest = left.iter().zip(&packets).map(|((left, ..), (came, _))| left - came).max();
            assert!(longest <= Some(120), "{lower}: a packet waited {longest:?} ms");
        }
    }

    #[test]
    fn late_packets_in_order_are_not_a_new_stream() {
        // 10 to 29 come together, behind packets that overtook them.
        let numbers = (0..10).map(|at| (at * 20, at)).chain([(200, 30), (220, 31)]);
        let late = (0..20).map(|at| (400, 10 + at));
        let rest = (0..30).map(|at| (400 + at * 20, 32 + at));
        let (left, buffer) = run(&numbers.chain(late).chain(rest).collect::<Vec<_>>());
        assert!(left.is_sorted_by_key(|(_, number, _)| *number), "{left:?}");
        assert_eq!(left.iter().map(|(.., lost)| lost).sum::<u64>(), 20);
        assert_eq!(buffer.stats.late, 20);
    }

    #[test]
    fn jump_begins_a_new_stream() {
        let (left, _) = run(&[(0, 60_000), (20, 3), (40, 4)]);
        assert_eq!(left, [(0, 60_000, 0), (20, 3, 0), (40, 4, 0)]);
    }
}
