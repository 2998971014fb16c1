//! The figures of two runs side by side: two servers, or two versions.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::figure::{Expectation, Figure, Verdict};
use crate::named_enum::named_enum;

/// Change of a value that counts as none: runs differ by this much by chance.
const SAME_SHARE: f64 = 0.1;
/// Change of a share or of seconds that counts as none, however small the value is.
const SAME_VALUE: f64 = 0.02;

named_enum! {
    /// How a figure changed.
    pub enum Change {
        /// About the same value, and the same verdict.
        Same = "same",
        /// The second run is better.
        Better = "better",
        /// The second run is worse.
        Worse = "worse",
        /// Only one of the runs has it, and nothing broke.
        Only = "only one",
    }
}

/// One figure of both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared<'f> {
    /// The figure of the first run.
    pub first: Option<&'f Figure>,
    /// The figure of the second run.
    pub second: Option<&'f Figure>,
    /// How it changed.
    pub change: Change,
}

impl Compared<'_> {
    /// Name of the figure.
    #[must_use]
    pub fn name(&self) -> &str {
        self.first.or(self.second).map_or("", |figure| &figure.name)
    }
}

/// Compares two runs: the figures of the second run in its order, then those that only the first one has.
#[must_use]
pub fn compare<'f>(first: &'f [Figure], second: &'f [Figure]) -> Vec<Compared<'f>> {
    let find = |all: &'f [Figure], name: &str| all.iter().find(|figure| figure.name == name);
    let both = second.iter().map(|new| (find(first, &new.name), Some(new)));
    let gone = first.iter().filter(|old| find(second, &old.name).is_none()).map(|old| (Some(old), None));
    both.chain(gone)
        .map(|(first, second)| Compared { first, second, change: change(first, second) })
        .collect()
}

/// True if something broke between the runs: a figure fails and did not before, or it passed and is missing now.
/// A single figure is skipped by chance, such as when all answers were too short to interrupt; a section that is skipped has none.
#[must_use]
pub fn has_new_failure(compared: &[Compared<'_>]) -> bool {
    compared.iter().any(|one| is_new_failure(one.first, one.second))
}

fn is_new_failure(first: Option<&Figure>, second: Option<&Figure>) -> bool {
    let [old, new] = [first, second].map(|figure| figure.map(|figure| figure.verdict));
    match new {
        Some(Verdict::Fail) => old != Some(Verdict::Fail),
        Some(Verdict::Pass | Verdict::Skipped) => false,
        None => old == Some(Verdict::Pass),
    }
}

fn change(first: Option<&Figure>, second: Option<&Figure>) -> Change {
    if is_new_failure(first, second) {
        return Change::Worse;
    }
    let (Some(first), Some(second)) = (first, second) else { return Change::Only };
    if first.verdict != Verdict::Pass && second.verdict == Verdict::Pass {
        return Change::Better;
    }
    let (Some(old), Some(new)) = (first.value, second.value) else { return Change::Same };
    let gain = match second.expected {
        Expectation::AtMost(_) => old - new,
        Expectation::AtLeast(_) => new - old,
        Expectation::Succeeds => 0.0,
    };
    match gain.abs() > SAME_VALUE.max(old.abs() * SAME_SHARE) {
        true if gain > 0.0 => Change::Better,
        true => Change::Worse,
        false => Change::Same,
    }
}

/// The comparison as JSON: name, change and both figures of each line.
#[must_use]
pub fn to_json(compared: &[Compared<'_>]) -> Value {
    let line = |one: &Compared<'_>| json!({"name": one.name(), "change": one.change.name(), "first": one.first, "second": one.second});
    compared.iter().map(line).collect()
}

/// Formats the comparison as a table, with these names of the runs.
#[must_use]
pub fn format_table(compared: &[Compared<'_>], names: [&str; 2]) -> String {
    let mut text = format!("first:  {}\nsecond: {}\n\n", names[0], names[1]);
    let _ = writeln!(text, "  {:<36} {:>16} {:>16}  change", "figure", "first", "second");
    for one in compared {
        let cell = |figure: Option<&Figure>| {
            figure.map_or_else(String::new, |figure| {
                format!("{} {}", figure.display_value(), mark(figure.verdict))
            })
        };
        let (first, second) = (cell(one.first), cell(one.second));
        let _ = writeln!(text, "  {:<36} {first:>16} {second:>16}  {}", one.name(), one.change.name());
    }
    text
}

const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "ok",
        Verdict::Fail => "FAIL",
        Verdict::Skipped => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_judged_by_the_direction_of_the_expectation() {
        let at_most = |value| Figure::measured("a.latency", value, "s", Expectation::AtMost(2.0));
        let at_least = |value| Figure::measured("a.share", value, "share", Expectation::AtLeast(0.5));
        let changed = |old: &Figure, new: &Figure| change(Some(old), Some(new));
        assert_eq!(changed(&at_most(1.0), &at_most(0.5)), Change::Better);
        assert_eq!(changed(&at_most(1.0), &at_most(1.05)), Change::Same);
        assert_eq!(changed(&at_most(1.9), &at_most(2.05)), Change::Worse, "it fails now");
        assert_eq!(changed(&at_least(0.6), &at_least(0.9)), Change::Better);
        assert_eq!(changed(&at_least(0.9), &at_least(0.6)), Change::Worse);
    }

    #[test]
    fn figures_of_only_one_run_are_kept() {
        let old = [Figure::skipped("old", "x"), Figure::measured("a", 1.0, "s", Expectation::AtMost(2.0))];
        let new = [Figure::measured("a", 3.0, "s", Expectation::AtMost(2.0)), Figure::skipped("new", "x")];
        let compared = compare(&old, &new);
        let changes: Vec<_> = compared.iter().map(|one| (one.name(), one.change)).collect();
        assert_eq!(changes, [("a", Change::Worse), ("new", Change::Only), ("old", Change::Only)]);
        assert!(has_new_failure(&compared) && !has_new_failure(&compare(&new, &new)));
        let table = format_table(&compared, ["one", "two"]);
        assert!(table.contains("1 s ok") && table.contains("3 s FAIL  worse"), "{table}");
        let json = to_json(&compared);
        assert_eq!((&json[0]["change"], &json[0]["second"]["value"]), (&"worse".into(), &3.0.into()));
        assert_eq!((&json[1]["name"], &json[1]["first"]), (&"new".into(), &Value::Null));
    }

    #[test]
    fn failure_under_a_new_name_and_pass_that_is_gone_are_worse() {
        let limit = Expectation::AtMost(2.0);
        let (pass, fail) =
            ([Figure::measured("a.b", 1.0, "s", limit)], [Figure::failed("a.b", "s", limit, "x")]);
        let (other_failure, skipped) =
            ([Figure::failed("a.c", "s", limit, "x")], [Figure::skipped("a.b", "no")]);
        for (case, first, second, breaks) in [
            ("fails now", &pass[..], &fail[..], true),
            ("new failure", &[], &other_failure, true),
            ("failure that was skipped", &skipped, &fail, true),
            ("gone", &pass, &[], true),
            ("skipped now", &pass, &skipped, false),
            ("failed before", &fail, &fail, false),
            ("failure that is gone", &fail, &[], false),
            ("mended", &fail, &pass, false),
            ("offered now", &skipped, &pass, false),
        ] {
            let compared = compare(first, second);
            assert_eq!(has_new_failure(&compared), breaks, "{case}");
            assert_eq!(compared[0].change == Change::Worse, breaks, "{case}");
        }
    }
}
