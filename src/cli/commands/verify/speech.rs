//! Sections `speech` and `languages`: texts are spoken, and what was spoken is transcribed.

use super::bench::{Bench, Spoken, sound_file};
use crate::{
    cli::{ClientError, recording::Recording},
    verify::{
        figure::{Expectation, Figure},
        words::WordErrors,
    },
};

/// Word errors include those of the transcription.
const ERRORS_MAX: Expectation = Expectation::AtMost(0.2);
const FIRST_AUDIO_MAX: Expectation = Expectation::AtMost(2.0);
/// Slower than this, playback has gaps.
const REAL_TIME_MAX: Expectation = Expectation::AtMost(1.0);

const PLAIN: &str = "The quick brown fox jumps over the lazy dog near the bank of the river.";
/// The characters that the model cannot say in streamed speech, and the words that they become.
const SYMBOLS: &str = "Tom & Ann (both here) said: “Meet me @ home” [today]; bring the letter #7 / 8!";
const SYMBOLS_SPOKEN: &str =
    "Tom and Ann both here said meet me at home today bring the letter number 7 slash 8";
/// Longer than several requests to the model.
const LONG: &str = "On Monday the weather was cold, and nobody wanted to leave the house. On Tuesday the sun came out for \
    an hour, so the children played in the garden until it began to rain. On Wednesday a letter arrived from an old friend \
    who lives by the sea. She wrote that the harbour was frozen, and that the ships had to wait for warmer days. On \
    Thursday we answered her letter and sent a box of apples from our own trees. On Friday the road was closed because of \
    the snow, and the bus could not reach the village. On Saturday everybody helped to clear the street. On Sunday the \
    friends met at last, drank hot tea, and talked about the summer.";
const VOICE_TEXT: &str = "This is how this voice sounds when it reads a short text.";

/// A sentence in each language that can be asked for.
const SENTENCES: [(&str, &str); 10] = [
    ("en", PLAIN),
    ("zh", "今天天气很好，我们一起去公园散步吧。"),
    ("de", "Heute ist das Wetter schön, und wir gehen zusammen im Park spazieren."),
    ("fr", "Aujourd'hui il fait beau et nous allons nous promener ensemble dans le parc."),
    ("es", "Hoy hace buen tiempo y vamos a pasear juntos por el parque."),
    ("it", "Oggi il tempo è bello e andiamo insieme a passeggiare nel parco."),
    ("pt", "Hoje o tempo está bom e vamos passear juntos no parque."),
    ("ja", "今日は天気がいいので、一緒に公園を散歩しましょう。"),
    ("ko", "오늘은 날씨가 좋아서 함께 공원을 산책합시다."),
    ("ru", "Сегодня хорошая погода, и мы вместе пойдём гулять в парк."),
];
/// Words of other languages than English and Chinese are spelled in more ways.
const LANGUAGE_ERRORS_MAX: Expectation = Expectation::AtMost(0.3);

/// The sentence for a language.
///
/// # Errors
/// There is none; the message names the languages with one.
pub(super) fn sentence(language: &str) -> Result<&'static str, String> {
    let found = SENTENCES.into_iter().find(|(known, _)| *known == language);
    let known = || SENTENCES.map(|(known, _)| known).join(", ");
    found
        .map(|(_, text)| text)
        .ok_or_else(|| format!("--language {language}: known languages are {}", known()))
}

/// A text to speak, and what its transcript should say.
struct Text<'t> {
    name: String,
    text: &'t str,
    expected: &'t str,
    language: &'t str,
    voice: Option<&'t str>,
    errors_max: Expectation,
}

impl<'t> Text<'t> {
    fn english(name: &str, text: &'t str) -> Self {
        let name = name.to_owned();
        Self { name, text, expected: text, language: "en", voice: None, errors_max: ERRORS_MAX }
    }
}

pub(super) async fn run(bench: &mut Bench<'_>) {
    let first = speak_and_compare(bench, &Text::english("speech.word_error", PLAIN)).await;
    if let Some(spoken) = first {
        let first_audio = spoken.first_audio.as_secs_f64();
        let note = "from the request to the first audio";
        bench
            .ledger
            .add([Figure::measured("speech.first_audio", first_audio, "s", FIRST_AUDIO_MAX).with_note(note)]);
    }
    let symbols = Text { expected: SYMBOLS_SPOKEN, ..Text::english("speech.symbols.word_error", SYMBOLS) };
    speak_and_compare(bench, &symbols).await;
    let voices = bench.bridge.voices().to_vec();
    for voice in &voices {
        let name = format!("speech.voice.{voice}.word_error");
        let text = Text { voice: Some(voice.as_str()), ..Text::english(&name, VOICE_TEXT) };
        speak_and_compare(bench, &text).await;
    }
    if bench.plan.is_quick {
        return;
    }
    if let Some(spoken) = speak_and_compare(bench, &Text::english("speech.long.word_error", LONG)).await {
        let (took, length) = (spoken.took.as_secs_f64(), spoken.speech.duration().as_secs_f64());
        let note = format!("{length:.1} s of speech in {took:.1} s");
        bench.ledger.add([Figure::measured(
            "speech.real_time_factor",
            took / length.max(0.1),
            "",
            REAL_TIME_MAX,
        )
        .with_note(&note)]);
    }
}

/// Section `languages`.
pub(super) async fn run_languages(bench: &mut Bench<'_>) {
    for language in bench.plan.languages.clone() {
        // The command line was checked.
        let Ok(sentence) = sentence(&language) else { continue };
        let text = Text {
            language: &language,
            errors_max: LANGUAGE_ERRORS_MAX,
            ..Text::english(&format!("languages.{language}.word_error"), sentence)
        };
        speak_and_compare(bench, &text).await;
    }
}

/// Speaks a text, transcribes the speech, and adds the figure. Returns the speech.
async fn speak_and_compare(bench: &mut Bench<'_>, text: &Text<'_>) -> Option<Spoken> {
    let unit = "share";
    let failed = |error: &ClientError, what| {
        Figure::failed(&text.name, unit, text.errors_max, &format!("{what}: {error}"))
    };
    let spoken = match bench.speak(text.text, text.voice).await {
        Ok(spoken) => spoken,
        Err(error) => {
            bench.ledger.add([failed(&error, "speaking")]);
            return None;
        }
    };
    let heard = match Recording::decode(spoken.speech.to_wav(), "the speech") {
        Ok(recording) => bench.transcribe(recording, text.language).await,
        Err(error) => Err(error),
    };
    let figure = match heard {
        Ok((heard, _)) => {
            let wrong = WordErrors::between(text.expected, &heard);
            let note = format!("{wrong}: {heard}");
            Figure::measured(&text.name, wrong.rate(), unit, text.errors_max).with_note(&note)
        }
        Err(error) => failed(&error, "transcribing the speech"),
    };
    bench.ledger.add([figure.with_sound(sound_file(&spoken.speech))]);
    Some(spoken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_language_is_rejected_with_the_known_ones() {
        assert_eq!(sentence("en"), Ok(PLAIN));
        let error = sentence("xx").unwrap_err();
        assert!(error.contains("--language xx") && error.contains("en, zh, de"), "{error}");
    }
}
