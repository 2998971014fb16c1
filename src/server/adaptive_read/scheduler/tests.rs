//! A client in virtual time, and whether it is looked at when it should be.

use proptest::prelude::*;

use super::*;

const FRAME: Duration = Duration::from_millis(20);
const WITHIN: Duration = Duration::from_millis(100);
/// A runtime's clock wakes nobody up within a millisecond.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);
/// Sessions whose ticks are as close as can be: 2 ms.
const MANY_SESSIONS: usize = 1_000;

/// What a run of a client has shown.
#[derive(Debug, Default)]
struct ReadLog {
    /// How late what was decided by a frame was found, after the frame was there; and when.
    delays: Vec<(Duration, Duration)>,
    /// When it was looked at.
    reads: Vec<Duration>,
    /// When it was listened to, from and to.
    listened: Vec<(Duration, Duration)>,
}

impl ReadLog {
    /// The latest from then on.
    fn max_delay(&self, from: Duration) -> Duration {
        self.delays.iter().filter(|(at, _)| *at >= from).map(|(_, delay)| *delay).max().unwrap_or_default()
    }

    fn reads_between(&self, from: Duration, to: Duration) -> usize {
        self.reads.iter().filter(|at| (from..to).contains(*at)).count()
    }

    /// For how long it was listened to between these.
    fn listened_between(&self, from: Duration, to: Duration) -> Duration {
        let part = |(begin, end): &(Duration, Duration)| (*end.min(&to)).saturating_sub(*begin.max(&from));
        self.listened.iter().map(part).sum()
    }
}

fn window_of(received: Duration, frame: Duration, until_decision: Duration) -> ReadWindow {
    ReadWindow {
        received,
        last_frame_length: frame,
        until_decision,
        urgent: true,
        frame_max_bytes: 0,
        max_delay: WITHIN,
    }
}

/// A client whose frames arrive then, all in order, and by whose audio something is decided each time that so much of it has
/// come, for which somebody waits; driven as [`crate::server::session_task::SessionTask`] drives it.
fn simulate(arrivals: &[Duration], decided_every: Duration) -> ReadLog {
    simulate_with_urgency(arrivals, decided_every, true)
}

/// The same, where nobody may wait for it.
fn simulate_with_urgency(arrivals: &[Duration], decided_every: Duration, urgent: bool) -> ReadLog {
    let start = Instant::now();
    let (mut scheduler, mut log) = (ReadScheduler::new(start), ReadLog::default());
    let (mut now, mut read, mut is_scheduled) = (Duration::ZERO, 0, false);
    let end = arrivals.last().copied().unwrap_or_default();
    while now < end {
        let received = FRAME * u32::try_from(read).unwrap();
        let decided = received.as_micros() / decided_every.as_micros() + 1;
        let next = decided_every * u32::try_from(decided).unwrap();
        let frame = if read == 0 { Duration::ZERO } else { FRAME };
        let window = Some(ReadWindow { urgent, ..window_of(received, frame, next - received) });
        let at =
            scheduler.next_read(start + now, WakeSlots::new(start, MANY_SESSIONS), window, !is_scheduled);
        is_scheduled = at.is_some();
        match at {
            None => {
                let begin = now;
                now = arrivals[read].max(now);
                log.listened.push((begin, now));
            }
            Some(at) if at > start + now => {
                now = round_up_to_timer(at - start);
                continue;
            }
            Some(_) => {
                scheduler.on_read(start + now, window);
                log.reads.push(now);
            }
        }
        while read < arrivals.len() && arrivals[read] <= now {
            read += 1;
            let here = FRAME * u32::try_from(read).unwrap();
            if here >= next && here - FRAME < next {
                log.delays.push((now, now - arrivals[read - 1]));
            }
        }
    }
    log
}

fn round_up_to_timer(at: Duration) -> Duration {
    let slots = at.as_micros().div_ceil(TIMER_RESOLUTION.as_micros());
    TIMER_RESOLUTION * u32::try_from(slots).unwrap()
}

/// A microphone whose clock goes so wrong, over a network that delays a frame by so much.
fn microphone(phase_us: u64, drift_ppm: i64, jitter_us: &[u64]) -> Vec<Duration> {
    let mut last = 0;
    let arrival = |(at, jitter): (usize, &u64)| {
        let ideal = (at as i64 + 1) * 20_000;
        let sent = (ideal + ideal * drift_ppm / 1_000_000).unsigned_abs() + phase_us;
        // TCP hands nothing on out of order.
        last = last.max(sent + jitter);
        Duration::from_micros(last)
    };
    jitter_us.iter().enumerate().map(arrival).collect()
}

