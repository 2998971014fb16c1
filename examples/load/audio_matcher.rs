//! Matches audio at the upstream with what the clients sent: identifies the client and the samples.
//!
//! A block of 10 ms matches if the energy of the difference is at most a tenth. A different resampler may have another
//! filter, but not another timing. Blocks that do not match are searched for nearby.

use super::{
    sample_tracker::SampleTracker,
    test_audio::{BLOCK_SAMPLES, LOOP_SAMPLES, SECOND_SAMPLES, TestAudio},
};

/// The resampler distorts the very beginning.
const SKIPPED_START_SAMPLES: usize = 2 * BLOCK_SAMPLES;
/// Search range for unexpected audio.
const SEARCH_RADIUS_SAMPLES: u64 = 3 * SECOND_SAMPLES as u64;

/// One client's audio as it reaches the upstream.
#[derive(Debug)]
pub(crate) struct AudioMatcher {
    /// Start of the stream in the loop.
    loop_offset: u64,
    pub(crate) tracker: SampleTracker,
    has_started: bool,
    /// Samples before the first one.
    lead_in_samples: usize,
    /// Silence inserted for missing audio.
    pub(crate) silence_samples: u64,
}

impl AudioMatcher {
    /// Finds the client whose audio begins like this. The bridge's first sample lags by `lag` samples.
    pub(crate) fn identify_client(
        sound: &TestAudio,
        samples: &[f32],
        clients: usize,
        lead_in_samples: usize,
    ) -> Option<(usize, Self)> {
        let at = SKIPPED_START_SAMPLES + lead_in_samples;
        let fits = |client: &usize| {
            is_match_at(
                sound,
                samples,
                at,
                (TestAudio::loop_offset(*client) + SKIPPED_START_SAMPLES) as u64,
                4,
            )
        };
        let client = (0..clients).find(fits)?;
        let tracker = SampleTracker::starting_at(SKIPPED_START_SAMPLES as u64);
        let loop_offset = TestAudio::loop_offset(client) as u64;
        Some((client, Self { loop_offset, tracker, has_started: false, lead_in_samples, silence_samples: 0 }))
    }

    /// Finds the position of this audio in the loop.
    pub(crate) fn locate_in_loop(sound: &TestAudio, samples: &[f32]) -> Option<(u64, Self)> {
        Self::locate(sound, samples, 0..LOOP_SAMPLES as u64)
    }

    /// Finds this audio at one of these positions.
    pub(crate) fn locate(
        sound: &TestAudio,
        samples: &[f32],
        mut positions: impl Iterator<Item = u64>,
    ) -> Option<(u64, Self)> {
        let first = positions.find(|position| {
            is_match_at(sound, samples, SKIPPED_START_SAMPLES, position + SKIPPED_START_SAMPLES as u64, 4)
        })?;
        let position = refine_position(
            sound,
            &samples[SKIPPED_START_SAMPLES..SKIPPED_START_SAMPLES + BLOCK_SAMPLES],
            first + SKIPPED_START_SAMPLES as u64,
        ) - SKIPPED_START_SAMPLES as u64;
        let tracker = SampleTracker::starting_at(SKIPPED_START_SAMPLES as u64);
        Some((
            position,
            Self {
                loop_offset: position,
                tracker,
                has_started: false,
                lead_in_samples: 0,
                silence_samples: 0,
            },
        ))
    }

    /// Position of the next sample in the loop.
    pub(crate) fn loop_position(&self) -> u64 {
        self.loop_offset + self.tracker.next_position
    }

    /// Matches received audio block by block.
    pub(crate) fn match_all(&mut self, sound: &TestAudio, samples: &[f32]) {
        let skipped = if std::mem::replace(&mut self.has_started, true) {
            0
        } else {
            SKIPPED_START_SAMPLES + self.lead_in_samples
        };
        let blocks = samples[skipped.min(samples.len())..].chunks(BLOCK_SAMPLES);
        for (number, block) in blocks.enumerate() {
            if is_similar(block, sound.expected_samples(self.loop_position(), block.len())) {
                self.tracker.receive(block.len() as u64);
            } else if block.iter().all(|sample| *sample == 0.0) {
                self.silence_samples += block.len() as u64;
            } else {
                self.search_block(sound, samples, skipped + number * BLOCK_SAMPLES, block.len());
            }
        }
    }

    /// Accepts received audio after checking only some blocks; changes nothing if a block does not match.
    pub(crate) fn spot_check(
        &mut self,
        sound: &TestAudio,
        blocks: &[(usize, &[f32])],
        samples: usize,
    ) -> bool {
        let fits = |(at, block): &(usize, &[f32])| {
            is_similar(block, sound.expected_samples(self.loop_position() + *at as u64, block.len()))
        };
        let all = self.has_started && blocks.iter().all(fits);
        if all {
            self.tracker.receive(samples as u64);
        }
        all
    }

