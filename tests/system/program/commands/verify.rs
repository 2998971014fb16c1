//! `voxbridge verify` against simulated servers of every kind: healthy ones pass, and each fault that voxbridge cannot hide fails
//! the line that is about it.

use std::sync::OnceLock;

use voxbridge::simulator::known_speech::KnownSpeech;

use super::*;

/// Longer than any run takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// Recordings of the tests: short ones, because they are sent in real time.
const RECORDINGS: [&str; 1] = ["goforward_16k.wav"];

/// A directory with [`RECORDINGS`] and their manifest.
fn recordings_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(make_recordings_dir)
}

fn make_recordings_dir() -> PathBuf {
    let dir = scratch("verify-recordings");
    let manifest = fs::read_to_string(speech_dir().join("manifest.json")).unwrap();
    let all: Vec<Value> = serde_json::from_str(&manifest).unwrap();
    let is_chosen = |entry: &&Value| RECORDINGS.iter().any(|file| entry["file"] == *file);
    let chosen: Vec<&Value> = all.iter().filter(is_chosen).collect();
    for file in RECORDINGS {
        fs::copy(speech_dir().join(file), dir.join(file)).unwrap();
    }
    fs::write(dir.join("manifest.json"), serde_json::to_string(&chosen).unwrap()).unwrap();
    dir
}

/// Engines that know the recordings.
fn engines(dir: &Path) -> Arc<dyn SpeechEngines> {
    let manifest: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(dir.join("manifest.json")).unwrap()).unwrap();
    let known = manifest.iter().map(|entry| {
        let bytes = fs::read(dir.join(entry["file"].as_str().unwrap())).unwrap();
        let (samples, _) = wav::read(&bytes, Duration::from_secs(60)).unwrap();
        (samples, entry["transcript"].as_str().unwrap().to_owned())
    });
    Arc::new(KnownSpeech::new(&known.collect::<Vec<_>>()))
}

/// A simulated server, and the table of a configuration that names it.
async fn start(config: SimulatorConfig, engines: &Arc<dyn SpeechEngines>) -> (String, RunningServer) {
    let (dialect, api) = (config.dialect, config.http_api);
    let (address, running, _) = start_simulator("127.0.0.1:0", config, Some(engines.clone())).await;
    let upstream = match api {
        Some(api) => http_upstream(api, address),
        None => upstream_of(dialect, address),
    };
    let model = upstream.model.map(|model| format!("model = \"{model}\"\n")).unwrap_or_default();
    let (url, dialect) = (upstream.url, upstream.dialect);
    (format!("[[upstream]]\nurl = \"{url}\"\ndialect = \"{dialect}\"\n{model}"), running)
}

/// The report of a run.
struct Report {
    code: i32,
    figures: Vec<Value>,
    dir: PathBuf,
}

impl Report {
    async fn run(name: &str, upstreams: &str, args: &[&str]) -> Self {
        let (mut command, dir) = Self::command(name, upstreams, args);
        Self::read(name, command.spawn().unwrap(), dir).await
    }

    /// A run that has not begun, and its folder.
    fn command(name: &str, upstreams: &str, args: &[&str]) -> (Command, PathBuf) {
        let dir = scratch(&format!("verify-{name}"));
        let config = dir.join("voxbridge.toml").display().to_string();
        fs::write(&config, upstreams).unwrap();
        // An earlier run may have left its own.
        let _ = fs::remove_dir_all(dir.join("report"));
        let report = dir.join("report").display().to_string();
        let recordings = recordings_dir().display().to_string();
        let options = ["--config", &config, "--recordings", &recordings, "--report", &report, "--json"];
        let mut command = voxbridge(&[&["verify"], &options[..], args].concat());
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        (command, dir)
    }

    /// Waits for the end of a run.
    async fn read(name: &str, run: Child, dir: PathBuf) -> Self {
        let output = timeout(PATIENCE, run.wait_with_output()).await.expect("verify does not end").unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let figures = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{name}: {stdout}{stderr}"));
        Self { code: output.status.code().unwrap(), figures, dir }
    }

    fn find(&self, name: &str) -> &Value {
        let found = self.figures.iter().find(|figure| figure["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {:#?}", self.figures))
    }

