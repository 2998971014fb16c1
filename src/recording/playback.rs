//! Places the audio that the client plays: one piece after the other, each at the earliest when it was sent.
//!
//! Audio may be sent long before it is played. It waits here, so that a cut can still drop it.

use std::{collections::VecDeque, time::Duration};

use super::{
    RATE_HZ,
    position::{Stretch, sample_at},
};
use crate::audio::{encoding::Encoding, input_converter::InputConverter};

/// Most audio that waits to be played. A client that gets more at once is not heard: it saves a file.
const WAITING_MAX: Duration = Duration::from_secs(900);

/// Audio of one encoding and rate.
#[derive(Debug)]
struct Format {
    encoding: Encoding,
    rate_hz: u32,
    converter: InputConverter,
}

/// Audio that the client plays.
#[derive(Debug, Default)]
pub(super) struct PlaybackTrack {
    format: Option<Format>,
    stretch: Option<Stretch>,
    /// Position of the first sample that waits.
    next: u64,
    waiting: VecDeque<i16>,
    /// Samples that found no room.
    left_out: u64,
}

impl PlaybackTrack {
    /// Audio was sent at this time. `place` gets the samples that were played before.
    pub(super) fn push(
        &mut self,
        at: Duration,
        encoding: Encoding,
        rate_hz: u32,
        bytes: &[u8],
        place: impl FnMut(u64, &[i16]),
    ) {
        let end = self.stretch.map(|stretch| stretch.end());
        let is_same =
            self.format.as_ref().is_some_and(|known| (known.encoding, known.rate_hz) == (encoding, rate_hz));
        if !is_same || end.is_none_or(|end| end < at) {
            self.end_stretch();
            self.play_until(sample_at(at), place);
            let start = end.map_or(at, |end| end.max(at));
            self.stretch = Some(Stretch::new(start, rate_hz));
            self.fill_up_to(sample_at(start));
            let converter = InputConverter::to_rate(encoding, rate_hz, 1, RATE_HZ).ok();
            self.format = converter.map(|converter| Format { encoding, rate_hz, converter });
        }
        let (Some(format), Some(stretch)) = (&mut self.format, &mut self.stretch) else { return };
        stretch.add((bytes.len() / encoding.bytes_per_sample()) as u64);
        let mut samples = Vec::new();
        format.converter.push(bytes, &mut samples);
        self.queue(&samples);
    }

    /// The client drops what it has not played at this time.
    pub(super) fn cut(&mut self, at: Duration, place: impl FnMut(u64, &[i16])) {
        self.end_stretch();
        self.play_until(sample_at(at), place);
        self.waiting.clear();
        self.stretch = None;
    }

    /// Gives out the samples that are played before this position.
    pub(super) fn play_until(&mut self, position: u64, mut place: impl FnMut(u64, &[i16])) {
        let count = position.saturating_sub(self.next).min(self.waiting.len() as u64) as usize;
        if count > 0 {
            let samples: Vec<i16> = self.waiting.drain(..count).collect();
            place(self.next, &samples);
            self.next += count as u64;
        }
    }

    /// Samples that found no room.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Takes the last samples out of the converter.
    fn end_stretch(&mut self) {
        let mut samples = Vec::new();
        if let Some(mut format) = self.format.take() {
            format.converter.flush(&mut samples);
        }
        self.queue(&samples);
    }

    /// Silence up to this position. Rounding may have put the last samples one further.
    fn fill_up_to(&mut self, position: u64) {
        let end = self.next + self.waiting.len() as u64;
        match position.checked_sub(end) {
            Some(_) if self.waiting.is_empty() => self.next = position,
            Some(gap) => self.waiting.extend(std::iter::repeat_n(0, gap as usize)),
            None => {}
        }
    }

    fn queue(&mut self, samples: &[i16]) {
        let room = (WAITING_MAX.as_secs() as usize * RATE_HZ as usize).saturating_sub(self.waiting.len());
        self.waiting.extend(&samples[..samples.len().min(room)]);
        self.left_out += samples.len().saturating_sub(room) as u64;
    }
}
