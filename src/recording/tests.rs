use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use proptest::prelude::*;

use super::{microphone::MicrophoneTrack, *};
use crate::{
    audio::{echo::Playback, encoding::Encoding, pcm},
    session::{RecordedItem, UserAudio},
};

const FRAME_MS: u64 = 20;
const LOUD: i16 = 20_000;
const QUIET: [i16; 1024] = [0; 1024];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    Instant::now()
}

/// A recording, and what is loud in it.
struct Recorded {
    opened: Instant,
    timeline: Timeline,
    /// Positions of loud samples by side.
    loud: [BTreeMap<u64, i16>; 2],
    end: u64,
}

impl Recorded {
    fn new() -> Self {
        let opened = start();
        Self { opened, timeline: Timeline::new(opened, ms(10_000)), loud: Default::default(), end: 0 }
    }

    fn user(&mut self, at: Duration, encoding: Encoding, rate_hz: u32, bytes: Vec<u8>) {
        let audio = UserAudio { encoding, rate_hz, channels: 1, bytes: bytes.into() };
        self.timeline.push(self.opened + at, &RecordedItem::UserAudio(audio));
    }

    fn model(&mut self, at: Duration, rate_hz: u32, samples: &[i16]) {
        let samples = Bytes::from(pcm::s16le_bytes(samples));
        let sent = Playback::Sent { at: self.opened + at, encoding: Encoding::S16le, rate_hz, samples };
        self.timeline.push(self.opened + at, &RecordedItem::Playback(sent));
    }

    fn cut(&mut self, at: Duration) {
        let cut = RecordedItem::Playback(Playback::Cut(self.opened + at));
        self.timeline.push(self.opened + at, &cut);
    }

    fn write(&mut self, part: AudioPart) {
        assert!(part.position <= self.end, "a gap of {}", part.position - self.end);
        self.end = self.end.max(part.position + part.samples.len() as u64);
        self.loud.iter_mut().for_each(|loud| drop(loud.split_off(&part.position)));
        // Silence is compared at once, because there is much of it.
        for (number, frames) in part.samples.chunks(QUIET.len() / 2).enumerate() {
            if frames.as_flattened() == &QUIET[..2 * frames.len()] {
                continue;
            }
            let first = part.position + (number * QUIET.len() / 2) as u64;
            for (position, sides) in (first..).zip(frames) {
                for (loud, sample) in self.loud.iter_mut().zip(sides) {
                    if sample.unsigned_abs() > LOUD as u16 / 2 {
                        loud.insert(position, *sample);
                    }
                }
            }
        }
    }

    fn take(&mut self, at: Duration) {
        let part = self.timeline.take_changed(self.opened + at);
        self.write(part);
    }

    fn finish(&mut self, at: Duration) {
        let part = self.timeline.finish(self.opened + at);
        self.write(part);
    }

    /// Begins of loud stretches of a side, ms.
    fn clicks(&self, side: RecordedSide) -> Vec<f64> {
        let loud = &self.loud[side as usize];
        let is_begin = |position: &&u64| !loud.contains_key(&(**position).wrapping_sub(1));
        let begins = loud.keys().filter(is_begin);
        let mut clicks: Vec<f64> = Vec::new();
        for begin in begins.map(|position| *position as f64 * 1000.0 / f64::from(RATE_HZ)) {
            // A resampled click rings.
            if clicks.last().is_none_or(|last| begin - last > 15.0) {
                clicks.push(begin);
            }
        }
        clicks
    }
}

/// A frame whose first half is loud.
fn click(rate_hz: u32) -> Vec<i16> {
    let half = (u64::from(rate_hz) * FRAME_MS / 2000) as usize;
    [vec![LOUD; half], vec![0; half]].concat()
}

fn quiet(rate_hz: u32) -> Vec<i16> {
    vec![0; (u64::from(rate_hz) * FRAME_MS / 1000) as usize]
}

fn assert_close(found: &[f64], expected: &[f64], bound_ms: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?}\n{expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= bound_ms, "{found} is not {expected} ms");
    }
}

/// The messages of one second, of which some arrive late. Each that is named begins loud.
fn hear(recorded: &mut Recorded, loud: &[u64], arrival_ms: impl Fn(u64) -> Option<u64>) {
    for number in 0..50_u64 {
        let samples = if loud.contains(&number) { click(16_000) } else { quiet(16_000) };
        if let Some(at) = arrival_ms(number) {
            recorded.user(ms(at), Encoding::S16le, 16_000, pcm::s16le_bytes(&samples));
        }
    }
    recorded.finish(ms(5_000));
}

