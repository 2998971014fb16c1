//! Figures of judges: cut-offs and latencies of one setting, and the best that a judge reaches over all its settings.

use std::fmt::Write as _;

use super::{
    families::{Family, Judge},
    pauses::{PAUSE_MIN_MS, Turn},
};

/// Median latency at which cut-offs are compared, ms.
const COMPARED_LATENCY_MS: f32 = 300.0;
/// Share of cut-offs at which latencies are compared.
const COMPARED_CUTS: f32 = 0.05;

/// What one setting does to the turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Share of the pauses inside of turns that it takes for the end.
    pub cuts: f32,
    /// From the end of the turn to the decision, ms: the mean.
    pub mean_ms: f32,
    /// Median of it.
    pub p50_ms: f32,
    /// Its 90th percentile.
    pub p90_ms: f32,
}

/// The figures of a judge over all its settings; `None` where no setting reaches the condition.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// Fewest cut-offs with a median latency of at most 300 ms.
    pub cuts_at_300_ms: Option<f32>,
    /// Of the settings with at most 5 % cut-offs, the one with the least mean latency.
    pub at_5_percent: Option<Outcome>,
}

impl Outcome {
    /// Judges all turns; `None` without any.
    #[must_use]
    pub fn of(judge: &Judge, turns: &[&Turn]) -> Option<Self> {
        let pauses = turns.iter().flat_map(|turn| &turn.pauses);
        let cut: Vec<bool> = pauses.map(|pause| judge.end_ms(pause) < pause.length_ms).collect();
        let mut latencies: Vec<f32> = turns.iter().map(|turn| latency_ms(judge, turn)).collect();
        latencies.sort_by(f32::total_cmp);
        let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied();
        Some(Self {
            cuts: cut.iter().filter(|is_cut| **is_cut).count() as f32 / cut.len().max(1) as f32,
            mean_ms: latencies.iter().sum::<f32>() / latencies.len() as f32,
            p50_ms: percentile(50)?,
            p90_ms: percentile(90)?,
        })
    }
}

/// From the end of a turn to the decision, ms. A turn that is never found to end counts with the whole recording after it.
fn latency_ms(judge: &Judge, turn: &Turn) -> f32 {
    let decided = turn.after.iter().find_map(|pause| {
        let end_ms = judge.end_ms(pause);
        (end_ms <= pause.length_ms).then_some(pause.at_ms + end_ms)
    });
    let last = turn.after.last().map_or(0.0, |pause| pause.at_ms + pause.length_ms);
    (decided.unwrap_or(last) - turn.end_ms).max(0.0)
}

/// The figures of a judge.
#[must_use]
pub fn figures(family: Family, turns: &[&Turn]) -> Figures {
    let outcomes: Vec<Outcome> =
        family.settings().iter().filter_map(|judge| Outcome::of(judge, turns)).collect();
    let quick = outcomes.iter().filter(|outcome| outcome.p50_ms <= COMPARED_LATENCY_MS);
    let careful = outcomes.iter().filter(|outcome| outcome.cuts <= COMPARED_CUTS);
    Figures {
        cuts_at_300_ms: quick.map(|outcome| outcome.cuts).min_by(f32::total_cmp),
        at_5_percent: careful.min_by(|one, other| one.mean_ms.total_cmp(&other.mean_ms)).copied(),
    }
}

