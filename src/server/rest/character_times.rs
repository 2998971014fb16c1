//! ElevenLabs' answer of speech with the time of each character: JSON with the audio in base64, in lines as it is made or as one
//! object. The times are estimates: the words share the voiced parts of the speech, and the characters of a word its time.
//!
//! Sources: the published API reference (`/with-timestamps`, `/stream/with-timestamps`) and the public client libraries.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::json;

use super::speech_format::TimedForm;
use crate::audio::{
    SPEECH_RATE_HZ, pcm,
    resample::{Resampler, UnsupportedRate},
    vad::VadConfig,
    word_times::{WordTime, WordTimer},
};

/// Most characters of a line with times: clients read lines of at most 64 KiB.
const LINE_MAX_CHARS: usize = 500;
/// Bytes that base64 makes four characters of.
const GROUP_BYTES: usize = 3;

/// Spells the audio of one text, and the times of its characters.
pub(super) struct TimedSpeech {
    form: TimedForm,
    /// Text before the first audio.
    start: &'static str,
    text: String,
    timer: WordTimer,
    to_speech_rate: Resampler,
    resampled: Vec<i16>,
    duration_s: f64,
    rate_hz: u32,
    /// Audio of an object that is no whole group of base64 yet.
    group: Vec<u8>,
}

impl TimedSpeech {
    /// # Errors
    /// The rate of the audio is not supported.
    pub(super) fn new(form: TimedForm, text: &str, rate_hz: u32) -> Result<Self, UnsupportedRate> {
        let start = match form {
            TimedForm::Lines => "",
            TimedForm::Object => "{\"audio_base64\":\"",
        };
        Ok(Self {
            form,
            start,
            text: text.to_owned(),
            timer: WordTimer::new(VadConfig::default()),
            to_speech_rate: Resampler::new(rate_hz, SPEECH_RATE_HZ)?,
            resampled: Vec::new(),
            duration_s: 0.0,
            rate_hz,
            group: Vec::new(),
        })
    }

    /// Hears the next samples.
    pub(super) fn hear(&mut self, samples: &[i16]) {
        let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
        self.to_speech_rate.push(&samples, &mut self.resampled);
        self.timer.push(&self.resampled);
        self.resampled.clear();
        self.duration_s += samples.len() as f64 / f64::from(self.rate_hz);
    }

    /// The next encoded audio; empty where it is too little.
    pub(super) fn audio(&mut self, encoded: &[u8]) -> Bytes {
        match self.form {
            TimedForm::Lines if encoded.is_empty() => Bytes::new(),
            TimedForm::Lines => line(encoded, None),
            TimedForm::Object => {
                self.group.extend_from_slice(encoded);
                let rest = self.group.split_off(self.group.len() / GROUP_BYTES * GROUP_BYTES);
                let whole = STANDARD.encode(std::mem::replace(&mut self.group, rest));
                format!("{}{whole}", std::mem::take(&mut self.start)).into()
            }
        }
    }

    /// Text behind the audio: the times.
    pub(super) fn end(mut self) -> Vec<Bytes> {
        self.to_speech_rate.flush(&mut self.resampled);
        self.timer.push(&self.resampled);
        let words = self.timer.finish(&self.text);
        let characters = character_times(&self.text, &words, self.duration_s);
        match self.form {
            TimedForm::Lines => characters.chunks(LINE_MAX_CHARS).map(|part| line(&[], Some(part))).collect(),
            TimedForm::Object => {
                let times = alignment(&characters);
                let rest = STANDARD.encode(&self.group);
                vec![format!("{rest}\",\"alignment\":{times},\"normalized_alignment\":{times}}}").into()]
            }
        }
    }
}

/// A line of a stream.
fn line(audio: &[u8], characters: Option<&[CharacterTime]>) -> Bytes {
    let times = characters.map(alignment);
    let body =
        json!({"audio_base64": STANDARD.encode(audio), "alignment": times, "normalized_alignment": times});
    format!("{body}\n").into()
}

/// A character and its time, s.
#[derive(Debug, Clone, PartialEq)]
struct CharacterTime {
    character: char,
    start_s: f64,
    end_s: f64,
}

fn alignment(characters: &[CharacterTime]) -> serde_json::Value {
    let all =
        |value: fn(&CharacterTime) -> serde_json::Value| characters.iter().map(value).collect::<Vec<_>>();
    json!({
        "characters": all(|part| part.character.to_string().into()),
        "character_start_times_seconds": all(|part| part.start_s.into()),
        "character_end_times_seconds": all(|part| part.end_s.into()),
    })
}

