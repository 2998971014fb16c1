//! Simulates clients in virtual time and checks when the reader reads them.

use futures_util::SinkExt as _;
use proptest::prelude::*;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::*;
use crate::server::websocket::{WebSocket, session_socket::websocket_config};

const FRAME: Duration = Duration::from_millis(20);
const WITHIN: Duration = Duration::from_millis(100);
/// Resolution of the runtime's timer.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);
/// Number of sessions with the narrowest wake slots, 2 ms.
const MANY_SESSIONS: usize = 1_000;

/// The reads of a simulated client.
#[derive(Debug, Default)]
struct ReadLog {
    /// For each decision: when it was read, and how long after its last frame arrived.
    delays: Vec<(Duration, Duration)>,
    /// Times of scheduled reads.
    reads: Vec<Duration>,
    /// Times of event-driven reading, from and to.
    listened: Vec<(Duration, Duration)>,
}

impl ReadLog {
    /// The longest delay of a decision after `from`.
    fn max_delay(&self, from: Duration) -> Duration {
        self.delays.iter().filter(|(at, _)| *at >= from).map(|(_, delay)| *delay).max().unwrap_or_default()
    }

    fn reads_between(&self, from: Duration, to: Duration) -> usize {
        self.reads.iter().filter(|at| (from..to).contains(*at)).count()
    }

    /// Duration of event-driven reading in an interval.
    fn listened_between(&self, from: Duration, to: Duration) -> Duration {
        let part = |(begin, end): &(Duration, Duration)| (*end.min(&to)).saturating_sub(*begin.max(&from));
        self.listened.iter().map(part).sum()
    }
}

fn window_of(received: Duration, frame: Duration, until_decision: Duration) -> ReadWindow {
    ReadWindow { received, last_frame_length: frame, until_decision, frame_max_bytes: 0, max_delay: WITHIN }
}

/// Simulates a client whose frames arrive at these times. Each `decided_every` of audio completes a decision. Reads the
/// client like [`crate::server::session_task::SessionTask`].
fn simulate(arrivals: &[Duration], decided_every: Duration) -> ReadLog {
    simulate_among(MANY_SESSIONS, arrivals, decided_every)
}

/// Like [`simulate`], beside this many sessions.
fn simulate_among(sessions: usize, arrivals: &[Duration], decided_every: Duration) -> ReadLog {
    let start = Instant::now();
    let (mut reader, mut log) = (AdaptiveReader::new(start), ReadLog::default());
    let (mut now, mut read, mut is_scheduled) = (Duration::ZERO, 0, false);
    let end = arrivals.last().copied().unwrap_or_default();
    while now < end {
        let received = FRAME * u32::try_from(read).unwrap();
        let decided = received.as_micros() / decided_every.as_micros() + 1;
        let next = decided_every * u32::try_from(decided).unwrap();
        let frame = if read == 0 { Duration::ZERO } else { FRAME };
        let window = Some(window_of(received, frame, next - received));
        let at = reader.next_poll(start + now, WakeSlots::new(start, sessions), window, !is_scheduled);
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
                reader.on_read(start + now);
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

/// Arrival times of a microphone with clock drift and network jitter.
fn microphone(phase_us: u64, drift_ppm: i64, jitter_us: &[u64]) -> Vec<Duration> {
    let mut last = 0;
    let arrival = |(at, jitter): (usize, &u64)| {
        let ideal = (at as i64 + 1) * 20_000;
        let sent = (ideal + ideal * drift_ppm / 1_000_000).unsigned_abs() + phase_us;
        // TCP keeps the order.
        last = last.max(sent + jitter);
        Duration::from_micros(last)
    };
    jitter_us.iter().enumerate().map(arrival).collect()
}

/// Time until a streaming client is recognised.
const DETECTION_TIME: Duration = Duration::from_millis(1_500);
const LENGTH_FRAMES: usize = 600;

fn decision_intervals() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![256, 304, 512, 1_000]).prop_map(Duration::from_millis)
}

