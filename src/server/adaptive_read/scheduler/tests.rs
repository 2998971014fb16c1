//! A client in virtual time, and whether it is looked at when it should be.

use proptest::prelude::*;

use super::*;

const FRAME: Duration = Duration::from_millis(20);
const WITHIN: Duration = Duration::from_millis(100);
/// A runtime's clock wakes nobody up within a millisecond.
const TICK: Duration = Duration::from_millis(1);
/// Sessions whose ticks are as close as can be: 2 ms.
const MANY: usize = 1_000;

/// What a run of a client has shown.
#[derive(Debug, Default)]
struct Shown {
    /// How late what was decided by a frame was found, after the frame was there; and when.
    late: Vec<(Duration, Duration)>,
    /// When it was looked at.
    looks: Vec<Duration>,
    /// When it was listened to, from and to.
    listened: Vec<(Duration, Duration)>,
}

impl Shown {
    /// The latest from then on.
    fn latest(&self, from: Duration) -> Duration {
        self.late.iter().filter(|(at, _)| *at >= from).map(|(_, late)| *late).max().unwrap_or_default()
    }

    fn looks_between(&self, from: Duration, to: Duration) -> usize {
        self.looks.iter().filter(|at| (from..to).contains(*at)).count()
    }

    /// For how long it was listened to between these.
    fn listened_between(&self, from: Duration, to: Duration) -> Duration {
        let part = |(begin, end): &(Duration, Duration)| (*end.min(&to)).saturating_sub(*begin.max(&from));
        self.listened.iter().map(part).sum()
    }
}

fn lull_of(came: Duration, frame: Duration, undecided: Duration) -> Lull {
    Lull { came, frame, undecided, prompt: true, frame_max_bytes: 0, within: WITHIN }
}

/// A client whose frames arrive then, all in order, and by whose audio something is decided each time that so much of it has
/// come, for which somebody waits; driven as [`crate::server::session_task::Driver`] drives it.
fn run(arrivals: &[Duration], decided_every: Duration) -> Shown {
    run_of(arrivals, decided_every, true)
}

/// The same, where nobody may wait for it.
fn run_of(arrivals: &[Duration], decided_every: Duration, prompt: bool) -> Shown {
    let start = Instant::now();
    let (mut glances, mut shown) = (Glances::new(start), Shown::default());
    let (mut now, mut read, mut by_clock) = (Duration::ZERO, 0, false);
    let end = arrivals.last().copied().unwrap_or_default();
    while now < end {
        let came = FRAME * u32::try_from(read).unwrap();
        let decided = came.as_micros() / decided_every.as_micros() + 1;
        let next = decided_every * u32::try_from(decided).unwrap();
        let frame = if read == 0 { Duration::ZERO } else { FRAME };
        let lull = Some(Lull { prompt, ..lull_of(came, frame, next - came) });
        let at = glances.next(start + now, Ticks::of(start, MANY), lull, !by_clock);
        by_clock = at.is_some();
        match at {
            None => {
                let begin = now;
                now = arrivals[read].max(now);
                shown.listened.push((begin, now));
            }
            Some(at) if at > start + now => {
                now = up_to_tick(at - start);
                continue;
            }
            Some(_) => {
                glances.look(start + now, lull);
                shown.looks.push(now);
            }
        }
        while read < arrivals.len() && arrivals[read] <= now {
            read += 1;
            let here = FRAME * u32::try_from(read).unwrap();
            if here >= next && here - FRAME < next {
                shown.late.push((now, now - arrivals[read - 1]));
            }
        }
    }
    shown
}

fn up_to_tick(at: Duration) -> Duration {
    let ticks = at.as_micros().div_ceil(TICK.as_micros());
    TICK * u32::try_from(ticks).unwrap()
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
const KNOWN: Duration = Duration::from_millis(1_500);
const LENGTH_FRAMES: usize = 600;

fn decisions() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![256, 304, 512, 1_000]).prop_map(Duration::from_millis)
}

