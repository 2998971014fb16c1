//! Percentiles of the stages, by profile, server and trigger.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{FirstAudio, SessionLatencies, Stage, Trigger};

/// Median and 90th percentile of a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median, ms.
    pub p50_ms: f64,
    /// 90th percentile, ms.
    pub p90_ms: f64,
}

/// Time of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Its time.
    #[serde(flatten)]
    pub time: Percentiles,
}

/// The answers of one profile by one kind of server to one kind of trigger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyRow {
    /// The profile.
    pub profile: String,
    /// Dialect of the server.
    pub server: String,
    /// What was answered.
    pub trigger: Trigger,
    /// Number of answers.
    pub answers: usize,
    /// Each stage.
    pub stages: Vec<StageTime>,
    /// Time from the trigger to the first audio.
    pub total: Percentiles,
    /// The part of it beyond the wait for the end of the turn and for the model.
    pub beyond_model: Percentiles,
    /// Length of the user's messages; zero without speech.
    pub frame: Percentiles,
}

/// The rows of all sessions, in the order of profile, server and trigger.
#[must_use]
pub fn rows(sessions: &[SessionLatencies]) -> Vec<LatencyRow> {
    let mut groups: BTreeMap<(&str, &str, Trigger), Vec<&FirstAudio>> = BTreeMap::new();
    for session in sessions {
        for answer in &session.answers {
            let key = (session.profile.as_str(), answer.server.as_str(), answer.trigger);
            groups.entry(key).or_default().push(answer);
        }
    }
    let row = |((profile, server, trigger), answers): (_, Vec<&FirstAudio>)| {
        let time = |of: &dyn Fn(&FirstAudio) -> Duration| {
            percentiles(answers.iter().map(|answer| of(answer)).collect())
        };
        let stage_time = |stage| StageTime { stage, time: time(&|answer| answer.stage(stage)) };
        let (profile, server): (&str, &str) = (profile, server);
        LatencyRow {
            profile: profile.to_owned(),
            server: server.to_owned(),
            trigger,
            answers: answers.len(),
            stages: Stage::ALL.map(stage_time).to_vec(),
            total: time(&FirstAudio::total),
            beyond_model: time(&FirstAudio::beyond_model),
            frame: time(&|answer| answer.frame),
        }
    };
    groups.into_iter().map(row).collect()
}

/// The percentiles of at least one time, by the nearest rank.
fn percentiles(mut times: Vec<Duration>) -> Percentiles {
    times.sort_unstable();
    let percentile = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).map_or(0.0, |time| (time.as_secs_f64() * 10_000.0).round() / 10.0)
    };
    Percentiles { p50_ms: percentile(50), p90_ms: percentile(90) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(server: &str, trigger: Trigger, model_ms: u64, playout_ms: u64) -> FirstAudio {
        let mut stages = [Duration::ZERO; Stage::ALL.len()];
        stages[Stage::Verdict as usize] = Duration::from_millis(200);
        stages[Stage::Model as usize] = Duration::from_millis(model_ms);
        stages[Stage::Playout as usize] = Duration::from_millis(playout_ms);
        FirstAudio {
            at: Duration::ZERO,
            trigger,
            server: server.to_owned(),
            frame: Duration::from_millis(20),
            stages,
        }
    }

    #[test]
    fn answers_are_grouped_and_have_percentiles_by_the_nearest_rank() {
        let session = |profile: &str, answers| SessionLatencies {
            profile: profile.to_owned(),
            answers,
            notes: Vec::new(),
        };
        let many = (1..=10).map(|number| answer("a", Trigger::Speech, 100 * number, number)).collect();
        let others = vec![answer("b", Trigger::Speech, 1, 0), answer("a", Trigger::Text, 7, 0)];
        let rows = rows(&[session("p", many), session("p", others), session("o", vec![])]);
        let keys: Vec<_> = rows.iter().map(|row| (row.server.as_str(), row.trigger, row.answers)).collect();
        assert_eq!(keys, [("a", Trigger::Speech, 10), ("a", Trigger::Text, 1), ("b", Trigger::Speech, 1)]);
        let model = rows[0].stages.iter().find(|time| time.stage == Stage::Model).unwrap().time;
        assert_eq!((model.p50_ms, model.p90_ms), (500.0, 900.0));
        assert_eq!((rows[0].total.p50_ms, rows[0].total.p90_ms), (705.0, 1109.0));
        assert_eq!((rows[0].beyond_model.p50_ms, rows[0].beyond_model.p90_ms), (5.0, 9.0));
        assert_eq!(rows[2].frame, Percentiles { p50_ms: 20.0, p90_ms: 20.0 });
    }
}