/// Table of all judges that these turns have looks for, as Markdown.
#[must_use]
pub fn format_table(turns: &[&Turn], has_model: bool) -> String {
    let pauses = turns.iter().map(|turn| turn.pauses.len()).sum::<usize>();
    let mut text = format!("{} turns with {pauses} pauses of at least {PAUSE_MIN_MS} ms\n\n", turns.len());
    text.push_str(
        "| judge | cut-offs at 300 ms | latency at 5 % cut-offs | p90 there |\n|---|---|---|---|\n",
    );
    let families = || Family::ALL.into_iter().filter(|family| has_model || !family.needs_model());
    for family in families() {
        let found = figures(family, turns);
        let cuts = found.cuts_at_300_ms.map_or("none".to_owned(), percent);
        let [mean, p90] =
            [|outcome: Outcome| outcome.mean_ms, |outcome: Outcome| outcome.p90_ms].map(|figure| {
                found.at_5_percent.map_or("none".to_owned(), |outcome| format!("{:.0} ms", figure(outcome)))
            });
        let _ = writeln!(text, "| {} | {cuts} | {mean} | {p90} |", family.name());
    }
    text.push_str("\n| setting | cut-offs | latency, mean | p50 | p90 |\n|---|---|---|---|---|\n");
    let settings = families().flat_map(|family| family.defaults().into_iter().map(move |row| (family, row)));
    for (family, (name, judge)) in settings {
        let Some(outcome) = Outcome::of(&judge, turns) else { continue };
        let _ = writeln!(
            text,
            "| {}, {name} | {} | {:.0} ms | {:.0} ms | {:.0} ms |",
            family.name(),
            percent(outcome.cuts),
            outcome.mean_ms,
            outcome.p50_ms,
            outcome.p90_ms
        );
    }
    text
}

fn percent(share: f32) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::{
        super::pauses::{Look, Pause},
        *,
    };

    /// A pause of this length whose looks at 110 and 200 ms have this probability.
    fn pause(at_ms: f32, length_ms: f32, probability: f32) -> Pause {
        let look = |silence_ms| Look { silence_ms, probability: Some(probability) };
        Pause { at_ms, length_ms, looks: [110, 200].map(look).to_vec() }
    }

    /// Turns with two pauses each. The model is right about the end of all but one.
    fn turns() -> Vec<Turn> {
        let turn = |at: usize| Turn {
            end_ms: 5000.0,
            pauses: vec![pause(1000.0, 700.0, 0.1), pause(3000.0, 900.0, 0.2)],
            after: vec![pause(5000.0, 4500.0, if at == 0 { 0.3 } else { 0.99 })],
        };
        (0..10).map(turn).collect()
    }

    #[test]
    fn fixed_silence_cuts_the_pauses_that_last_longer_and_comes_that_late() {
        let turns = turns();
        let turns: Vec<&Turn> = turns.iter().collect();
        for (silence_ms, cuts) in [(500.0, 1.0), (800.0, 0.5), (1000.0, 0.0)] {
            let outcome = Outcome::of(&Judge::Fixed(silence_ms), &turns).unwrap();
            let expected = Outcome { cuts, mean_ms: silence_ms, p50_ms: silence_ms, p90_ms: silence_ms };
            assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn model_that_knows_most_ends_is_quicker_than_silence_without_more_cut_offs() {
        let turns = turns();
        let turns: Vec<&Turn> = turns.iter().collect();
        let [fixed, pipecat] = [Family::Fixed, Family::Pipecat].map(|family| figures(family, &turns));
        assert_eq!((fixed.cuts_at_300_ms, pipecat.cuts_at_300_ms), (Some(1.0), Some(0.0)));
        let [fixed, pipecat] = [fixed, pipecat].map(|figures| figures.at_5_percent.unwrap());
        assert_eq!(fixed.mean_ms, 900.0);
        assert!(pipecat.mean_ms < 400.0 && pipecat.cuts == 0.0, "{pipecat:?}");
    }

    #[test]
    fn turn_whose_end_is_not_found_counts_with_all_that_was_recorded_after_it() {
        let turn = Turn {
            end_ms: 1000.0,
            after: vec![pause(990.0, 300.0, 0.0), pause(1500.0, 400.0, 0.0)],
            ..Turn::default()
        };
        assert_eq!(latency_ms(&Judge::Fixed(500.0), &turn), 900.0);
        assert_eq!(latency_ms(&Judge::Fixed(350.0), &turn), 850.0);
        assert_eq!(latency_ms(&Judge::Fixed(200.0), &turn), 190.0);
    }

    #[test]
    fn table_without_a_model_has_only_fixed_silence() {
        let turns = turns();
        let turns: Vec<&Turn> = turns.iter().collect();
        let table = format_table(&turns, false);
        assert!(table.contains("10 turns with 20 pauses") && !table.contains("Smart Turn"), "{table}");
        assert!(format_table(&turns, true).contains("| Smart Turn as in Pipecat | 0.0 % |"));
        assert!(!format_table(&[], true).is_empty());
    }
}
