//! When audio may leave for a client, and when the client has played it.
//!
//! The model speaks up to half a minute ahead (MiniCPM-o field notes §7.16). What has left cannot be taken back, and the
//! microphone is deaf until all of it was heard (§7.20): so audio leaves only a little ahead of the clock. This is
//! arithmetic over lengths and instants; it holds no audio and sees no clock. Instants are given in order.

use std::time::{Duration, Instant};

/// What a text that ran dry adds to the hold of the next one (field notes §7.24).
const HOLD_MORE: Duration = Duration::from_millis(150);

/// The pace of one client's audio, text by text.
///
/// With a lead, what has left and is not played yet stays within it; without one, everything leaves in one burst and
/// counts as played. The first audio of a text is held for a moment once texts run dry: longer after each that does,
/// shorter after each that does not. It is also held for as long as it is known to be too short.
///
/// ```
/// use std::time::{Duration, Instant};
/// use voxbridge::audio::playout::Pace;
///
/// let (frame, now) = (Duration::from_millis(20), Instant::now());
/// let mut pace = Pace::new(Some(Duration::from_millis(100)), Duration::from_millis(500));
/// pace.begin(now);
/// while pace.next(now, frame) <= now {
///     pace.sent(now, frame);
/// }
/// assert_eq!(pace.played_at(), Some(now + 5 * frame));
/// assert_eq!(pace.next(now, frame), now + frame);
/// ```
#[derive(Debug, Clone)]
pub struct Pace {
    lead: Option<Duration>,
    hold: Duration,
    hold_max: Duration,
    /// When the first audio of the text may leave, but for what it lacks.
    from: Option<Instant>,
    /// By how much the first audio of the text falls short of lasting until the next comes.
    lacks: Duration,
    /// When all that was sent will have been played.
    played_at: Option<Instant>,
    /// Something of the text at hand was sent.
    audible: bool,
    /// The text at hand has run dry.
    dry: bool,
}

impl Pace {
    /// A pace with nothing sent. No `lead` is a burst; the hold grows to `hold_max` at most, zero for none.
    #[must_use]
    pub const fn new(lead: Option<Duration>, hold_max: Duration) -> Self {
        let (hold, lacks) = (Duration::ZERO, Duration::ZERO);
        Self { lead, hold, hold_max, from: None, lacks, played_at: None, audible: false, dry: false }
    }

    /// The first audio of a text is there. What is still to be played of the text before stays so.
    pub fn begin(&mut self, now: Instant) {
        self.learn();
        self.from = Some(now + self.hold);
        self.lacks = Duration::ZERO;
    }

    /// The first audio of the text is so much too short to last until the next comes, and is held for that, within
    /// `hold_max`. To be said again when more has come, until some of it was sent.
    pub fn lacks(&mut self, missing: Duration) {
        if !self.audible {
            self.lacks = missing.min(self.hold_max);
        }
    }

    fn from(&self) -> Option<Instant> {
        self.from.map(|from| from + self.lacks)
    }

    /// How much may leave now: [`Duration::MAX`] in a burst.
    #[must_use]
    pub fn may_send(&self, now: Instant) -> Duration {
        let Some(lead) = self.lead else { return Duration::MAX };
        if self.from().is_some_and(|from| now < from) {
            return Duration::ZERO;
        }
        lead.saturating_sub(self.unplayed(now))
    }

    /// When `quantum` more may leave; `now` if it already may. One that is longer than the lead waits until all is played.
    #[must_use]
    pub fn next(&self, now: Instant, quantum: Duration) -> Instant {
        let Some(lead) = self.lead else { return now };
        let wait = self.unplayed(now).saturating_sub(lead.saturating_sub(quantum));
        let next = now + wait;
        self.from().map_or(next, |from| from.max(next))
    }

    /// So much has left now. Whether the client had run dry: all of this text that had left was played before now.
    pub fn sent(&mut self, now: Instant, length: Duration) -> bool {
        if self.lead.is_none() || length.is_zero() {
            return false;
        }
        let dry = self.audible && self.played_at.is_some_and(|played_at| played_at < now);
        self.played_at = Some(now + self.unplayed(now) + length);
        self.audible = true;
        self.dry |= dry;
        dry
    }

    /// When all that was sent will have been played; none if nothing was, or in a burst.
    #[must_use]
    pub const fn played_at(&self) -> Option<Instant> {
        self.played_at
    }

