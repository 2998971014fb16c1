//! Unmodified public client libraries of other protocols, on the `speech` profile with real engines:
//! transcripts and spoken texts are right.

use super::{rest_clients::start_bench, *};

const RECORDING: &str = "librivox_0880_16k.wav";
const EXPECTED_WORDS: &str = "he was not an ill disposed young man";
/// Another processor may get one of the eight words wrong.
const WER: f64 = 0.13;
const SPOKEN: [&str; 2] = [
    "The train to London leaves at half past nine.",
    "She opened the window and looked out over the garden.",
];

async fn run_client(command: Command) -> Value {
    serde_json::from_str(&run_in_turn(command, ClientWeight::Script).await).unwrap()
}

/// All final texts a client received, joined.
fn joined_texts(texts: &Value) -> String {
    let texts = texts.as_array().unwrap().iter().filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join(" ").trim().to_owned()
}

fn assert_words(reference: &str, heard: &str, who: &str) {
    assert!(word_error_rate(reference, heard) <= WER, "{who}: {heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vosk_clients_receive_words() {
    let Some(bench) = start_bench().await else { return };
    let url = page_row("vosk", "the steps of vosk-server").code_for(bench.address());
    let mut running = JoinSet::new();
    for (way, websockets) in [
        ("transcriber", "websockets-13.1"),
        ("fast", "websockets-13.1"),
        ("paced", "websockets-17.4"),
        ("telephone", "websockets-17.4"),
    ] {
        let mut client = python("vosk_client.py", &["vosk", websockets]);
        let path = std::env::join_paths(
            [project().join("tests/clients/decoder")]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        client.env("PATH", path.unwrap());
        client.args([way, &url]).arg(recording(RECORDING));
        running.spawn(async move { (way, run_client(client).await) });
    }
    for (way, came) in running.join_all().await {
        assert_words(EXPECTED_WORDS, &joined_texts(&came["texts"]), way);
        if way != "transcriber" {
            assert!(came["answers"] == came["frames"] && came["ended"] == true, "{way}: {came}");
            assert!(came["partials"].as_u64() > Some(0), "{way}: {came}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deepgram_libraries_transcribe_and_speak() {
    let Some(bench) = start_bench().await else { return };
    let mut running = JoinSet::new();
    for (row, websockets) in [
        (page_row("deepgram-listen", "deepgram-sdk 3."), "websockets-13.1"),
        (page_row("deepgram-listen", "deepgram-sdk 5."), "websockets-17.4"),
        (row("Deepgram Python SDK 7"), "websockets-17.4"),
    ] {
        for library in row.packages(".", "deepgram") {
            let mut client = python("deepgram_client.py", &[&library, "deepgram", "aiohttp", websockets]);
            client.arg(row.program_for(bench.address())).arg(recording(RECORDING));
            running.spawn(async move { (library, run_client(client).await) });
        }
    }
    for row in
        [page_row("deepgram-listen", "@deepgram/sdk 3."), page_row("deepgram-listen", "@deepgram/sdk 5.")]
    {
        let libraries = row.packages("node_modules", "deepgram");
        // The browser's WebSocket sends the key in another way.
        let in_browser = libraries.first().filter(|library| library.starts_with("deepgram-3."));
        let runs = in_browser.map(|library| (library, Some("browser")));
        for (library, place) in libraries.iter().map(|library| (library, None)).chain(runs) {
            let mut client = node("deepgram_client.cjs");
            client.arg(library).arg(row.program_for(bench.address())).arg(recording(RECORDING)).args(place);
            let name = format!("{library} for Node {place:?}");
            running.spawn(async move { (name, run_client(client).await) });
        }
    }
    let came = running.join_all().await;
    // Each reads them alike; engines on a busy machine may have none in time for some.
    let has_interim = |(_, came): &(String, Value)| came["live"]["interim"].as_u64() > Some(0);
    assert!(came.iter().any(has_interim), "{came:?}");
    for (library, came) in came {
        println!("{library}: {came}");
        assert_words(EXPECTED_WORDS, came["live"]["text"].as_str().unwrap(), &library);
        assert_eq!(came["live"]["kinds"], serde_json::json!(["SpeechStarted", "Results", "UtteranceEnd"]));
        assert_eq!(came["live"]["speech_final"], true, "{library}");
        assert_words(EXPECTED_WORDS, came["finalized"].as_str().unwrap(), &library);
        assert_words(&SPOKEN.join(" "), &joined_texts(&came["spoken"]), &library);
        let last = came["last"].as_array().unwrap();
        let duration = last.iter().find(|event| event["type"] == "Metadata").unwrap()["duration"].as_f64();
        assert!(duration > Some(10.0), "{library}: {last:?}");
    }
}