    fn names_with(&self, verdict: &str) -> Vec<&str> {
        let with_verdict = self.figures.iter().filter(|figure| figure["verdict"] == verdict);
        with_verdict.map(|figure| figure["name"].as_str().unwrap()).collect()
    }

    fn assert_passed(&self, name: &str) {
        assert!(self.names_with("fail").is_empty() && self.code == 0, "{name}: {:#?}", self.figures);
        assert!(!self.dir.join("report").exists(), "{name}: traces of sessions that passed are left");
    }

    /// Checks that this figure failed, with these words, a trace and advice.
    fn assert_failed(&self, case: &str, name: &str, words: &str) {
        assert_eq!(self.code, 1, "{case}: {:#?}", self.figures);
        let figure = self.find(name);
        assert_eq!(figure["verdict"], "fail", "{case}: {figure:#}");
        assert!(figure["note"].as_str().unwrap().contains(words), "{case}: no {words:?} in {figure:#}");
        assert!(!figure["try"].as_str().unwrap().is_empty(), "{case}: {figure:#}");
        let trace = figure["trace"].as_str().unwrap_or_else(|| panic!("{case}: no trace in {figure:#}"));
        assert!(fs::metadata(trace).unwrap().len() > 0, "{case}: {trace} is empty");
    }
}

const LEGACY: SimDialect = SimDialect::Legacy { follows_document: false };

fn simulator(dialect: SimDialect) -> SimulatorConfig {
    SimulatorConfig { dialect, workers: dialect.default_workers(), ..SimulatorConfig::default() }
}