proptest! {
    #[test]
    fn what_is_decided_is_found_at_once_where_frames_come_evenly(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, every in decisions(), prompt: bool
    ) {
        let shown = run_of(&microphone(phase_us, drift_ppm, &[0; LENGTH_FRAMES]), every, prompt);
        let latest = Duration::from_millis(if prompt { 2 } else { 6 });
        prop_assert!(shown.latest(KNOWN) <= latest, "{:?} {:?}", shown.latest(KNOWN), shown);
        let (from, to) = (KNOWN, KNOWN + Duration::from_secs(10));
        prop_assert!(shown.looks_between(from, to) <= 160, "{:?}", shown);
        let listened = shown.listened_between(from, to);
        prop_assert!(listened <= Duration::from_millis(if prompt { 100 } else { 0 }), "{:?} {:?}", listened, shown);
    }

    #[test]
    fn jitter_makes_it_no_later_than_the_worst_frame_and_a_step(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, every in decisions(), most in 0u64..15_000,
        prompt: bool, seeds in prop::collection::vec(0u64..1_000, LENGTH_FRAMES)
    ) {
        let jitter: Vec<u64> = seeds.iter().map(|seed| seed * most / 1_000).collect();
        let shown = run_of(&microphone(phase_us, drift_ppm, &jitter), every, prompt);
        // The longest step after a look in vain, and a tick; who is waited for takes no steps.
        let bound = Duration::from_micros(most) + Duration::from_millis(if prompt { 2 } else { 11 });
        prop_assert!(shown.latest(Duration::ZERO) <= bound, "{:?} {:?}", shown.latest(KNOWN), shown);
        prop_assert!(shown.looks_between(KNOWN, KNOWN + Duration::from_secs(10)) <= 170, "{:?}", shown);
    }
}

/// Frames of a client whose clock runs so many times as fast as ours.
fn at_speed(speed: f64, frames: u32) -> Vec<Duration> {
    (1..=frames).map(|frame| (FRAME * frame).div_f64(speed)).collect()
}

const SECOND: Duration = Duration::from_secs(1);
/// What is listened for in a few seconds because a look came a moment too soon.
const A_LITTLE: Duration = Duration::from_millis(20);

#[test]
fn one_late_frame_does_not_make_those_after_it_late() {
    let mut arrivals = at_speed(1.0, 1_000);
    // What is decided by it is listened for.
    arrivals[499] += Duration::from_millis(15);
    let shown = run(&arrivals, SECOND);
    assert!(shown.late.iter().any(|(at, _)| *at == arrivals[499]), "{shown:?}");
    assert!(shown.latest(KNOWN) <= Duration::from_millis(2), "{shown:?}");
}

#[test]
fn who_stops_is_listened_to_after_a_few_looks() {
    let mut arrivals = at_speed(1.0, 250);
    let stopped = *arrivals.last().unwrap();
    arrivals.extend(at_speed(1.0, 250).iter().map(|at| stopped + 60 * SECOND + *at));
    let shown = run(&arrivals, SECOND);
    assert!(shown.listened_between(KNOWN, stopped) <= A_LITTLE, "{shown:?}");
    let back = stopped + 60 * SECOND;
    let looks = shown.looks_between(stopped, back);
    assert!(looks <= 2 * IN_VAIN as usize, "{looks}");
    assert!(shown.listened_between(stopped, back) >= 59 * SECOND, "{shown:?}");
    // The next that comes is found as it comes, and it is soon known again.
    assert!(shown.listened_between(back + KNOWN, back + 5 * SECOND) <= A_LITTLE, "{shown:?}");
    assert!(shown.latest(stopped) <= Duration::from_millis(4), "{shown:?}");
}

#[test]
fn who_keeps_another_time_is_listened_to() {
    for speed in [0.4, 1.6, 8.0] {
        let arrivals = at_speed(speed, 500);
        let shown = run(&arrivals, SECOND);
        let end = *arrivals.last().unwrap();
        assert!(shown.looks.is_empty() && shown.listened_between(Duration::ZERO, end) == end, "{speed}");
    }
    let shown = run(&at_speed(0.9, 500), SECOND);
    assert!(shown.looks.len() > 50, "nearly real time will do: {shown:?}");
}