/// The characters of the text, in order: those of a word share its time, and others the time between words. The last ends with the
/// speech, at the latest.
fn character_times(text: &str, words: &[WordTime], duration_s: f64) -> Vec<CharacterTime> {
    let mut characters = Vec::with_capacity(text.len());
    let (mut rest, mut last_end_s) = (text, 0.0);
    for word in words {
        let Some(at) = rest.find(&word.word) else { continue };
        let seconds = |ms: u64| (ms as f64 / 1000.0).clamp(last_end_s, duration_s.max(last_end_s));
        let (start_s, end_s) = (seconds(word.start_ms), seconds(word.end_ms));
        spread(&rest[..at], last_end_s, start_s, &mut characters);
        spread(&word.word, start_s, end_s, &mut characters);
        (rest, last_end_s) = (&rest[at + word.word.len()..], end_s);
    }
    spread(rest, last_end_s, last_end_s, &mut characters);
    characters
}

/// Spreads the characters of this part over its time.
fn spread(part: &str, start_s: f64, end_s: f64, characters: &mut Vec<CharacterTime>) {
    let count = part.chars().count() as f64;
    // Milliseconds are enough.
    let at =
        |number: usize| ((start_s + (end_s - start_s) * number as f64 / count) * 1000.0).round() / 1000.0;
    let timed = part.chars().enumerate();
    characters.extend(timed.map(|(number, character)| CharacterTime {
        character,
        start_s: at(number),
        end_s: at(number + 1),
    }));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const RATE_HZ: u32 = 24_000;

    /// The object, or the objects of the lines, for a tone of this length that comes in pieces.
    fn answer(form: TimedForm, text: &str, samples: usize) -> Vec<Value> {
        let mut speech = TimedSpeech::new(form, text, RATE_HZ).unwrap();
        let mut whole = Vec::new();
        let audio = vec![0x55aa_i16; samples];
        for piece in audio.chunks(1001) {
            speech.hear(piece);
            let encoded: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            whole.extend(speech.audio(&encoded));
        }
        speech.end().into_iter().for_each(|part| whole.extend(part));
        let text = String::from_utf8(whole).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn bytes_of(answers: &[Value]) -> Vec<u8> {
        let decoded = |answer: &Value| STANDARD.decode(answer["audio_base64"].as_str().unwrap()).unwrap();
        answers.iter().flat_map(decoded).collect()
    }

    #[test]
    fn every_character_has_a_time_within_the_speech_in_order() {
        let long = "Words and words. ".repeat(100);
        for text in ["Hello,  you.", " to\nbegin ", "你好。", "🙂", "a", &long] {
            for form in [TimedForm::Lines, TimedForm::Object] {
                let answers = answer(form, text, RATE_HZ as usize);
                assert_eq!(bytes_of(&answers).len(), 2 * RATE_HZ as usize);
                let list = |name: &str| -> Vec<Value> {
                    let of =
                        |answer: &Value| answer["alignment"][name].as_array().cloned().unwrap_or_default();
                    answers.iter().flat_map(of).collect()
                };
                let letters: String = list("characters").iter().map(|part| part.as_str().unwrap()).collect();
                assert_eq!(letters, text);
                let times = |name| list(name).iter().map(|part| part.as_f64().unwrap()).collect::<Vec<_>>();
                let (starts, ends) =
                    (times("character_start_times_seconds"), times("character_end_times_seconds"));
                assert!(
                    starts.is_sorted() && ends.is_sorted() && ends.iter().all(|end| *end <= 1.0),
                    "{text}"
                );
                assert!(starts.iter().zip(&ends).all(|(start, end)| start <= end), "{text}");
                assert_eq!(answers[0]["alignment"], answers[0]["normalized_alignment"]);
            }
        }
    }

    #[test]
    fn lines_are_short_and_those_of_audio_have_no_times() {
        let answers = answer(TimedForm::Lines, &"Words and words. ".repeat(200), RATE_HZ as usize);
        assert!(answers.iter().all(|part| part.to_string().len() < 1 << 16));
        assert!(
            answers.iter().all(|part| part["alignment"].is_null() != (part["audio_base64"] == "")),
            "{answers:?}"
        );
    }

    #[test]
    fn the_characters_of_a_word_share_its_time() {
        let word = |word: &str, start_ms, end_ms| WordTime {
            word: word.into(),
            bare: word.into(),
            start_ms,
            end_ms,
        };
        let times = character_times("Hi you", &[word("Hi", 100, 300), word("you", 400, 1000)], 0.9);
        let times: Vec<_> = times.iter().map(|part| (part.character, part.start_s, part.end_s)).collect();
        let expected = [
            ('H', 0.1, 0.2),
            ('i', 0.2, 0.3),
            (' ', 0.3, 0.4),
            ('y', 0.4, 0.567),
            ('o', 0.567, 0.733),
            ('u', 0.733, 0.9),
        ];
        assert_eq!(times, expected);
    }
}