/// So long a client needs to be known as one that streams.
const DETECTION_TIME: Duration = Duration::from_millis(1_500);
const LENGTH_FRAMES: usize = 600;

fn decision_intervals() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![256, 304, 512, 1_000]).prop_map(Duration::from_millis)
}

proptest! {
    #[test]
    fn decision_is_read_at_once_when_frames_come_evenly(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, interval in decision_intervals(), urgent: bool
    ) {
        let log = simulate_with_urgency(&microphone(phase_us, drift_ppm, &[0; LENGTH_FRAMES]), interval, urgent);
        let latest = Duration::from_millis(if urgent { 2 } else { 6 });
        prop_assert!(log.max_delay(DETECTION_TIME) <= latest, "{:?} {:?}", log.max_delay(DETECTION_TIME), log);
        let (from, to) = (DETECTION_TIME, DETECTION_TIME + Duration::from_secs(10));
        prop_assert!(log.reads_between(from, to) <= 160, "{:?}", log);
        let listened = log.listened_between(from, to);
        prop_assert!(listened <= Duration::from_millis(if urgent { 100 } else { 0 }), "{:?} {:?}", listened, log);
    }

    #[test]
    fn jitter_delays_reads_by_at_most_worst_frame_plus_one_step(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, interval in decision_intervals(), max_jitter_us in 0u64..15_000,
        urgent: bool, seeds in prop::collection::vec(0u64..1_000, LENGTH_FRAMES)
    ) {
        let jitter: Vec<u64> = seeds.iter().map(|seed| seed * max_jitter_us / 1_000).collect();
        let log = simulate_with_urgency(&microphone(phase_us, drift_ppm, &jitter), interval, urgent);
        // The longest step after a look in vain, and a tick; who is waited for takes no steps.
        let bound = Duration::from_micros(max_jitter_us) + Duration::from_millis(if urgent { 2 } else { 11 });
        prop_assert!(log.max_delay(Duration::ZERO) <= bound, "{:?} {:?}", log.max_delay(DETECTION_TIME), log);
        prop_assert!(log.reads_between(DETECTION_TIME, DETECTION_TIME + Duration::from_secs(10)) <= 170, "{:?}", log);
    }
}

/// Frames of a client whose clock runs so many times as fast as ours.
fn at_speed(speed: f64, frames: u32) -> Vec<Duration> {
    (1..=frames).map(|frame| (FRAME * frame).div_f64(speed)).collect()
}

const SECOND: Duration = Duration::from_secs(1);
/// What is listened for in a few seconds because a look came a moment too soon.
const BRIEF_LISTENING: Duration = Duration::from_millis(20);

#[test]
fn one_late_frame_does_not_delay_later_reads() {
    let mut arrivals = at_speed(1.0, 1_000);
    // What is decided by it is listened for.
    arrivals[499] += Duration::from_millis(15);
    let log = simulate(&arrivals, SECOND);
    assert!(log.delays.iter().any(|(at, _)| *at == arrivals[499]), "{log:?}");
    assert!(log.max_delay(DETECTION_TIME) <= Duration::from_millis(2), "{log:?}");
}

#[test]
fn client_that_stops_is_event_driven_after_few_reads() {
    let mut arrivals = at_speed(1.0, 250);
    let stopped = *arrivals.last().unwrap();
    arrivals.extend(at_speed(1.0, 250).iter().map(|at| stopped + 60 * SECOND + *at));
    let log = simulate(&arrivals, SECOND);
    assert!(log.listened_between(DETECTION_TIME, stopped) <= BRIEF_LISTENING, "{log:?}");
    let back = stopped + 60 * SECOND;
    let reads = log.reads_between(stopped, back);
    assert!(reads <= 2 * FUTILE_READS_MAX as usize, "{reads}");
    assert!(log.listened_between(stopped, back) >= 59 * SECOND, "{log:?}");
    // The next that comes is found as it comes, and it is soon known again.
    assert!(log.listened_between(back + DETECTION_TIME, back + 5 * SECOND) <= BRIEF_LISTENING, "{log:?}");
    assert!(log.max_delay(stopped) <= Duration::from_millis(4), "{log:?}");
}

#[test]
fn client_at_other_speed_is_event_driven() {
    for speed in [0.4, 1.6, 8.0] {
        let arrivals = at_speed(speed, 500);
        let log = simulate(&arrivals, SECOND);
        let end = *arrivals.last().unwrap();
        assert!(log.reads.is_empty() && log.listened_between(Duration::ZERO, end) == end, "{speed}");
    }
    let log = simulate(&at_speed(0.9, 500), SECOND);
    assert!(log.reads.len() > 50, "nearly real time will do: {log:?}");
}