#[test]
fn pauses_stay_and_a_stall_moves_nothing() {
    let on_time = |number: u64| 1_000 + (number + 1) * FRAME_MS;
    let loud = [0, 12, 40];
    let expected = [1_000.0, 1_240.0, 1_800.0];
    let mut paused = Recorded::new();
    let is_pause = |number: u64| (5..12).contains(&number) || (15..30).contains(&number);
    hear(&mut paused, &loud, |number| (!is_pause(number)).then_some(on_time(number)));
    assert_close(&paused.clicks(RecordedSide::User), &expected, 1.0);
    let mut stalled = Recorded::new();
    hear(&mut stalled, &loud, |number| Some(on_time(if (10..30).contains(&number) { 30 } else { number })));
    assert_close(&stalled.clicks(RecordedSide::User), &expected, 1.0);
}

/// The last samples in the converter find their place while it is still there.
#[test]
fn client_that_stops_sending_leaves_nothing_out() {
    for kept in [ms(550), ms(10_000)] {
        let mut recorded = Recorded::new();
        recorded.timeline = Timeline::new(recorded.opened, kept);
        let mut now = Duration::ZERO;
        while now < Duration::from_secs(60) {
            now += ms(FRAME_MS);
            let is_speaking = now < ms(1_000) || (ms(30_000)..ms(31_000)).contains(&now);
            if is_speaking {
                recorded.user(now, Encoding::S16le, 44_100, pcm::s16le_bytes(&quiet(44_100)));
            }
            if now.as_millis().is_multiple_of(400) {
                recorded.take(now);
            }
        }
        recorded.finish(now);
        assert_eq!(recorded.timeline.left_out(), Duration::ZERO, "{kept:?}");
        assert_eq!(recorded.end, 60 * 24_000);
    }
}

/// A client on a bad network: jitter of up to 60 ms, stalls of seconds that overlap, and pauses of its microphone. Messages keep
/// their order.
struct BadNetwork {
    random: fastrand::Rng,
    arrives: Duration,
    stalled_since: Duration,
    stalled_until: Duration,
    paused_until: Duration,
}

impl BadNetwork {
    const JITTER_MS: u64 = 61;
    /// Longest stall, with those that overlap it: a recording keeps the places of ten seconds open.
    const STALL_MAX: Duration = Duration::from_secs(8);
    /// The least delayed message tells the place of all: there must be enough of them between pauses and stalls.
    const SPEECH_MIN: Duration = Duration::from_secs(1);

    fn new(seed: u64) -> Self {
        let zero = Duration::ZERO;
        let random = fastrand::Rng::with_seed(seed);
        Self { random, arrives: zero, stalled_since: zero, stalled_until: zero, paused_until: zero }
    }

    /// When the frame that was captured from this time on arrives; `None` while the microphone pauses. A pause begins in no stall,
    /// because nobody could tell its place then.
    fn send(&mut self, captured: Duration) -> Option<Duration> {
        let now = captured + ms(FRAME_MS);
        let is_stalled = captured <= self.stalled_until;
        let is_new = (self.paused_until..self.paused_until + Self::SPEECH_MIN).contains(&captured);
        match self.random.u32(..20_000) {
            0..10 if !is_new => {
                self.stalled_since = if is_stalled { self.stalled_since } else { now };
                let until = self.stalled_until.max(now + ms(self.random.u64(300..4_000)));
                self.stalled_until = until.min(self.stalled_since + Self::STALL_MAX);
            }
            10..60 if captured > self.paused_until.max(self.stalled_until) + Self::SPEECH_MIN => {
                self.paused_until = now + ms(self.random.u64(100..6_000));
            }
            _ => {}
        }
        if captured < self.paused_until {
            return None;
        }
        let delayed = now + ms(self.random.u64(..Self::JITTER_MS));
        self.arrives = self.arrives.max(delayed).max(self.stalled_until);
        Some(self.arrives)
    }
}

