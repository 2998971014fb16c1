//! Gain of judged ends of turns and early questions: sentences with pauses inside, the real model, and the simulator's time.
//!
//! `cargo test --features turn-model --test core turn_end::gain -- --ignored --nocapture` prints the table.
//! `tests/clients/pipecat_turns.py` reads the sentences, pauses and time of an inference from this file, and prints the same
//! table for a Pipecat pipeline.

use std::process::Command;

use voxbridge::{
    server::turn_judge::TurnJudge,
    simulator::SimTiming,
    telemetry::metrics::{Metrics, scrape::ServerSnapshot},
};
use voxbridge_test_support::programs::{installed, set_up};

use super::*;

/// A sentence.
struct Sentence {
    file: &'static str,
    /// End of its speech by Silero, ms.
    end_ms: u64,
    /// Places between words where a pause is put, ms. JFK pauses himself at 2240 and 4384 ms for 1060 and 1020 ms.
    places_ms: &'static [u64],
}

const SENTENCES: [Sentence; 5] = [
    Sentence { file: "arctic_a0007_16k.wav", end_ms: 3520, places_ms: &[1335, 1925, 2765] },
    Sentence { file: "jfk_16k.wav", end_ms: 11_008, places_ms: &[3888] },
    Sentence { file: "librivox_0870_16k.wav", end_ms: 6880, places_ms: &[2235, 4195, 4775] },
    Sentence { file: "librivox_0880_16k.wav", end_ms: 2848, places_ms: &[1075, 1705] },
    Sentence { file: "librivox_0920_16k.wav", end_ms: 5856, places_ms: &[2565, 3845, 4505] },
];

const PAUSES_MS: [u64; 6] = [200, 300, 500, 700, 1000, 1500];

/// Time of an inference. The judge computes outside of the virtual time.
const INFERENCE_MS: u64 = 100;

/// A sentence with a pause in it, and the room's noise after it.
struct Take {
    audio: Vec<i16>,
    pause_ms: u64,
    /// End of the speech, ms.
    end_ms: u64,
}

/// Noise of the room at the end of a recording: its quietest 60 ms, there and back.
fn room_noise(recording: &[i16], ms: u64) -> Vec<i16> {
    let energy = |stretch: &[i16]| stretch.iter().map(|it| i64::from(*it).pow(2)).sum::<i64>();
    let stretches = recording.chunks_exact(960).filter(|stretch| energy(stretch) > 0);
    let quietest = stretches.min_by_key(|stretch| energy(stretch)).unwrap();
    let there_and_back: Vec<i16> = quietest.iter().chain(quietest.iter().rev()).copied().collect();
    there_and_back.into_iter().cycle().take((16 * ms) as usize).collect()
}

fn takes() -> Vec<Take> {
    let mut takes = Vec::new();
    for Sentence { file, end_ms, places_ms } in SENTENCES {
        let spoken = recording(file);
        for (place_ms, pause_ms) in places_ms.iter().flat_map(|place| PAUSES_MS.map(|pause| (*place, pause)))
        {
            let (before, after) = spoken.split_at((16 * place_ms) as usize);
            let [pause, tail] = [pause_ms, 6000].map(|ms| room_noise(&spoken, ms));
            let audio = [before, &pause, after, &tail].concat();
            takes.push(Take { audio, pause_ms, end_ms: end_ms + pause_ms });
        }
    }
    takes
}

/// Result of one take.
struct Outcome {
    pause_ms: u64,
    is_cut: bool,
    wasted: usize,
    /// From the end of the speech to the first audio of the answer, ms; `None` if there was no answer.
    latency_ms: Option<u64>,
    /// The model's own time to its first audio, ms.
    model_ms: u64,
}

fn run(take: &Take, policy: &Policy, judge_model: &TurnJudge) -> Outcome {
    let mut config = config(policy.profile, None);
    config.library.add("fixed.toml", &policy.file()).unwrap();
    config.simulator.timing = SimTiming { first_delta: Duration::from_millis(300), ..SimTiming::default() };
    config.simulator.workers = 4;
    let model = judge_model.clone();
    let verdict = move |audio: &[i16]| model.ask(audio.to_vec().into()).unwrap().blocking_recv().unwrap();
    config.judge = Some(judge(INFERENCE_MS, verdict));
    let mut harness = Harness::new(HarnessConfig { profile: "measured", ..config });
    harness.send_json(&json!({"type": "session.configure"}));
    harness.stream(&take.audio, 20);
    let end = Duration::from_millis(take.end_ms);
    let at = |(at, frame): &(Duration, ClientFrame), name: &str| (frame.name() == name).then_some(*at);
    let ends = harness.log.iter().filter_map(|it| at(it, "vad.speech_end"));
    let is_cut = ends.into_iter().any(|at| at < end);
    let mut starts = harness.log.iter().filter_map(|it| at(it, "tts.speaking_start"));
    let first_audio = starts.find(|at| *at >= end);
    let (questions, model_ms) = questions_and_model_time(&harness);
    Outcome {
        pause_ms: take.pause_ms,
        is_cut,
        wasted: questions.saturating_sub(1),
        latency_ms: first_audio.map(|at| (at - end).as_millis() as u64),
        model_ms,
    }
}

