//! Deepgram's own client for Flux, unmodified, on the `speech` profile with real engines: turns with their words, by the fixed
//! silence and by the end-of-turn model.

use super::*;
#[cfg(feature = "turn-model")]
use voxbridge_test_support::bench::profile_with_numbers;

/// A sentence, and a command that sounds finished.
const SENTENCE: (&str, &str) = ("librivox_0880_16k.wav", "he was not an ill disposed young man");
#[cfg(feature = "turn-model")]
const COMMAND: (&str, &str) = ("goforward_16k.wav", "go forward ten meters");
/// Another processor may get one of the words wrong.
const WER: f64 = 0.25;

/// Runs the client and returns the messages that it received; `None` skips the test.
async fn run_client(config: Config, file: &str, waits: Option<&str>) -> Option<Value> {
    let engines = shared_engines_for_clients().await?;
    let simulator = SimulatorConfig { workers: 4, ..SimulatorConfig::default() };
    let options = Options { simulator, engines: Some(engines), config, ..Options::default() };
    let bench = Bench::with_options(options).await;
    let row = row("Deepgram Python SDK 7");
    let library = row.packages(".", "deepgram").remove(0);
    let mut client = python("deepgram_flux_client.py", &[&library, "deepgram", "websockets-17.4"]);
    client.arg(row.program_for(bench.address())).arg(recording(file)).args(waits);
    Some(serde_json::from_str(&run_in_turn(client, ClientWeight::Script).await).unwrap())
}

fn names(turn: &Value) -> Vec<&str> {
    turn.as_array().unwrap().iter().filter_map(|message| message["event"].as_str()).collect()
}

/// Checks that the turn's last message has the words, and this number and cause.
fn assert_turn(turn: &Value, words: &str, index: u32, trigger: &str) {
    let events = names(turn);
    assert_eq!(events.first(), Some(&"StartOfTurn"), "{turn}");
    let ends: Vec<_> = turn.as_array().unwrap().iter().filter(|it| it["event"] == "EndOfTurn").collect();
    let [end] = ends[..] else { panic!("{events:?}") };
    let text = end["transcript"].as_str().unwrap();
    assert!(word_error_rate(words, text) <= WER, "{text}");
    assert_eq!(end["words"].as_array().unwrap().len(), text.split_whitespace().count());
    assert_eq!((&end["turn_index"], &end["trigger"]), (&json!(index), &json!(trigger)), "{end}");
    let eager = turn.as_array().unwrap().iter().rfind(|it| it["event"] == "EagerEndOfTurn");
    let is_resumed = events.iter().rposition(|it| *it == "TurnResumed")
        > events.iter().rposition(|it| *it == "EagerEndOfTurn");
    if let Some(eager) = eager.filter(|_| !is_resumed) {
        assert_eq!(eager["transcript"], end["transcript"]);
    }
}

fn assert_came(came: &Value, words: &str, trigger: &str) {
    assert_turn(&came["first"], words, 0, trigger);
    assert_eq!(came["configured"]["thresholds"]["eot_threshold"], 1.0);
    assert_eq!(came["configured"]["keyterms"], json!(["Macaw"]));
    assert_turn(&came["second"], words, 1, "manual");
    assert_turn(&came["last"], words, 2, "timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn deepgrams_flux_client_takes_turns_that_a_fixed_silence_ends() {
    let Some(came) = run_client(Config::default(), SENTENCE.0, Some("eager")).await else { return };
    assert_came(&came, SENTENCE.1, "timeout");
    assert!(names(&came["second"]).contains(&"EagerEndOfTurn"), "{:?}", names(&came["second"]));
}

#[cfg(feature = "turn-model")]
#[tokio::test(flavor = "multi_thread")]
async fn deepgrams_flux_client_takes_turns_that_the_end_of_turn_model_judges() {
    let Some(engines) = engines::engines_dir() else { return };
    // A silence that is long enough for a model that a debug build runs.
    let mappings = profile_with_numbers("flux-profile", &[("end_ms", 300, 2500)]);
    let config = Config {
        turn_model: Some(engines.join("smart-turn/smart-turn-v3.2-cpu.onnx")),
        mappings: Some(mappings),
        ..Config::default()
    };
    let Some(came) = run_client(config, COMMAND.0, None).await else { return };
    assert_came(&came, COMMAND.1, "model");
    let end = came["first"].as_array().unwrap().last().unwrap();
    let confidence = end["end_of_turn_confidence"].as_f64().unwrap();
    assert!((0.7..1.0).contains(&confidence), "{end}");
}