    /// How much of what was sent is still to be played.
    #[must_use]
    pub fn unplayed(&self, now: Instant) -> Duration {
        self.played_at.map_or(Duration::ZERO, |played_at| played_at.saturating_duration_since(now))
    }

    /// For how long the first audio of the next text will be held, if the text at hand ends as it is.
    #[must_use]
    pub fn hold(&self) -> Duration {
        match (self.audible, self.dry) {
            (false, _) => self.hold,
            (true, true) => (self.hold + HOLD_MORE).min(self.hold_max),
            (true, false) => self.hold * 9 / 10,
        }
    }

    /// The text has ended and was played, or it was cancelled: nothing of it is to be played any more.
    pub fn stop(&mut self) {
        self.learn();
        self.from = None;
        self.lacks = Duration::ZERO;
        self.played_at = None;
    }

    /// Ends the text at hand: the next one is held by how it went.
    fn learn(&mut self) {
        self.hold = self.hold();
        self.audible = false;
        self.dry = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: Duration = ms(20);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        Instant::now()
    }

    fn paced() -> (Pace, Instant) {
        (Pace::new(Some(ms(200)), ms(400)), start())
    }

    /// A text of two frames with this much time between them.
    fn text(pace: &mut Pace, now: &mut Instant, gap: Duration) -> bool {
        pace.begin(*now);
        *now = pace.next(*now, FRAME);
        pace.sent(*now, FRAME);
        *now += gap;
        let dry = pace.sent(*now, FRAME);
        *now += FRAME;
        pace.stop();
        dry
    }

    #[test]
    fn audio_leaves_as_it_is_played() {
        let (mut pace, start) = paced();
        assert_eq!(pace.played_at(), None);
        assert_eq!(pace.may_send(start), ms(200));
        assert!(!pace.sent(start, ms(200)));
        assert_eq!((pace.may_send(start), pace.next(start, FRAME)), (Duration::ZERO, start + FRAME));
        assert_eq!(pace.may_send(start + ms(50)), ms(50));
        assert_eq!(pace.next(start + ms(50), FRAME), start + ms(50));
        assert_eq!(pace.played_at(), Some(start + ms(200)));
        assert_eq!(pace.unplayed(start + ms(150)), ms(50));
        assert_eq!(pace.unplayed(start + ms(900)), Duration::ZERO);
    }

    #[test]
    fn a_client_that_has_played_all_has_run_dry() {
        let (mut pace, start) = paced();
        pace.begin(start);
        assert!(!pace.sent(start + ms(500), FRAME), "nothing was sent before");
        assert!(!pace.sent(start + ms(520), FRAME), "just in time");
        assert!(!pace.sent(start + ms(900), Duration::ZERO), "no audio");
        assert!(pace.sent(start + ms(900), FRAME));
        assert_eq!(pace.played_at(), Some(start + ms(920)), "time in which nothing was played is lost");
    }

    #[test]
    fn the_pause_between_two_texts_is_none() {
        let (mut pace, start) = paced();
        pace.sent(start, FRAME);
        pace.begin(start + ms(10));
        assert_eq!(pace.unplayed(start + ms(10)), ms(10), "the first one is still heard");
        assert!(!pace.sent(start + ms(900), FRAME));
        assert_eq!(pace.hold(), Duration::ZERO);
    }

    #[test]
    fn texts_are_held_while_they_run_dry() {
        let (mut pace, mut now) = paced();
        for held in [150, 300, 400, 400] {
            assert!(text(&mut pace, &mut now, ms(100)));
            assert_eq!(pace.hold(), ms(held));
        }
        for held in [360, 324] {
            assert!(!text(&mut pace, &mut now, FRAME));
            assert_eq!(pace.hold(), ms(held));
        }
        pace.begin(now);
        assert_eq!((pace.may_send(now), pace.next(now, FRAME)), (Duration::ZERO, now + ms(324)));
        assert_eq!(pace.may_send(now + ms(324)), ms(200));
        pace.stop();
        assert_eq!(pace.hold(), ms(324), "a text that was never heard teaches nothing");
        assert_eq!(pace.next(now, FRAME), now);
    }