#[test]
fn client_that_changes_speed_becomes_event_driven() {
    for speed in [0.3, 4.0] {
        let mut arrivals = at_speed(1.0, 250);
        let change = *arrivals.last().unwrap();
        arrivals.extend(at_speed(speed, 500).iter().map(|at| change + *at));
        let log = simulate(&arrivals, SECOND);
        let (from, end) = (change + SECOND, *arrivals.last().unwrap());
        assert_eq!(log.listened_between(from, end), end - from, "{speed}");
    }
}

#[test]
fn client_without_read_window_is_event_driven() {
    let start = Instant::now();
    let slots = WakeSlots::new(start, MANY_SESSIONS);
    let mut scheduler = ReadScheduler::new(start);
    let window = |came_ms| {
        let received = Duration::from_millis(came_ms);
        window_of(received, FRAME, SECOND)
    };
    let next = |scheduler: &mut ReadScheduler, ms, window| {
        scheduler.next_read(start + Duration::from_millis(ms), slots, window, true)
    };
    for ms in (20..=600).step_by(20) {
        assert_eq!(next(&mut scheduler, ms, None), None);
        let long = ReadWindow { last_frame_length: WITHIN, ..window(ms) };
        assert_eq!(next(&mut scheduler, ms, Some(long)), None, "a frame that is no shorter than the wait");
    }
    assert_eq!(next(&mut scheduler, 620, Some(window(620))), Some(start + Duration::from_millis(720)));
    assert_eq!(next(&mut scheduler, 640, None), None, "also of a client that streams");
}

#[test]
fn unrelated_wakeup_keeps_frame_forecast() {
    let start = Instant::now();
    let slots = WakeSlots::new(start, MANY_SESSIONS);
    let mut scheduler = ReadScheduler::new(start);
    let ms = Duration::from_millis;
    for at in (20..=600).step_by(20) {
        scheduler.next_read(start + ms(at), slots, Some(window_of(ms(at), FRAME, SECOND)), true);
    }
    let next = scheduler.next_read(start + ms(613), slots, Some(window_of(ms(600), FRAME, FRAME)), true);
    assert_eq!(next, Some(start + ms(620)));
}

#[test]
fn decision_already_made_causes_no_busy_reads() {
    let start = Instant::now();
    let (mut scheduler, mut reads, mut is_scheduled) = (ReadScheduler::new(start), 0, false);
    let mut received = Duration::ZERO;
    // As in a conversation without a model, where a unit waits that is whole.
    for ms in 0..10_000 {
        let now = start + TIMER_RESOLUTION * ms;
        let mut reads_in_a_row = 0;
        loop {
            if !is_scheduled {
                received = FRAME * (ms / 20);
            }
            let window = Some(window_of(received, FRAME, Duration::ZERO));
            let at = scheduler.next_read(now, WakeSlots::new(start, MANY_SESSIONS), window, !is_scheduled);
            is_scheduled = at.is_some();
            if at.is_none_or(|at| at > now) {
                break;
            }
            scheduler.on_read(now, window);
            received = FRAME * (ms / 20);
            reads += 1;
            reads_in_a_row += 1;
            assert!(reads_in_a_row < 3, "nobody else has a turn, {ms} ms");
        }
    }
    assert!((300..900).contains(&reads), "once a frame: {reads}");
}

#[test]
fn non_urgent_read_is_aligned_to_wake_slot() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    // The process began before the session did, and not a whole number of ticks.
    let slots = WakeSlots::new(start - ms(1), MANY_SESSIONS);
    let mut scheduler = ReadScheduler::new(start);
    let (mut listened, mut next) = (0, None);
    for at in (20..=600).step_by(20) {
        next = scheduler.next_read(start + ms(at), slots, Some(window_of(ms(at), FRAME, 2 * FRAME)), true);
        listened += u32::from(next.is_none());
    }
    assert!(listened > 0);
    assert_eq!(next, Some(start + ms(640)), "when the second frame is there");
    let idle = ReadWindow { urgent: false, ..window_of(ms(600), FRAME, 2 * FRAME) };
    assert_eq!(
        scheduler.next_read(start + ms(600), slots, Some(idle), true),
        Some(start + ms(641)),
        "on a tick"
    );
    let bound = window_of(ms(600), FRAME, SECOND);
    assert_eq!(
        scheduler.next_read(start + ms(600), slots, Some(bound), true),
        Some(start + ms(701)),
        "on a tick: nothing is decided"
    );
}
