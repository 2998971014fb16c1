//! Speech engines without a model: they recognise recordings whose words are known, and the speech that they have made.
//!
//! A sound is recognised by its loudness over time, at whatever level and rate it comes. A part of a known sound gives the words
//! of that part, so that audio which is cut, lost, doubled or reordered on its way gives wrong words. Any other sound gives none.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;

use super::engines::SpeechEngines;
use crate::audio::{MODEL_RATE_HZ, SPEECH_RATE_HZ, wav};

/// Samples at 16 kHz from one frame to the next, 20 ms. A frame is two of them long, so that a shift by half a step changes
/// little.
const FRAME_SAMPLES: usize = 320;
const FRAME_LENGTH: usize = 2 * FRAME_SAMPLES;
/// Shortest part of a sound that is recognised: half a second.
const MATCH_FRAMES_MIN: usize = 25;
/// Least correlation of a known sound with itself. The recordings of the tree have at least 0.93 after they were shifted by half
/// a step and made quieter, and at most 0.62 with each other.
const MATCH_MIN: f32 = 0.75;
/// Quietest level that counts: below the loudest frame, and below full scale, dB.
const RANGE_DB: f32 = 35.0;
const FLOOR_DB: f32 = -60.0;
/// Brightness of frames that are quieter, dB. Theirs would be that of noise.
const QUIET_BRIGHTNESS_DB: f32 = -10.0;
/// Level below the loudest frame from which a frame is silent, dB.
const SILENT_DB: f32 = 25.0;
/// Texts whose speech is remembered; the oldest is forgotten.
const SPOKEN_MAX: usize = 64;

/// Samples at 24 kHz of a letter, of the pause after a word, and of the pause after a sentence.
const LETTER_SAMPLES: usize = MODEL_RATE_HZ as usize / 16;
const WORD_PAUSE_SAMPLES: usize = MODEL_RATE_HZ as usize / 25;
const SENTENCE_PAUSE_SAMPLES: usize = MODEL_RATE_HZ as usize / 5;
const FADE_SAMPLES: usize = MODEL_RATE_HZ as usize / 200;

/// Engines that know some recordings, and remember what they have spoken.
pub struct KnownSpeech {
    recordings: Arc<Vec<KnownSound>>,
    spoken: Arc<Mutex<VecDeque<KnownSound>>>,
    /// Speech of the first recording without its pauses, 24 kHz: the material of the voice.
    voice: Vec<f32>,
}

impl KnownSpeech {
    /// Engines for recordings (16 kHz mono) and their words. The first one gives the voice.
    #[must_use]
    pub fn new(recordings: &[(Vec<f32>, String)]) -> Self {
        let voice = recordings.first().map(|(samples, _)| without_pauses(samples)).unwrap_or_default();
        let known = recordings.iter().map(|(samples, words)| KnownSound::recording(samples, words));
        Self {
            recordings: Arc::new(known.collect()),
            spoken: Arc::default(),
            // Both rates are supported.
            voice: wav::resample_all(&voice, SPEECH_RATE_HZ, MODEL_RATE_HZ).unwrap_or_default(),
        }
    }

    /// Speaks a text: each word is a piece of the voice that depends on the word alone.
    fn synthesise(&self, text: &str) -> Vec<f32> {
        let (mut speech, mut middles) = (vec![0.0; SENTENCE_PAUSE_SAMPLES], Vec::new());
        for word in text.split_whitespace() {
            let length = (LETTER_SAMPLES * (word.chars().count() + 1)).min(self.voice.len());
            let mut hasher = DefaultHasher::new();
            word.hash(&mut hasher);
            let start = hasher.finish() as usize % (self.voice.len() - length + 1);
            middles.push((speech.len() + length / 2, word));
            let fade = |at: usize| (at.min(length - at) as f32 / FADE_SAMPLES as f32).min(1.0);
            let piece = self.voice[start..start + length].iter().enumerate();
            speech.extend(piece.map(|(at, sample)| sample * fade(at)));
            let ends_sentence = word.ends_with(['.', '!', '?', '。', '！', '？']);
            let pause = if ends_sentence { SENTENCE_PAUSE_SAMPLES } else { WORD_PAUSE_SAMPLES };
            speech.resize(speech.len() + pause, 0.0);
        }
        let heard = wav::resample_all(&speech, MODEL_RATE_HZ, SPEECH_RATE_HZ).unwrap_or_default();
        let frame_at_model_rate = FRAME_SAMPLES * MODEL_RATE_HZ as usize / SPEECH_RATE_HZ as usize;
        let words = middles.into_iter().map(|(at, word)| (at / frame_at_model_rate, word.to_owned()));
        let sound = KnownSound { frames: frames_of(&heard), words: words.collect() };
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.truncate(SPOKEN_MAX - 1);
        spoken.push_front(sound);
        speech
    }
}

