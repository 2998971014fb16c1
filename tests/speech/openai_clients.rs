//! Unmodified public clients of OpenAI's Realtime and Live APIs, with real engines. On the profile `assistant`, each asks three
//! questions, and the third interrupts the second answer. On `conversation`, the second question interrupts the first answer.

use voxbridge::simulator::socket::RecordedInput;

use super::*;

/// Recordings, and the words in them.
const QUESTIONS: [(&str, &str); 3] = [
    ("librivox_0880_16k.wav", "he was not an ill disposed young man"),
    (
        "librivox_0920_16k.wav",
        "had he married a more amiable woman he might have been made still more respectable than he was",
    ),
    ("goforward_16k.wav", "go forward ten meters"),
];
/// Another processor may get one of the words wrong.
const WER: f64 = 0.26;

const BETA: &str = "openai, beta shape";
const PIPECAT: &[&str] = &["pipecat", "openai", "aiohttp"];
const LIVEKIT: &[&str] = &["livekit", "openai", "aiohttp", "pipecat"];

/// A bench of its own for each client, so that each has a recorder of its own. Other tests cover the upstream's queue.
async fn start_bench(engines: &Arc<SharedEngines>) -> Bench {
    start_bench_with(engines, Config::default()).await
}

async fn start_bench_with(engines: &Arc<SharedEngines>, config: Config) -> Bench {
    let simulator = SimulatorConfig { workers: 16, record: true, ..SimulatorConfig::default() };
    Bench::with_options(Options { simulator, config, engines: Some(engines.clone()), ..Options::default() })
        .await
}

fn with_service(packages: &[&str], script: &str, service: &str) -> Command {
    let mut client = python(script, packages);
    client.arg(service);
    client
}

/// Runs a driver with all recordings.
async fn run_talk(mut driver: Command, code: String) -> Value {
    driver.arg(code).args(QUESTIONS.map(|(file, _)| recording(file)));
    serde_json::from_str(&run_in_turn(driver, ClientWeight::Script).await).unwrap()
}

fn assert_transcripts(came: &Value, name: &str) {
    let heard = came["users"].as_array().unwrap();
    assert_eq!(heard.len(), QUESTIONS.len(), "{name}: {heard:?}");
    for ((_, words), heard) in QUESTIONS.iter().zip(heard) {
        let heard = heard.as_str().unwrap();
        assert!(word_error_rate(words, heard) <= WER, "{name}: {heard}");
    }
}

/// The first and the third answer were heard to their ends, and the second was interrupted.
fn assert_answers(came: &Value, name: &str) {
    let answers = came["answers"].as_array().unwrap();
    let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].clone()).collect();
    assert_eq!(statuses, ["completed", "cancelled", "completed"], "{name}");
    for answer in answers {
        assert!(!answer["text"].as_str().unwrap().is_empty(), "{name}: {answer}");
        assert!(answer["audio_s"].as_f64() > Some(1.0), "{name}: {answer}");
    }
}

/// Messages that the model got for each answer; transcripts have another length penalty.
fn answer_requests(inputs: &[RecordedInput]) -> Vec<Value> {
    let requests = inputs.iter().filter_map(|input| match input {
        RecordedInput::Message(_, text) => serde_json::from_str::<Value>(text).ok(),
        _ => None,
    });
    let is_answer = |message: &Value| {
        message["type"] == "input.append" && message["input"]["generation"]["length_penalty"] == 1.1
    };
    requests.filter(is_answer).map(|message| message["input"]["messages"].clone()).collect()
}

/// The third question came with the history: the first question in words, and of the second answer only what was heard.
fn assert_history(bench: &Bench, name: &str) {
    let inputs = bench.recorder.all();
    assert!(!inputs.iter().any(|input| matches!(input, RecordedInput::Disconnected(_))), "{name}");
    let requests = answer_requests(&inputs);
    let messages = requests.last().unwrap().as_array().unwrap();
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text(&messages[0]).contains("Answer briefly."), "{name}: {:?}", messages[0]);
    let is_first = |message: &&Value| word_error_rate(QUESTIONS[0].1, &text(message)) <= WER;
    let first = messages.iter().position(|message| message["role"] == "user" && is_first(&message));
    let first = first.unwrap_or_else(|| panic!("{name}: the first question is missing"));
    let roles: Vec<_> = messages[first..].iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"], "{name}");
    let interrupted = text(&messages[first + 3]);
    assert!(interrupted.split(' ').count() < 12, "{name}: words that were not heard: {interrupted}");
}

/// The picture that was shown before the first question reached one answer. The beta has no pictures.
fn assert_pictures(bench: &Bench, name: &str) {
    let requests = answer_requests(&bench.recorder.all());
    let messages = requests.iter().flat_map(|request| request.as_array().unwrap());
    let parts = messages.flat_map(|message| message["content"].as_array().unwrap());
    let shown = usize::from(name != BETA);
    assert_eq!(parts.filter(|part| part["type"] == "image").count(), shown, "{name}");
}