#[test]
fn who_becomes_slow_is_listened_to_and_who_becomes_fast_too() {
    for speed in [0.3, 4.0] {
        let mut arrivals = at_speed(1.0, 250);
        let change = *arrivals.last().unwrap();
        arrivals.extend(at_speed(speed, 500).iter().map(|at| change + *at));
        let shown = run(&arrivals, SECOND);
        let (from, end) = (change + SECOND, *arrivals.last().unwrap());
        assert_eq!(shown.listened_between(from, end), end - from, "{speed}");
    }
}

#[test]
fn where_all_is_to_be_read_at_once_it_is_listened_to() {
    let start = Instant::now();
    let ticks = Ticks::of(start, MANY);
    let mut glances = Glances::new(start);
    let lull = |came_ms| {
        let came = Duration::from_millis(came_ms);
        lull_of(came, FRAME, SECOND)
    };
    let next =
        |glances: &mut Glances, ms, lull| glances.next(start + Duration::from_millis(ms), ticks, lull, true);
    for ms in (20..=600).step_by(20) {
        assert_eq!(next(&mut glances, ms, None), None);
        let long = Lull { frame: WITHIN, ..lull(ms) };
        assert_eq!(next(&mut glances, ms, Some(long)), None, "a frame that is no shorter than the wait");
    }
    assert_eq!(next(&mut glances, 620, Some(lull(620))), Some(start + Duration::from_millis(720)));
    assert_eq!(next(&mut glances, 640, None), None, "also of a client that streams");
}

#[test]
fn who_is_woken_up_by_something_else_does_not_forget_when_frames_come() {
    let start = Instant::now();
    let ticks = Ticks::of(start, MANY);
    let mut glances = Glances::new(start);
    let ms = Duration::from_millis;
    for at in (20..=600).step_by(20) {
        glances.next(start + ms(at), ticks, Some(lull_of(ms(at), FRAME, SECOND)), true);
    }
    let next = glances.next(start + ms(613), ticks, Some(lull_of(ms(600), FRAME, FRAME)), true);
    assert_eq!(next, Some(start + ms(620)));
}

#[test]
fn what_is_decided_already_is_no_reason_to_look_all_the_time() {
    let start = Instant::now();
    let (mut glances, mut looks, mut by_clock) = (Glances::new(start), 0, false);
    let mut came = Duration::ZERO;
    // As in a conversation without a model, where a unit waits that is whole.
    for ms in 0..10_000 {
        let now = start + TICK * ms;
        let mut asked = 0;
        loop {
            if !by_clock {
                came = FRAME * (ms / 20);
            }
            let lull = Some(lull_of(came, FRAME, Duration::ZERO));
            let at = glances.next(now, Ticks::of(start, MANY), lull, !by_clock);
            by_clock = at.is_some();
            if at.is_none_or(|at| at > now) {
                break;
            }
            glances.look(now, lull);
            came = FRAME * (ms / 20);
            looks += 1;
            asked += 1;
            assert!(asked < 3, "nobody else has a turn, {ms} ms");
        }
    }
    assert!((300..900).contains(&looks), "once a frame: {looks}");
}

#[test]
fn what_nobody_waits_for_is_looked_at_together_with_others() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    // The process began before the session did, and not a whole number of ticks.
    let ticks = Ticks::of(start - ms(1), MANY);
    let mut glances = Glances::new(start);
    let (mut listened, mut next) = (0, None);
    for at in (20..=600).step_by(20) {
        next = glances.next(start + ms(at), ticks, Some(lull_of(ms(at), FRAME, 2 * FRAME)), true);
        listened += u32::from(next.is_none());
    }
    assert!(listened > 0);
    assert_eq!(next, Some(start + ms(640)), "when the second frame is there");
    let idle = Lull { prompt: false, ..lull_of(ms(600), FRAME, 2 * FRAME) };
    assert_eq!(glances.next(start + ms(600), ticks, Some(idle), true), Some(start + ms(641)), "on a tick");
    let bound = lull_of(ms(600), FRAME, SECOND);
    assert_eq!(
        glances.next(start + ms(600), ticks, Some(bound), true),
        Some(start + ms(701)),
        "on a tick: nothing is decided"
    );
}
