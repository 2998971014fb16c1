//! The program: its commands, its output and its exit codes, each in a process of its own.

mod demo;
mod doctor;
pub(super) mod queue_exits;
mod verify;

use super::*;

/// Longer than any command takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// The program with an empty environment, in its own directory without engines.
pub(crate) fn voxbridge(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
    command.args(args).current_dir(scratch("program")).kill_on_drop(true).stdin(Stdio::null());
    clear_settings(command.as_std_mut());
    command
}

pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) async fn run(args: &[&str]) -> CommandOutput {
    run_with(args, &[]).await
}

/// Runs the program with these environment variables, named without their common prefix.
async fn run_with(args: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = voxbridge(args);
    command.envs(variables.iter().map(|(name, value)| (format!("VOXBRIDGE_{name}"), value)));
    let output = timeout(PATIENCE, command.output()).await.expect("the command does not end").unwrap();
    let Output { status, stdout, stderr } = output;
    CommandOutput {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// A server and its address.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[]).await
    }

    /// Starts a server with these environment variables.
    pub(crate) async fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = voxbridge(args);
        command.envs(variables.iter().copied());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("the server prints nothing").unwrap();
        let line = line.expect("the server ended without output");
        let address =
            line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected output {line:?}"));
        Self { process, address: address.to_owned() }
    }

    /// Sends SIGTERM; returns the exit code and the log.
    pub(crate) async fn stop(self) -> (i32, String) {
        send_signal(self.process.id().unwrap(), "-TERM");
        let ended = timeout(Duration::from_secs(12), self.process.wait_with_output()).await;
        let ended = ended.expect("the server does not stop").unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/v1/realtime", self.address)
    }
}

pub(crate) async fn simulator_and_bridge() -> (Server, Server) {
    let simulator = Server::start(&["simulate", "--listen", "127.0.0.1:0"]).await;
    let upstream = simulator.url();
    let bridge = Server::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream]).await;
    (simulator, bridge)
}

fn write_file(name: &str, text: &str) -> String {
    let path = scratch("program").join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn help_describes_every_command() {
    let version = run(&["--version"]).await;
    // A release build adds the commit.
    assert!(version.stdout.starts_with(concat!("voxbridge ", env!("CARGO_PKG_VERSION"))));
    let level = version.stdout.lines().find_map(|line| line.strip_prefix("vector instructions: "));
    assert!(
        level
            .is_some_and(|level| !level.is_empty() && level.chars().all(|c| c.is_alphanumeric() || c == '_')),
        "{}",
        version.stdout
    );
    assert_eq!(version.code, 0);
    let help = run(&["--help"]).await;
    assert_eq!(help.code, 0);
    for command in
        listed("demo serve simulate transcribe speak check doctor verify mappings replay completions man")
    {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{}", help.stdout);
        assert_eq!(run(&[command, "--help"]).await.code, 0, "{command}");
    }
    let unknown = run(&["sevre"]).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("serve"), "{}", unknown.stderr);
}

#[tokio::test]
async fn configuration_errors_name_line_and_key() {
    let good = write_file(
        "good.toml",
        "listen = \"127.0.0.1:0\"\n\n[[upstream]]\nurl = \"ws://gpu:8006/v1/realtime\"\n",
    );
    let checked = run(&["check", "--config", &good]).await;
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.stdout.contains("ws://gpu:8006") && checked.stdout.contains("# ok: client macaw"));
    assert_eq!(run(&["check"]).await.code, 0);

    let misspelt_key = write_file("bad.toml", "listen = \"127.0.0.1:0\"\n  idle_timeuot_ms = 5\n");
    let broken = write_file("broken.toml", "listen = \n");
    let invalid_url = write_file("senseless.toml", "[[upstream]]\nurl = \"http://gpu\"\n");
    for (path, words) in [
        (&misspelt_key, vec![format!("{misspelt_key}:2:3"), "idle_timeout_ms".into()]),
        (&broken, vec![format!("{broken}:1:")]),
        (&invalid_url, vec!["http://gpu".into(), "ws://".into()]),
        (&"/nowhere.toml".to_owned(), vec!["/nowhere.toml".into()]),
    ] {
        for command in ["check", "serve"] {
            let failed = run(&[command, "--config", path]).await;
            assert_eq!(failed.code, 2, "{command} {path}: {}", failed.stderr);
            for words in &words {
                assert!(failed.stderr.contains(words), "{command}: {:?}, not {words:?}", failed.stderr);
            }
        }
    }
    let unset = run(&["serve"]).await;
    assert!(unset.code == 2 && unset.stderr.contains("--upstream"), "{}", unset.stderr);
}

