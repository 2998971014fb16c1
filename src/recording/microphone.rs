//! Places the client's audio, as it was spoken: the messages of a stretch follow each other without a gap, whatever the network
//! does to them.
//!
//! A message that comes later than its place may be late, or the client may have paused. Only the messages after it show which:
//! those of a late one catch up. So its audio waits for [`SETTLING`], and then begins where its fastest message puts it.

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

/// A stretch whose start is not known yet.
#[derive(Debug)]
struct Unsettled {
    began: Duration,
    /// The latest start that is possible by the arrival of its messages.
    latest_start: Option<Duration>,
    /// Number of the first samples that belong to the stretch before: the converter still had them.
    tail: usize,
    samples: Vec<i16>,
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
        let format = (audio.encoding, audio.rate_hz, audio.channels);
        if self.format.as_ref().is_none_or(|(known, _)| *known != format) {
            self.end_stretch(&mut place);
            self.stretch = None;
            let (encoding, rate_hz, channels) = format;
            let converter = InputConverter::to_rate(encoding, rate_hz, channels, RATE_HZ);
            self.format = converter.ok().map(|converter| (format, converter));
        }
        let Some(groups) =
            self.format.as_ref().and_then(|(_, converter)| converter.groups_of(&audio.bytes).ok())
        else {
            return;
        };
        let groups = groups as u64;
        let arrived_in_time = |stretch: &Stretch| at <= stretch.end() + stretch.length(groups) + LATE_MIN;
        if self.unsettled.is_none() && !self.stretch.as_ref().is_some_and(arrived_in_time) {
            self.stretch = Some(Stretch::new(Duration::ZERO, audio.rate_hz));
            let (latest_start, samples) = (None, Vec::new());
            self.unsettled =
                Some(Unsettled { began: at, latest_start, tail: self.pending_samples(), samples });
        }
        let (Some((_, converter)), Some(stretch)) = (&mut self.format, &mut self.stretch) else { return };
        stretch.add(groups);
        let mut samples = Vec::new();
        converter.push(&audio.bytes, &mut samples);
        match &mut self.unsettled {
            Some(unsettled) => {
                unsettled.samples.append(&mut samples);
                let start = at.saturating_sub(stretch.end());
                unsettled.latest_start = Some(unsettled.latest_start.map_or(start, |known| known.min(start)));
            }
            None => self.place(&samples, &mut place),
        }
        self.settle(at, place);
    }

    /// Places the audio that has waited long enough, and the end of a stretch that is over.
    pub(super) fn settle(&mut self, now: Duration, mut place: impl FnMut(u64, &[i16])) {
        if self.unsettled.as_ref().is_some_and(|unsettled| now >= unsettled.began + SETTLING) {
            self.place_unsettled(&mut place);
        }
        let is_over = |stretch: &Stretch| now > stretch.end() + IDLE;
        if self.unsettled.is_none() && self.stretch.as_ref().is_some_and(is_over) {
            self.end_stretch(place);
            self.stretch = None;
        }
    }

    /// Places everything.
    pub(super) fn finish(&mut self, place: impl FnMut(u64, &[i16])) {
        self.end_stretch(place);
    }

    fn end_stretch(&mut self, mut place: impl FnMut(u64, &[i16])) {
        self.place_unsettled(&mut place);
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

    fn place_unsettled(&mut self, mut place: impl FnMut(u64, &[i16])) {
        let Some(Unsettled { latest_start, tail, samples, .. }) = self.unsettled.take() else { return };
        let (tail, rest) = samples.split_at(tail.min(samples.len()));
        self.place(tail, &mut place);
        let start = sample_at(latest_start.unwrap_or_default());
        // What is late by less is jitter of the network.
        if start > self.next + sample_at(LATE_MIN) || self.next == 0 {
            self.next = start;
        }
        self.next = self.next.max(self.earliest);
        if let Some(stretch) = &mut self.stretch {
            stretch.start = Duration::from_nanos(self.next * 1_000_000_000 / u64::from(RATE_HZ));
        }
        self.place(rest, place);
    }

    fn place(&mut self, samples: &[i16], mut place: impl FnMut(u64, &[i16])) {
        if !samples.is_empty() {
            place(self.next, samples);
            self.next += samples.len() as u64;
        }
    }
}
