//! Places the client's audio, as it was spoken: the messages of a stretch follow each other without a gap, whatever the network
//! does to them.
//!
//! A message that comes later than its place may be late, or the client may have paused. Only the messages after it show which:
//! those of a late one catch up. So the place of its audio stays open for [`SETTLING`], or as long as the messages have gaps, and each
//! is then placed as late as those after it allow: the least delayed of them says when all were spoken. Until then, this place is
//! preliminary ([`MicrophoneTrack::preliminary`]).
//!
//! A pause that begins while the network stalls cannot be told from the stall. A delay that stays for longer is taken for a pause.

use std::{ops::Range, time::Duration};

use super::{
    RATE_HZ,
    position::{Stretch, sample_at, time_of},
};
use crate::{
    audio::{encoding::Encoding, input_converter::InputConverter},
    session::UserAudio,
};

/// Lateness that begins another stretch. Shorter ones are jitter, or the clocks of the two machines drift apart.
const LATE_MIN: Duration = Duration::from_millis(20);
/// Longer lateness is no jitter of single messages.
const JITTER_MAX: Duration = Duration::from_millis(100);
/// Shorter lateness is no jitter if it stays for this long.
const STAYS_MIN: Duration = Duration::from_millis(300);
/// The same, where the place of the audio may stay open for long.
const LONG_STAYS_MIN: Duration = Duration::from_millis(600);
/// Time in which the messages after a late one catch up, and the least delayed of them comes.
pub const SETTLING: Duration = Duration::from_millis(450);
/// The same, where the place of the audio may stay open for long.
const LONG_SETTLING: Duration = Duration::from_millis(1_000);
/// Time between messages, beside their length, after which the network may have stalled.
const GAP_MIN: Duration = Duration::from_millis(150);
/// A place is decided this long before its audio must be written for good.
const DECIDED_BEFORE: Duration = Duration::from_millis(500);

/// Time without a message after which a stretch is over, and its last samples leave the converter.
const IDLE: Duration = Duration::from_millis(300);

/// Messages whose places are not known yet.
#[derive(Debug)]
struct Unsettled {
    /// Messages have come without a gap since then.
    flows_since: Duration,
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

/// Samples that follow each other, and where.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    position: u64,
    samples: Range<usize>,
}

/// Places of the first messages.
#[derive(Debug)]
struct Placement {
    runs: Vec<Run>,
    /// The stretch that goes on after them, and where.
    stretch: Stretch,
    next: u64,
    /// Number of their samples.
    taken: usize,
    /// Number of their samples that the converter still has.
    tail: usize,
}

impl Unsettled {
    fn new(first: Message, rate_hz: u32, tail: usize) -> Self {
        Self { flows_since: first.arrived, rate_hz, messages: Vec::new(), tail, samples: Vec::new() }
    }

    fn push(&mut self, message: Message, samples: &[i16]) {
        let length = Stretch::new(Duration::ZERO, self.rate_hz).length(message.groups);
        if self.messages.last().is_some_and(|last| message.arrived > last.arrived + length + GAP_MIN) {
            self.flows_since = message.arrived;
        }
        self.messages.push(message);
        self.samples.extend_from_slice(samples);
    }

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

    /// True if the client has paused before a message, after a stretch that ends here. Lateness grows in the list of starts.
    fn is_after_pause(
        &self,
        starts: &[Duration],
        number: usize,
        stretch_end: Duration,
        stays_min: Duration,
    ) -> bool {
        let late = starts[number].saturating_sub(stretch_end);
        if late <= LATE_MIN || late > JITTER_MAX {
            return late > JITTER_MAX;
        }
        let mut place = Stretch::new(stretch_end, self.rate_hz);
        let stays_until = (stretch_end + stays_min, self.messages[number].arrived + stays_min);
        for (message, start) in self.messages.iter().zip(starts).skip(number) {
            if place.end() >= stays_until.0 && message.arrived >= stays_until.1 {
                return start.saturating_sub(place.end()) <= late + LATE_MIN;
            }
            place.add(message.groups);
        }
        false
    }

    /// Drops messages that have their place.
    fn drop_placed(&mut self, count: usize, placement: &Placement) {
        self.messages.drain(..count);
        self.samples.drain(..placement.taken);
        self.tail = placement.tail;
    }

    /// The stretch that goes on after all messages, if none of them is late.
    fn continue_stretch(&self, mut stretch: Stretch) -> Option<Stretch> {
        for message in &self.messages {
            if !is_in_time(&stretch, *message) {
                return None;
            }
            stretch.add(message.groups);
        }
        Some(stretch)
    }
}

