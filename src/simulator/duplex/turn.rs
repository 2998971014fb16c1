//! One model turn: the text and the second of audio of each unit.

use super::{
    super::{FaultKind, SimDialect, script},
    responder::ModelAnswer,
    watermark::watermark_sample,
};
use crate::{hum_voice::SAMPLE_RATE_HZ, session_context::SimContext};

/// A unit has fewer than 28 characters of text (mappings/notes/minicpm-o-duplex.md#units).
const MAX_UNIT_CHARS: usize = 27;

/// Samples of the last unit of a watermark turn, as captured (mappings/notes/minicpm-o.md#exchanges).
const LAST_UNIT_SAMPLES: usize = 14_400;

/// Samples of the first unit, which the legacy document allows to be shorter.
const SHORT_FIRST_UNIT_SAMPLES: usize = 12_000;

/// Text of an endless turn after its own text.
const ENDLESS_TEXT: &str = "and so on ";

/// Text added by the `think` fault. No tag stays whole when the text is cut every 26 characters.
const THOUGHT: &str = "<think>they spoke to me</think>";
const CONTROL_TOKEN: &str = "<|speak|>";
const CONTROL_AFTER_CHARS: usize = 19;
const TAGGED_UNIT_CHARS: usize = 26;

/// Abnormal end of a turn.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum TurnFault {
    Crash,
    Abort,
}

/// Source of the audio.
#[derive(Debug)]
enum TurnAudio {
    /// Watermark of the turn with this number.
    Watermark(u64),
    Engine(Vec<f32>),
    /// No audio is synthesized.
    Missing,
}

/// Content of one unit.
#[derive(Debug)]
pub(in super::super) struct SpokenUnit {
    pub(in super::super) text: String,
    /// Empty if the unit has no waveform.
    pub(in super::super) audio: Vec<f32>,
}

/// A turn in progress.
#[derive(Debug)]
pub(in super::super) struct ModelTurn {
    pub(in super::super) response_id: String,
    /// Ends when the user speaks.
    pub(in super::super) yields_to_speech: bool,
    /// Sends `response.done` with the whole text so far after every unit.
    pub(in super::super) repeats_text: bool,
    /// Text spoken so far.
    pub(in super::super) spoken_text: String,
    texts: Vec<String>,
    audio: TurnAudio,
    samples: usize,
    /// Number of these samples in the first unit.
    first_unit_samples: usize,
    units_spoken: usize,
    burst_units: usize,
    is_endless: bool,
    ignored_stops_left: u32,
    fault: Option<(usize, TurnFault)>,
}

impl ModelTurn {
    pub(in super::super) fn start(
        answer: ModelAnswer,
        response_id: String,
        ctx: &mut SimContext<'_>,
    ) -> Self {
        *ctx.turn_count += 1;
        let burst = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::Burst(units) => Some(units as usize),
            _ => None,
        });
        let mut text = answer.text;
        if ctx.model.has_running_orphan(ctx.now) {
            text.insert_str(0, script::CORRUPTED_PREFIX);
        }
        let audio = match answer.speech {
            _ if ctx.faults.trigger(FaultKind::NoAudio) => TurnAudio::Missing,
            Some(samples) => TurnAudio::Engine(samples),
            None => TurnAudio::Watermark(*ctx.turn_count),
        };
        let units = match (&audio, burst) {
            (TurnAudio::Engine(samples), _) => samples.len().div_ceil(SAMPLE_RATE_HZ),
            (_, Some(burst)) => burst + 1,
            (_, None) => ctx.cfg.turn_units,
        };
        let texts = if ctx.faults.trigger(FaultKind::Think) {
            add_control_tags(&text)
        } else {
            // Engine speech lags behind its text by about a unit (mappings/notes/minicpm-o-duplex.md#turns).
            spread_text(&text, units, usize::from(matches!(audio, TurnAudio::Engine(_))))
        };
        let units = texts.len().max(units).max(1);
        let samples = match &audio {
            TurnAudio::Engine(samples) => samples.len(),
            _ => (units - 1) * SAMPLE_RATE_HZ + LAST_UNIT_SAMPLES,
        };
        let first_unit_samples = match ctx.cfg.dialect {
            SimDialect::Legacy { follows_document: true } => SHORT_FIRST_UNIT_SAMPLES,
            _ => SAMPLE_RATE_HZ,
        };
        let units = units.max(1 + samples.saturating_sub(first_unit_samples).div_ceil(SAMPLE_RATE_HZ));
        Self {
            response_id,
            yields_to_speech: ctx.faults.trigger(FaultKind::Yields),
            repeats_text: ctx.faults.trigger(FaultKind::RepeatsText),
            spoken_text: String::new(),
            samples,
            first_unit_samples,
            texts: texts.into_iter().chain(std::iter::repeat(String::new())).take(units).collect(),
            audio,
            units_spoken: 0,
            burst_units: burst.unwrap_or(1),
            is_endless: ctx.faults.trigger(FaultKind::NeverListens),
            ignored_stops_left: ignored_stop_count(ctx),
            fault: turn_fault(ctx),
        }
    }

    /// Handles a stop request; returns whether the turn obeys.
    pub(in super::super) fn try_stop(&mut self) -> bool {
        let is_ignored = self.ignored_stops_left > 0;
        self.ignored_stops_left = self.ignored_stops_left.saturating_sub(1);
        !is_ignored && !self.is_endless
    }

    /// Returns the fault that replaces the next unit. It triggers no later than at the last unit.
    pub(in super::super) fn due_fault(&self) -> Option<TurnFault> {
        let (after_units, fault) = self.fault?;
        (self.units_spoken >= after_units.min(self.texts.len() - 1)).then_some(fault)
    }

    /// Number of units in the next step.
    pub(in super::super) fn units_in_next_step(&self) -> usize {
        let units = if self.units_spoken == 0 { self.burst_units } else { 1 };
        units.min(self.texts.len().saturating_sub(self.units_spoken)).max(1)
    }

    pub(in super::super) const fn is_over(&self) -> bool {
        self.units_spoken >= self.texts.len() && !self.is_endless
    }

    /// Returns the next unit.
    pub(in super::super) fn next_unit(&mut self) -> SpokenUnit {
        let text = self.texts.get(self.units_spoken).map_or(ENDLESS_TEXT, String::as_str).to_owned();
        let start = self
            .units_spoken
            .checked_sub(1)
            .map_or(0, |full_units| self.first_unit_samples + full_units * SAMPLE_RATE_HZ);
        let end = self.first_unit_samples + self.units_spoken * SAMPLE_RATE_HZ;
        let end = if self.is_endless { end } else { end.min(self.samples) };
        self.units_spoken += 1;
        self.spoken_text.push_str(&text);
        let audio = match &self.audio {
            TurnAudio::Watermark(turn) => (start..end).map(|index| watermark_sample(*turn, index)).collect(),
            TurnAudio::Engine(samples) => {
                samples.get(start..end.min(samples.len())).unwrap_or_default().to_vec()
            }
            TurnAudio::Missing => Vec::new(),
        };
        SpokenUnit { text, audio }
    }
}

