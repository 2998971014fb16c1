//! Recognises at the upstream what the clients sent: which client's audio it is, and which samples of it.
//!
//! A block of 10 ms is the one that is expected if the difference has a tenth of its energy at most: another resampler
//! than voxbridge's may have another filter, but not another time. What is not expected is looked for.

use super::{
    sound::{BLOCK, LOOP, SECOND, Sound},
    track::Track,
};

/// What a resampler makes of the very beginning is its own.
const STARTING: usize = 2 * BLOCK;
/// How far away what is not expected is looked for.
const FAR: u64 = 3 * SECOND as u64;

/// One client's audio as it reaches the upstream.
#[derive(Debug)]
pub(crate) struct Ear {
    /// Where in the loop the stream begins.
    begins: u64,
    pub(crate) track: Track,
    started: bool,
    /// Samples before its first one.
    lag: usize,
    /// Silence that stands for what was not there.
    pub(crate) filled: u64,
}

impl Ear {
    /// Finds whose beginning this is, of so many clients, through a bridge whose first sample comes out behind `lag` others.
    pub(crate) fn of_clients(
        sound: &Sound,
        samples: &[f32],
        clients: usize,
        lag: usize,
    ) -> Option<(usize, Self)> {
        let at = STARTING + lag;
        let fits =
            |client: &usize| is_here(sound, samples, at, (Sound::begins(*client) + STARTING) as u64, 4);
        let client = (0..clients).find(fits)?;
        let track = Track::from(STARTING as u64);
        let begins = Sound::begins(client) as u64;
        Some((client, Self { begins, track, started: false, lag, filled: 0 }))
    }

    /// Finds where in the loop this stretch begins.
    pub(crate) fn of_loop(sound: &Sound, samples: &[f32]) -> Option<(u64, Self)> {
        let first =
            (0..LOOP as u64).find(|place| is_here(sound, samples, STARTING, place + STARTING as u64, 4))?;
        let place =
            exactly(sound, &samples[STARTING..STARTING + BLOCK], first + STARTING as u64) - STARTING as u64;
        let track = Track::from(STARTING as u64);
        Some((place, Self { begins: place, track, started: false, lag: 0, filled: 0 }))
    }

    /// Where in the loop the next sample belongs.
    pub(crate) fn place(&self) -> u64 {
        self.begins + self.track.next
    }

    /// Takes what has come, every block of it.
    pub(crate) fn hear(&mut self, sound: &Sound, samples: &[f32]) {
        let skipped = if std::mem::replace(&mut self.started, true) { 0 } else { STARTING + self.lag };
        let blocks = samples[skipped.min(samples.len())..].chunks(BLOCK);
        for (number, block) in blocks.enumerate() {
            if is_like(block, sound.heard(self.place(), block.len())) {
                self.track.take(block.len() as u64);
            } else if block.iter().all(|sample| *sample == 0.0) {
                self.filled += block.len() as u64;
            } else {
                self.look_for(sound, samples, skipped + number * BLOCK, block.len());
            }
        }
    }

    /// Takes what has come as what is expected, having looked at one block in some; none of what was done to it if that is
    /// wrong.
    pub(crate) fn skim(&mut self, sound: &Sound, blocks: &[(usize, &[f32])], samples: usize) -> bool {
        let fits = |(at, block): &(usize, &[f32])| {
            is_like(block, sound.heard(self.place() + *at as u64, block.len()))
        };
        let all = self.started && blocks.iter().all(fits);
        if all {
            self.track.take(samples as u64);
        }
        all
    }

    /// The block at `at` is not the one that was expected.
    fn look_for(&mut self, sound: &Sound, samples: &[f32], at: usize, length: usize) {
        let here = self.track.next;
        let places = (1..FAR).flat_map(|far| [Some(here + far), here.checked_sub(far)]);
        let found = places.flatten().find(|place| is_here(sound, samples, at, self.begins + place, 1));
        match found {
            Some(place) => {
                let place = exactly(sound, &samples[at..at + length], self.begins + place) - self.begins;
                self.track.next = place;
                self.track.take(length as u64);
            }
            // Silence behind it: the last of what there was.
            None if samples[at + length..].iter().take(BLOCK).all(|sample| *sample == 0.0) => {
                self.filled += length as u64;
            }
            None => self.track.take_unknown(length as u64),
        }
    }
}