proptest! {
    #[test]
    fn decision_is_read_at_once_when_frames_come_evenly(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, interval in decision_intervals(),
        sessions in prop::sample::select(vec![1, MANY_SESSIONS]),
    ) {
        let log = simulate_among(sessions, &microphone(phase_us, drift_ppm, &[0; LENGTH_FRAMES]), interval);
        prop_assert!(log.max_delay(DETECTION_TIME) <= TIMER_RESOLUTION, "{:?} {:?}", log.max_delay(DETECTION_TIME), log);
        let (from, to) = (DETECTION_TIME, DETECTION_TIME + Duration::from_secs(10));
        prop_assert!(log.reads_between(from, to) <= 120, "{:?}", log);
        // Three frames before each decision, and the time of the frame that completes it.
        let decisions = 10_000 / interval.as_millis() as u32 + 1;
        let listened = log.listened_between(from, to);
        prop_assert!(listened <= 3 * FRAME * decisions, "{:?} {:?}", listened, log);
    }

    #[test]
    fn jitter_delays_reads_by_no_more_than_itself(
        phase_us in 0u64..20_000, drift_ppm in -300i64..300, interval in decision_intervals(), max_jitter_us in 0u64..15_000,
        seeds in prop::collection::vec(0u64..1_000, LENGTH_FRAMES)
    ) {
        let jitter: Vec<u64> = seeds.iter().map(|seed| seed * max_jitter_us / 1_000).collect();
        let log = simulate(&microphone(phase_us, drift_ppm, &jitter), interval);
        let bound = Duration::from_micros(max_jitter_us) + Duration::from_millis(2);
        prop_assert!(log.max_delay(Duration::ZERO) <= bound, "{:?} {:?}", log.max_delay(DETECTION_TIME), log);
        prop_assert!(log.reads_between(DETECTION_TIME, DETECTION_TIME + Duration::from_secs(10)) <= 120, "{:?}", log);
    }
}

/// Arrival times of a client that streams at a multiple of real time.
fn at_speed(speed: f64, frames: u32) -> Vec<Duration> {
    (1..=frames).map(|frame| (FRAME * frame).div_f64(speed)).collect()
}

const SECOND: Duration = Duration::from_secs(1);
/// Event-driven reading of a client that streams, per decision.
const LISTENED_PER_DECISION: Duration = Duration::from_millis(60);

#[test]
fn one_late_frame_does_not_delay_later_reads() {
    let mut arrivals = at_speed(1.0, 1_000);
    // A decision depends on the late frame.
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
    assert!(log.listened_between(DETECTION_TIME, stopped) <= 4 * LISTENED_PER_DECISION, "{log:?}");
    let back = stopped + 60 * SECOND;
    let reads = log.reads_between(stopped, back);
    assert!(reads <= 1, "{reads}");
    assert!(log.listened_between(stopped, back) >= 59 * SECOND, "{log:?}");
    // The next frame is read on its event, and the client is soon recognised as streaming.
    let listened = log.listened_between(back + DETECTION_TIME, back + 5 * SECOND);
    assert!(listened <= 5 * LISTENED_PER_DECISION, "{log:?}");
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
    assert!(log.reads.len() > 50, "nearly real time is streaming: {log:?}");
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
    let mut reader = AdaptiveReader::new(start);
    let window = |came_ms| {
        let received = Duration::from_millis(came_ms);
        window_of(received, FRAME, SECOND)
    };
    let next = |reader: &mut AdaptiveReader, ms, window| {
        reader.next_poll(start + Duration::from_millis(ms), slots, window, true)
    };
    for ms in (20..=600).step_by(20) {
        assert_eq!(next(&mut reader, ms, None), None);
        let long = ReadWindow { last_frame_length: WITHIN, ..window(ms) };
        assert_eq!(next(&mut reader, ms, Some(long)), None, "a frame no shorter than the maximum delay");
    }
    assert_eq!(next(&mut reader, 620, Some(window(620))), Some(start + Duration::from_millis(720)));
    assert_eq!(next(&mut reader, 640, None), None, "also for a streaming client");
}

