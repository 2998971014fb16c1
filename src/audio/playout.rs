//! Playout pacing: when audio may leave for a client, and when the client has played it.
//!
//! The model generates speech up to 30 s ahead (mappings/notes/minicpm-o-duplex.md#turns). Audio already sent cannot be
//! recalled, and the microphone is muted until the client has played it (mappings/notes/minicpm-o-duplex.md#barge-in).
//! Audio therefore leaves only a little ahead of real time. This module calculates with durations and instants. It
//! holds no audio and reads no clock; callers pass instants in ascending order.

use std::time::{Duration, Instant};

/// Amount by which an underrun lengthens the hold of the next text (mappings/notes/minicpm-o-duplex.md#jitter).
const HOLD_INCREASE: Duration = Duration::from_millis(150);

/// Playout pacer for one client's audio, text by text.
///
/// With a lead, the audio that was sent but not yet played never exceeds the lead. Without a lead, all audio
/// leaves in one burst and counts as played.
///
/// The first audio of a text is held briefly once texts have run dry. Each underrun lengthens this hold, and each
/// text without one shortens it. The first audio is also held while it is known to be too short.
///
/// ```
/// use std::time::{Duration, Instant};
/// use voxbridge_audio::playout::PlayoutPacer;
///
/// let (frame, now) = (Duration::from_millis(20), Instant::now());
/// let mut pacer = PlayoutPacer::new(Some(Duration::from_millis(100)), Duration::from_millis(500));
/// pacer.begin_text(now);
/// while pacer.earliest_send(now, frame) <= now {
///     pacer.record_sent(now, frame);
/// }
/// assert_eq!(pacer.playout_end(), Some(now + 5 * frame));
/// assert_eq!(pacer.earliest_send(now, frame), now + frame);
/// ```
#[derive(Debug, Clone)]
pub struct PlayoutPacer {
    lead: Option<Duration>,
    hold: Duration,
    hold_max: Duration,
    /// Earliest release of the text's first audio, before adding `shortfall`.
    release_at: Option<Instant>,
    /// Playing time by which the text's first audio falls short of bridging the gap to the next audio.
    shortfall: Duration,
    /// When the client will have played everything sent.
    playout_end: Option<Instant>,
    /// Audio of the current text was sent.
    has_sent: bool,
    /// The current text has run dry.
    ran_dry: bool,
}

impl PlayoutPacer {
    /// A pacer with nothing sent. `lead: None` means a burst. The hold grows to at most `hold_max`; zero
    /// disables it.
    pub const fn new(lead: Option<Duration>, hold_max: Duration) -> Self {
        let (hold, shortfall) = (Duration::ZERO, Duration::ZERO);
        Self {
            lead,
            hold,
            hold_max,
            release_at: None,
            shortfall,
            playout_end: None,
            has_sent: false,
            ran_dry: false,
        }
    }

    /// Begins a text when its first audio arrives. Unplayed audio of the previous text stays counted.
    pub fn begin_text(&mut self, now: Instant) {
        self.adapt_hold();
        self.release_at = Some(now + self.hold);
        self.shortfall = Duration::ZERO;
    }

    /// Holds the text's first audio because it falls short by `missing`, within `hold_max`. Call again when
    /// more audio arrives, until some of the text was sent.
    pub fn set_shortfall(&mut self, missing: Duration) {
        if !self.has_sent {
            self.shortfall = missing.min(self.hold_max);
        }
    }

    fn release_time(&self) -> Option<Instant> {
        self.release_at.map(|release_at| release_at + self.shortfall)
    }

    /// Length of audio that may leave now; [`Duration::MAX`] in a burst.
    pub fn send_budget(&self, now: Instant) -> Duration {
        let Some(lead) = self.lead else { return Duration::MAX };
        if self.release_time().is_some_and(|release| now < release) {
            return Duration::ZERO;
        }
        lead.saturating_sub(self.unplayed(now))
    }

    /// Earliest instant at which `quantum` more may leave, not before `now`. A quantum longer than the lead
    /// waits until everything is played.
    pub fn earliest_send(&self, now: Instant, quantum: Duration) -> Instant {
        let Some(lead) = self.lead else { return now };
        let wait = self.unplayed(now).saturating_sub(lead.saturating_sub(quantum));
        let next = now + wait;
        self.release_time().map_or(next, |release| release.max(next))
    }

