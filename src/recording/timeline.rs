//! Both sides of a session by time, and what of them has changed since it was last written.

use std::time::{Duration, Instant};

use super::{microphone::MicrophoneTrack, playback::PlaybackTrack, position::sample_at};
use crate::{
    audio::echo::Playback,
    session::{RecordedItem, UserAudio},
};

/// How far the client's audio may be ahead of the clock. A client that uploads faster is cut off there.
const AHEAD_MAX: Duration = Duration::from_secs(300);

/// A side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedSide {
    /// The user's voice: the left channel.
    User,
    /// What the user heard: the right channel.
    Model,
}

/// Samples of both sides, left and right, from this position on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AudioPart {
    /// Number of samples of a side before them.
    pub position: u64,
    /// The samples.
    pub samples: Vec<[i16; 2]>,
    /// Samples before this position never change again.
    pub fixed: u64,
}

impl AudioPart {
    /// Shows samples of the user at a preliminary place, as far as it may still change.
    fn show_user(&mut self, position: u64, samples: &[i16]) {
        let skipped = self.fixed.saturating_sub(position).min(samples.len() as u64);
        let samples = &samples[skipped as usize..];
        let Some(first) = (position + skipped).checked_sub(self.position) else { return };
        let end = first as usize + samples.len();
        self.samples.resize(self.samples.len().max(end), [0; 2]);
        for (place, sample) in self.samples[first as usize..end].iter_mut().zip(samples) {
            place[0] = *sample;
        }
    }
}

/// Both sides of a session by time.
#[derive(Debug)]
pub struct Timeline {
    opened: Instant,
    /// Length of the audio that late messages of the client may still change.
    kept: Duration,
    microphone: MicrophoneTrack,
    playback: PlaybackTrack,
    window: Window,
    /// No audio is taken after it.
    has_ended: bool,
}

/// The newest samples.
#[derive(Debug, Default)]
struct Window {
    /// Position of the first one.
    start: u64,
    samples: Vec<[i16; 2]>,
    /// Position of the first one that has changed since it was last taken.
    changed: u64,
    /// Samples too far ahead.
    left_out: u64,
}

impl Timeline {
    /// A recording that begins at this instant. Messages of the client that come later than `kept` are placed there; it should be
    /// longer than [`SETTLING`](super::SETTLING).
    #[must_use]
    pub fn new(opened: Instant, kept: Duration) -> Self {
        Self {
            opened,
            kept,
            microphone: MicrophoneTrack::new(kept),
            playback: PlaybackTrack::default(),
            window: Window::default(),
            has_ended: false,
        }
    }

    /// Time since the recording's beginning.
    #[must_use]
    pub fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.opened)
    }

    /// Takes audio at the instant at which the session gave it. Events are no audio.
    pub fn push(&mut self, at: Instant, item: &RecordedItem) {
        match item {
            RecordedItem::UserAudio(audio) => self.push_user_audio(at, audio),
            RecordedItem::Playback(playback) => self.push_playback(playback),
            RecordedItem::Event(_) => {}
        }
    }

    fn push_user_audio(&mut self, at: Instant, audio: &UserAudio) {
        let (at, window) = (self.time_of(at), &mut self.window);
        let bound = sample_at(at + AHEAD_MAX);
        self.microphone.push(at, audio, |position, samples| window.put(0, position, samples, bound));
    }

    fn push_playback(&mut self, playback: &Playback) {
        match playback {
            Playback::Sent { at, encoding, rate_hz, samples } => {
                let (at, window) = (self.time_of(*at), &mut self.window);
                let place = |position, samples: &[i16]| window.put(1, position, samples, u64::MAX);
                self.playback.push(at, *encoding, *rate_hz, samples, place);
            }
            Playback::Cut(at) => self.cut(*at),
        }
    }

    fn cut(&mut self, at: Instant) {
        let (at, window) = (self.time_of(at), &mut self.window);
        self.playback.cut(at, |position, samples| window.put(1, position, samples, u64::MAX));
        window.silence_from(1, sample_at(at));
    }

    /// Takes the audio up to this instant that is new or has changed.
    pub fn take_changed(&mut self, until: Instant) -> AudioPart {
        let (now, window) = (self.time_of(until), &mut self.window);
        let bound = sample_at(now + AHEAD_MAX);
        self.microphone.settle(now, |position, samples| window.put(0, position, samples, bound));
        self.playback
            .play_until(sample_at(now), |position, samples| window.put(1, position, samples, u64::MAX));
        if !self.has_ended {
            window.extend_to(sample_at(now));
        }
        let mut first_preliminary = u64::MAX;
        self.microphone.preliminary(|position, _| first_preliminary = first_preliminary.min(position));
        window.changed = window.changed.min(first_preliminary);
        let mut changed = window.take_changed(sample_at(now.saturating_sub(self.kept)));
        window.changed = window.changed.min(first_preliminary);
        self.microphone.preliminary(|position, samples| changed.show_user(position, samples));
        self.microphone.earliest = window.start;
        changed
    }

    /// Takes the rest at the end of the session: the client plays nothing after it.
    pub fn finish(&mut self, at: Instant) -> AudioPart {
        self.cut(at);
        let (now, window) = (self.time_of(at), &mut self.window);
        let bound = sample_at(now + AHEAD_MAX);
        self.microphone.finish(|position, samples| window.put(0, position, samples, bound));
        let mut changed = self.take_changed(at);
        self.has_ended = true;
        changed.fixed = changed.position + changed.samples.len() as u64;
        changed
    }

    /// Length of the audio that is not recorded, because it was too far ahead of the clock.
    #[must_use]
    pub fn left_out(&self) -> Duration {
        let samples = self.window.left_out + self.playback.left_out();
        Duration::from_secs_f64(samples as f64 / f64::from(super::RATE_HZ))
    }
}

impl Window {
    /// Writes samples of a side. Those before the window are too late, and those from `bound` on too early.
    fn put(&mut self, side: usize, position: u64, samples: &[i16], bound: u64) {
        let skipped = self.start.saturating_sub(position).min(samples.len() as u64) as usize;
        let (position, samples) = (position + skipped as u64, &samples[skipped..]);
        let room = bound.saturating_sub(position).min(samples.len() as u64) as usize;
        self.left_out += (skipped + samples.len() - room) as u64;
        if room == 0 {
            return;
        }
        self.extend_to(position + room as u64);
        self.changed = self.changed.min(position);
        let first = (position - self.start) as usize;
        for (place, sample) in self.samples[first..first + room].iter_mut().zip(samples) {
            place[side] = *sample;
        }
    }

    fn silence_from(&mut self, side: usize, position: u64) {
        let first = position.saturating_sub(self.start) as usize;
        if first < self.samples.len() {
            self.changed = self.changed.min(self.start + first as u64);
            self.samples[first..].iter_mut().for_each(|place| place[side] = 0);
        }
    }

    fn end(&self) -> u64 {
        self.start + self.samples.len() as u64
    }

    fn extend_to(&mut self, position: u64) {
        let missing = position.saturating_sub(self.end()) as usize;
        self.samples.resize(self.samples.len() + missing, [0; 2]);
    }

    /// Takes what has changed, and forgets what is before this position.
    fn take_changed(&mut self, keep_from: u64) -> AudioPart {
        let position = self.changed.max(self.start);
        let first = (position - self.start) as usize;
        let samples = self.samples[first..].to_vec();
        self.changed = self.end();
        let forgotten = keep_from.saturating_sub(self.start).min(self.samples.len() as u64);
        self.samples.drain(..forgotten as usize);
        self.start += forgotten;
        AudioPart { position, samples, fixed: self.start }
    }
}