#[test]
fn unrelated_wakeup_changes_no_schedule() {
    let start = Instant::now();
    let slots = WakeSlots::new(start, MANY_SESSIONS);
    let mut reader = AdaptiveReader::new(start);
    let ms = Duration::from_millis;
    for at in (20..=600).step_by(20) {
        reader.next_poll(start + ms(at), slots, Some(window_of(ms(at), FRAME, SECOND)), true);
    }
    for was_event_driven in [true, false] {
        let next = reader.next_poll(
            start + ms(613),
            slots,
            Some(window_of(ms(600), FRAME, 3 * FRAME)),
            was_event_driven,
        );
        assert_eq!(next, Some(start + ms(640)), "one frame before the decision");
    }
}

#[test]
fn decision_already_made_is_event_driven() {
    let start = Instant::now();
    let slots = WakeSlots::new(start, MANY_SESSIONS);
    let mut reader = AdaptiveReader::new(start);
    // As in a conversation without a model, where a complete unit waits.
    for ms in (20..10_000).map(Duration::from_millis).step_by(20) {
        assert_eq!(
            reader.next_poll(start + ms, slots, Some(window_of(ms, FRAME, Duration::ZERO)), true),
            None
        );
    }
}

#[test]
fn read_is_aligned_to_wake_slot() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    // The first wake slot is no whole number of slots before the session.
    let slots = WakeSlots::new(start - ms(1), MANY_SESSIONS);
    let mut reader = AdaptiveReader::new(start);
    let mut next = |at, until_decision| {
        reader.next_poll(start + ms(at), slots, Some(window_of(ms(at), FRAME, until_decision)), true)
    };
    let listened = (20..600).step_by(20).filter(|at| next(*at, 4 * FRAME).is_none()).count();
    assert!(listened > 0, "the client is not yet recognised as streaming");
    assert_eq!(next(600, 4 * FRAME), Some(start + ms(659)), "one frame before the decision");
    assert_eq!(next(600, SECOND), Some(start + ms(701)), "after the maximum delay");
    assert_eq!(next(600, 2 * FRAME), None, "the next frames may complete the decision");
}

/// The message that the reader returns without waiting.
async fn read_now(
    reader: &mut AdaptiveReader,
    socket: &mut SessionSocket<tokio::io::DuplexStream>,
) -> Option<SocketEvent> {
    std::future::poll_fn(|cx| Poll::Ready(reader.read(Some(&mut *socket), cx))).await
}

#[tokio::test]
async fn frame_count_of_last_audio_is_kept_until_next_audio() {
    let (near, far) = tokio::io::duplex(4096);
    let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    let mut socket = SessionSocket::new(stream);
    let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let frame = || WsMessage::Binary(vec![1; 100].into());
    for _ in 0..5 {
        client.send(frame()).await.unwrap();
    }
    let mut reader = AdaptiveReader::new(Instant::now());
    reader.window = Some(ReadWindow { frame_max_bytes: 10_000, ..window_of(WITHIN, FRAME, WITHIN) });
    let event = read_now(&mut reader, &mut socket).await;
    assert!(matches!(event, Some(SocketEvent::Message(WsMessage::Binary(frames))) if frames.len() == 500));
    assert_eq!((reader.count_frames(true), reader.last_audio_frames), (5, 5));
    // Reading on events; a message that is not audio keeps the count.
    reader.window = None;
    assert!(read_now(&mut reader, &mut socket).await.is_none());
    assert_eq!((reader.count_frames(false), reader.last_audio_frames), (1, 5));
    client.send(frame()).await.unwrap();
    assert!(read_now(&mut reader, &mut socket).await.is_some());
    assert_eq!((reader.count_frames(true), reader.last_audio_frames), (1, 1));
}
