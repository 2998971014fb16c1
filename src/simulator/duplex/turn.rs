//! One turn of the model: which text and which second of sound each of its units has.

use super::{
    super::{Dialect, FaultKind, script},
    responder::Answer,
    watermark::marker,
};
use crate::simulator::{hum_voice::SAMPLE_RATE_HZ, session_context::Bench};

/// Fewer than 28 characters of text in a unit (field notes §1.6).
const UNIT_CHARS: usize = 27;

/// The last unit of a marker turn, as captured (field notes §6.1).
const LAST_SAMPLES: usize = 14_400;

/// The first unit of a turn, where the document of the legacy dialect lets it be shorter.
const FIRST_SAMPLES: usize = 12_000;

/// What an endless turn says once its text is over.
const ENDLESS: &str = "and so on ";

/// What `think` adds: placed so that no tag stays in one piece when the text is cut after 26 characters.
const THOUGHT: &str = "<think>they spoke to me</think>";
const CONTROL: &str = "<|speak|>";
const CONTROL_AFTER_CHARS: usize = 19;
const TAGGED_CHARS: usize = 26;

/// How a turn ends that does not end well.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Dies,
    Drops,
}

/// Where the sound comes from.
#[derive(Debug)]
enum Sound {
    /// The marker of this turn.
    Marker(u64),
    Given(Vec<f32>),
    /// Nothing was synthesised.
    Missing,
}

/// What one unit says.
#[derive(Debug)]
pub(super) struct Spoken {
    pub(super) text: String,
    /// Empty if the unit has no waveform.
    pub(super) audio: Vec<f32>,
}

/// A turn under way.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) response_id: String,
    /// Ends by itself when the user speaks.
    pub(super) yields: bool,
    /// `response.done` after every unit, with everything said so far.
    pub(super) repeats: bool,
    /// Everything said so far.
    pub(super) said: String,
    texts: Vec<String>,
    sound: Sound,
    samples: usize,
    /// How much of it the first unit has.
    first: usize,
    spoken: usize,
    burst: usize,
    endless: bool,
    ignores: u32,
    fate: Option<(usize, Fate)>,
}

impl Turn {
    pub(super) fn begin(answer: Answer, response_id: String, bench: &mut Bench<'_>) -> Self {
        *bench.turns += 1;
        let burst = bench.faults.strike(|kind| match kind {
            FaultKind::Burst(units) => Some(units as usize),
            _ => None,
        });
        let mut text = answer.text;
        if bench.model.busy(bench.now) {
            text.insert_str(0, script::CORRUPTED);
        }
        let sound = match answer.speech {
            _ if bench.faults.hits(FaultKind::NoAudio) => Sound::Missing,
            Some(samples) => Sound::Given(samples),
            None => Sound::Marker(*bench.turns),
        };
        let units = match (&sound, burst) {
            (Sound::Given(samples), _) => samples.len().div_ceil(SAMPLE_RATE_HZ),
            (_, Some(burst)) => burst + 1,
            (_, None) => bench.cfg.turn_units,
        };
        let texts = if bench.faults.hits(FaultKind::Think) {
            tagged(&text)
        } else {
            // Real speech lags behind its text by about a unit (field notes §7).
            spread(&text, units, usize::from(matches!(sound, Sound::Given(_))))
        };
        let units = texts.len().max(units).max(1);
        let samples = match &sound {
            Sound::Given(samples) => samples.len(),
            _ => (units - 1) * SAMPLE_RATE_HZ + LAST_SAMPLES,
        };
        let first = match bench.cfg.dialect {
            Dialect::Legacy { documented: true } => FIRST_SAMPLES,
            _ => SAMPLE_RATE_HZ,
        };
        let units = units.max(1 + samples.saturating_sub(first).div_ceil(SAMPLE_RATE_HZ));
        Self {
            response_id,
            yields: bench.faults.hits(FaultKind::Yields),
            repeats: bench.faults.hits(FaultKind::RepeatsText),
            said: String::new(),
            samples,
            first,
            texts: texts.into_iter().chain(std::iter::repeat(String::new())).take(units).collect(),
            sound,
            spoken: 0,
            burst: burst.unwrap_or(1),
            endless: bench.faults.hits(FaultKind::NeverListens),
            ignores: ignores(bench),
            fate: fate(bench),
        }
    }

    /// Whether the turn ends when it is told to.
    pub(super) fn stops(&mut self) -> bool {
        let ignored = self.ignores > 0;
        self.ignores = self.ignores.saturating_sub(1);
        !ignored && !self.endless
    }