/// Number of questions for answers, and the time of the last from its sending to the model's first audio, ms.
fn questions_and_model_time(harness: &Harness) -> (usize, u64) {
    let is_question = |text: &str| {
        serde_json::from_str::<Value>(text).is_ok_and(|it| it["input"]["generation"]["length_penalty"] == 1.1)
    };
    let (mut count, mut last, mut model_ms) = (0, None, 0);
    for (at, traffic) in &harness.traffic {
        match traffic {
            Traffic::Sent(lane, text) if is_question(text) => {
                count += 1;
                last = Some((*lane, *at));
            }
            Traffic::Received(lane, text) if text.contains(r#""kind":"audio""#) => {
                if let Some((_, asked)) = last.take_if(|(asked_on, _)| asked_on == lane) {
                    model_ms = (*at - asked).as_millis() as u64;
                }
            }
            _ => {}
        }
    }
    (count, model_ms)
}

/// A row of the table.
struct Policy {
    name: &'static str,
    profile: &'static str,
    end_ms: u32,
}

impl Policy {
    fn file(&self) -> String {
        format!(
            "kind = \"profile\"\nname = \"measured\"\ntitle = \"{}\"\nextends = \"{}\"\n[listen]\nend_ms = {}\n",
            self.name, self.profile, self.end_ms
        )
    }
}

const POLICIES: [Policy; 6] = [
    Policy { name: "fixed 300 ms", profile: "assistant", end_ms: 300 },
    Policy { name: "fixed 500 ms", profile: "assistant", end_ms: 500 },
    Policy { name: "fixed 700 ms", profile: "assistant", end_ms: 700 },
    Policy { name: "fixed 500 ms, eager", profile: "eager", end_ms: 500 },
    Policy { name: "semantic", profile: "judged-assistant", end_ms: 500 },
    Policy { name: "semantic, eager", profile: "judged-eager", end_ms: 500 },
];

fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort_unstable();
    values.get(values.len() * percent / 100).copied().unwrap_or_default()
}

#[test]
#[ignore = "takes minutes, and prints a table"]
fn table_of_latencies_and_cut_sentences() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ready = set_up(&mut Command::new(project.join("examples/engines/setup")));
    let Some(()) = installed(&ready).copied() else { return };
    let weights = project.join("target/engines/smart-turn/smart-turn-v3.2-cpu.onnx");
    let model = TurnJudge::load(&weights, Metrics::new(ServerSnapshot::default)).unwrap();
    let takes = takes();
    println!("{} sentences with a pause; model time p50; * beyond the model's own time", takes.len());
    println!(
        "| policy | p50 | p50* | p90 | cut, pauses up to 1 s | cut, all | wasted questions | unanswered |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut shares = Vec::new();
    let mut beyond = Vec::new();
    for policy in &POLICIES {
        let outcomes: Vec<Outcome> = takes.iter().map(|take| run(take, policy, &model)).collect();
        let latencies: Vec<u64> = outcomes.iter().filter_map(|it| it.latency_ms).collect();
        let model_ms = percentile(outcomes.iter().map(|it| it.model_ms).collect(), 50);
        let short: Vec<&Outcome> = outcomes.iter().filter(|it| it.pause_ms <= 1000).collect();
        let share = short.iter().filter(|it| it.is_cut).count() as f64 / short.len() as f64;
        let all = outcomes.iter().filter(|it| it.is_cut).count() as f64 / outcomes.len() as f64;
        let wasted: usize = outcomes.iter().map(|it| it.wasted).sum();
        let p50 = percentile(latencies.clone(), 50);
        println!(
            "| {} | {p50} ms | {} ms | {} ms | {:.0} % | {:.0} % | {wasted} | {} |",
            policy.name,
            p50.saturating_sub(model_ms),
            percentile(latencies.clone(), 90),
            100.0 * share,
            100.0 * all,
            outcomes.len() - latencies.len(),
        );
        shares.push(share);
        beyond.push(p50.saturating_sub(model_ms));
        assert!(model_ms >= 300, "the simulated model takes {model_ms} ms");
    }
    let [_, fixed, _, _, semantic, eager] = shares[..] else { unreachable!() };
    assert!(semantic <= fixed / 3.0 && eager <= fixed / 3.0, "{shares:?}");
    assert!(beyond[5] <= 150, "{beyond:?}");
}
