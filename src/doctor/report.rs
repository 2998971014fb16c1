//! What was found, for people and for programs. The shape of the JSON is in [`super`].

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    diagnosis::{Problem, Subject, explain},
    experiments::Clue,
    step::{Outcome, Step, Verdict},
    symptom::seconds,
};

/// Longest of a server's words that are repeated.
const WORDS_MAX_CHARS: usize = 300;

/// Everything about one upstream, or one client's side.
#[derive(Debug, Clone, Default)]
pub struct Walked {
    /// What the configuration calls it.
    pub name: String,
    /// Who it was.
    pub subject: Subject,
    /// The steps, in order.
    pub outcomes: Vec<Outcome>,
    /// What was found out about a failure.
    pub clue: Option<Clue>,
}

#[derive(Serialize)]
struct JsonStep<'o> {
    step: &'static str,
    verdict: &'static str,
    took_ms: Option<f64>,
    note: &'o str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Value>,
}

impl Walked {
    /// Whether no step failed, and none was interrupted.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        let answered = |outcome: &Outcome| matches!(outcome.step, Step::Answer | Step::Session);
        let reached =
            self.outcomes.iter().any(|outcome| answered(outcome) && outcome.verdict != Verdict::Skipped);
        reached && self.outcomes.iter().all(|outcome| outcome.failure().is_none())
    }

    /// What is wrong, step by step, in words.
    #[must_use]
    pub fn problems(&self) -> Vec<(Step, Problem)> {
        let problem = |outcome: &Outcome| match &outcome.verdict {
            Verdict::Failed(symptom) => {
                Some((outcome.step, explain(&self.subject, outcome.step, symptom, self.clue.as_ref())))
            }
            Verdict::Slow(symptom) => {
                Some((outcome.step, explain(&self.subject, outcome.step, symptom, None)))
            }
            Verdict::Ok | Verdict::Skipped => None,
        };
        self.outcomes.iter().filter_map(problem).collect()
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let problems = self.problems();
        let step = |outcome: &Outcome| {
            let problem = problems.iter().find(|(step, _)| *step == outcome.step).map(|(_, problem)| {
                json!({
                    "seen": printable(&problem.seen),
                    "cause": problem.cause, "advice": problem.advice,
                })
            });
            let took_ms = outcome.took.map(|took| (took.as_secs_f64() * 1e4).round() / 10.0);
            let note = printable(&outcome.note);
            json!(JsonStep {
                step: outcome.step.name(),
                verdict: outcome.verdict.name(),
                took_ms,
                note: &note,
                problem
            })
        };
        let steps: Vec<Value> = self.outcomes.iter().map(step).collect();
        json!({
            "name": self.name, "url": self.subject.url, "dialect": self.subject.dialect, "ok": self.is_ok(), "steps": steps,
        })
    }
}

/// All of it, for programs.
#[must_use]
pub fn json(walks: &[Walked]) -> Value {
    let each: Vec<Value> = walks.iter().map(Walked::json).collect();
    json!({"ok": walks.iter().all(Walked::is_ok), "walks": each})
}

/// A step's line: verdict, step, time, note.
#[must_use]
pub fn line(outcome: &Outcome) -> String {
    let took = outcome.took.map(seconds).unwrap_or_default();
    let note = match outcome.verdict {
        Verdict::Skipped => format!("because {}", outcome.note),
        _ => outcome.note.clone(),
    };
    let line = format!(
        "  {:<8} {:<13} {took:>7}  {}",
        outcome.verdict.name(),
        outcome.step.name(),
        printable(&note)
    );
    line.trim_end().to_owned()
}

/// A problem's paragraph.
#[must_use]
pub fn paragraph(step: Step, problem: &Problem) -> String {
    let Problem { seen, cause, advice } = problem;
    let text = format!("{}: {} {cause} What to do: {}", step.name(), printable(seen), lowered(advice));
    wrapped(&text, 100)
}

/// Steps that were never reached, and why.
#[must_use]
pub fn missing(taken: &[Outcome], steps: &[Step]) -> Vec<Outcome> {
    let failed = taken.iter().find(|outcome| outcome.failure().is_some());
    let why = failed.map_or("interrupted".to_owned(), |outcome| format!("{} failed", outcome.step.name()));
    let absent = steps.iter().filter(|step| !taken.iter().any(|outcome| outcome.step == **step));
    absent.map(|step| Outcome::skipped(*step, why.clone())).collect()
}

/// A server's words on one line, without what steers a terminal, and not too many.
fn printable(text: &str) -> String {
    let mut words: String = text.chars().take(WORDS_MAX_CHARS).collect();
    if words.len() < text.len() {
        words.push('…');
    }
    words.replace(char::is_control, " ")
}

/// An advice behind a colon. A word of capitals or of code stays as it is.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Broken at spaces, each line with the same margin.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= width);
        if full {
            lines.push(String::from(" "));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}