    /// Handles an unexpected block at `at`.
    fn search_block(&mut self, sound: &TestAudio, samples: &[f32], at: usize, length: usize) {
        let here = self.tracker.next_position;
        let position = (1..SEARCH_RADIUS_SAMPLES).flat_map(|far| [Some(here + far), here.checked_sub(far)]);
        let found = position
            .flatten()
            .find(|position| is_match_at(sound, samples, at, self.loop_offset + position, 1));
        match found {
            Some(position) => {
                let position = refine_position(sound, &samples[at..at + length], self.loop_offset + position)
                    - self.loop_offset;
                self.tracker.next_position = position;
                self.tracker.receive(length as u64);
            }
            // Handles trailing silence after the last sample.
            None if samples[at + length..].iter().take(BLOCK_SAMPLES).all(|sample| *sample == 0.0) => {
                self.silence_samples += length as u64;
            }
            None => self.tracker.receive_unrecognised(length as u64),
        }
    }
}

/// True if the samples from `at` match this loop position for this number of blocks.
fn is_match_at(sound: &TestAudio, samples: &[f32], at: usize, position: u64, blocks: usize) -> bool {
    let Some(block) = samples.get(at..at + BLOCK_SAMPLES) else { return false };
    let expected = sound.expected_samples(position, BLOCK_SAMPLES);
    // Nearly all positions are wrong, and a few samples suffice to reject them.
    let far = block.iter().zip(expected).step_by(20).any(|(a, b)| (a - b).abs() > 0.5 * b.abs() + 0.002);
    !far && is_similar(block, expected)
        && (blocks <= 1
            || is_match_at(sound, samples, at + BLOCK_SAMPLES, position + BLOCK_SAMPLES as u64, blocks - 1))
}

/// Returns the best position within a few samples: neighbours of a match match, too.
fn refine_position(sound: &TestAudio, samples: &[f32], position: u64) -> u64 {
    const NEAR: u64 = 8;
    let (mut best, mut least) = (position, f32::INFINITY);
    for near in position.saturating_sub(NEAR)..=position + NEAR {
        let (error, _) = error_and_energy(samples, sound.expected_samples(near, samples.len()));
        if error < least {
            (best, least) = (near, error);
        }
    }
    best
}

/// True if a block matches except for filter and rounding differences.
fn is_similar(block: &[f32], expected: &[f32]) -> bool {
    /// Two steps of an int16.
    const ROUNDING: f32 = 4.0 / (32_768.0 * 32_768.0);
    let (error, energy) = error_and_energy(block, expected);
    error <= 0.1 * energy + ROUNDING * block.len() as f32
}

/// Energy of the difference, and energy of the expected block.
fn error_and_energy(block: &[f32], expected: &[f32]) -> (f32, f32) {
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

    fn test_audio() -> TestAudio {
        TestAudio::new(48_000, 960, 0.5).unwrap()
    }

    /// Client 20's first five seconds.
    fn client_audio(sound: &TestAudio) -> Vec<f32> {
        let begins = TestAudio::loop_offset(20) as u64;
        (0..5)
            .flat_map(|second| {
                sound.expected_samples(begins + second * SECOND_SAMPLES as u64, SECOND_SAMPLES).to_vec()
            })
            .collect()
    }

    fn match_stream(sound: &TestAudio, samples: &[f32], lead_in_samples: usize) -> AudioMatcher {
        let (client, mut matcher) =
            AudioMatcher::identify_client(sound, &samples[..SECOND_SAMPLES], 500, lead_in_samples).unwrap();
        assert_eq!(client, 20);
        samples.chunks(SECOND_SAMPLES).for_each(|unit| matcher.match_all(sound, unit));
        matcher
    }

    #[test]
    fn client_is_identified_and_all_samples_counted() {
        let (sound, mut late) = (test_audio(), vec![0.0; 300]);
        let samples = client_audio(&sound);
        let counts = match_stream(&sound, &samples, 0).tracker.counts(samples.len() as u64, 0);
        assert!(counts.is_clean() && counts.tail == 0, "{counts:?}");
        late.extend(&samples[..2 * SECOND_SAMPLES]);
        let matcher = match_stream(&sound, &late, 300);
        assert!(matcher.tracker.counts(2 * SECOND_SAMPLES as u64, 0).is_clean());
    }

    #[test]
    fn lost_repeated_and_swapped_frames_are_counted() {
        let sound = test_audio();
        let whole = client_audio(&sound);
        let (mut less, mut more, mut swapped) = (whole.clone(), whole.clone(), whole.clone());
        less.drain(30_000..30_320);
        let again = whole[30_000..30_320].to_vec();
        more.splice(30_320..30_320, again);
        swapped[30_080..30_720].rotate_left(320);
        let total = whole.len() as u64;
        assert_eq!(match_stream(&sound, &less, 0).tracker.counts(total, 0).lost, 320);
        assert_eq!(match_stream(&sound, &more, 0).tracker.counts(total, 0).duplicated, 320);
        let counts = match_stream(&sound, &swapped, 0).tracker.counts(total, 0);
        assert!(counts.reordered == 320 && counts.lost == 0, "{counts:?}");
    }

    #[test]
    fn silence_after_end_is_not_counted_as_audio() {
        let sound = test_audio();
        let mut samples = client_audio(&sound);
        samples[4 * SECOND_SAMPLES + 4_000..].fill(0.0);
        let matcher = match_stream(&sound, &samples, 0);
        assert!(matcher.tracker.counts(4 * SECOND_SAMPLES as u64 + 4_000, 160).is_clean());
        assert!(matcher.silence_samples >= 11_840);
    }
}
