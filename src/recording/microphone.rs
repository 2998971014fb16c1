//! Places the client's audio, as it was spoken: the messages of a stretch follow each other without a gap, whatever the network
//! does to them.
//!
//! A message that comes later than its place may be late, or the client may have paused. Only the messages after it show which:
//! those of a late one catch up. So its audio waits for [`SETTLING`], and each message is then placed as late as those after it
//! allow. A pause that begins while the network stalls cannot be told from the stall, nor a stall after which only a part of the
//! messages comes in that time: they are placed too late then, until the next pause.

use std::time::Duration;

use super::{
    RATE_HZ,
    position::{Stretch, sample_at},
};
use crate::{
    audio::{encoding::Encoding, input_converter::InputConverter},
    session::UserAudio,
};

/// Lateness that begins another stretch. Shorter ones are jitter, or the clocks of the two machines drift apart.
const LATE_MIN: Duration = Duration::from_millis(20);
/// Time in which the messages after a late one catch up.
pub const SETTLING: Duration = Duration::from_millis(500);

/// Time without a message after which a stretch is over, and its last samples leave the converter.
const IDLE: Duration = Duration::from_millis(300);

/// Messages whose places are not known yet.
#[derive(Debug)]
struct Unsettled {
    began: Duration,
    rate_hz: u32,
    messages: Vec<Message>,
    /// Number of the first samples that belong to the stretch before: the converter still had them.
    tail: usize,
    samples: Vec<i16>,
}

/// A message of the client.
#[derive(Debug, Clone, Copy)]
struct Message {
    arrived: Duration,
    /// Its sample groups.
    groups: u64,
}

impl Unsettled {
    /// The latest possible start of each message: each was spoken before it arrived, and before the next one.
    fn latest_starts(&self) -> Vec<Duration> {
        let unit = Stretch::new(Duration::ZERO, self.rate_hz);
        let mut bound = Duration::MAX;
        let backwards = self.messages.iter().rev().map(|message| {
            bound = bound.min(message.arrived).saturating_sub(unit.length(message.groups));
            bound
        });
        let mut starts: Vec<Duration> = backwards.collect();
        starts.reverse();
        starts
    }
}

/// Audio of one client.
#[derive(Debug, Default)]
pub(super) struct MicrophoneTrack {
    format: Option<(UserFormat, InputConverter)>,
    stretch: Option<Stretch>,
    unsettled: Option<Unsettled>,
    /// Position after the last sample that was placed.
    next: u64,
    /// No sample is placed before this position: what is before it is written for good.
    pub(super) earliest: u64,
}

/// Encoding, rate in Hz, and channels.
type UserFormat = (Encoding, u32, u16);

impl MicrophoneTrack {
    /// A message arrived at this time. `place` gets the samples whose place is known.
    pub(super) fn push(&mut self, at: Duration, audio: &UserAudio, mut place: impl FnMut(u64, &[i16])) {
        self.settle(at, &mut place);
        let format = (audio.encoding, audio.rate_hz, audio.channels);
        if self.format.as_ref().is_none_or(|(known, _)| *known != format) {
            self.end_stretch(&mut place);
            let (encoding, rate_hz, channels) = format;
            let converter = InputConverter::to_rate(encoding, rate_hz, channels, RATE_HZ);
            self.format = converter.ok().map(|converter| (format, converter));
        }
        let pending = self.pending_samples();
        let Some((_, converter)) = &mut self.format else { return };
        let Ok(groups) = converter.groups_of(&audio.bytes) else { return };
        let message = Message { arrived: at, groups: groups as u64 };
        let mut samples = Vec::new();
        converter.push(&audio.bytes, &mut samples);
        if self.unsettled.is_none()
            && !self.stretch.as_ref().is_some_and(|stretch| is_in_time(stretch, message))
        {
            self.stretch = None;
            let (rate_hz, messages) = (audio.rate_hz, Vec::new());
            self.unsettled =
                Some(Unsettled { began: at, rate_hz, messages, tail: pending, samples: Vec::new() });
        }
        match (&mut self.unsettled, &mut self.stretch) {
            (Some(unsettled), _) => {
                unsettled.messages.push(message);
                unsettled.samples.append(&mut samples);
            }
            (None, Some(stretch)) => {
                stretch.add(message.groups);
                self.place(&samples, place);
            }
            (None, None) => {}
        }
    }

    /// Places the audio that has waited long enough, and the end of a stretch that is over.
    pub(super) fn settle(&mut self, now: Duration, mut place: impl FnMut(u64, &[i16])) {
        if self.unsettled.as_ref().is_some_and(|unsettled| now >= unsettled.began + SETTLING) {
            self.place_unsettled(&mut place);
        }
        let is_over = |stretch: &Stretch| now > stretch.end() + IDLE;
        if self.unsettled.is_none() && self.stretch.as_ref().is_some_and(is_over) {
            self.end_stretch(place);
        }
    }

    /// Places everything.
    pub(super) fn finish(&mut self, place: impl FnMut(u64, &[i16])) {
        self.end_stretch(place);
    }

    fn end_stretch(&mut self, mut place: impl FnMut(u64, &[i16])) {
        self.place_unsettled(&mut place);
        self.stretch = None;
        let mut samples = Vec::new();
        if let Some((_, converter)) = &mut self.format {
            converter.flush(&mut samples);
        }
        self.place(&samples, place);
    }

    /// Samples that the converter has not given out.
    fn pending_samples(&self) -> usize {
        self.format.as_ref().map_or(0, |(_, converter)| {
            (converter.pending_groups() * u64::from(RATE_HZ)).div_ceil(converter.rate_hz.into()) as usize
        })
    }

    /// Places the messages: each where the one before ends, or later if it was spoken after a pause.
    fn place_unsettled(&mut self, mut place: impl FnMut(u64, &[i16])) {
        let Some(unsettled) = self.unsettled.take() else { return };
        let starts = unsettled.latest_starts();
        let Unsettled { rate_hz, messages, tail, samples, .. } = unsettled;
        let (tail, samples) = samples.split_at(tail.min(samples.len()));
        let is_first = self.next == 0;
        self.place(tail, &mut place);
        self.next = self.next.max(self.earliest);
        let mut stretch = Stretch::new(time_of(self.next), rate_hz);
        let (mut before, mut placed) = (Stretch::new(Duration::ZERO, rate_hz), 0);
        for (number, (message, start)) in messages.iter().zip(starts).enumerate() {
            // What is late by less is jitter of the network.
            if start > stretch.end() + LATE_MIN || is_first && number == 0 {
                let end = (sample_at(before.end()) as usize).clamp(placed, samples.len());
                self.place(&samples[placed..end], &mut place);
                placed = end;
                self.next = self.next.max(sample_at(start));
                stretch = Stretch::new(time_of(self.next), rate_hz);
            }
            stretch.add(message.groups);
            before.add(message.groups);
        }
        self.place(&samples[placed..], place);
        self.stretch = Some(stretch);
    }

    fn place(&mut self, samples: &[i16], mut place: impl FnMut(u64, &[i16])) {
        if !samples.is_empty() {
            place(self.next, samples);
            self.next += samples.len() as u64;
        }
    }
}

/// True if a message arrived where a stretch goes on.
fn is_in_time(stretch: &Stretch, message: Message) -> bool {
    message.arrived <= stretch.end() + stretch.length(message.groups) + LATE_MIN
}

/// The time of a position.
fn time_of(position: u64) -> Duration {
    Duration::from_nanos(position * 1_000_000_000 / u64::from(RATE_HZ))
}