fn ignored_stop_count(ctx: &mut SimContext<'_>) -> u32 {
    let stop_count = ctx.faults.trigger_with(|kind| match kind {
        FaultKind::IgnoresForce(times) => Some(times),
        _ => None,
    });
    stop_count.unwrap_or(0)
}

fn turn_fault(ctx: &mut SimContext<'_>) -> Option<(usize, TurnFault)> {
    ctx.faults.trigger_with(|kind| match kind {
        FaultKind::DieMidTurn(units) => Some((units as usize, TurnFault::Crash)),
        FaultKind::DropMidTurn(units) => Some((units as usize, TurnFault::Abort)),
        _ => None,
    })
}

/// Spreads the text evenly over at least `units` units, ahead by `lead_units`; breaks after a space if one is near.
fn spread_text(text: &str, units: usize, lead_units: usize) -> Vec<String> {
    let total = text.chars().count();
    let mut parts = Vec::with_capacity(units);
    let (mut rest, mut done) = (text, 0);
    while parts.len() < units || !rest.is_empty() {
        let due = (total * (parts.len() + 1 + lead_units)).div_ceil(units.max(1)).min(total);
        let max_chars = due.saturating_sub(done).min(MAX_UNIT_CHARS);
        let part = take_prefix(rest, max_chars, due == total && total - done <= MAX_UNIT_CHARS);
        done += part.chars().count();
        rest = &rest[part.len()..];
        parts.push(part.to_owned());
    }
    parts
}

/// Returns a prefix of at most `chars` characters.
fn take_prefix(text: &str, chars: usize, is_last: bool) -> &str {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let space = text[..end].rfind(' ').map(|at| at + 1).filter(|_| !is_last);
    &text[..space.unwrap_or(end)]
}

/// Adds a thought before the text and a control token inside it, and cuts through both tags.
fn add_control_tags(text: &str) -> Vec<String> {
    let at = text.char_indices().nth(CONTROL_AFTER_CHARS).map_or(text.len(), |(at, _)| at);
    let whole: Vec<char> =
        format!("{THOUGHT}{}{CONTROL_TOKEN}{}", &text[..at], &text[at..]).chars().collect();
    whole.chunks(TAGGED_UNIT_CHARS).map(|part| part.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_spread_evenly_over_units() {
        let text = "I heard 3.0 seconds of speech.";
        assert_eq!(spread_text(text, 3, 0), ["I heard ", "3.0 seconds ", "of speech."]);
        assert_eq!(spread_text(text, 3, 1), ["I heard 3.0 seconds ", "of speech.", ""]);
        assert_eq!(spread_text(text, 1, 0).concat(), text);
        let long = "word ".repeat(40) + &"x".repeat(99);
        for parts in [spread_text(&long, 2, 0), spread_text(&long, 35, 1), spread_text(&long, 0, 0)] {
            assert_eq!(parts.concat(), long);
            assert!(parts.iter().all(|part| part.chars().count() < 28), "{parts:?}");
        }
    }

    #[test]
    fn tags_are_split_across_units() {
        let parts = add_control_tags("I heard 3.0 seconds of speech.");
        assert_eq!(parts.concat(), "<think>they spoke to me</think>I heard 3.0 seconds<|speak|> of speech.");
        assert!(
            parts.iter().all(|part| !part.contains("</think>") && !part.contains(CONTROL_TOKEN)),
            "{parts:?}"
        );
    }
}
