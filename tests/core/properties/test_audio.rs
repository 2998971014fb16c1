//! Microphone audio in which every stretch is unique, so that a piece can be located.

use super::*;

/// The sound of a stretch of audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sound {
    /// A speech recording from this sample on.
    Speech(usize),
    /// Noise in bursts. Constant noise would count as background.
    Noise,
    /// A hiss of −80 dBFS, which counts as speech only if all noise does, and only after a gain.
    Hiss,
    /// Zeros, which are never speech.
    Zeros,
}

/// One client's microphone.
pub(crate) struct Microphone {
    random: fastrand::Rng,
}

impl Microphone {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed) }
    }

    /// Records this many samples. Their two lowest bits are random.
    pub(crate) fn record(&mut self, sound: Sound, samples: usize) -> Vec<i16> {
        let speech = recordings();
        let mut sample = |at: usize| match sound {
            Sound::Speech(from) => speech[(from + at) % speech.len()] ^ self.random.i16(0..4),
            Sound::Noise if (at / 1_600).is_multiple_of(2) => self.random.i16(-8000..8000),
            Sound::Noise => self.random.i16(-3000..3000),
            Sound::Hiss => self.random.i16(-3..=3),
            Sound::Zeros => 0,
        };
        (0..samples).map(&mut sample).collect()
    }
}

/// Every recording in a row, at 16 kHz, with half a second between them.
pub(crate) fn recordings() -> &'static [i16] {
    static SPEECH: OnceLock<Vec<i16>> = OnceLock::new();
    SPEECH.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech");
        let names = ["jfk_16k", "goforward_16k", "arctic_a0007_16k", "librivox_0880_16k"];
        let clip = |name: &&str| {
            let bytes = fs::read(folder.join(format!("{name}.wav"))).unwrap();
            let (samples, rate_hz) = wav::read(&bytes, Duration::from_secs(60)).unwrap();
            assert_eq!(rate_hz, 16_000);
            let quiet = std::iter::repeat_n(0, 8_000);
            samples.into_iter().map(pcm::to_i16).chain(quiet).collect::<Vec<_>>()
        };
        names.iter().flat_map(clip).collect()
    })
}
