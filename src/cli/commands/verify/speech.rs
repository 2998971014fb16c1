//! Sections `speech` and `languages`: texts are spoken, and what was spoken is transcribed.

use super::bench::{Bench, Openings, Spoken, at_most, sound_file, unmeasured};
use crate::{
    cli::{ClientError, recording::Recording},
    verify::{
        figure::{Expectation, Figure},
        words::{self, WordErrors},
    },
};

/// Word errors include those of the transcription.
const ERRORS_MAX: Expectation = Expectation::AtMost(0.2);
const FIRST_AUDIO_MAX: f64 = 2.0;
/// Slower than this, playback has gaps.
const REAL_TIME_MAX: f64 = 1.0;
/// One of the words of the characters may be misheard.
const LOST_WORDS_MAX: Expectation = Expectation::AtMost(1.0);
/// Consecutive words of a long text that were not heard. A lost sentence has more.
const MISSING_RUN_MAX: Expectation = Expectation::AtMost(5.0);

const PLAIN: &str = "The quick brown fox jumps over the lazy dog near the bank of the river.";
/// The characters that the model cannot say in streamed speech, and the words that they become.
const SYMBOLS: &str = "Tom & Ann (both here) said: “Meet me @ home” [today]; bring the letter #7 / 8!";
const SYMBOLS_SPOKEN: &str =
    "Tom and Ann both here said meet me at home today bring the letter number 7 slash 8";
const SYMBOL_WORDS: [&str; 4] = ["and", "at", "number", "slash"];
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
    bench.warm_up_speech().await;
    speak_and_compare(bench, &Text::english("speech.word_error", PLAIN), first_audio).await;
    let symbols = Text { expected: SYMBOLS_SPOKEN, ..Text::english("speech.symbols.word_error", SYMBOLS) };
    speak_and_compare(bench, &symbols, lost_words).await;
    let voices = bench.bridge.voices().to_vec();
    for voice in &voices {
        let name = format!("speech.voice.{voice}.word_error");
        let text = Text { voice: Some(voice.as_str()), ..Text::english(&name, VOICE_TEXT) };
        speak_and_compare(bench, &text, |_| Vec::new()).await;
    }
    if !bench.plan.is_quick {
        speak_and_compare(bench, &Text::english("speech.long.word_error", LONG), of_long_text).await;
    }
}

/// Results for a text: the speech, and its transcript; `None` if that failed.
struct Outcome<'o> {
    spoken: Option<&'o Spoken>,
    openings: Openings,
    heard: Option<&'o str>,
}

/// Why a figure beside the word errors has no value.
const NOT_SPOKEN: &str = "the text was not spoken";
const NOT_HEARD: &str = "the speech was not transcribed";

fn first_audio(outcome: &Outcome<'_>) -> Vec<Figure> {
    const NAME: &str = "speech.first_audio";
    let Some(spoken) = outcome.spoken else { return vec![Figure::skipped(NAME, NOT_SPOKEN)] };
    let (seconds, openings) = (spoken.first_audio.as_secs_f64(), outcome.openings);
    let note = format!("from the request to the first audio{}", openings.note());
    vec![Figure::measured(NAME, seconds, "s", at_most(FIRST_AUDIO_MAX, openings.mean())).with_note(&note)]
}

/// Words that stand for characters and were not heard.
fn lost_words(outcome: &Outcome<'_>) -> Vec<Figure> {
    const NAME: &str = "speech.symbols.lost_words";
    let Some(heard) = outcome.heard else { return vec![Figure::skipped(NAME, NOT_HEARD)] };
    let heard = words::normalise(&words::spell_symbols(heard));
    let lost: Vec<&str> =
        SYMBOL_WORDS.into_iter().filter(|word| !heard.iter().any(|heard| heard == word)).collect();
    let note = if lost.is_empty() { "none".to_owned() } else { format!("not heard: {}", lost.join(", ")) };
    vec![Figure::measured(NAME, lost.len() as f64, "", LOST_WORDS_MAX).with_note(&note)]
}

fn of_long_text(outcome: &Outcome<'_>) -> Vec<Figure> {
    let (missing_run, factor) = ("speech.long.missing_run", "speech.real_time_factor");
    let missing = match outcome.heard {
        Some(heard) => {
            let run = words::longest_missing_run(LONG, heard);
            let note = if run.is_empty() { "none".to_owned() } else { run.join(" ") };
            Figure::measured(missing_run, run.len() as f64, "words", MISSING_RUN_MAX).with_note(&note)
        }
        None => Figure::skipped(missing_run, NOT_HEARD),
    };
    let factor = match outcome.spoken {
        Some(spoken) => {
            let (took, length) = (spoken.took.as_secs_f64(), spoken.speech.duration().as_secs_f64().max(0.1));
            let note = format!("{length:.1} s of speech in {took:.1} s{}", outcome.openings.note());
            let limit = at_most(REAL_TIME_MAX, outcome.openings.seconds / length);
            Figure::measured(factor, took / length, "", limit).with_note(&note)
        }
        None => Figure::skipped(factor, NOT_SPOKEN),
    };
    vec![missing, factor]
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
        speak_and_compare(bench, &text, |_| Vec::new()).await;
    }
}