#[tokio::test]
async fn check_prints_configuration_and_errors_as_json() {
    let json = |output: &CommandOutput| serde_json::from_str::<Value>(&output.stdout).unwrap();
    let good = run(&["check", "--json", "--listen", "8001"]).await;
    assert_eq!(good.code, 0, "{}", good.stderr);
    let report = json(&good);
    assert_eq!((&report["ok"], &report["config"]["listen"]), (&true.into(), &"127.0.0.1:8001".into()));
    assert!(report["mappings"].as_array().unwrap().iter().any(|file| file["name"] == "macaw"), "{report}");
    let misspelt = write_file("misspelt.toml", "\nlisten = 8000\nidle_timeuot_ms = 5\n");
    let bad = run(&["check", "--json", "--config", &misspelt]).await;
    assert_eq!((bad.code, bad.stderr.as_str()), (2, ""));
    let report = json(&bad);
    let error = &report["errors"][0];
    assert_eq!((&report["ok"], &error["line"], &error["column"]), (&false.into(), &3.into(), &1.into()));
    assert_eq!(
        (&error["file"], error["message"].as_str().unwrap().contains("`idle_timeout_ms`")),
        (&misspelt.into(), true)
    );
    let unknown = run(&["check", "--json", "--profile", "spech"]).await;
    let error = &json(&unknown)["errors"][0];
    assert!(error["message"].as_str().unwrap().contains("did you mean `speech`"), "{error}");
    assert_eq!((&error["option"], &error["file"]), (&"--profile".into(), &Value::Null));
}

#[tokio::test]
async fn check_reports_all_mistakes_and_serve_the_same_ones() {
    let file = write_file(
        "four.toml",
        "profile = \"speach\"\nlisten = 0.0.0.0:8000\n[[upstream]]\nurl = \"http://gpu\"\nlanguage = \"en\"\n",
    );
    let places = [
        format!("{file}:1:1: unknown profile `speach`"),
        format!("{file}:2:10: a text needs quotes: write listen = \"0.0.0.0:8000\""),
        format!("{file}:4:1: upstream: \"http://gpu"),
        format!("{file}:5:1: key `language` does not belong in [[upstream]]: move it up"),
    ];
    for command in ["check", "serve"] {
        let failed = run(&[command, "--config", &file]).await;
        assert_eq!(failed.code, 2, "{command}: {}", failed.stderr);
        for place in &places {
            assert!(failed.stderr.contains(place), "{command}: no {place}: {}", failed.stderr);
        }
        assert_eq!(failed.stderr.trim_end().lines().count(), 4, "{}", failed.stderr);
    }
    let json = run(&["check", "--json", "--config", &file]).await;
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    let errors = report["errors"].as_array().unwrap();
    let lines: Vec<_> = errors.iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(errors.len(), 4, "{report}");
    assert_eq!(lines, [1, 2, 4, 5], "{report}");
}

#[tokio::test]
async fn check_warns_about_routes_and_protocols_that_are_never_served() {
    let file = write_file(
        "shadowed.toml",
        "[[upstream]]\nurl = \"ws://gpu\"\n[[route]]\nmodel = \"*\"\nprofile = \"speech\"\n\
         [[route]]\nmodel = \"whisper-*\"\nprofile = \"live\"\n",
    );
    let dir = scratch("program/mute");
    let source = run(&["mappings", "new", "mute"]).await.stdout;
    let has_transcript = |line: &&str| !line.starts_with("transcript_final");
    let mute: Vec<&str> = source.lines().filter(has_transcript).collect();
    fs::write(dir.join("mute.toml"), mute.join("\n")).unwrap();
    let checked = run(&["check", "--config", &file, "--mappings", dir.to_str().unwrap()]).await;
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    for warning in [
        "# warning: [[route]] 2 (model \"whisper-*\", profile \"live\") never matches, because [[route]] 1 takes its connections",
        "# warning: client \"mute\" sends speech, but gets no transcripts: [events] has no `transcript_final`",
    ] {
        assert!(checked.stdout.contains(warning), "no {warning}: {}", checked.stdout);
    }
}