    /// Instant by which `quantum` more should leave. Between the earliest instant and this one it leaves with the next thing
    /// that happens, which saves a wake-up. By then, a quarter of the audio that is kept ahead has been played.
    pub fn latest_send(&self, now: Instant, quantum: Duration) -> Instant {
        let earliest = self.earliest_send(now, quantum);
        let ahead =
            self.lead.filter(|_| self.has_sent).map_or(Duration::ZERO, |lead| lead.saturating_sub(quantum));
        // Time already waited is not added again, however often this is called.
        let waited = ahead.saturating_sub(self.unplayed(now));
        earliest + (ahead / 4).saturating_sub(waited)
    }

    /// Records that audio of this `length` leaves now. Returns true if the client had run dry: it played all
    /// audio of this text before `now`.
    pub fn record_sent(&mut self, now: Instant, length: Duration) -> bool {
        if self.lead.is_none() || length.is_zero() {
            return false;
        }
        let ran_dry = self.has_sent && self.playout_end.is_some_and(|playout_end| playout_end < now);
        self.playout_end = Some(now + self.unplayed(now) + length);
        self.has_sent = true;
        self.ran_dry |= ran_dry;
        ran_dry
    }

    /// Ends a pause in sending. The silence of a client that ran dry in the pause is no underrun.
    pub fn end_pause(&mut self, at: Instant) {
        self.playout_end = self.playout_end.map(|playout_end| playout_end.max(at));
    }

    /// When the client will have played everything sent; `None` if nothing was sent, and in a burst.
    pub const fn playout_end(&self) -> Option<Instant> {
        self.playout_end
    }

    /// Length of the audio that was sent but not yet played.
    pub fn unplayed(&self, now: Instant) -> Duration {
        self.playout_end.map_or(Duration::ZERO, |playout_end| playout_end.saturating_duration_since(now))
    }

    /// Hold of the next text's first audio if the current text ended now.
    pub fn next_hold(&self) -> Duration {
        match (self.has_sent, self.ran_dry) {
            (false, _) => self.hold,
            (true, true) => (self.hold + HOLD_INCREASE).min(self.hold_max),
            (true, false) => self.hold * 9 / 10,
        }
    }

    /// Stops the current text, because it was played to its end or was cancelled. No audio counts as unplayed
    /// any more.
    pub fn stop(&mut self) {
        self.adapt_hold();
        self.release_at = None;
        self.shortfall = Duration::ZERO;
        self.playout_end = None;
    }