impl SpeechEngines for KnownSpeech {
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        let (recordings, spoken) = (self.recordings.clone(), self.spoken.clone());
        Box::pin(async move {
            let search = move || {
                // A copy, so that the search for one sound does not delay the speech of another.
                let spoken = spoken.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let known: Vec<&KnownSound> = recordings.iter().chain(&spoken).collect();
                let frames = frames_of(&samples);
                let (mut words, whole) = (Vec::new(), 0..frames.len());
                find_words(&frames, whole, &known, &mut words);
                words.sort_by_key(|(at, _)| *at);
                words.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ")
            };
            tokio::task::spawn_blocking(search).await.map_err(|error| error.to_string())
        })
    }

    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        Box::pin(async move {
            if self.voice.is_empty() {
                return Err("no recording gives a voice".to_owned());
            }
            Ok(self.synthesise(&text))
        })
    }
}

/// Level and brightness of 40 ms of sound, dB.
type SoundFrame = [f32; 2];

/// A sound with its words.
#[derive(Debug, Clone)]
struct KnownSound {
    frames: Vec<SoundFrame>,
    /// Each word with the frame in its middle.
    words: Vec<(usize, String)>,
}

impl KnownSound {
    /// A recording. Its words share its speech by their lengths.
    fn recording(samples: &[f32], words: &str) -> Self {
        let frames = frames_of(samples);
        let loud: Vec<usize> = loud_frames(&frames).collect();
        let lengths: Vec<usize> = words.split_whitespace().map(|word| word.chars().count() + 1).collect();
        let total: usize = lengths.iter().sum();
        let mut before = 0;
        let place = |(word, length): (&str, &usize)| {
            let middle = before + length / 2;
            before += length;
            Some((*loud.get(middle * loud.len() / total.max(1))?, word.to_owned()))
        };
        let words = words.split_whitespace().zip(&lengths).filter_map(place).collect();
        Self { frames, words }
    }
}

/// Finds known sounds in a part of the frames, and adds their words with the frames where they are.
fn find_words(
    frames: &[SoundFrame],
    part: Range<usize>,
    known: &[&KnownSound],
    words: &mut Vec<(usize, String)>,
) {
    if part.len() < MATCH_FRAMES_MIN || loud_frames(&frames[part.clone()]).count() < MATCH_FRAMES_MIN / 2 {
        return;
    }
    let matches = known.iter().filter_map(|sound| Some((best_match(&frames[part.clone()], sound)?, *sound)));
    let Some((found, sound)) = matches.max_by(|(one, _), (other, _)| one.score.total_cmp(&other.score))
    else {
        return;
    };
    let in_sound = found.sound_start..found.sound_start + found.length;
    let start = part.start + found.part_start;
    for (middle, word) in sound.words.iter().filter(|(middle, _)| in_sound.contains(middle)) {
        words.push((start + middle - found.sound_start, word.clone()));
    }
    find_words(frames, part.start..start, known, words);
    find_words(frames, start + found.length..part.end, known, words);
}

/// Where a known sound and a part of the frames agree.
struct Match {
    part_start: usize,
    sound_start: usize,
    length: usize,
    /// Grows with the agreement and with its length.
    score: f32,
}

/// The best of all overlaps of a part with a sound.
fn best_match(part: &[SoundFrame], sound: &KnownSound) -> Option<Match> {
    let frames = &sound.frames;
    let shifts = (0..part.len()).map(|at| (at, 0)).chain((1..frames.len()).map(|at| (0, at)));
    let matches = shifts.filter_map(|(part_start, sound_start)| {
        let length = (part.len() - part_start).min(frames.len() - sound_start);
        if length < MATCH_FRAMES_MIN {
            return None;
        }
        let (one, other) = (&part[part_start..][..length], &frames[sound_start..][..length]);
        let agreement = (correlation(one, other, 0) + correlation(one, other, 1)) / 2.0;
        let score = agreement * (length as f32).sqrt();
        (agreement >= MATCH_MIN).then_some(Match { part_start, sound_start, length, score })
    });
    matches.max_by(|one, other| one.score.total_cmp(&other.score))
}