/// Whether these samples are, from `at` on and for so many blocks, those of this place of the loop.
fn is_here(sound: &Sound, samples: &[f32], at: usize, place: u64, blocks: usize) -> bool {
    let Some(block) = samples.get(at..at + BLOCK) else { return false };
    let expected = sound.heard(place, BLOCK);
    // Nearly all places are wrong ones, and a few samples tell.
    let far = block.iter().zip(expected).step_by(20).any(|(a, b)| (a - b).abs() > 0.5 * b.abs() + 0.002);
    !far && is_like(block, expected)
        && (blocks <= 1 || is_here(sound, samples, at + BLOCK, place + BLOCK as u64, blocks - 1))
}

/// The place within a few of this one that these samples are most like: what is near a match is one, too.
fn exactly(sound: &Sound, samples: &[f32], place: u64) -> u64 {
    const NEAR: u64 = 8;
    let (mut best, mut least) = (place, f32::INFINITY);
    for near in place.saturating_sub(NEAR)..=place + NEAR {
        let (error, _) = compare(samples, sound.heard(near, samples.len()));
        if error < least {
            (best, least) = (near, error);
        }
    }
    best
}

/// Whether a block is the expected one, but for its filter and for rounding.
fn is_like(block: &[f32], expected: &[f32]) -> bool {
    /// Two steps of an int16.
    const ROUNDING: f32 = 4.0 / (32_768.0 * 32_768.0);
    let (error, energy) = compare(block, expected);
    error <= 0.1 * energy + ROUNDING * block.len() as f32
}

/// The energy of the difference, and that of what was expected.
fn compare(block: &[f32], expected: &[f32]) -> (f32, f32) {
    const LANES: usize = 16;
    let (mut error, mut energy) = ([0.0f32; LANES], [0.0f32; LANES]);
    for (a, b) in block.as_chunks::<LANES>().0.iter().zip(expected.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let off = a[lane] - b[lane];
            error[lane] += off * off;
            energy[lane] += b[lane] * b[lane];
        }
    }
    (error.iter().sum(), energy.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Sound {
        Sound::new(48_000, 960, 0.5).unwrap()
    }

    /// Client 20's first five seconds.
    fn stream(sound: &Sound) -> Vec<f32> {
        let begins = Sound::begins(20) as u64;
        (0..5).flat_map(|second| sound.heard(begins + second * SECOND as u64, SECOND).to_vec()).collect()
    }

    fn heard(sound: &Sound, samples: &[f32], lag: usize) -> Ear {
        let (client, mut ear) = Ear::of_clients(sound, &samples[..SECOND], 500, lag).unwrap();
        assert_eq!(client, 20);
        samples.chunks(SECOND).for_each(|unit| ear.hear(sound, unit));
        ear
    }

    #[test]
    fn every_client_is_recognised_and_every_sample_counted() {
        let (sound, mut late) = (sound(), vec![0.0; 300]);
        let samples = stream(&sound);
        let counts = heard(&sound, &samples, 0).track.counts(samples.len() as u64, 0);
        assert!(counts.clean() && counts.tail == 0, "{counts:?}");
        late.extend(&samples[..2 * SECOND]);
        let ear = heard(&sound, &late, 300);
        assert!(ear.track.counts(2 * SECOND as u64, 0).clean());
    }

    #[test]
    fn a_frame_that_is_missing_repeated_or_swapped_is_found() {
        let sound = sound();
        let whole = stream(&sound);
        let (mut less, mut more, mut swapped) = (whole.clone(), whole.clone(), whole.clone());
        less.drain(30_000..30_320);
        let again = whole[30_000..30_320].to_vec();
        more.splice(30_320..30_320, again);
        swapped[30_080..30_720].rotate_left(320);
        let total = whole.len() as u64;
        assert_eq!(heard(&sound, &less, 0).track.counts(total, 0).lost, 320);
        assert_eq!(heard(&sound, &more, 0).track.counts(total, 0).duplicated, 320);
        let counts = heard(&sound, &swapped, 0).track.counts(total, 0);
        assert!(counts.reordered == 320 && counts.lost == 0, "{counts:?}");
    }

    #[test]
    fn silence_behind_the_end_is_not_what_was_sent() {
        let sound = sound();
        let mut samples = stream(&sound);
        samples[4 * SECOND + 4_000..].fill(0.0);
        let ear = heard(&sound, &samples, 0);
        assert!(ear.track.counts(4 * SECOND as u64 + 4_000, 160).clean());
        assert!(ear.filled >= 11_840);
    }
}