fn assert_talk(came: &Value, bench: &Bench, name: &str) {
    println!("{name}: {came}");
    assert_transcripts(came, name);
    assert_answers(came, name);
    if bench.records_demo {
        assert_history(bench, name);
        assert_pictures(bench, name);
    }
    for field in ["errors", "invalid"] {
        assert!(came[field].is_null() || came[field] == json!([]), "{name}: {}", came[field]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_libraries_talk_and_interrupt() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let mut running = JoinSet::new();
    for (name, row, driver) in [
        ("openai", row("OpenAI, Python 2"), with_service(&["openai"], "openai_client.py", "realtime")),
        (BETA, row("OpenAI, Python 2"), with_service(&["openai"], "openai_client.py", "beta")),
        (
            "openai-agents",
            page_row("openai-realtime", "openai-agents "),
            python("openai_agents_client.py", &["openai"]),
        ),
        (
            "agents-realtime",
            page_row("openai-realtime", "@openai/agents-realtime "),
            node("openai_agents_client.cjs"),
        ),
        ("pipecat", row("Pipecat"), with_service(PIPECAT, "pipecat_client.py", "llm")),
        (
            "pipecat with its own detector",
            row("Pipecat"),
            with_service(PIPECAT, "pipecat_client.py", "llm-local"),
        ),
        ("livekit", row("LiveKit"), with_service(LIVEKIT, "livekit_client.py", "realtime")),
    ] {
        let bench = start_bench(&engines).await;
        let code = row.code_for(bench.address());
        running.spawn(async move { (name, run_talk(driver, code).await, bench) });
    }
    while let Some(done) = running.join_next().await {
        let (name, came, bench) = done.unwrap();
        assert_talk(&came, &bench, name);
        // The libraries for JavaScript close without a code, and pipecat and LiveKit do not tell theirs.
        assert!([None, Some(1000), Some(1005)].contains(&came["close_code"].as_u64()), "{name}: {came}");
        if name == "livekit" && bench.records_demo {
            assert_added_context(&bench);
        }
    }
}

/// Context that LiveKit's driver adds before the first question: instructions, and a conversation of two messages.
fn assert_added_context(bench: &Bench) {
    let greeting = &answer_requests(&bench.recorder.all())[0];
    let parts =
        greeting.as_array().unwrap().iter().flat_map(|message| message["content"].as_array().unwrap());
    for words in ["Answer briefly.\nGreet the user.", "My name is Ada.", "Hello Ada."] {
        assert!(parts.clone().any(|part| part["text"] == words), "{words} of {greeting}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_libraries_converse_and_interrupt() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let mut running = JoinSet::new();
    for (name, row, driver) in [
        ("openai", row("OpenAI, Python 2"), with_service(&["openai"], "openai_client.py", "converse")),
        ("pipecat", row("Pipecat"), with_service(PIPECAT, "pipecat_client.py", "converse")),
        ("livekit", row("LiveKit"), with_service(LIVEKIT, "livekit_client.py", "converse")),
        (
            "live",
            page_row("openai-live", "openai 3.54"),
            with_service(&["openai"], "openai_client.py", "live"),
        ),
    ] {
        let route = RouteConfig { model: "gpt-*".into(), ..RouteConfig::catch_all("conversation") };
        let bench = start_bench_with(&engines, Config { routes: vec![route], ..Config::default() }).await;
        let code = row.code_for(bench.address());
        running.spawn(async move { (name, run_talk(driver, code).await, bench) });
    }
    while let Some(done) = running.join_next().await {
        let (name, came, bench) = done.unwrap();
        assert_conversation(&came, &bench, name);
    }
}

/// The simulated model repeats what it heard. In OpenAI's Live API, its speech has no turns, and one question is asked.
fn assert_conversation(came: &Value, bench: &Bench, name: &str) {
    println!("{name}: {came}");
    let answers = came["answers"].as_array().unwrap();
    let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].clone()).collect();
    let text = |at: usize| answers[at]["text"].as_str().unwrap();
    if name == "live" {
        assert_eq!(statuses, ["close_requested"], "{name}");
    } else {
        assert_eq!(statuses, ["cancelled", "completed"], "{name}");
        let repeated = text(1).trim_start_matches("You said:");
        assert!(word_error_rate(QUESTIONS[1].1, repeated) <= WER, "{name}: {repeated}");
        assert!(answers.iter().all(|answer| answer["audio_s"].as_f64() > Some(1.0)), "{name}: {answers:?}");
    }
    assert!(!text(0).is_empty() && text(0).split(' ').count() < 9, "{name}: {}", text(0));
    assert!(came["invalid"].is_null() || came["invalid"] == json!([]), "{name}: {}", came["invalid"]);
    assert_eq!(came["errors"], json!([]), "{name}");
    let inputs = bench.recorder.all();
    let is_cut = inputs.iter().any(|input| matches!(input, RecordedInput::Disconnected(_)));
    assert!(!is_cut || !bench.records_demo, "{name}: a session without an end");
}

/// A client of the library for JavaScript, which always dials TLS, in front of a bench of its own.
async fn run_talk_over_tls(engines: &Arc<SharedEngines>, service: &str) -> (Value, Bench) {
    let bench = start_bench(engines).await;
    let certificate = certs::self_signed("localhost");
    let address = certs::serve_tls(bench.address(), certs::acceptor(&certificate)).await;
    let trusted = scratch(&format!("openai_library_for_javascript_{service}")).join("trusted.pem");
    std::fs::write(&trusted, &certificate.0).unwrap();
    let mut driver = node("openai_client.cjs");
    driver.arg(service).env("NODE_EXTRA_CA_CERTS", trusted);
    let code = row("OpenAI, JavaScript").code_for(format!("localhost:{}", address.port()));
    (run_talk(driver, code).await, bench)
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_library_for_javascript_talks_and_transcribes_over_tls() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let ((talk, bench), (transcription, _other)) =
        tokio::join!(run_talk_over_tls(&engines, "realtime"), run_talk_over_tls(&engines, "transcription"));
    assert_talk(&talk, &bench, "openai for JavaScript");
    assert_eq!(talk["close_code"], 1000, "{talk}");
    assert_transcripts(&transcription, "openai for JavaScript");
    assert_eq!((&transcription["errors"], &transcription["answers"]), (&json!([]), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn transcription_services_receive_words() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let mut running = JoinSet::new();
    for (name, row, driver) in [
        ("pipecat with its own detector", row("Pipecat"), with_service(PIPECAT, "pipecat_client.py", "stt")),
        (
            "pipecat with the server's detector",
            row("Pipecat"),
            with_service(PIPECAT, "pipecat_client.py", "stt-server"),
        ),
        ("livekit", row("LiveKit"), with_service(LIVEKIT, "livekit_client.py", "stt")),
    ] {
        let bench = start_bench(&engines).await;
        let code = row.code_for(bench.address());
        running.spawn(async move { (name, run_talk(driver, code).await, bench) });
    }
    for (name, came, bench) in running.join_all().await {
        assert_transcripts(&came, name);
        assert_eq!(came["errors"], json!([]), "{name}");
        assert!(answer_requests(&bench.recorder.all()).is_empty(), "{name}: an unasked answer");
    }
}

/// Every major version that a row names connects with the row's code. The newest ones talk at length in other tests.
#[tokio::test(flavor = "multi_thread")]
async fn all_versions_of_openai_libraries_connect() {
    if installed_clients().is_none() {
        return;
    }
    let bench = Bench::start().await;
    let certificate = certs::self_signed("localhost");
    let tls = certs::serve_tls(bench.address(), certs::acceptor(&certificate)).await;
    let trusted = scratch("all_versions_of_openai_libraries").join("trusted.pem");
    std::fs::write(&trusted, &certificate.0).unwrap();
    let mut running = JoinSet::new();
    for row in [page_row("openai-realtime", "openai 1."), row("OpenAI, Python 2")] {
        for library in row.packages(".", "openai") {
            let mut asking = python("openai_ask.py", &[&library, "openai", "deepgram"]);
            asking.arg(row.code_for(bench.address()));
            running.spawn(async move { (library, run(asking).await) });
        }
    }
    let row = row("OpenAI, JavaScript");
    for library in row.packages("node_modules", "openai") {
        let mut asking = node("openai_ask.cjs");
        asking.arg(&library).arg(row.code_for(format!("localhost:{}", tls.port())));
        asking.env("NODE_EXTRA_CA_CERTS", &trusted);
        running.spawn(async move { (format!("{library} for Node"), run(asking).await) });
    }
    let answers = running.join_all().await;
    assert_eq!(answers.len(), 6, "{answers:?}");
    for (library, answer) in answers {
        assert_eq!(answer.trim(), "simulated answer to: Good morning.", "{library}");
    }
}

/// Every server event satisfies the types and schemas of OpenAI's libraries, which drop the others without a word.
#[tokio::test(flavor = "multi_thread")]
async fn every_event_satisfies_openais_types() {
    if installed_clients().is_none() {
        return;
    }
    let mut running = JoinSet::new();
    for (name, scheme, mut driver) in [
        ("openai and openai-agents", "http", python("openai_events.py", &["openai"])),
        ("agents-realtime", "ws", node("openai_events.cjs")),
    ] {
        let faults = vec!["die-mid-answer,times=1".parse().unwrap()];
        let simulator = SimulatorConfig { faults, ..instant_simulator() };
        let bench = Bench::with_config(simulator, Config::default()).await;
        driver.arg(format!("{scheme}://{}", bench.address()));
        running.spawn(async move { (name, run(driver).await, bench) });
    }
    for (name, came, _bench) in running.join_all().await {
        let came: Value = serde_json::from_str(&came).unwrap();
        assert_eq!(came["invalid"], json!([]), "{name}");
        assert_eq!(came["statuses"], json!(["failed", "cancelled", "completed", "completed"]), "{name}");
        // All events of a talk without voice activity, which the other tests check.
        assert!(came["kinds"].as_array().unwrap().len() >= 25, "{name}: {}", came["kinds"]);
    }
}