/// Correlation of one feature of equally many frames; 0 without any variation.
fn correlation(one: &[SoundFrame], other: &[SoundFrame], feature: usize) -> f32 {
    let count = one.len() as f32;
    let (mut x_sum, mut y_sum, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (one, other) in one.iter().zip(other) {
        let (x, y) = (one[feature], other[feature]);
        x_sum += x;
        y_sum += y;
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    let variation = ((xx - x_sum * x_sum / count) * (yy - y_sum * y_sum / count)).sqrt();
    if variation > f32::EPSILON * count { (xy - x_sum * y_sum / count) / variation } else { 0.0 }
}

fn frames_of(samples: &[f32]) -> Vec<SoundFrame> {
    let power_db = |sum: f32| 10.0 * (sum / FRAME_LENGTH as f32 + 1e-9).log10();
    let starts = (0..samples.len().saturating_sub(FRAME_LENGTH - 1)).step_by(FRAME_SAMPLES);
    let mut frames: Vec<SoundFrame> = starts
        .map(|start| {
            let samples = &samples[start..][..FRAME_LENGTH];
            let level_db = power_db(samples.iter().map(|sample| sample * sample).sum());
            let steps_db = power_db(samples.windows(2).map(|two| (two[1] - two[0]).powi(2)).sum());
            [level_db, steps_db - level_db]
        })
        .collect();
    let floor_db = (loudest(&frames) - RANGE_DB).max(FLOOR_DB);
    for frame in frames.iter_mut().filter(|frame| frame[0] <= floor_db) {
        *frame = [floor_db, QUIET_BRIGHTNESS_DB];
    }
    frames
}

fn loudest(frames: &[SoundFrame]) -> f32 {
    frames.iter().map(|frame| frame[0]).fold(FLOOR_DB, f32::max)
}

/// Numbers of the frames that are not silent.
fn loud_frames(frames: &[SoundFrame]) -> impl Iterator<Item = usize> {
    let threshold = (loudest(frames) - SILENT_DB).max(FLOOR_DB + 1.0);
    frames.iter().enumerate().filter(move |(_, frame)| frame[0] >= threshold).map(|(at, _)| at)
}

fn without_pauses(samples: &[f32]) -> Vec<f32> {
    let frames = frames_of(samples);
    loud_frames(&frames).flat_map(|at| &samples[at * FRAME_SAMPLES..][..FRAME_SAMPLES]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording of the tree, 16 kHz.
    fn recording(name: &str) -> Vec<f32> {
        let path = format!("{}/../../examples/speech/{name}_16k.wav", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        wav::read(&bytes, std::time::Duration::from_secs(60)).unwrap().0
    }

    const CARDS: &str = "eight of spades four of clubs seven of hearts";
    const FORWARD: &str = "go forward ten meters";

    fn engines() -> KnownSpeech {
        KnownSpeech::new(&[
            (recording("cards_005"), CARDS.to_owned()),
            (recording("goforward"), FORWARD.to_owned()),
        ])
    }

    #[tokio::test]
    async fn known_recordings_give_their_words_at_any_level() {
        let engines = engines();
        for (name, words) in [("cards_005", CARDS), ("goforward", FORWARD)] {
            for (gain, shift) in [(1.0, 0), (0.3, 150)] {
                let samples: Vec<f32> =
                    vec![0.0; shift].into_iter().chain(recording(name)).map(|sample| sample * gain).collect();
                assert_eq!(engines.recognise(samples).await.unwrap(), words, "{gain} {shift}");
            }
        }
        assert_eq!(engines.recognise(recording("librivox_0880")).await.unwrap(), "", "an unknown recording");
        assert_eq!(engines.recognise(vec![0.0; 32_000]).await.unwrap(), "", "silence");
    }

    #[tokio::test]
    async fn part_of_a_recording_gives_the_words_of_that_part() {
        let engines = engines();
        let samples = recording("cards_005");
        let (first, second) = samples.split_at(samples.len() / 2);
        let mut words = Vec::new();
        for part in [first, second] {
            let heard = engines.recognise(part.to_vec()).await.unwrap();
            assert!(!heard.is_empty() && heard != CARDS, "{heard}");
            words.push(heard);
        }
        assert_eq!(words.join(" "), CARDS);
        let both = [recording("goforward"), samples].concat();
        assert_eq!(engines.recognise(both).await.unwrap(), format!("{FORWARD} {CARDS}"));
    }

    #[tokio::test]
    async fn own_speech_is_recognised_after_resampling_and_with_losses() {
        let engines = engines();
        let texts = ["The quick brown fox jumps over the lazy dog.", "Nobody knows what comes after that."];
        let mut heard = Vec::new();
        for text in texts {
            let speech = engines.speak(text.to_owned()).await.unwrap();
            heard.extend(wav::resample_all(&speech, MODEL_RATE_HZ, SPEECH_RATE_HZ).unwrap());
        }
        assert_eq!(engines.recognise(heard.clone()).await.unwrap(), texts.join(" "));
        heard.drain(16_000..48_000);
        let words = engines.recognise(heard).await.unwrap();
        assert!(words.split(' ').count() < 15 && words.ends_with("after that."), "{words}");
    }
}
