//! When a client that streams is looked at, instead of being listened to all the time.
//!
//! Audio that streams in real time can be foretold: when the last frame is there without which nothing can be decided is
//! when to look. The forecast learns from every look: one that came in vain moves it later, one that found what it was for
//! a little sooner. What somebody waits for is listened for if a look for it came in vain, and tells exactly when frames
//! come. Who streams no more, or not at real time, is listened to again. Pure: instants come in.

use std::time::Duration;

use tokio::time::Instant;

use crate::{server::adaptive_read::wake_slots::Ticks, session::Lull};

/// Over so long it is judged whether a client streams in real time.
const JUDGED_OVER: Duration = Duration::from_millis(500);
/// A look that finds what it was for was this much too late, maybe, μs.
const SOONER: i64 = -350;
/// A frame that was listened for was this much late at most, μs: one that is late says little of those after it, and to look
/// too soon for one costs next to nothing.
const LATE: i64 = 1_000;
/// A look in vain is taken again so much later, μs, and twice that after another one.
const LATER: i64 = 2_000;
/// Between two looks there is this at least, whatever is foretold: others have their turn.
const AGAIN: Duration = Duration::from_millis(1);
/// Looks in vain after which it streams no more.
const IN_VAIN: u32 = 4;

/// The looks at one client.
#[derive(Debug)]
pub(crate) struct Glances {
    start: Instant,
    streams: bool,
    /// When that was last judged, and how much audio had come by then.
    judged: (Instant, Duration),
    /// How long after `start` audio comes, less its place in the stream, μs; as far as is known.
    offset: i64,
    looked_at: Instant,
    /// How much audio had come at the last look.
    came: Duration,
    /// What the look that was taken was for, until it is known whether it found it.
    taken: Option<Option<Duration>>,
    in_vain: u32,
}

impl Glances {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            start: now,
            streams: false,
            judged: (now, Duration::ZERO),
            offset: 0,
            looked_at: now,
            came: Duration::ZERO,
            taken: None,
            in_vain: 0,
        }
    }

    /// When the client is to be looked at, which may be now; none if it is to be listened to. To be asked when all it had
    /// sent was read; `listened` says that that was so up to now.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        ticks: Ticks,
        lull: Option<Lull>,
        listened: bool,
    ) -> Option<Instant> {
        let lull = lull.filter(|lull| lull.frame < lull.within)?;
        self.judge(now, &lull);
        let overdue = lull.prompt && self.decided_at(&lull) <= now;
        let missed = overdue && (listened || self.taken.is_some());
        if listened {
            // Nothing new says nothing: something else has woken up who asks.
            if lull.came > self.came {
                let late = self.offset_of(now, lull.came) - self.offset;
                let little = self.streams && (0..micros(lull.frame)).contains(&late);
                self.offset += if little { late.min(LATE) } else { late };
            }
            (self.looked_at, self.in_vain, self.taken) = (now, 0, None);
        } else if let Some(wanted) = self.taken.take().filter(|_| !missed) {
            self.learn(now, &lull, wanted);
        }
        self.came = lull.came;
        if missed || !self.streams {
            return None;
        }
        let decided = self.decided_at(&lull).max(self.looked_at + AGAIN);
        let bound = self.looked_at + lull.within;
        // Who is awake anyway looks a little sooner, rather than waking up again.
        let soon = decided.min(bound - lull.within / 3);
        Some(match decided.min(bound) {
            _ if soon <= now => now,
            at if lull.prompt && at == decided => at,
            at => ticks.at_or_after(at),
        })
    }

    /// It is looked at now.
    pub(crate) fn look(&mut self, now: Instant, lull: Option<Lull>) {
        self.looked_at = now;
        let foretold = lull.filter(|lull| self.decided_at(lull) <= now);
        self.taken = Some(foretold.map(|lull| lull.came + lull.undecided));
    }

    /// Whether it streams in real time.
    fn judge(&mut self, now: Instant, lull: &Lull) {
        let (since, before) = self.judged;
        let (passed, came) = (now - since, lull.came.saturating_sub(before));
        if passed >= JUDGED_OVER {
            self.streams = came * 2 > passed && came < passed * 3 / 2;
            self.judged = (now, lull.came);
        }
    }

    fn learn(&mut self, now: Instant, lull: &Lull, wanted: Option<Duration>) {
        // What was decided already is no reason to look again.
        let in_vain = lull.came == self.came || wanted.is_some_and(|wanted| lull.came < wanted);
        // It cannot have come later than it was found.
        self.offset = self.offset.min(self.offset_of(now, lull.came));
        if !in_vain {
            self.in_vain = 0;
            self.offset += if wanted.is_some() { SOONER } else { 0 };
            return;
        }
        self.offset += LATER << self.in_vain.min(IN_VAIN);
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN {
            self.streams = false;
            self.judged = (now, lull.came);
        }
    }

    /// When the frame comes, as far as can be foretold, without which nothing is decided.
    fn decided_at(&self, lull: &Lull) -> Instant {
        let frame = lull.frame.max(Duration::from_millis(1));
        let frames = lull.undecided.as_micros().div_ceil(frame.as_micros()).max(1);
        let place =
            micros(lull.came) + micros(frame) * i64::try_from(frames).unwrap_or(i64::MAX / 1_000_000_000);
        self.start
            + Duration::from_micros(u64::try_from(self.offset.saturating_add(place)).unwrap_or_default())
    }

    fn offset_of(&self, now: Instant, came: Duration) -> i64 {
        micros(now - self.start) - micros(came)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests;
