//! Unmodified public clients of REST APIs, with real engines: recordings become words, and texts become audio.

use voxbridge_test_support::bench::recording as samples_of;

use super::{readme_rows::ReadmeRow, *};

const RECORDING: &str = "librivox_0880_16k.wav";
const EXPECTED_WORDS: &str = "he was not an ill disposed young man";
/// Another processor may get one of the eight words wrong.
const WER: f64 = 0.13;

fn driver(packages: &[&str], name: &str) -> Command {
    let mut client = python("rest_client.py", packages);
    client.arg(name);
    client
}

/// Drivers of all versions of Deepgram's Python library that the row names.
fn deepgram_drivers(row: &ReadmeRow, websockets: &str, name: &str) -> Vec<(String, Command)> {
    let drivers = row.packages(".", "deepgram").into_iter().map(|library| {
        let driver = driver(&[&library, "deepgram", "aiohttp", websockets], name);
        (library, driver)
    });
    drivers.collect()
}

fn node_driver(name: &str) -> Command {
    let mut client = node("rest_client.cjs");
    client.arg(name);
    client
}

pub(crate) async fn start_bench() -> Option<Bench> {
    let engines = shared_engines_for_clients().await?;
    // One worker per client; other tests cover the queue.
    let simulator = SimulatorConfig { workers: 16, ..SimulatorConfig::default() };
    let options = Options { simulator, engines: Some(engines), ..Options::default() };
    Some(Bench::with_options(options).await)
}

/// The words of a transcript in any format, without the numbers and times of subtitles.
fn words_of(text: &str) -> String {
    let is_words =
        |line: &&str| !line.contains("-->") && *line != "WEBVTT" && line.trim().parse::<u32>().is_err();
    text.lines().filter(is_words).collect::<Vec<_>>().join(" ")
}

fn assert_texts(came: &Value, name: &str) {
    let texts = came["texts"].as_object().unwrap();
    for (format, text) in texts.iter().filter(|(format, _)| *format != "model") {
        let words = words_of(text.as_str().unwrap());
        assert!(word_error_rate(EXPECTED_WORDS, &words) <= WER, "{name}, {format}: {words}");
    }
}

/// A sentence of nine words: at least a second and a half. Compressed, that is 4 kB or more.
fn assert_spoken(came: &Value, name: &str) {
    for (format, bytes) in came["spoken"].as_object().unwrap() {
        assert!(bytes.as_u64() > Some(4000), "{name}, {format}: {bytes} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_clients_upload_recordings_and_have_texts_spoken() {
    let Some(bench) = start_bench().await else { return };
    let address = bench.address();
    let base_url = row("OpenAI's REST API").code_for(address);
    let mut drivers: Vec<(String, Command, String)> = [
        ("openai", driver(&["openai"], "openai")),
        ("openai for Node", node_driver("openai")),
        ("livekit", driver(&["livekit", "openai", "aiohttp", "pipecat"], "livekit")),
        ("pipecat", driver(&["pipecat", "openai", "aiohttp"], "pipecat")),
        ("open-webui", driver(&["aiohttp"], "open-webui")),
    ]
    .into_iter()
    .map(|(name, driver)| (name.to_owned(), driver, base_url.clone()))
    .collect();
    for (row, websockets, name) in [
        (page_row("rest", "deepgram-sdk 3."), "websockets-13.1", "deepgram-3"),
        (page_row("rest", "deepgram-sdk 5."), "websockets-17.4", "deepgram-5"),
        (row("Deepgram Python SDK 7"), "websockets-17.4", "deepgram-5"),
    ] {
        for (library, driver) in deepgram_drivers(&row, websockets, name) {
            drivers.push((library, driver, row.program_for(address)));
        }
    }
    for row in [page_row("rest", "@deepgram/sdk 3."), page_row("rest", "@deepgram/sdk 5.")] {
        for library in row.packages("node_modules", "deepgram") {
            drivers.push((format!("{library} for Node"), node_driver(&library), row.program_for(address)));
        }
    }
    let mut running = JoinSet::new();
    for (name, mut driver, code) in drivers {
        driver.arg(code).arg(recording(RECORDING));
        running.spawn(async move { (name, run_in_turn(driver, ClientWeight::Script).await) });
    }
    for (name, output) in running.join_all().await {
        let came: Value = serde_json::from_str(&output).unwrap();
        assert_texts(&came, &name);
        assert_spoken(&came, &name);
        if name == "openai" {
            let expected = json!({"no audio": "invalid_request_error", "empty text": "invalid_request_error",
                "unknown format": "invalid_request_error"});
            assert_eq!(came["errors"], expected, "{name}");
            let length_s = samples_of("librivox_0880").len() as f64 / 16_000.0;
            let end_s = came["segments"][0][1].as_f64().unwrap();
            assert!(end_s > length_s / 2.0 && end_s <= length_s, "{}", came["segments"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_uploads_to_the_shown_paths() {
    let Some(bench) = start_bench().await else { return };
    let base_url = row("OpenAI's REST API").code_for(bench.address());
    let openai = format!("{}/audio/transcriptions", base_url.split('"').nth(1).unwrap());
    let row = page_row("rest", "curl");
    assert_eq!(row.path("with `", '`'), "http://");
    let own = format!("http://{}", bench.address());
    let file = recording(RECORDING).display().to_string();
    let form = [format!("file=@{file}"), "model=whisper-1".to_owned()];
    let form = form.iter().flat_map(|field| ["--form", field]).map(str::to_owned);
    let form: Vec<String> = form.collect();
    let body = [
        "--data-binary".to_owned(),
        format!("@{file}"),
        "--header".to_owned(),
        "Content-Type: audio/wav".to_owned(),
    ];
    for (url, data, words) in [
        (openai, &form[..], "/text"),
        (format!("{own}/v1/audio/transcriptions"), &form[..], "/text"),
        (format!("{own}/v1/listen"), &body[..], "/results/channels/0/alternatives/0/transcript"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body"]).args(data).arg(&url);
        let came: Value = serde_json::from_str(&run(curl).await).unwrap();
        let words = came.pointer(words).and_then(Value::as_str).unwrap_or_default();
        assert!(word_error_rate(EXPECTED_WORDS, words) <= WER, "{url}: {came}");
    }
}