/// What was captured in an hour and what is found of it: the starts of loud frames, ms.
fn hour_of_a_call(seed: u64) -> (Vec<f64>, Vec<f64>) {
    const RATE: usize = RATE_HZ as usize;
    const FRAME: usize = RATE / 1000 * FRAME_MS as usize;
    let mut network = BadNetwork::new(seed);
    let mut track = MicrophoneTrack::new(ms(10_000));
    let (mut spoken, mut found, mut written) = (Vec::new(), BTreeSet::new(), Duration::ZERO);
    let mut place = |position: u64, samples: &[i16]| {
        for (number, frame) in samples.chunks(FRAME).enumerate() {
            if let Some(first) = Some(frame)
                .filter(|frame| **frame != QUIET[..frame.len()])
                .and_then(|frame| frame.iter().position(|sample| *sample != 0))
            {
                found.insert(position + (number * FRAME + first) as u64);
            }
        }
    };
    let frame = |samples: Vec<i16>| UserAudio {
        encoding: Encoding::S16le,
        rate_hz: RATE_HZ,
        channels: 1,
        bytes: pcm::s16le_bytes(&samples).into(),
    };
    let (quiet, loud) = (frame(quiet(RATE_HZ)), frame(click(RATE_HZ)));
    for number in 0..3_600_000 / FRAME_MS {
        let captured = ms(number * FRAME_MS);
        let is_loud = number % 50 == 0;
        if let Some(arrives) = network.send(captured) {
            if is_loud {
                spoken.push(captured.as_secs_f64() * 1000.0);
            }
            while written + ms(400) <= arrives {
                written += ms(400);
                track.settle(written, &mut place);
                track.earliest = position::sample_at(written.saturating_sub(ms(10_000)));
            }
            track.push(arrives, if is_loud { &loud } else { &quiet }, &mut place);
        }
    }
    track.finish(&mut place);
    let ms_of = |position: u64| position as f64 * 1000.0 / f64::from(RATE_HZ);
    (spoken, found.into_iter().map(ms_of).collect())
}

#[test]
fn hour_of_a_call_is_aligned_with_what_the_client_captured() {
    for seed in 1..=8 {
        let (spoken, found) = hour_of_a_call(seed);
        assert!(spoken.len() > 2_000 && found.len() == spoken.len(), "{} {}", spoken.len(), found.len());
        let errors = found.iter().zip(&spoken).map(|(found, spoken)| (found - spoken).abs());
        let worst = errors.fold(0.0, f64::max);
        assert!(worst <= 20.0, "seed {seed}: {worst} ms");
    }
}

/// Both sides, as they are written while the call lasts.
#[test]
fn both_sides_of_a_call_on_a_bad_network_are_aligned() {
    let mut network = BadNetwork::new(7);
    let mut recorded = Recorded::new();
    let (mut spoken, mut heard) = (Vec::new(), Vec::new());
    let (mut speaks_until, mut written) = (Duration::ZERO, Duration::ZERO);
    let end = Duration::from_secs(120);
    let mut pending: Vec<(Duration, Vec<u8>)> = Vec::new();
    for number in 0..end.as_millis() as u64 / FRAME_MS {
        let captured = ms(number * FRAME_MS);
        let now = captured + ms(FRAME_MS);
        match network.random.u32(..1_000) {
            0..10 if now > speaks_until => speaks_until = now + ms(network.random.u64(1_000..8_000)),
            10..20 if now < speaks_until => {
                recorded.cut(now);
                heard.retain(|at| *at + 5.0 < now.as_secs_f64() * 1000.0);
                speaks_until = Duration::ZERO;
            }
            _ => {}
        }
        if let Some(arrives) = network.send(captured) {
            let is_click = number % 50 == 0;
            if is_click {
                spoken.push(captured.as_secs_f64() * 1000.0);
            }
            let samples = if is_click { click(16_000) } else { quiet(16_000) };
            pending.push((arrives, pcm::s16le_bytes(&samples)));
        }
        // What has arrived, before the model's audio of this time.
        let due = pending.iter().take_while(|(at, _)| *at <= now).count();
        for (at, bytes) in pending.drain(..due) {
            recorded.user(at, Encoding::S16le, 16_000, bytes);
        }
        if now < speaks_until {
            let is_click = number % 10 == 0;
            if is_click {
                heard.push(now.as_secs_f64() * 1000.0);
            }
            recorded.model(now, 24_000, &if is_click { click(24_000) } else { quiet(24_000) });
        }
        if now >= written + ms(500) {
            written = now;
            recorded.take(now);
        }
    }
    for (at, bytes) in pending {
        recorded.user(at, Encoding::S16le, 16_000, bytes);
    }
    recorded.finish(end + ms(8_100));
    assert!(spoken.len() > 70 && heard.len() > 50, "{} {}", spoken.len(), heard.len());
    assert_close(&recorded.clicks(RecordedSide::User), &spoken, 20.0);
    assert_close(&recorded.clicks(RecordedSide::Model), &heard, 1.0);
    assert_eq!(recorded.timeline.left_out(), Duration::ZERO);
}

/// A stall ends, and its messages come in two parts with another stall between them.
#[test]
fn messages_that_catch_up_in_parts_keep_their_places() {
    let arrives = |number: u64| match number {
        10..15 => 20,
        15..45 => 45,
        number => number,
    };
    let mut stalled = Recorded::new();
    hear(&mut stalled, &[0, 12, 25, 46], |number| Some(1_000 + (arrives(number) + 1) * FRAME_MS));
    assert_close(&stalled.clicks(RecordedSide::User), &[1_000.0, 1_240.0, 1_500.0, 1_920.0], 1.0);
}