#[tokio::test]
async fn completions_and_manual_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).await;
        assert!(script.code == 0 && script.stdout.contains("serve") && script.stdout.contains("upstream-ca"));
    }
    let bash = run(&["completions", "bash"]).await.stdout;
    let offered = |option: &str| {
        let at = bash.find(&format!("{option})")).unwrap_or_else(|| panic!("no {option}"));
        bash[at..].lines().nth(1).unwrap().trim().to_owned()
    };
    let profiles = offered("--profile");
    assert!(profiles.contains("compgen -W") && profiles.contains("conversation"), "{profiles}");
    assert!(offered("--upstream-dialect").contains("minicpm-o-legacy"));
    assert!(!offered("--sessions-max").contains("compgen -f"), "{}", offered("--sessions-max"));
    assert!(offered("--config").contains("compgen -f"), "{}", offered("--config"));
    let page = run(&["man"]).await;
    assert!(
        page.code == 0 && page.stdout.contains(".TH voxbridge 1") && page.stdout.contains("serve"),
        "{}",
        page.stdout
    );
    assert!(!page.stdout.contains("vector instructions"), "depends on the machine: {}", page.stdout);
    let page = run(&["man", "serve"]).await.stdout;
    assert!(page.contains(".TH voxbridge\\-serve 1") || page.contains(".TH voxbridge-serve 1"), "{page}");
    assert!(page.contains("upstream") && page.contains("SIGHUP"), "{page}");
    let unknown = run(&["man", "sevre"]).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("did you mean `serve`"), "{}", unknown.stderr);
}

#[tokio::test]
async fn check_uses_same_environment_as_serve() {
    let file = write_file("layers.toml", "language = \"zh\"\nidle_timeout_ms = 5000\nsessions_max = 7\n");
    for command in ["check", "serve"] {
        let file_only = run(&[command, "--config", &file]).await;
        assert_eq!(file_only.code, 2, "{command}: {}", file_only.stderr);
        assert!(file_only.stderr.contains("no upstream is configured"), "{command}: {}", file_only.stderr);
    }

    let variables = [("UPSTREAM", "ws://gpu/x"), ("IDLE_TIMEOUT_MS", "6000"), ("SESSIONS_MAX", "8")];
    let layered = run_with(&["check", "--config", &file, "--sessions-max", "9"], &variables).await;
    assert_eq!(layered.code, 0, "{}", layered.stderr);
    for line in [
        "url = \"ws://gpu/x\"  # VOXBRIDGE_UPSTREAM",
        "idle_timeout_ms = 6000  # VOXBRIDGE_IDLE_TIMEOUT_MS",
        "sessions_max = 9  # --sessions-max",
        "language = \"zh\"  # file",
        "listen = \"127.0.0.1:8000\"  # default",
        "handshakes_max = 512  # default",
        "# profile is not set: speech, or as the mode in the upstream's URL says",
        "# ok: ",
    ] {
        assert!(layered.stdout.contains(line), "no {line}: {}", layered.stdout);
    }
    toml::from_str::<toml::Table>(&layered.stdout).expect("the output is not TOML");
    let json = run_with(&["check", "--json", "--config", &file], &variables).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    for (key, source) in
        [("upstream.0.url", "VOXBRIDGE_UPSTREAM"), ("language", "file"), ("listen", "default")]
    {
        assert_eq!(json["sources"][key], source, "{key}: {json}");
    }
    assert!(!layered.stdout.contains("no upstream"), "{}", layered.stdout);

    for (variable, value) in [
        ("UPSTREAM", "http://bad"),
        ("MAPPINGS", "/nowhere"),
        ("LANGUAGE", "xx"),
        ("SESSIONS_MAX", "0"),
        ("IDLE_TIMEOUT_MS", "1"),
        ("UPSTREAM_CA", "/nowhere.pem"),
    ] {
        let upstream = if variable == "UPSTREAM" { value } else { "wss://gpu/x" };
        for command in ["check", "serve"] {
            let failed = run_with(&[command], &[("UPSTREAM", upstream), (variable, value)]).await;
            assert_eq!(failed.code, 2, "{command} {variable}: {}", failed.stderr);
        }
    }
}

