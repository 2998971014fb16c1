//! `voxbridge demo` on each simulated server, and its page.

use super::{assert_wav, *};
use crate::program::files::wav_of_silence;

/// Starts `demo --browser`; returns the address of its page.
async fn start_browser_demo(options: &[&str]) -> (Child, String) {
    let mut demo = voxbridge(&[&["demo", "--browser"], options].concat());
    // No desktop: no browser may open in a test.
    demo.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let mut demo = demo.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().expect("no URL is printed");
        if let Some(url) = line.strip_prefix("the playground is at http://") {
            return (demo, url.split('/').next().unwrap().to_owned());
        }
    }
}

async fn get_page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn browser_demo_prints_the_url_of_its_page_and_stops_on_ctrl_c() {
    let (mut demo, address) = start_browser_demo(&[]).await;
    for (path, expected) in [
        ("/playground", "<title>voxbridge playground</title>"),
        ("/playground/settings", "conversation"),
        ("/playground/settings", r#""simulated":true"#),
    ] {
        let answer = get_page(&address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(expected), "{answer}");
    }
    send_signal(demo.id().unwrap(), "-INT");
    assert_eq!(timeout(PATIENCE, demo.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn demo_runs_on_every_simulated_server_that_can_serve_it() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let needs_chat = "needs mode chat";
    let needs_duplex = "needs mode audio";
    let demos = [
        ("legacy", "", needs_chat),
        ("backend", "", ""),
        ("sglang", "", ""),
        ("vllm", "", ""),
        ("sglang-http", "", ""),
        ("vllm-http", "", ""),
        ("openai-audio", "", ""),
        ("openai", "", ""),
        ("openai", "--openai", ""),
        ("openai", "--talk", ""),
        ("vllm-turn", "", ""),
        ("vllm-turn", "--openai", ""),
        ("vllm-turn", "--talk", ""),
        ("legacy", "--talk", ""),
        ("backend", "--talk", ""),
        ("sglang", "--talk", ""),
        ("vllm", "--talk", ""),
        ("vllm-0.32", "--talk", ""),
        ("sglang-http", "--talk", needs_duplex),
        ("vllm-http", "--talk", needs_duplex),
        ("openai-audio", "--talk", needs_duplex),
        ("openai-audio", "--openai", "answers in turns"),
    ];
    let demos = demos.map(|(server, option, problem)| {
        let out = scratch("program").join(format!("demo-{server}{option}.wav"));
        let path = out.display().to_string();
        let mut args = vec!["demo", "--server", server, &recording, "-o", &path, option];
        args.retain(|arg| !arg.is_empty());
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        async move {
            let shown = run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
            if problem.is_empty() {
                assert_eq!(shown.code, 0, "{args:?}: {}", shown.stderr);
                assert_wav(&out);
            } else {
                assert_eq!(shown.code, 2, "{args:?}: {}", shown.stdout);
                assert!(shown.stderr.contains(problem), "{args:?}: {}", shown.stderr);
            }
        }
    });
    join_all(demos).await;
}

#[tokio::test]
async fn demo_without_a_download_shows_the_words_of_its_recording_and_ends_with_its_summary() {
    let out = scratch("program").join("demo-words.wav").display().to_string();
    let shown = run(&["demo", "-o", &out]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let (messages, summary) =
        shown.stdout.split_once("\nheard   ").unwrap_or_else(|| panic!("{}", shown.stdout));
    let words = "And so my fellow Americans ask not what your country can do for you ask what you can do for your country";
    assert_eq!(summary.lines().next(), Some(words), "{summary}");
    assert!(!messages.contains("simulated transcript"), "{messages}");
    let last = summary.lines().last().unwrap_or_default();
    assert!(last.starts_with("picture ") && summary.lines().count() == 5, "{summary}");
}

/// A source directory whose setup script notes that it was called, and fails.
fn source_dir(name: &str) -> PathBuf {
    let dir = scratch(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("examples/engines")).unwrap();
    let setup = dir.join("examples/engines/setup");
    fs::write(&setup, "#!/bin/sh\necho \"$@\" >>called\nexit 69\n").unwrap();
    fs::set_permissions(&setup, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[tokio::test]
async fn demo_with_engines_fetches_them_by_the_setup_script() {
    let dir = source_dir("demo-engines");
    let output = voxbridge(&["demo", "--engines"]).current_dir(&dir).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("examples/engines/setup ended with exit status: 69"), "{stderr}");
    assert_eq!(fs::read_to_string(dir.join("called")).unwrap(), "target/engines\n");

    // Elsewhere there is no script.
    let elsewhere = run(&["demo", "--engines"]).await;
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.stderr);
    assert!(elsewhere.stderr.contains("--engines DIR"), "{}", elsewhere.stderr);
    // A named directory is used and never filled.
    let named = voxbridge(&["demo", "--engines", "nowhere"]).current_dir(&dir).output().await.unwrap();
    assert_eq!(named.status.code(), Some(2));
    assert_eq!(fs::read_to_string(dir.join("called")).unwrap(), "target/engines\n");
}

/// Runs the demo on a terminal, with this typed into it; returns what it shows.
async fn run_on_terminal(dir: &Path, typed: &str) -> String {
    let program = env!("CARGO_BIN_EXE_voxbridge");
    // A recording of silence, so that the demo is short.
    let line = format!("{program} demo silence.wav");
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(dir)
        .kill_on_drop(true);
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = terminal.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).await.unwrap();
    let output = timeout(PATIENCE, terminal.wait_with_output()).await.unwrap().unwrap();
    drop(stdin);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn demo_asks_once_at_a_terminal_and_fetches_nothing_without_a_yes() {
    let makes_terminal = "script --quiet --return --command true /dev/null </dev/null";
    let terminal = ensure(makes_terminal, "bsdutils", "a terminal needs `script` and /dev/pts");
    if installed(&terminal).is_none() {
        return;
    }
    let dir = source_dir("demo-asks");
    fs::write(dir.join("silence.wav"), wav_of_silence(1)).unwrap();
    let first = run_on_terminal(&dir, "n\n").await;
    assert!(first.contains("Fetch them now?") && first.contains("130 MB"), "{first}");
    assert!(first.contains("recognises no words"), "{first}");
    let second = run_on_terminal(&dir, "y\n").await;
    assert!(!second.contains("Fetch them now?"), "{second}");
    assert!(!dir.join("called").exists());

    // A yes runs the script. The demo goes on where it fails.
    fs::remove_file(dir.join("target/engines-declined")).unwrap();
    let third = run_on_terminal(&dir, "\n").await;
    assert!(third.contains("were not fetched") && third.contains("heard   nothing"), "{third}");
    assert_eq!(fs::read_to_string(dir.join("called")).unwrap(), "target/engines\n");
}

#[tokio::test]
async fn browser_demo_offers_what_the_simulated_server_can_serve() {
    for (server, offered, missing) in [
        ("sglang", "conversation", None),
        ("legacy", "video", Some("speech")),
        ("openai-audio", "speech", Some("video")),
    ] {
        let (mut demo, address) = start_browser_demo(&["--server", server]).await;
        let settings = get_page(&address, "/playground/settings").await;
        let has = |profile: &str| settings.contains(&format!(r#""profile":"{profile}""#));
        assert!(has(offered) && !missing.is_some_and(has), "{server}: {settings}");
        demo.kill().await.unwrap();
    }
}