fn http_simulator(api: HttpApi) -> SimulatorConfig {
    SimulatorConfig { http_api: Some(api), workers: 4, ..SimulatorConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_servers_of_every_kind_pass() {
    let engines = engines(recordings_dir());
    let cpp = SimulatorConfig { backend: Backend::Cpp, ..SimulatorConfig::default() };
    let cases = [
        ("pytorch", vec![simulator(SimDialect::Current)], &[][..]),
        ("cpp", vec![cpp], &[]),
        ("legacy", vec![simulator(LEGACY)], &["transcription", "speech", "assistant", "tools", "capacity"]),
        ("backend", vec![simulator(SimDialect::LlamaCppOmni)], &[]),
        ("vllm", vec![simulator(SimDialect::VllmOmni), http_simulator(HttpApi::VllmOmni)], &[]),
        ("sglang", vec![simulator(SimDialect::SglangOmni), http_simulator(HttpApi::SglangOmni)], &[]),
        // Its answers are too short to be interrupted.
        (
            "openai",
            vec![simulator(SimDialect::OpenaiRealtime(RealtimeServer::Openai))],
            &["conversation.stop"],
        ),
        (
            "vllm-turn",
            vec![simulator(SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni))],
            &["conversation.stop"],
        ),
        ("openai-audio", vec![http_simulator(HttpApi::OpenaiAudio)], &["assistant", "tools", "conversation"]),
    ];
    let runs = cases.into_iter().map(|(name, servers, skipped)| {
        let engines = &engines;
        async move {
            let started = join_all(servers.into_iter().map(|config| start(config, engines))).await;
            let upstreams: Vec<&str> = started.iter().map(|(upstream, _)| upstream.as_str()).collect();
            let report = Report::run(name, &upstreams.concat(), &["--quick", "--language", "en"]).await;
            report.assert_passed(name);
            let mut missing = report.names_with("skipped");
            missing.retain(|name| !skipped.contains(name) && *name != "languages");
            assert!(missing.is_empty(), "{name}: {missing:?} {:#?}", report.figures);
        }
    });
    join_all(runs).await;
}

/// A fault, the section that finds it, the figure that fails, and words of its note.
const FAULTS: [(&str, &str, &str, &str); 10] = [
    ("queue-full", "server", "server.queue", "full"),
    ("busy", "server", "server.queue", "no worker"),
    ("403-after-queue", "server", "server.init", "HTTP 403"),
    ("die-before-created", "server", "server.init", "backend_error"),
    ("slow-steps=1.3", "server", "server.answer", "real time"),
    ("die-mid-answer", "transcription", "transcription.word_error.goforward_16k", "died"),
    ("drop-mid-answer", "transcription", "transcription.word_error.goforward_16k", "lost"),
    ("empty-transcript", "transcription", "transcription.word_error.goforward_16k", "no words"),
    ("no-audio", "speech", "speech.word_error", "without audio"),
    ("no-audio", "conversation", "conversation.audio", ""),
];

/// Faults of a conversation, each certain only after a minute or more.
const FAULTS_OF_CONVERSATIONS: [(&str, &str, &str, &str); 4] = [
    ("die-mid-turn", "conversation", "conversation.lost_sessions", "died"),
    ("drop-mid-turn", "conversation", "conversation.lost_sessions", "lost"),
    ("timeout=8", "conversation", "conversation.lost_sessions", "timeout"),
    ("never-listens", "conversation", "conversation.rollover_gap", "did not move"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_that_cannot_be_hidden_fails_the_figure_that_is_about_it() {
    check_faults(&FAULTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three minutes"]
async fn fault_of_a_conversation_fails_the_figure_that_is_about_it() {
    check_faults(&FAULTS_OF_CONVERSATIONS).await;
}

async fn check_faults(faults: &[(&str, &str, &str, &str)]) {
    let engines = engines(recordings_dir());
    let runs = faults.iter().map(|(fault, section, figure, words)| {
        let engines = &engines;
        async move {
            let faults = vec![fault.parse().unwrap()];
            let config = SimulatorConfig { faults, ..SimulatorConfig::default() };
            let (upstream, _server) = start(config, engines).await;
            let case = format!("{fault} in {section}");
            let name = case.replace([' ', '=', '.'], "-");
            let report = Report::run(&name, &upstream, &["--quick", "--only", section]).await;
            report.assert_failed(&case, figure, words);
        }
    });
    join_all(runs).await;
}

/// A server with one worker that opens a session as slowly as real ones may.
async fn start_slowly(seconds: u64, engines: &Arc<dyn SpeechEngines>) -> (String, RunningServer) {
    let faults = vec![format!("slow-init={seconds}").parse().unwrap()];
    start(SimulatorConfig { faults, ..SimulatorConfig::default() }, engines).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_server_that_opens_sessions_slowly_passes() {
    let (upstream, _server) = start_slowly(3, &engines(recordings_dir())).await;
    let options = ["--quick", "--only", "server,transcription,conversation"];
    let report = Report::run("slow-init", &upstream, &options).await;
    report.assert_passed("slow-init");
    let gap = report.find("conversation.rollover_gap");
    assert!(gap["value"].as_f64().unwrap() > 2.5, "the gap has the opening of a session: {gap:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn healthy_server_as_slow_as_real_ones_passes_all_sections() {
    let (upstream, _server) = start_slowly(12, &engines(recordings_dir())).await;
    let report = Report::run("slow-init-all", &upstream, &["--language", "en"]).await;
    report.assert_passed("slow-init-all");
    assert_eq!(report.names_with("skipped"), [""; 0], "{:#?}", report.figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_too_slow_for_full_duplex_is_asked_for_all_the_rest() {
    let engines = engines(recordings_dir());
    let faults = vec!["slow-steps=1.3".parse().unwrap()];
    let (upstream, _server) = start(SimulatorConfig { faults, ..SimulatorConfig::default() }, &engines).await;
    let options = ["--quick", "--only", "server,transcription,conversation"];
    let report = Report::run("slow-duplex", &upstream, &options).await;
    report.assert_failed("slow duplex", "server.answer", "real time");
    assert_eq!(report.find("transcription.word_error")["verdict"], "pass", "{:#?}", report.figures);
    assert_eq!(report.names_with("skipped"), ["conversation"]);
}

/// True if a trace of the run has these words.
fn is_traced(dir: &Path, words: &str) -> bool {
    let files = fs::read_dir(dir.join("report/traces")).into_iter().flatten().flatten();
    files.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).any(|trace| trace.contains(words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_another_client_holds_for_a_while_is_waited_for() {
    let engines = engines(recordings_dir());
    let (address, _server, _) =
        start_simulator("127.0.0.1:0", SimulatorConfig::default(), Some(engines)).await;
    let other = dial(address, "/v1/realtime?mode=audio").await;
    let lines = [("queue_stuck_ms = 15000", "queue_stuck_ms = 1500")];
    let mappings = conversation_profile_with("verify-held-mappings", &lines);
    let upstream = format!("mappings = {mappings:?}\n[[upstream]]\nurl = \"ws://{address}\"\n");
    let (mut command, dir) = Report::command("held", &upstream, &["--quick", "--only", "conversation"]);
    let run = command.spawn().unwrap();
    wait_until("the queue does not move", || is_traced(&dir, "another client may hold the worker")).await;
    drop(other);
    let report = Report::read("held", run, dir).await;
    report.assert_passed("held");
    let answers = report.find("conversation.answers");
    assert!(answers["note"].as_str().unwrap().contains("the server reports"), "{answers:#}");
}

#[tokio::test]
async fn signal_and_time_limit_keep_what_was_measured() {
    let (upstream, _server) = start_slowly(0, &engines(recordings_dir())).await;
    let dir = scratch("verify-ends");
    let config = dir.join("voxbridge.toml").display().to_string();
    fs::write(&config, &upstream).unwrap();
    let directory = dir.join("report").display().to_string();
    let options =
        ["verify", "--config", &config, "--report", &directory, "--only", "server,conversation,capacity"];
    let mut process = voxbridge(&options).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let (mut text, mut is_stopped) = (String::new(), false);
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
        if line == "conversation" && !is_stopped {
            is_stopped = true;
            send_signal(process.id().unwrap(), "-INT");
        }
        text.push_str(&format!("{line}\n"));
    }
    assert_eq!(process.wait().await.unwrap().code(), Some(130), "{text}");
    let has_line =
        |start: &[&str]| text.lines().any(|line| line.split_whitespace().take(2).eq(start.iter().copied()));
    assert!(has_line(&["pass", "server.init"]) && has_line(&["skipped", "capacity"]), "{text}");
    assert!(text.contains("stopped by signal 2") && text.contains(" 0 failed"), "{text}");

    let options = ["--only", "server,conversation,capacity", "--time-max", "6"];
    let report = Report::run("time-max", &upstream, &options).await;
    assert_eq!(report.code, 1, "{:#?}", report.figures);
    assert_eq!(report.find("conversation.time")["verdict"], "fail");
    assert_eq!(report.find("server.answer")["verdict"], "pass");
    assert_eq!(report.find("capacity")["note"], "time was over");
}

/// SGLang-Omni, vLLM-Omni and the older gateway have no speech, but a number of sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_only_converse_have_a_capacity_and_no_advice_about_profiles() {
    let engines = engines(recordings_dir());
    let run = async |name: &str, dialect: SimDialect, sessions: f64| {
        let (upstream, _server) = start(simulator(dialect), &engines).await;
        let options = ["--quick", "--only", "server,speech,capacity", "--sessions-max", "6"];
        let report = Report::run(&format!("only-{name}"), &upstream, &options).await;
        report.assert_passed(name);
        let capacity = report.find("capacity.sessions");
        assert_eq!(capacity["value"], sessions, "{name}: {:#?}", report.figures);
        assert!(capacity["note"].as_str().unwrap().contains("wait"), "{name}: {capacity:#}");
        let skipped = report.find("speech")["note"].as_str().unwrap().to_owned();
        assert!(!skipped.contains("profile, ") && !skipped.contains("another profile"), "{name}: {skipped}");
        let voice = report.figures.iter().find(|figure| figure["name"] == "server.voice");
        assert_eq!(voice.is_some(), name == "vllm", "{name}: {voice:?}");
        if let Some(voice) = voice {
            assert!(voice["note"].as_str().unwrap().contains("[voices] default"), "{voice:#}");
        }
    };
    tokio::join!(
        run("sglang", SimDialect::SglangOmni, 2.0),
        run("vllm", SimDialect::VllmOmni, 4.0),
        run("older", LEGACY, 1.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_is_taken_in_mid_run_is_named_when_the_time_is_over() {
    let engines = engines(recordings_dir());
    let (address, _server, _) =
        start_simulator("127.0.0.1:0", SimulatorConfig::default(), Some(engines)).await;
    let other = dial(address, "/v1/realtime?mode=audio").await;
    let upstream = format!("[[upstream]]\nurl = \"ws://{address}\"\n");
    let options = ["--quick", "--only", "transcription", "--time-max", "8"];
    let (mut command, dir) = Report::command("taken", &upstream, &options);
    let mut run = command.spawn().unwrap();
    // The run is over, and waits to leave the queue.
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let waits = async {
        while !lines.next_line().await.unwrap().unwrap().contains("waiting in the upstream's queue") {}
    };
    timeout(PATIENCE, waits).await.expect("verify does not wait in the queue");
    drop(other);
    let report = Report::read("taken", run, dir).await;
    let time = report.find("transcription.time");
    assert!(time["note"].as_str().unwrap().contains("waited in the server's queue"), "{time:#}");
    assert!(time["try"].as_str().unwrap().contains("Another client"), "{time:#}");
}

#[tokio::test]
async fn other_sections_are_skipped_when_the_server_cannot_be_reached() {
    let upstream = "[[upstream]]\nurl = \"ws://127.0.0.1:1\"\ndialect = \"minicpm-o\"\n";
    let report = Report::run("unreachable", upstream, &[]).await;
    report.assert_failed("unreachable", "server.tcp", "refuses the connection");
    assert_eq!(
        report.names_with("skipped"),
        ["transcription", "speech", "assistant", "tools", "conversation", "capacity"]
    );
}

#[tokio::test]
async fn simulator_without_words_fails_with_the_advice_to_give_it_some() {
    let (address, _server, _) = start_simulator("127.0.0.1:0", SimulatorConfig::default(), None).await;
    let upstream = format!("[[upstream]]\nurl = \"ws://{address}\"\n");
    let report = Report::run("no-words", &upstream, &["--quick", "--only", "transcription"]).await;
    let figure = "transcription.word_error.goforward_16k";
    report.assert_failed("no words", figure, "simulated transcript");
    assert!(report.find(figure)["try"].as_str().unwrap().contains("--recordings"));
}

#[tokio::test]
async fn reports_are_compared_and_pages_are_self_contained() {
    let dir = scratch("verify-compare");
    let engines = engines(recordings_dir());
    let (upstream, _server) = start(SimulatorConfig::default(), &engines).await;
    let page = dir.join("report.html").display().to_string();
    let good =
        Report::run("compare-good", &upstream, &["--quick", "--only", "speech", "--html", &page]).await;
    good.assert_passed("speech");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("src=\"data:audio/mpeg;base64,"), "{html}");
    assert!(!html.contains("https://") && !html.contains("<script"), "{html}");

    let mut worse = good.figures.clone();
    let figure = worse.iter_mut().find(|figure| figure["name"] == "speech.word_error").unwrap();
    (figure["value"], figure["verdict"]) = (0.9.into(), "fail".into());
    let paths = [("good.json", &good.figures), ("worse.json", &worse)].map(|(name, figures)| {
        fs::write(dir.join(name), serde_json::to_string(figures).unwrap()).unwrap();
        dir.join(name).display().to_string()
    });
    let compared = run(&["verify", "--compare", &paths.join(",")]).await;
    assert_eq!(compared.code, 1, "{}{}", compared.stdout, compared.stderr);
    let row = compared.stdout.lines().find(|line| line.contains("speech.word_error")).unwrap();
    assert!(row.contains("0.0 % ok") && row.contains("90.0 % FAIL  worse"), "{row}");
    let back = run(&["verify", "--compare", &format!("{},{}", paths[1], paths[0])]).await;
    assert_eq!(back.code, 0, "{}{}", back.stdout, back.stderr);
    let json = run(&["verify", "--json", "--compare", &paths.join(",")]).await;
    let read: Value = serde_json::from_str(&json.stdout).unwrap_or_else(|_| panic!("{}", json.stdout));
    let line = |name: &str| read["comparison"].as_array().unwrap().iter().find(|line| line["name"] == name);
    assert_eq!(line("speech.word_error").unwrap()["change"], "worse", "{read:#}");
    assert_eq!(json.code, 1, "{}", json.stderr);
    // A report with a comparison is a report.
    fs::write(dir.join("compared.json"), &json.stdout).unwrap();
    let with_comparison = dir.join("compared.json").display().to_string();
    let again = run(&["verify", "--compare", &format!("{with_comparison},{}", paths[0])]).await;
    assert_eq!(again.code, 0, "{}{}", again.stdout, again.stderr);
}

#[tokio::test]
async fn wrong_options_are_rejected_before_anything_is_asked() {
    let upstream = ["verify", "--upstream", "ws://127.0.0.1:1"];
    let report = scratch("verify-wrong").join("report.json");
    fs::write(&report, "{}").unwrap();
    let report = report.display().to_string();
    for (args, code, words) in [
        (&["--only", "everything"][..], 2, "everything"),
        (&["--language", "xx"], 2, "known languages are en, zh"),
        (&["--recordings", "/nowhere"], 66, "manifest.json"),
        (&["--compare", "/nowhere.json"], 66, "/nowhere.json"),
        (&["--compare", &report], 65, "not a report of verify --json"),
        (&["--time-max", "0"], 2, "1 to 86400 seconds"),
        (&["--only", "languages"], 2, "--language en,zh"),
        (&["--only", "speech", "--skip", "speech"], 2, "no section"),
        (&["--report", "/proc/nowhere"], 1, "/proc/nowhere"),
        (&["--html", "/nowhere/report.html"], 1, "/nowhere/report.html"),
    ] {
        let result = run(&[&upstream[..], args].concat()).await;
        assert_eq!(result.code, code, "{args:?}: {}", result.stderr);
        assert!(result.stderr.contains(words), "{args:?}: {}", result.stderr);
        assert_eq!(result.stdout, "", "{args:?}");
    }
    let result = run(&["verify"]).await;
    assert!(result.code == 2 && result.stderr.contains("--upstream"), "{}", result.stderr);
}

#[tokio::test]
async fn turns_of_recordings_are_judged_without_a_server() {
    let dir = scratch("verify-turns");
    for file in ["arctic_a0007_16k.wav", "jfk_16k.wav"] {
        fs::copy(speech_dir().join(file), dir.join(file)).unwrap();
    }
    fs::write(dir.join("turns.json"), r#"{"jfk_16k.wav": {"set": "speeches", "end_ms": 11000}}"#).unwrap();
    let dir = dir.to_str().unwrap();
    let table = run(&["verify", "--turns", dir]).await;
    assert_eq!((table.code, table.stderr.as_str()), (0, ""));
    // JFK pauses for more than a second twice, and for more than half a second once.
    assert!(table.stdout.starts_with("1 turns with 0 pauses"), "{}", table.stdout);
    assert!(table.stdout.contains("\nspeeches: 1 turns with 5 pauses"), "{}", table.stdout);
    assert!(table.stdout.contains("| fixed silence, 500 ms | 60.0 % | 5"), "{}", table.stdout);

    let json = run(&["verify", "--turns", dir, "--json"]).await;
    let turns: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(turns[1]["file"], "jfk_16k.wav");
    assert_eq!(turns[1]["end_ms"], 11_000.0);
    assert_eq!(turns[1]["pauses"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn directory_without_turns_and_unusable_weights_are_named() {
    let dir = scratch("verify-no-turns");
    // What an earlier run has left.
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    let empty = run(&["verify", "--turns", dir]).await;
    assert_eq!(empty.code, 66);
    assert!(empty.stderr.contains(dir) && empty.stderr.contains("it has no recordings"), "{}", empty.stderr);
    let missing = run(&["verify", "--turns", "/nowhere"]).await;
    assert_eq!(missing.code, 66, "{}", missing.stderr);
    fs::copy(speech_dir().join(RECORDINGS[0]), Path::new(dir).join("one.wav")).unwrap();
    let weights = run(&["verify", "--turns", dir, "--turn-model", "/nowhere/model.onnx"]).await;
    assert_eq!(weights.code, 2, "{}", weights.stderr);
}