#[tokio::test]
async fn mappings_commands_list_show_explain_and_check() {
    let list = run(&["mappings", "list"]).await;
    for line in ["client    macaw ", "profile   speech ", "upstream  minicpm-o "] {
        assert!(list.stdout.contains(line), "{}", list.stdout);
    }
    let shown = run(&["mappings", "show", "macaw"]).await.stdout;
    assert_eq!(shown, include_str!("../../../../mappings/client/macaw.toml"));
    let several = run(&["mappings", "show", "minicpm-o"]).await;
    assert!(several.code == 2 && several.stderr.contains("`client` and `upstream`; choose one with --kind"));
    let dialect = run(&["mappings", "show", "minicpm-o", "--kind", "upstream"]).await.stdout;
    assert!(dialect.contains("kind = \"upstream\""), "{dialect}");
    let unknown = run(&["mappings", "show", "makaw"]).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("did you mean `macaw`"), "{}", unknown.stderr);
    let explained = run(&["mappings", "explain", "macaw", "speech", "minicpm-o"]).await;
    assert_eq!(explained.code, 0, "{}", explained.stderr);
    for name in ["session.configure", "tts.speak", "hot_word_boost", "transcript.final", "session.hold"] {
        assert!(explained.stdout.contains(name), "nothing about {name}");
    }
    let dir = scratch("program/bad-mappings");
    let misspelt = shown.replace("command_key = ", "comand_key = ");
    fs::write(dir.join("mine.toml"), &misspelt).unwrap();
    let line = 1 + misspelt.lines().position(|line| line.starts_with("comand_key")).unwrap();
    let failed = run(&["check", "--mappings", dir.to_str().unwrap()]).await;
    assert_eq!(failed.code, 2);
    let place = format!("mine.toml:{line}:1");
    assert!(failed.stderr.contains(&place) && failed.stderr.contains("command_key"), "{}", failed.stderr);
}

#[tokio::test]
async fn check_warns_about_mappings_that_cannot_work() {
    let dir = scratch("program/deaf");
    let deaf = "kind = \"profile\"\nname = \"deaf\"\ntitle = \"hears nothing\"\nextends = \"speech\"\nmode = \"chat\"\n\
                [listen]\nstart_ms = 25000\nend_ms = 300\n";
    fs::write(dir.join("deaf.toml"), deaf).unwrap();
    let words = "profile \"deaf\" on dialect \"minicpm-o\" does not work: no transcript reaches the client \
                 (the detector finds no speech in the audio)";
    let checked = run(&["check", "--mappings", dir.to_str().unwrap()]).await;
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    let warning = format!("# warning: client \"macaw\" with {words}");
    assert!(checked.stdout.contains(&warning), "{}", checked.stdout);
    let checked = run(&["check", "--json", "--mappings", dir.to_str().unwrap()]).await;
    let report: Value = serde_json::from_str(&checked.stdout).unwrap();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|it| it == &format!("client \"vosk\" with {words}")), "{report}");
}