/// A killed process leaves behind what was written, though its place was not certain.
#[test]
fn audio_is_written_before_its_place_is_certain() {
    let mut recorded = Recorded::new();
    for number in 0..20_u64 {
        let samples = if number == 10 { click(16_000) } else { quiet(16_000) };
        recorded.user(ms(1_000 + number * FRAME_MS), Encoding::S16le, 16_000, pcm::s16le_bytes(&samples));
    }
    recorded.take(ms(1_400));
    assert_close(&recorded.clicks(RecordedSide::User), &[1_180.0], 1.0);
    assert_eq!(recorded.end, 1_400 * 24);
}

#[test]
fn every_format_of_a_client_keeps_time() {
    for (encoding, rate_hz) in [
        (Encoding::Mulaw, 8_000),
        (Encoding::Alaw, 8_000),
        (Encoding::S16le, 8_000),
        (Encoding::S16le, 24_000),
        (Encoding::F32le, 44_100),
        (Encoding::S16le, 48_000),
    ] {
        let mut recorded = Recorded::new();
        for number in 0..500_u64 {
            let samples = if number == 100 || number == 450 { click(rate_hz) } else { quiet(rate_hz) };
            let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
            let mut bytes = Vec::new();
            encoding.encode(&samples, &mut bytes);
            recorded.user(ms(1_000 + number * FRAME_MS), encoding, rate_hz, bytes);
        }
        recorded.finish(ms(11_000));
        // A frame arrives when it is complete.
        assert_close(&recorded.clicks(RecordedSide::User), &[2_980.0, 9_980.0], 1.0);
    }
}

#[test]
fn audio_sent_ahead_is_heard_in_its_time_and_not_after_a_cut_or_the_end() {
    let mut recorded = Recorded::new();
    let seconds = |count: usize| -> Vec<i16> {
        (0..count).flat_map(|_| [click(24_000), vec![0; 24_000 - 480]].concat()).collect()
    };
    recorded.model(ms(1_000), 24_000, &seconds(10));
    recorded.take(ms(3_500));
    assert_close(&recorded.clicks(RecordedSide::Model), &[1_000.0, 2_000.0, 3_000.0], 1.0);
    recorded.cut(ms(4_500));
    recorded.take(ms(5_000));
    recorded.model(ms(6_000), 24_000, &seconds(1));
    // It follows what plays already.
    recorded.model(ms(6_100), 24_000, &seconds(5));
    recorded.finish(ms(8_500));
    let expected = [1_000.0, 2_000.0, 3_000.0, 4_000.0, 6_000.0, 7_000.0, 8_000.0];
    assert_close(&recorded.clicks(RecordedSide::Model), &expected, 1.0);
    assert_eq!(recorded.end, 8_500 * 24, "nothing is after the end");
}

/// The part that was written before the cut was known is corrected.
#[test]
fn cut_that_is_known_late_silences_what_was_written() {
    let mut recorded = Recorded::new();
    recorded.model(ms(0), 24_000, &[LOUD; 24_000]);
    recorded.take(ms(900));
    recorded.cut(ms(500));
    recorded.finish(ms(1_000));
    let last = *recorded.loud[RecordedSide::Model as usize].keys().last().unwrap();
    assert_eq!(last, 500 * 24 - 1);
}

#[test]
fn upload_faster_than_real_time_is_recorded_whole_up_to_a_bound() {
    let mut recorded = Recorded::new();
    for number in 0..3_000_u64 {
        recorded.user(ms(100 + number), Encoding::S16le, 8_000, pcm::s16le_bytes(&click(8_000)));
    }
    recorded.finish(ms(3_200));
    assert_eq!(recorded.timeline.left_out(), Duration::ZERO);
    assert!(recorded.end >= 60 * 24_000, "{}", recorded.end);
    for number in 0..20_000_u64 {
        recorded.user(ms(4_000 + number / 100), Encoding::S16le, 8_000, pcm::s16le_bytes(&quiet(8_000)));
    }
    recorded.take(ms(5_000));
    assert!(recorded.timeline.left_out() > Duration::from_secs(100));
}

proptest! {
    #[test]
    fn no_order_of_pieces_leaves_a_gap(
        pieces in prop::collection::vec((0u64..900, 0usize..4, 1usize..4_000), 1..60),
    ) {
        let mut recorded = Recorded::new();
        let mut now = Duration::ZERO;
        for (wait, kind, length) in pieces {
            now += ms(wait);
            match kind {
                0 => recorded.user(now, Encoding::S16le, 16_000, vec![1; length]),
                1 => recorded.model(now, 24_000, &vec![1; length]),
                2 => recorded.cut(now),
                _ => recorded.take(now),
            }
        }
        recorded.finish(now);
        prop_assert!(recorded.end >= position::sample_at(now));
    }
}