    #[test]
    fn a_first_piece_that_is_too_short_is_held_until_it_lasts() {
        let (mut pace, mut now) = paced();
        for (missing, held) in [(0, 0), (300, 300), (900, 400)] {
            pace.begin(now);
            pace.lacks(ms(missing));
            assert_eq!((pace.next(now, FRAME), pace.may_send(now).is_zero()), (now + ms(held), held > 0));
            pace.lacks(ms(missing / 3));
            assert_eq!(pace.next(now, FRAME), now + ms(missing / 3), "more has come");
            now = pace.next(now, FRAME);
            pace.sent(now, FRAME);
            pace.lacks(ms(300));
            assert_eq!(pace.next(now, FRAME), now, "the rest is not held");
            now += FRAME;
            pace.stop();
            assert_eq!(pace.hold(), Duration::ZERO, "nothing has run dry");
        }
        text(&mut pace, &mut now, ms(100));
        pace.begin(now);
        pace.lacks(ms(300));
        assert_eq!(pace.next(now, FRAME), now + ms(450), "texts run dry besides");
    }

    #[test]
    fn what_is_cancelled_is_played_no_longer() {
        let (mut pace, start) = paced();
        pace.sent(start, ms(5_000));
        assert_eq!(pace.may_send(start), Duration::ZERO, "more than may leave has left");
        pace.stop();
        assert_eq!((pace.played_at(), pace.may_send(start)), (None, ms(200)));
    }

    #[test]
    fn a_quantum_longer_than_the_lead_waits_for_all_to_be_played() {
        let (mut pace, start) = paced();
        assert_eq!(pace.next(start, ms(1_000)), start);
        pace.sent(start, ms(1_000));
        assert_eq!(pace.next(start, ms(1_000)), start + ms(1_000));
        let mut none = Pace::new(Some(Duration::ZERO), Duration::ZERO);
        assert_eq!(none.next(start, FRAME), start);
        none.sent(start, FRAME);
        assert_eq!(none.next(start, FRAME), start + FRAME);
    }

    #[test]
    fn a_burst_leaves_at_once() {
        let (mut pace, start) = (Pace::new(None, ms(400)), start());
        for _ in 0..3 {
            pace.begin(start);
            assert_eq!((pace.may_send(start), pace.next(start, ms(60_000))), (Duration::MAX, start));
            assert!(!pace.sent(start, ms(60_000)));
            assert!(!pace.sent(start + ms(100_000), ms(60_000)));
            assert_eq!((pace.played_at(), pace.unplayed(start)), (None, Duration::ZERO));
        }
        assert_eq!(pace.hold(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn audio_stays_within_its_lead_and_time(
            lead in 0u64..500,
            quantum in 1u64..300,
            waits in prop::collection::vec(0u64..400, 1..60),
        ) {
            let (lead, quantum, start) = (ms(lead), ms(quantum), start());
            let mut pace = Pace::new(Some(lead), Duration::ZERO);
            let (mut now, mut sent, mut first, mut lost) = (start, Duration::ZERO, None, Duration::ZERO);
            for wait in waits {
                now += ms(wait);
                while pace.next(now, quantum) <= now {
                    prop_assert!(pace.may_send(now) >= quantum.min(lead));
                    let idle = pace.played_at().map_or(Duration::ZERO, |played_at| now.saturating_duration_since(played_at));
                    prop_assert_eq!(pace.sent(now, quantum), !idle.is_zero());
                    sent += quantum;
                    lost += idle;
                    let first = *first.get_or_insert(now);
                    prop_assert_eq!(pace.played_at(), Some(first + sent + lost), "all is played, one after the other");
                }
                let unplayed = pace.unplayed(now);
                prop_assert!(unplayed <= sent, "nothing is played that was not sent");
                prop_assert!(unplayed <= lead.max(quantum));
                prop_assert_eq!(pace.may_send(now), lead.saturating_sub(unplayed));
                let next = pace.next(now, quantum);
                prop_assert!(next > now && pace.next(next, quantum) == next, "it may leave when it was said to");
            }
        }

        #[test]
        fn the_hold_stays_within_its_limit(gaps in prop::collection::vec(0u64..60, 0..40), hold_max in 0u64..600) {
            let (mut pace, mut now) = (Pace::new(Some(ms(200)), ms(hold_max)), start());
            for gap in gaps {
                let before = pace.hold();
                let dry = text(&mut pace, &mut now, ms(gap));
                prop_assert_eq!(dry, gap > 20);
                prop_assert!(pace.hold() <= ms(hold_max));
                let expected = if dry { (before + HOLD_MORE).min(ms(hold_max)) } else { before * 9 / 10 };
                prop_assert_eq!(pace.hold(), expected);
            }
        }
    }
}
