//! PyPI's xiaozhi-sdk, unmodified, finds the server by its setup page and talks with the assistant.

use super::*;

const RECORDING: &str = "librivox_0880_16k.wav";
const WORDS: &str = "he was not an ill disposed young man";
/// The package has its own libopus; its other needs are those of the packages beside it.
const PACKAGES: [&str; 5] = ["xiaozhi", "livekit", "openai", "pipecat", "aiohttp"];
/// One of the eight words may be wrong.
const WER: f64 = 0.13;

async fn device_talks(mode: &str) {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let options = Options {
        simulator: SimulatorConfig { workers: 4, ..SimulatorConfig::default() },
        engines: Some(engines.clone()),
        ..Options::default()
    };
    let bench = Bench::with_options(options).await;
    let heard = scratch(&format!("xiaozhi-{mode}")).join("heard.wav");
    let mut client = python("xiaozhi_client.py", &PACKAGES);
    let shown = page_row("xiaozhi", "xiaozhi-sdk").code_for(bench.address());
    client.arg(shown.split('"').nth(1).unwrap()).arg(mode).arg(recording(RECORDING)).arg(&heard);
    let came: Value = serde_json::from_str(&run(client).await).unwrap();
    let messages = came["messages"].as_array().unwrap();
    let texts = |key: &str, value: &str| -> Vec<&str> {
        let found = messages.iter().filter(|message| message[key] == value);
        found.map(|message| message["text"].as_str().unwrap()).collect()
    };
    assert_eq!(came["url"], format!("ws://{}/xiaozhi/v1", bench.address()));
    assert_eq!(came["errors"], Value::Array(Vec::new()), "{mode}: {came}");
    let stt = texts("type", "stt").join(" ");
    assert!(word_error_rate(WORDS, &stt) <= WER, "{mode}: {came}");
    let shown = texts("state", "sentence_start").join(" ");
    // The engines' assistant repeats the question.
    assert!(word_error_rate(WORDS, &shown) <= WER, "{mode}: {came}");
    let states = messages.iter().filter(|message| message["type"] == "tts").map(|message| &message["state"]);
    let states: Vec<_> = states.filter(|state| *state != "sentence_start").collect();
    assert_eq!(states, ["start", "stop", "start", "stop"], "{mode}: {came}");
    let (samples, _) = wav::read(&std::fs::read(&heard).unwrap(), Duration::from_secs(120)).unwrap();
    let words = engines.recognise(samples).await.unwrap();
    assert!(word_error_rate(WORDS, &words) <= WER, "{mode}: {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn xiaozhi_sdk_lets_the_model_call_its_tool() {
    const CALL: &str = r#"<tool_call>{"name": "set_volume", "arguments": {"volume": 30}}</tool_call>"#;
    const ANSWER: &str = "The volume is 30.";
    if installed_clients().is_none() {
        return;
    }
    let answers = [CALL, ANSWER].map(str::to_owned).to_vec();
    let simulator = SimulatorConfig { workers: 4, answers, ..instant_simulator() };
    let bench = Bench::with_config(simulator, Config::default()).await;
    let mut client = python("xiaozhi_client.py", &PACKAGES);
    let shown = page_row("xiaozhi", "xiaozhi-sdk").code_for(bench.address());
    client.arg(shown.split('"').nth(1).unwrap()).args(["tool", "-", "-"]);
    let came: Value = serde_json::from_str(&run(client).await).unwrap();
    assert_eq!(came["volumes"], json!([{"volume": 30}]), "{came}");
    assert_eq!(came["errors"], json!([]), "{came}");
    let sentences =
        came["messages"].as_array().unwrap().iter().filter(|message| message["state"] == "sentence_start");
    let said: Vec<&str> = sentences.map(|message| message["text"].as_str().unwrap()).collect();
    assert_eq!(said.join(" "), ANSWER, "{came}");
}

#[tokio::test(flavor = "multi_thread")]
async fn xiaozhi_sdk_is_answered_in_auto_mode() {
    device_talks("auto").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn xiaozhi_sdk_is_answered_in_manual_mode() {
    device_talks("manual").await;
}