    /// What happens instead of the next unit; at the latest instead of the last one.
    pub(super) fn fate(&self) -> Option<Fate> {
        let (after, fate) = self.fate?;
        (self.spoken >= after.min(self.texts.len() - 1)).then_some(fate)
    }

    /// Units that come out of the next step.
    pub(super) fn at_once(&self) -> usize {
        let first = if self.spoken == 0 { self.burst } else { 1 };
        first.min(self.texts.len().saturating_sub(self.spoken)).max(1)
    }

    pub(super) const fn over(&self) -> bool {
        self.spoken >= self.texts.len() && !self.endless
    }

    /// The next unit.
    pub(super) fn speak(&mut self) -> Spoken {
        let text = self.texts.get(self.spoken).map_or(ENDLESS, String::as_str).to_owned();
        let start = self.spoken.checked_sub(1).map_or(0, |full| self.first + full * SAMPLE_RATE_HZ);
        let end = self.first + self.spoken * SAMPLE_RATE_HZ;
        let end = if self.endless { end } else { end.min(self.samples) };
        self.spoken += 1;
        self.said.push_str(&text);
        let audio = match &self.sound {
            Sound::Marker(turn) => (start..end).map(|index| marker(*turn, index)).collect(),
            Sound::Given(samples) => samples.get(start..end.min(samples.len())).unwrap_or_default().to_vec(),
            Sound::Missing => Vec::new(),
        };
        Spoken { text, audio }
    }
}

fn ignores(bench: &mut Bench<'_>) -> u32 {
    let ignores = bench.faults.strike(|kind| match kind {
        FaultKind::IgnoresForce(times) => Some(times),
        _ => None,
    });
    ignores.unwrap_or(0)
}

fn fate(bench: &mut Bench<'_>) -> Option<(usize, Fate)> {
    bench.faults.strike(|kind| match kind {
        FaultKind::DieMidTurn(units) => Some((units as usize, Fate::Dies)),
        FaultKind::DropMidTurn(units) => Some((units as usize, Fate::Drops)),
        _ => None,
    })
}

/// The text over at least so many units, evenly, ahead by `lead` units; broken after a space where one is near.
fn spread(text: &str, units: usize, lead: usize) -> Vec<String> {
    let total = text.chars().count();
    let mut parts = Vec::with_capacity(units);
    let (mut rest, mut done) = (text, 0);
    while parts.len() < units || !rest.is_empty() {
        let due = (total * (parts.len() + 1 + lead)).div_ceil(units.max(1)).min(total);
        let most = due.saturating_sub(done).min(UNIT_CHARS);
        let part = cut(rest, most, due == total && total - done <= UNIT_CHARS);
        done += part.chars().count();
        rest = &rest[part.len()..];
        parts.push(part.to_owned());
    }
    parts
}

/// The beginning of a text, at most so long.
fn cut(text: &str, chars: usize, whole: bool) -> &str {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let space = text[..end].rfind(' ').map(|at| at + 1).filter(|_| !whole);
    &text[..space.unwrap_or(end)]
}

/// The text with a thought before it and a control token in it, cut through the tags.
fn tagged(text: &str) -> Vec<String> {
    let at = text.char_indices().nth(CONTROL_AFTER_CHARS).map_or(text.len(), |(at, _)| at);
    let whole: Vec<char> = format!("{THOUGHT}{}{CONTROL}{}", &text[..at], &text[at..]).chars().collect();
    whole.chunks(TAGGED_CHARS).map(|part| part.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_spread_over_the_units() {
        let text = "I heard 3.0 seconds of speech.";
        assert_eq!(spread(text, 3, 0), ["I heard ", "3.0 seconds ", "of speech."]);
        assert_eq!(spread(text, 3, 1), ["I heard 3.0 seconds ", "of speech.", ""]);
        assert_eq!(spread(text, 1, 0).concat(), text);
        let long = "word ".repeat(40) + &"x".repeat(99);
        for parts in [spread(&long, 2, 0), spread(&long, 35, 1), spread(&long, 0, 0)] {
            assert_eq!(parts.concat(), long);
            assert!(parts.iter().all(|part| part.chars().count() < 28), "{parts:?}");
        }
    }

    #[test]
    fn no_tag_stays_in_one_piece() {
        let parts = tagged("I heard 3.0 seconds of speech.");
        assert_eq!(parts.concat(), "<think>they spoke to me</think>I heard 3.0 seconds<|speak|> of speech.");
        assert!(parts.iter().all(|part| !part.contains("</think>") && !part.contains(CONTROL)), "{parts:?}");
    }
}