/// Speaks a text, transcribes the speech, and adds the figures: the word errors, and those that come of it.
async fn speak_and_compare(
    bench: &mut Bench<'_>,
    text: &Text<'_>,
    others: impl Fn(&Outcome<'_>) -> Vec<Figure>,
) {
    if bench.early_end().is_some() {
        return;
    }
    let (unit, before) = ("share", bench.openings());
    let spoken = bench.speak(text.text, text.voice).await;
    let openings = bench.openings().since(before);
    // The session that spoke, and not the one that listened to it.
    let trace = bench.ledger.take_trace();
    let heard = match &spoken {
        Ok(spoken) => match Recording::decode(spoken.speech.to_wav(), "the speech") {
            Ok(recording) => bench.transcribe(recording, text.language).await.map(|(heard, _)| heard),
            Err(error) => Err(error),
        }
        .map_err(|error| ("transcribing the speech", error)),
        Err(_) => Ok(String::new()),
    };
    let failed = |what: &str, error: &ClientError| {
        let problem = format!("{what}: {error}");
        unmeasured(bench.early_end(), &text.name, unit, text.errors_max, &problem)
    };
    let figure = match (&spoken, &heard) {
        (Err(error), _) => failed("speaking", error),
        (_, Err((what, error))) => failed(what, error),
        (_, Ok(heard)) => {
            let wrong = WordErrors::between(text.expected, heard);
            let note = format!("{wrong}: {heard}");
            Figure::measured(&text.name, wrong.rate(), unit, text.errors_max).with_note(&note)
        }
    };
    let sound = spoken.as_ref().map(|spoken| sound_file(&spoken.speech)).unwrap_or_default();
    let spoken = spoken.as_ref().ok();
    let heard = heard.as_deref().ok().filter(|_| spoken.is_some());
    let mut figures = vec![figure.with_sound(sound)];
    figures.extend(others(&Outcome { spoken, openings, heard }));
    if let Some(trace) = trace {
        figures.iter_mut().for_each(|figure| figure.set_trace(&trace));
    }
    bench.ledger.add(figures);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Verdict;

    #[test]
    fn unknown_language_is_rejected_with_the_known_ones() {
        assert_eq!(sentence("en"), Ok(PLAIN));
        let error = sentence("xx").unwrap_err();
        assert!(error.contains("--language xx") && error.contains("en, zh, de"), "{error}");
    }

    #[test]
    fn symbols_that_are_not_spoken_are_counted() {
        let value = |heard: &str| {
            let outcome = Outcome { spoken: None, openings: Openings::default(), heard: Some(heard) };
            let figure = lost_words(&outcome).remove(0);
            (figure.value, figure.verdict)
        };
        assert_eq!(value(SYMBOLS_SPOKEN), (Some(0.0), Verdict::Pass));
        assert_eq!(value("Tom & Ann meet me @ home, letter #7/8"), (Some(0.0), Verdict::Pass));
        let lost = "Tom Ann both here said meet me home today bring the letter number 7 8";
        assert!(WordErrors::between(SYMBOLS_SPOKEN, lost).rate() <= 0.2, "word errors do not show it");
        assert_eq!(value(lost), (Some(3.0), Verdict::Fail));
    }

    #[test]
    fn lost_sentence_of_a_long_text_fails() {
        let of = |heard: &str| {
            let outcome = Outcome { spoken: None, openings: Openings::default(), heard: Some(heard) };
            of_long_text(&outcome).remove(0)
        };
        let sentences: Vec<&str> = LONG.split_inclusive(". ").collect();
        assert_eq!(of(LONG).verdict, Verdict::Pass);
        for lost in 0..sentences.len() {
            let mut kept = sentences.clone();
            kept.remove(lost);
            let heard = kept.concat();
            assert!(WordErrors::between(LONG, &heard).rate() <= 0.2, "word errors do not show it");
            assert_eq!(of(&heard).verdict, Verdict::Fail, "{}", sentences[lost]);
        }
        // Every tenth word misheard is no lost sentence.
        let words = LONG.split_whitespace().enumerate();
        let misheard: Vec<&str> = words.map(|(at, word)| if at % 10 == 9 { "hm" } else { word }).collect();
        assert_eq!(of(&misheard.join(" ")).verdict, Verdict::Pass);
    }
}
