//! Pipecat's own clients, unmodified: pipecat-ai's WebsocketClientTransport, and the SDK for browsers in headless Chromium.

use voxbridge::config::WebRtcConfig;

use super::*;

const RECORDING: &str = "librivox_0880_16k.wav";
const WORDS: &str = "he was not an ill disposed young man";
/// One of the eight words may be wrong.
const WER: f64 = 0.13;
/// The recogniser may err in two words that it repeats from its own voice.
const HEARD_WER: f64 = 0.3;
/// The transport needs the packages beside it: websockets and protobuf.
const PACKAGES: &[&str] = &["pipecat", "openai", "aiohttp", "livekit"];

/// Runs the client at the address that README shows; returns what came and the file with what was heard.
async fn talk(bench: &Bench, mode: &str) -> (Value, PathBuf) {
    let heard = scratch(&format!("pipecat-{mode}")).join("heard.wav");
    let url = row("Pipecat").program_for(bench.address());
    let url = url.lines().find(|line| line.ends_with("/ws-client")).unwrap().to_owned();
    let mut client = python("pipecat_socket_client.py", PACKAGES);
    client.arg(url).arg(mode).arg(recording(RECORDING)).arg(&heard);
    let came: Value = serde_json::from_str(&run(client).await).unwrap();
    assert_eq!(came["problems"], Value::Array(Vec::new()), "{mode}: {came}");
    assert_eq!(came["rates"], json!([[24_000, 1]]), "{mode}: {came}");
    (came, heard)
}

fn texts(came: &Value, kind: &str) -> String {
    let messages = came["messages"].as_array().unwrap().iter().filter(|message| message["type"] == kind);
    messages.map(|message| message["data"]["text"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn pipecat_transport_is_answered_in_turns() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let config = "[[route]]\nclient = \"pipecat\"\nprofile = \"assistant\"\n";
    let options = Options {
        simulator: SimulatorConfig { workers: 4, ..SimulatorConfig::default() },
        engines: Some(engines.clone()),
        config: toml::from_str::<Config>(config).unwrap(),
        ..Options::default()
    };
    let bench = Bench::with_options(options).await;
    let (came, heard) = talk(&bench, "ask").await;
    assert!(word_error_rate(WORDS, &texts(&came, "user-llm-text")) <= WER, "{came}");
    // The engines' assistant repeats the question.
    assert!(texts(&came, "bot-output").to_lowercase().contains("young man"), "{came}");
    let failed: Vec<_> =
        came["messages"].as_array().unwrap().iter().filter(|it| it["type"] == "error-response").collect();
    assert_eq!(failed.len(), 1, "{came}");
    assert_eq!(failed[0]["id"], "custom-1");
    let (samples, _) = wav::read(&std::fs::read(&heard).unwrap(), Duration::from_secs(120)).unwrap();
    let words = engines.recognise(samples).await.unwrap();
    let said = texts(&came, "bot-output");
    let first = said.split_inclusive('.').next().unwrap();
    assert!(word_error_rate(first, &words) <= HEARD_WER, "{words:?} for {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipecat_transport_interrupts_the_model_in_full_duplex() {
    if installed_clients().is_none() {
        return;
    }
    let simulator = SimulatorConfig { turn_units: 20, ..SimulatorConfig::default() };
    let bench = Bench::with_options(Options { simulator, ..Options::default() }).await;
    let (came, _) = talk(&bench, "interrupt").await;
    let kinds: Vec<_> = came["kinds"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
    let cut = kinds.iter().position(|kind| *kind == "interruption").unwrap();
    assert_eq!(kinds[cut + 1], "bot-interrupted", "{kinds:?}");
    assert!(kinds[..cut].contains(&"audio") && kinds[..cut].contains(&"bot-llm-text"), "{kinds:?}");
}

/// Runs the SDK for browsers with this transport, and checks the conversation.
async fn talk_in_a_browser(transport: &str) -> Option<Value> {
    installed_clients()?;
    let simulator = SimulatorConfig { turn_units: 6, ..SimulatorConfig::default() };
    let webrtc = WebRtcConfig { listen: Some("127.0.0.1:0".to_owned()), advertise: None };
    let config = Config { webrtc, ..Config::default() };
    let bench = Bench::with_config(simulator, config).await;
    let mut page = node("pipecat_page.cjs");
    page.arg(format!("http://{}", bench.address())).arg(recording("goforward_16k.wav")).arg(transport);
    let report: Value = serde_json::from_str(&run_in_turn(page, ClientWeight::Browser).await).unwrap();
    assert_eq!(report["ready"], json!({"version": "2.1.0", "about": {"library": "voxbridge"}}));
    assert_eq!((&report["errors"], &report["state"]), (&json!([]), &json!("disconnected")), "{report}");
    assert_eq!(report["failures"], json!([{"error": "Unsupported type 'client-message'"}]));
    let events: Vec<_> = report["events"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let count = |name| events.iter().filter(|event| **event == name).count();
    assert_eq!((count("botStartedSpeaking"), count("botStoppedSpeaking")), (2, 2), "{events:?}");
    // A busy machine may tear the question in two.
    assert!(count("userStartedSpeaking") >= 2, "{events:?}");
    // The second question begins within the first answer, which it ends.
    let at = |name, nth| events.iter().enumerate().filter(|(_, it)| **it == name).nth(nth).unwrap().0;
    assert!(at("userStartedSpeaking", 1) > at("botStartedSpeaking", 0), "{events:?}");
    assert!(at("botStoppedSpeaking", 0) < at("userStoppedSpeaking", 1), "{events:?}");
    let outputs: Vec<_> =
        report["outputs"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    // Of the answer that was cut, the output has the words that were heard.
    let [cut, whole] = outputs.as_slice() else { panic!("{outputs:?}") };
    let streamed = report["llm"].as_str().unwrap();
    assert!(streamed.starts_with(cut) && streamed.ends_with(whole), "{streamed:?} {outputs:?}");
    Some(report)
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_for_browsers_talks_and_interrupts() {
    let Some(report) = talk_in_a_browser("websocket").await else { return };
    // The sampling rate of the SDK's player is 24 kHz.
    assert!(report["audio"].as_u64().unwrap() > 2 * 24_000, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_for_browsers_talks_and_interrupts_by_webrtc() {
    let Some(report) = talk_in_a_browser("webrtc").await else { return };
    let call = &report["call"];
    assert_eq!((&call["codec"], &call["reconnected"]), (&json!("audio/opus"), &json!(true)), "{call}");
    // The page plays at a hundredth of the volume, which is a ten-thousandth of the energy.
    assert!(call["totalAudioEnergy"].as_f64().unwrap() > 1e-6, "{call}");
}
