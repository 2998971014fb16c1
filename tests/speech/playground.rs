//! The playground in a browser: headless Chromium with a recording as its microphone, and real engines behind the model.

use voxbridge::{
    config::{AccessConfig, WebRtcConfig},
    spelling::Library,
    trace::{Trace, replay::replay},
};

use super::*;

const RECORDING: &str = "librivox_0880_16k.wav";
const WORDS: &str = "he was not an ill disposed young man";
const KEY: &str = "k3y-of-the-page";
/// Protocols with calls, where the program serves them.
const CALLERS: &[&str] = if cfg!(feature = "webrtc") { &["openai-realtime"] } else { &[] };
/// First words of the built-in recording.
const BUILT_IN_WORDS: &str = "and so my fellow Americans";
/// Two of the eight words: the browser's noise suppression changes the sound.
const WER: f64 = 0.26;

/// The screenshots stay in `target/playground`.
#[tokio::test(flavor = "multi_thread")]
async fn page_talks_is_interrupted_and_keeps_the_session() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let simulator = SimulatorConfig { workers: 16, ..SimulatorConfig::default() };
    let config = config();
    let locked = Config { access: access_with_key(), ..config.clone() };
    let start = |config| {
        let (simulator, engines) = (simulator.clone(), Some(engines.clone() as Arc<dyn SpeechEngines>));
        Bench::with_options(Options { simulator, engines, config, tap: None })
    };
    let (bench, locked) = (start(config).await, start(locked).await);
    let dir = project().join("target/playground");
    // Nothing of an earlier run may be taken for this one's.
    let _ = std::fs::remove_dir_all(&dir);
    let mut page = node("playground_page.cjs");
    page.arg(format!("http://{}/playground", bench.address())).arg(recording(RECORDING)).arg(&dir);
    page.arg(format!("http://{}/playground", locked.address())).arg(KEY);
    let shown: Value = serde_json::from_str(&run_in_turn(page, ClientWeight::Browser).await).unwrap();

    for nothing in ["violations", "errors", "otherSites"] {
        assert_eq!(shown[nothing], json!([]), "{nothing}");
    }
    assert_words(&shown["heard"], WORDS);
    for protocol in ["openai-realtime", "vosk", "deepgram-listen"] {
        assert_words(&shown["protocols"][protocol], BUILT_IN_WORDS);
    }
    let calls = shown["calls"].as_object().unwrap();
    assert_eq!(calls.keys().collect::<Vec<_>>(), CALLERS, "protocols whose calls the page offers");
    for words in calls.values() {
        assert_words(words, BUILT_IN_WORDS);
    }
    for held in ["pauseHolds", "loadsTheSame", "preview"] {
        assert_eq!(shown[held], json!(true), "{held}");
    }
    assert!(shown["filtered"][0].as_str().unwrap().contains("transcript.final"), "{shown}");
    assert!(shown["linked"][0].as_str().unwrap().starts_with("from the model: response.done"), "{shown}");
    assert_eq!(shown["explains"], json!([true, true]));
    assert_order(&shown["order"]);
    assert_labels(&shown["labels"]);
    assert_rows_near_view(&shown["longTrace"]);
    assert_sound_is_bounded(&shown["longSound"]);
    let with_key = &shown["withKey"];
    assert_words(&with_key["words"], BUILT_IN_WORDS);
    assert_eq!((&with_key["violations"], &with_key["keyInUrls"]), (&json!([]), &json!([])));
    assert!(!with_key["keyIsKept"].as_str().unwrap().contains(KEY), "{with_key}");
    assert_replays(Path::new(shown["saved"].as_str().unwrap()));
}

/// The usual profiles, and one with a camera.
fn config() -> Config {
    let route = |model: &str, client: &str, profile: &str| RouteConfig {
        model: model.to_owned(),
        client: client.to_owned(),
        ..RouteConfig::catch_all(profile)
    };
    let routes = vec![route("video", "*", "video"), route("*", "openai-realtime", "assistant")];
    let webrtc =
        WebRtcConfig { listen: cfg!(feature = "webrtc").then(|| "127.0.0.1:0".to_owned()), advertise: None };
    Config { playground: Some(true), profile: Some("speech".to_owned()), routes, webrtc, ..Config::default() }
}

