//! Deepgram's own client for Flux, unmodified, on the `speech` profile with real engines: turns with their words, by the fixed
//! silence and by the end-of-turn model.

use serde_json::{Value, json};
use voxbridge::{config::Config, simulator::SimulatorConfig};
use voxbridge_test_support::bench::{Bench, Options};

use crate::{
    client_programs::{project, python, recording, run_in_turn},
    engines::{start_engines_for_clients, word_error_rate},
    readme_rows::row,
};

const WORDS: &str = "he was not an ill disposed young man";
/// Another processor may get one of the eight words wrong.
const WER: f64 = 0.13;

/// What the client got; `None` skips the test.
async fn run_client(config: Config) -> Option<Value> {
    let engines = start_engines_for_clients().await?;
    let simulator = SimulatorConfig { workers: 4, ..SimulatorConfig::default() };
    let options = Options { simulator, engines: Some(engines), config, ..Options::default() };
    let bench = Bench::with_options(options).await;
    let row = row("Deepgram Python SDK 7");
    let library = row.packages(".", "deepgram").remove(0);
    let mut client = python(&[&library, "deepgram", "websockets-17.4"]);
    client.arg(project().join("tests/clients/deepgram_flux_client.py"));
    client.arg(row.program_for(bench.address())).arg(recording("librivox_0880_16k.wav"));
    Some(serde_json::from_str(&run_in_turn(client).await).unwrap())
}

fn names(turn: &Value) -> Vec<&str> {
    turn.as_array().unwrap().iter().filter_map(|message| message["event"].as_str()).collect()
}

/// Checks that the turn's last message has the words, and this number and cause.
fn assert_turn(turn: &Value, index: u32, trigger: &str) {
    let events = names(turn);
    assert_eq!(events.first(), Some(&"StartOfTurn"), "{turn}");
    let ends: Vec<_> = turn.as_array().unwrap().iter().filter(|it| it["event"] == "EndOfTurn").collect();
    let [end] = ends[..] else { panic!("{events:?}") };
    let text = end["transcript"].as_str().unwrap();
    assert!(word_error_rate(WORDS, text) <= WER, "{text}");
    assert_eq!(end["words"].as_array().unwrap().len(), text.split_whitespace().count());
    assert_eq!((&end["turn_index"], &end["trigger"]), (&json!(index), &json!(trigger)), "{end}");
    let eager = turn.as_array().unwrap().iter().rfind(|it| it["event"] == "EagerEndOfTurn");
    let is_resumed = events.iter().rposition(|it| *it == "TurnResumed")
        > events.iter().rposition(|it| *it == "EagerEndOfTurn");
    if let Some(eager) = eager.filter(|_| !is_resumed) {
        assert_eq!(eager["transcript"], end["transcript"]);
    }
}

fn assert_came(came: &Value, trigger: &str) {
    assert_turn(&came["first"], 0, trigger);
    assert_eq!(came["configured"]["thresholds"]["eot_threshold"], 1.0);
    assert_eq!(came["configured"]["keyterms"], json!(["Macaw"]));
    assert_turn(&came["second"], 1, "manual");
    assert!(names(&came["second"]).contains(&"EagerEndOfTurn"), "{:?}", names(&came["second"]));
    assert_turn(&came["last"], 2, "timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn deepgrams_flux_client_takes_turns_that_a_fixed_silence_ends() {
    let Some(came) = run_client(Config::default()).await else { return };
    assert_came(&came, "timeout");
}

/// A profile whose fixed silence is long enough for a model that a debug build runs.
#[cfg(feature = "turn-model")]
const PATIENT: &str = r#"
kind = "profile"
name = "patient"
title = "speech, with a longer silence"
extends = "speech"
[listen]
end_ms = 2500
"#;

#[cfg(feature = "turn-model")]
#[tokio::test(flavor = "multi_thread")]
async fn deepgrams_flux_client_takes_turns_that_the_end_of_turn_model_judges() {
    let Some(engines) = crate::engines::engines_dir() else { return };
    let mappings = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("flux-profile");
    std::fs::create_dir_all(&mappings).unwrap();
    std::fs::write(mappings.join("patient.toml"), PATIENT).unwrap();
    let config = Config {
        turn_model: Some(engines.join("smart-turn/smart-turn-v3.2-cpu.onnx")),
        mappings: Some(mappings),
        profile: Some("patient".to_owned()),
        ..Config::default()
    };
    let Some(came) = run_client(config).await else { return };
    assert_came(&came, "model");
    let end = came["first"].as_array().unwrap().last().unwrap();
    let confidence = end["end_of_turn_confidence"].as_f64().unwrap();
    assert!((0.7..1.0).contains(&confidence), "{end}");
}