/// Audio of one client.
#[derive(Debug)]
pub(super) struct MicrophoneTrack {
    /// Audio must have its place after this time.
    kept: Duration,
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
    /// Without audio. What is older than `kept` does not change any more.
    pub(super) const fn new(kept: Duration) -> Self {
        Self { kept, format: None, stretch: None, unsettled: None, next: 0, earliest: 0 }
    }

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
            self.unsettled = Some(Unsettled::new(message, audio.rate_hz, pending));
        }
        match (&mut self.unsettled, &mut self.stretch) {
            (Some(unsettled), _) => unsettled.push(message, &samples),
            (None, Some(stretch)) => {
                stretch.add(message.groups);
                self.place(&samples, place);
            }
            (None, None) => {}
        }
    }

    /// Places the audio whose place is known by now, and the end of a stretch that is over.
    pub(super) fn settle(&mut self, now: Duration, mut place: impl FnMut(u64, &[i16])) {
        let count = self.settled_count(now);
        if count > 0 {
            self.place_unsettled(count, &mut place);
        }
        let is_over = |stretch: &Stretch| now > stretch.end() + IDLE;
        if self.unsettled.is_none() && self.stretch.as_ref().is_some_and(is_over) {
            self.end_stretch(place);
        }
    }

    /// Number of the messages after which enough others have come, or that cannot wait for more.
    fn settled_count(&self, now: Duration) -> usize {
        let Some(Unsettled { flows_since, messages, .. }) = &self.unsettled else { return 0 };
        let Some(last) = messages.last() else { return 0 };
        // A client that uploads is ahead of the clock.
        let next = time_of(self.next);
        let can_wait = (next..next + self.kept.saturating_sub(DECIDED_BEFORE)).contains(&now);
        // Silence is no sign that nothing is under way.
        let bound = match can_wait {
            true if last.arrived < *flows_since + LONG_SETTLING => return 0,
            true => last.arrived.saturating_sub(LONG_SETTLING),
            false => now.saturating_sub(SETTLING),
        };
        messages.iter().take_while(|message| message.arrived <= bound).count()
    }

    /// Places everything.
    pub(super) fn finish(&mut self, place: impl FnMut(u64, &[i16])) {
        self.end_stretch(place);
    }

    /// Gives the samples whose place may still change, at the place that they have as far as is known.
    pub(super) fn preliminary(&self, mut place: impl FnMut(u64, &[i16])) {
        let Some(unsettled) = &self.unsettled else { return };
        for Run { position, samples } in self.placement(unsettled, unsettled.messages.len()).runs {
            place(position, &unsettled.samples[samples]);
        }
    }

    fn end_stretch(&mut self, mut place: impl FnMut(u64, &[i16])) {
        let count = self.unsettled.as_ref().map_or(0, |unsettled| unsettled.messages.len());
        self.place_unsettled(count, &mut place);
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

    /// Places the first messages, and the others if none of them is late.
    fn place_unsettled(&mut self, count: usize, mut place: impl FnMut(u64, &[i16])) {
        let Some(mut unsettled) = self.unsettled.take() else { return };
        let placement = self.placement(&unsettled, count);
        for Run { position, samples } in &placement.runs {
            place(*position, &unsettled.samples[samples.clone()]);
        }
        self.next = placement.next;
        unsettled.drop_placed(count, &placement);
        self.stretch = unsettled.continue_stretch(placement.stretch);
        match self.stretch {
            Some(_) => self.place(&unsettled.samples, place),
            None => self.unsettled = Some(unsettled),
        }
    }

    /// The places of the first messages: each where the one before ends, or later if it was spoken after a pause.
    fn placement(&self, unsettled: &Unsettled, count: usize) -> Placement {
        let Unsettled { rate_hz, messages, tail, samples, .. } = unsettled;
        let starts = unsettled.latest_starts();
        let stays_min = if self.kept > LONG_SETTLING { LONG_STAYS_MIN } else { STAYS_MIN };
        let mut placed = (*tail).min(samples.len());
        let mut runs = vec![Run { position: self.next, samples: 0..placed }];
        let mut next = (self.next + placed as u64).max(self.earliest);
        let mut stretch = Stretch::new(time_of(next), *rate_hz);
        let mut before = Stretch::new(Duration::ZERO, *rate_hz);
        let samples_before = |before: Stretch| tail + sample_at(before.end()) as usize;
        for (number, message) in messages.iter().enumerate().take(count) {
            let is_first = self.next == 0 && number == 0;
            if is_first || unsettled.is_after_pause(&starts, number, stretch.end(), stays_min) {
                let end = samples_before(before).clamp(placed, samples.len());
                runs.push(Run { position: next, samples: placed..end });
                next = (next + (end - placed) as u64).max(sample_at(starts[number]));
                placed = end;
                stretch = Stretch::new(time_of(next), *rate_hz);
            }
            stretch.add(message.groups);
            before.add(message.groups);
        }
        let due = if count == messages.len() { samples.len() } else { samples_before(before) };
        let taken = due.clamp(placed, samples.len());
        runs.push(Run { position: next, samples: placed..taken });
        next += (taken - placed) as u64;
        runs.retain(|run| !run.samples.is_empty());
        Placement { runs, stretch, next, taken, tail: due - taken.min(due) }
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