/// Access for one key.
fn access_with_key() -> AccessConfig {
    let file = scratch("playground-page").join("keys.toml");
    std::fs::write(&file, format!("[[key]]\nname = \"page\"\nkey = \"{KEY}\"\n")).unwrap();
    AccessConfig { keys: Some(file), ..AccessConfig::default() }
}

/// Checks the first words that the page shows as heard.
fn assert_words(shown: &Value, expected: &str) {
    let heard = shown.as_array().unwrap().iter().find_map(|text| text.as_str()?.strip_prefix("You"));
    assert!(word_error_rate(expected, heard.unwrap_or_default()) <= WER, "{shown}");
}

/// Checks the order of what was said in two small traces, and the links between answers and requests.
fn assert_order(shown: &Value) {
    let turns = ["YouThe first question", "MiniCPM-oThe answer", "You0.5 s of speech"];
    assert_eq!(shown["turns"], json!(turns));
    assert_eq!(shown["conversation"], json!(["YouThe question", "MiniCPM-oYou said"]));
    let tools = [
        r#"Toollight {"on": true}light: on0.10 s"#,
        "Toolshow {}shown0.10 s",
        r#"Toolvolume {"to":3}no0.20 s"#,
    ];
    assert_eq!(shown["tools"], json!(tools));
    assert!(shown["toolTime"].as_array().unwrap().contains(&json!("Call of a tool")), "{shown}");
    let request = "to the model: input.append #0";
    assert_eq!(shown["modelsAnswer"], json!([request, "to the model: session.close #0"]));
    assert_eq!(shown["clientsAnswer"], json!(["to the client: response.created"]));
    let answers = ["from the model: response.output.delta text #0", "from the model: response.done #0"];
    assert_eq!(shown["request"], json!(answers));
}

/// Checks that no label reaches the next mark of its kind: labels are cut or left out.
fn assert_labels(shown: &Value) {
    let expected = json!([
        ["transcript", 0, 58, "short"],
        ["transcript", 100, 188, "a longe…"],
        ["speech", 240, 368, "another kind"],
        ["transcript", 250, 388, "at the edge …"]
    ]);
    assert_eq!(*shown, expected);
}

/// Checks the rows that were elements at both ends of a list of 2000, and the row that the arrow keys reached.
fn assert_rows_near_view(shown: &Value) {
    let (start, end) = (shown["start"].as_array().unwrap(), shown["end"].as_array().unwrap());
    assert!(start.len() < 80 && end.len() < 80, "{} and {} rows are elements", start.len(), end.len());
    assert_eq!((&start[0], end.last().unwrap()), (&json!("0"), &json!("1999")));
    assert_eq!(shown["focused"], "1950");
    let moved_pixels = shown["movedPixels"].as_f64().unwrap();
    assert!((moved_pixels - 400.0).abs() < 1.0, "scrolling by 400 pixels moves a row by {moved_pixels}");
}

/// Checks what is kept of three hours of sound: at most two hours of columns of 20 ms, the newest ones.
fn assert_sound_is_bounded(shown: &Value) {
    let share = |name: &str| (shown[name].as_f64().unwrap() * 14_400.0).round();
    assert_eq!(shown["columns"], 360_000);
    assert_eq!((share("oldest"), share("middle"), share("last")), (0.0, 7200.0, 10_799.0), "{shown}");
    assert_eq!((share("cut"), share("beforeCut")), (0.0, 7199.0), "{shown}");
}

/// Checks that a saved session is a trace with audio, which `voxbridge replay` takes.
#[expect(clippy::disallowed_methods, reason = "any instant will do for a replay")]
fn assert_replays(file: &Path) {
    let trace = Trace::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), std::time::Instant::now()).unwrap();
    assert!(outcome.is_same() && outcome.not_judged.is_empty(), "{:?}", outcome.not_judged);
    assert!(outcome.inputs > 100, "{}", outcome.inputs);
}