#[tokio::test]
async fn compatible_mappings_are_printed_in_three_formats() {
    let explain = |args: &'static [&'static str]| async move {
        let explained = run(&[&["mappings", "explain"], args].concat()).await;
        assert_eq!(explained.code, 0, "{}", explained.stderr);
        explained.stdout
    };
    let text = explain(&[]).await;
    assert!(text.lines().count() > 3 && text.starts_with("client "), "{text}");
    let lines = explain(&["macaw", "--format", "markdown"]).await;
    assert!(lines.contains("| `macaw` | `speech` | `minicpm-o` | yes |"), "{lines}");
    let cells = explain(&["macaw", "speech", "--format", "json"]).await;
    let cells: Value = serde_json::from_str(&cells).unwrap();
    assert!(cells.as_array().unwrap().iter().all(|cell| cell["profile"] == "speech"), "{cells}");
    let details = explain(&["macaw", "speech", "minicpm-o", "--format", "json"]).await;
    let details: Value = serde_json::from_str(&details).unwrap();
    let rows = details["sends"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["is"] == "command" && row["name"] == "tts.speak"), "{details}");
    let unknown = run(&["mappings", "explain", "makaw"]).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("did you mean `macaw`"), "{}", unknown.stderr);
}

#[tokio::test]
async fn new_mapping_is_created_checked_and_replayed() {
    let dir = scratch("program/begun");
    // `-o` creates the directory.
    fs::remove_dir_all(&dir).unwrap();
    let path = dir.join("mine.toml").display().to_string();
    let created = run(&["mappings", "new", "mine", "-o", &path]).await;
    assert_eq!(created.code, 0, "{}", created.stderr);
    let repeated = run(&["mappings", "new", "mine", "-o", &path]).await;
    assert!(repeated.code == 2 && repeated.stderr.contains("--force"), "{}", repeated.stderr);
    assert_eq!(run(&["mappings", "new", "mine", "-o", &path, "--force"]).await.code, 0);
    let conversation = run(&["mappings", "new", "my-talk", "--from", "conversation"]).await;
    assert!(
        conversation.stdout.contains("extends = \"conversation\"\nmode = \"audio\""),
        "{}",
        conversation.stdout
    );
    fs::write(dir.join("talk.toml"), conversation.stdout).unwrap();
    fs::write(dir.join("macaw.toml"), include_str!("../../../../mappings/client/macaw.toml")).unwrap();
    let checked = run(&["check", "--mappings", dir.to_str().unwrap()]).await;
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    for words in
        ["# ok: client mine", "# ok: profile my-talk", "macaw.toml replaces the built-in client macaw"]
    {
        assert!(checked.stdout.contains(words), "no {words}: {}", checked.stdout);
    }
    let listed = run(&["mappings", "list", "--mappings", dir.to_str().unwrap()]).await;
    assert!(listed.stdout.contains("replaces the built-in one"), "{}", listed.stdout);

    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let attempt = |file: String, trace: &str| {
        let trace = traces.join(trace).display().to_string();
        async move { run(&["mappings", "try", &file, "--trace", &trace]).await }
    };
    let replayed = attempt(path.clone(), "text.jsonl").await;
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    for words in [r#"got      {"type":"hello","session":"sess_"#, "unknown_command: 'tts.speak'"] {
        assert!(replayed.stdout.contains(words), "no {words}: {}", replayed.stdout);
    }
    let dialect = dir.join("dialect.toml").display().to_string();
    let created = run(&["mappings", "new", "mine", "--kind", "upstream", "-o", &dialect]).await;
    assert_eq!(created.code, 0, "{}", created.stderr);
    let replayed = attempt(dialect, "text.jsonl").await;
    for words in
        ["ignored an upstream message: a message of type response.done", r#"got      {"type":"close""#]
    {
        assert!(replayed.stdout.contains(words), "no {words}: {}", replayed.stdout);
    }
    let profile = dir.join("talk.toml").display().to_string();
    let replayed = attempt(profile, "text.jsonl").await;
    assert!(
        replayed.code == 0 && replayed.stdout.contains("outputs differ"),
        "{}{}",
        replayed.stdout,
        replayed.stderr
    );
    assert_eq!(attempt(path, "nothing.jsonl").await.code, 66);
}

#[tokio::test]
async fn server_prints_address_and_stops_on_signal() {
    let (simulator, bridge) = simulator_and_bridge().await;
    let taken = run(&["serve", "--listen", &bridge.address, "--upstream", &simulator.url()]).await;
    assert_eq!(taken.code, 1, "{}", taken.stderr);
    assert!(taken.stderr.contains(&format!("cannot listen on {}", bridge.address)), "{}", taken.stderr);
    let (code, log) = bridge.stop().await;
    assert_eq!(code, 0, "{log}");
    assert_eq!(simulator.stop().await.0, 0);
}

#[tokio::test]
async fn unreachable_server_has_its_own_exit_code() {
    let closed_port = closed_port();
    let url = format!("ws://{closed_port}/v1/realtime");
    let out = scratch("program").join("never.wav").display().to_string();
    let unreachable = run(&["speak", "Hello.", "-o", &out, "--url", &url]).await;
    assert!(unreachable.code == 69 && unreachable.stderr.contains(&url), "{}", unreachable.stderr);
    let missing = run(&["transcribe", "/nowhere.wav", "--url", &url]).await;
    assert!(missing.code == 66 && missing.stderr.contains("/nowhere.wav"), "{}", missing.stderr);
}

#[tokio::test]
async fn untrusted_certificate_has_its_own_exit_code_and_ca_trusts_it() {
    let (cert, key, _) = certificate();
    let (cert, key) = (write_file("trust-cert.pem", &cert), write_file("trust-key.pem", &key));
    let bridge =
        ["serve", "--listen", "0", "--upstream", "ws://127.0.0.1:9", "--tls-cert", &cert, "--tls-key", &key];
    let bridge = Server::start(&bridge).await;
    let url = format!("wss://localhost:{}/v1/realtime", bridge.address.rsplit(':').next().unwrap());
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let out = scratch("program").join("never.wav").display().to_string();
    for command in [
        vec!["transcribe", &recording],
        vec!["speak", "Hi.", "-o", &out],
        vec!["talk", &recording, "-o", &out],
    ] {
        let untrusted = run(&[&command[..], &["--url", &url]].concat()).await;
        assert_eq!(untrusted.code, 76, "{}", untrusted.stderr);
        let words = "is not trusted: its issuer is unknown; to trust it, name a file with it by --ca";
        assert!(untrusted.stderr.contains(words), "{}", untrusted.stderr);
        let missing = run(&[&command[..], &["--url", &url, "--ca", "/nowhere.pem"]].concat()).await;
        assert!(missing.code == 66 && missing.stderr.contains("--ca /nowhere.pem"), "{}", missing.stderr);
    }
    // The session opens; its upstream is unreachable.
    let trusted = run(&["speak", "Hi.", "-o", &out, "--url", &url, "--ca", &cert]).await;
    assert!(trusted.code == 1 && trusted.stderr.contains("the server reports"), "{}", trusted.stderr);
    bridge.stop().await;
}

#[tokio::test]
async fn talk_at_a_server_that_only_transcribes_ends_before_the_question() {
    let (simulator, bridge) = simulator_and_bridge().await;
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let out = scratch("program").join("no-answer.wav").display().to_string();
    let talk = run(&["talk", &recording, "-o", &out, "--url", &bridge.url()]).await;
    assert!(talk.code == 1 && talk.stderr.contains("talk needs a conversation"), "{}", talk.stderr);
    let (_, log) = bridge.stop().await;
    let audio_in_s = log.split("audio_in_s=").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert_eq!(audio_in_s.map(|s| s.parse::<f64>().unwrap()), Some(0.0), "{log}");
    simulator.stop().await;
}

#[tokio::test]
async fn recording_and_text_pass_through_both_servers() {
    let (simulator, bridge) = simulator_and_bridge().await;
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let out = scratch("program").join("spoken.wav").display().to_string();
    let url = bridge.url();
    let transcribe = ["transcribe", &recording, "--url", &url];
    let speak = ["speak", "Good morning to you.", "-o", &out, "--url", &url];
    let (transcribed, spoken) = tokio::join!(run(&transcribe), run(&speak));
    assert_eq!(transcribed.code, 0, "{}", transcribed.stderr);
    assert!(transcribed.stdout.starts_with("simulated transcript: "), "{}", transcribed.stdout);
    assert_eq!(spoken.code, 0, "{}", spoken.stderr);
    assert_wav(Path::new(&out));
    let (code, log) = bridge.stop().await;
    assert_eq!(code, 0, "{log}");
    // Text is logged at trace level only.
    assert!(!log.contains("Good morning") && !log.contains("simulated transcript"), "{log}");
    simulator.stop().await;
}

#[tokio::test]
async fn demo_prints_both_sides_and_saves_answer() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let out = scratch("program").join("demo.wav").display().to_string();
    let shown = run(&["demo", &recording, "-o", &out]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for words in
        ["transcript.final", "session.init", "tts.speak", "heard   simulated transcript", "said    You said"]
    {
        assert!(shown.stdout.contains(words), "nothing about {words}: {}", shown.stdout);
    }
    assert_wav(Path::new(&out));
    let picture = Path::new(&out).with_extension("svg");
    assert!(shown.stdout.contains(&format!("picture {}", picture.display())), "{}", shown.stdout);
    let svg = fs::read_to_string(picture).unwrap();
    for words in ["→ tts.speak “You said", "s to the transcript", "s to the first audio", "#0"] {
        assert!(svg.contains(words), "nothing about {words}: {svg}");
    }
    let times = shown.stdout.lines().filter_map(|line| line.get(..8)?.trim().parse::<f64>().ok());
    let times: Vec<f64> = times.collect();
    assert!(times.len() > 10 && times.is_sorted(), "{}", shown.stdout);
    assert!(!shown.stdout.contains("_id="), "{}", shown.stdout);
}

#[tokio::test]
async fn openai_demo_asks_interrupts_and_saves_the_last_answer() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let out = scratch("program").join("openai-demo.wav").display().to_string();
    let shown = run(&["demo", "--openai", &recording, "-o", &out]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for words in [
        "→ session.update",
        "← input_audio_buffer.speech_started",
        "← response.created",
        "← response.done status=\"cancelled\"",
        "session.init",
        "frames, ",
        "heard   simulated transcript",
        "said    simulated",
    ] {
        assert!(shown.stdout.contains(words), "nothing about {words}: {}", shown.stdout);
    }
    for words in ["→ input_audio_buffer.append", "← response.output_audio.delta"] {
        assert!(!shown.stdout.contains(words), "audio on a line of its own: {}", shown.stdout);
    }
    assert_wav(Path::new(&out));
    let svg = fs::read_to_string(Path::new(&out).with_extension("svg")).unwrap();
    for words in ["→ session.update", "s to the transcript", "s to the first audio"] {
        assert!(svg.contains(words), "nothing about {words}: {svg}");
    }
}

#[tokio::test]
async fn ctrl_c_stops_the_demo() {
    let out = scratch("program").join("stopped.wav").display().to_string();
    let mut demo = voxbridge(&["demo", "-o", &out]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
        if line.contains("session.created") {
            send_signal(demo.id().unwrap(), "-INT");
            break;
        }
    }
    // The recording takes eleven seconds. The rest of the output is read, so that the demo is not stopped by a full pipe.
    let mut rest = Vec::new();
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
        rest.push(line);
    }
    assert_eq!(timeout(PATIENCE, demo.wait()).await.unwrap().unwrap().code(), Some(130), "{rest:#?}");
    assert!(!rest.iter().any(|line| line.starts_with("heard")), "{rest:#?}");
}

#[tokio::test]
async fn commands_end_quietly_when_the_reader_of_their_output_is_gone() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/text.jsonl").display().to_string();
    for args in [
        vec!["check"],
        vec!["mappings", "list"],
        vec!["mappings", "show", "macaw"],
        vec!["mappings", "explain"],
        vec!["mappings", "new", "mine"],
        vec!["replay", &trace],
        vec!["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = voxbridge(&args);
        command.stdout(writer).stderr(Stdio::piped());
        let output = timeout(PATIENCE, command.spawn().unwrap().wait_with_output()).await.unwrap().unwrap();
        let messages = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), messages.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[track_caller]
pub(crate) fn assert_wav(path: &Path) {
    let wav = hound::WavReader::open(path).unwrap();
    assert_eq!((wav.spec().sample_rate, wav.spec().channels, wav.spec().bits_per_sample), (24_000, 1, 16));
    assert!(wav.duration() > 24_000, "{} samples", wav.duration());
}