    /// Ends the current text and adapts the hold for the next one.
    fn adapt_hold(&mut self) {
        self.hold = self.next_hold();
        self.has_sent = false;
        self.ran_dry = false;
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

    fn pacer_and_start() -> (PlayoutPacer, Instant) {
        (PlayoutPacer::new(Some(ms(200)), ms(400)), start())
    }

    /// Sends a text of two frames with `gap` between them; returns true if it ran dry.
    fn send_text(pacer: &mut PlayoutPacer, now: &mut Instant, gap: Duration) -> bool {
        pacer.begin_text(*now);
        *now = pacer.earliest_send(*now, FRAME);
        pacer.record_sent(*now, FRAME);
        *now += gap;
        let dry = pacer.record_sent(*now, FRAME);
        *now += FRAME;
        pacer.stop();
        dry
    }

    #[test]
    fn send_budget_refills_as_audio_is_played() {
        let (mut pacer, start) = pacer_and_start();
        assert_eq!(pacer.playout_end(), None);
        assert_eq!(pacer.send_budget(start), ms(200));
        assert!(!pacer.record_sent(start, ms(200)));
        assert_eq!(
            (pacer.send_budget(start), pacer.earliest_send(start, FRAME)),
            (Duration::ZERO, start + FRAME)
        );
        assert_eq!(pacer.send_budget(start + ms(50)), ms(50));
        assert_eq!(pacer.earliest_send(start + ms(50), FRAME), start + ms(50));
        assert_eq!(pacer.playout_end(), Some(start + ms(200)));
        assert_eq!(pacer.unplayed(start + ms(150)), ms(50));
        assert_eq!(pacer.unplayed(start + ms(900)), Duration::ZERO);
    }

    #[test]
    fn audio_may_wait_until_a_quarter_of_what_is_ahead_was_played() {
        let (mut pacer, start) = pacer_and_start();
        pacer.begin_text(start);
        assert_eq!(pacer.latest_send(start, FRAME), start, "the first audio does not wait");
        pacer.record_sent(start, ms(200));
        for asked_ms in [0, 10, 20, 30, 65] {
            let latest = pacer.latest_send(start + ms(asked_ms), FRAME);
            assert_eq!(latest, start + FRAME + ms(45), "asked at {asked_ms} ms");
        }
        assert_eq!(pacer.latest_send(start + ms(80), FRAME), start + ms(80), "later than that");
        assert_eq!(pacer.latest_send(start, ms(300)), start + ms(200), "longer than the lead");
        assert_eq!(PlayoutPacer::new(None, ms(0)).latest_send(start, FRAME), start, "a burst");
    }

    #[test]
    fn late_audio_is_reported_as_underrun() {
        let (mut pacer, start) = pacer_and_start();
        pacer.begin_text(start);
        assert!(!pacer.record_sent(start + ms(500), FRAME), "the first frame cannot be late");
        assert!(!pacer.record_sent(start + ms(520), FRAME), "just in time");
        assert!(!pacer.record_sent(start + ms(900), Duration::ZERO), "no audio");
        assert!(pacer.record_sent(start + ms(900), FRAME));
        assert_eq!(pacer.playout_end(), Some(start + ms(920)), "playout restarts after the underrun");
    }

    #[test]
    fn pause_between_texts_is_no_underrun() {
        let (mut pacer, start) = pacer_and_start();
        pacer.record_sent(start, FRAME);
        pacer.begin_text(start + ms(10));
        assert_eq!(pacer.unplayed(start + ms(10)), ms(10), "the first text is still playing");
        assert!(!pacer.record_sent(start + ms(900), FRAME));
        assert_eq!(pacer.next_hold(), Duration::ZERO);
    }

    #[test]
    fn underruns_lengthen_the_hold_and_success_shortens_it() {
        let (mut pacer, mut now) = pacer_and_start();
        for held in [150, 300, 400, 400] {
            assert!(send_text(&mut pacer, &mut now, ms(100)));
            assert_eq!(pacer.next_hold(), ms(held));
        }
        for held in [360, 324] {
            assert!(!send_text(&mut pacer, &mut now, FRAME));
            assert_eq!(pacer.next_hold(), ms(held));
        }
        pacer.begin_text(now);
        assert_eq!(
            (pacer.send_budget(now), pacer.earliest_send(now, FRAME)),
            (Duration::ZERO, now + ms(324))
        );
        assert_eq!(pacer.send_budget(now + ms(324)), ms(200));
        pacer.stop();
        assert_eq!(pacer.next_hold(), ms(324), "a text without audio does not change the hold");
        assert_eq!(pacer.earliest_send(now, FRAME), now);
    }

    #[test]
    fn first_audio_is_held_for_its_shortfall() {
        let (mut pacer, mut now) = pacer_and_start();
        for (missing, held) in [(0, 0), (300, 300), (900, 400)] {
            pacer.begin_text(now);
            pacer.set_shortfall(ms(missing));
            assert_eq!(
                (pacer.earliest_send(now, FRAME), pacer.send_budget(now).is_zero()),
                (now + ms(held), held > 0)
            );
            pacer.set_shortfall(ms(missing / 3));
            assert_eq!(pacer.earliest_send(now, FRAME), now + ms(missing / 3), "more audio arrived");
            now = pacer.earliest_send(now, FRAME);
            pacer.record_sent(now, FRAME);
            pacer.set_shortfall(ms(300));
            assert_eq!(pacer.earliest_send(now, FRAME), now, "only the first audio is held");
            now += FRAME;
            pacer.stop();
            assert_eq!(pacer.next_hold(), Duration::ZERO, "there was no underrun");
        }
        send_text(&mut pacer, &mut now, ms(100));
        pacer.begin_text(now);
        pacer.set_shortfall(ms(300));
        assert_eq!(pacer.earliest_send(now, FRAME), now + ms(450), "hold and shortfall add up");
    }

    #[test]
    fn stop_discards_unplayed_audio() {
        let (mut pacer, start) = pacer_and_start();
        pacer.record_sent(start, ms(5_000));
        assert_eq!(pacer.send_budget(start), Duration::ZERO, "the lead is used up");
        pacer.stop();
        assert_eq!((pacer.playout_end(), pacer.send_budget(start)), (None, ms(200)));
    }

    #[test]
    fn quantum_longer_than_lead_waits_until_all_is_played() {
        let (mut pacer, start) = pacer_and_start();
        assert_eq!(pacer.earliest_send(start, ms(1_000)), start);
        pacer.record_sent(start, ms(1_000));
        assert_eq!(pacer.earliest_send(start, ms(1_000)), start + ms(1_000));
        let mut none = PlayoutPacer::new(Some(Duration::ZERO), Duration::ZERO);
        assert_eq!(none.earliest_send(start, FRAME), start);
        none.record_sent(start, FRAME);
        assert_eq!(none.earliest_send(start, FRAME), start + FRAME);
    }

    #[test]
    fn burst_is_sent_immediately() {
        let (mut pacer, start) = (PlayoutPacer::new(None, ms(400)), start());
        for _ in 0..3 {
            pacer.begin_text(start);
            assert_eq!(
                (pacer.send_budget(start), pacer.earliest_send(start, ms(60_000))),
                (Duration::MAX, start)
            );
            assert!(!pacer.record_sent(start, ms(60_000)));
            assert!(!pacer.record_sent(start + ms(100_000), ms(60_000)));
            assert_eq!((pacer.playout_end(), pacer.unplayed(start)), (None, Duration::ZERO));
        }
        assert_eq!(pacer.next_hold(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn unplayed_audio_stays_within_the_lead(
            lead in 0u64..500,
            quantum in 1u64..300,
            waits in prop::collection::vec(0u64..400, 1..60),
        ) {
            let (lead, quantum, start) = (ms(lead), ms(quantum), start());
            let mut pacer = PlayoutPacer::new(Some(lead), Duration::ZERO);
            let (mut now, mut sent, mut first, mut lost) = (start, Duration::ZERO, None, Duration::ZERO);
            for wait in waits {
                now += ms(wait);
                while pacer.earliest_send(now, quantum) <= now {
                    prop_assert!(pacer.send_budget(now) >= quantum.min(lead));
                    let idle = pacer.playout_end().map_or(Duration::ZERO, |playout_end| now.saturating_duration_since(playout_end));
                    prop_assert_eq!(pacer.record_sent(now, quantum), !idle.is_zero());
                    sent += quantum;
                    lost += idle;
                    let first = *first.get_or_insert(now);
                    prop_assert_eq!(pacer.playout_end(), Some(first + sent + lost), "frames play one after the other");
                }
                let unplayed = pacer.unplayed(now);
                prop_assert!(unplayed <= sent, "unplayed audio exceeds sent audio");
                prop_assert!(unplayed <= lead.max(quantum));
                prop_assert_eq!(pacer.send_budget(now), lead.saturating_sub(unplayed));
                let next = pacer.earliest_send(now, quantum);
                prop_assert!(next > now && pacer.earliest_send(next, quantum) == next, "the quantum may leave at the announced instant");
            }
        }

        #[test]
        fn hold_stays_within_its_limit(gaps in prop::collection::vec(0u64..60, 0..40), hold_max in 0u64..600) {
            let (mut pacer, mut now) = (PlayoutPacer::new(Some(ms(200)), ms(hold_max)), start());
            for gap in gaps {
                let before = pacer.next_hold();
                let dry = send_text(&mut pacer, &mut now, ms(gap));
                prop_assert_eq!(dry, gap > 20);
                prop_assert!(pacer.next_hold() <= ms(hold_max));
                let expected = if dry { (before + HOLD_INCREASE).min(ms(hold_max)) } else { before * 9 / 10 };
                prop_assert_eq!(pacer.next_hold(), expected);
            }
        }
    }
}
