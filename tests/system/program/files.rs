//! `transcribe` and `speak` for files: through a bridge in the same process, and through the HTTP API of a server.

use super::commands::{PATIENCE, Server, queue_exits::BusyGateway, run, simulator_and_bridge, voxbridge};
use super::*;

async fn simulator() -> Server {
    Server::start(&["simulate", "--listen", "127.0.0.1:0"]).await
}

/// An empty directory.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = scratch("program-files").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn recording(name: &str) -> String {
    speech_dir().join(name).display().to_string()
}

fn last_line(output: &CommandOutput) -> &str {
    output.stderr.lines().last().unwrap_or_default()
}

#[tokio::test]
async fn recordings_become_subtitles_without_a_server_and_failures_are_counted() {
    let simulator = simulator().await;
    let out = directory("subtitles");
    let out_text = out.display().to_string();
    let (jfk, short) = (recording("jfk_16k.wav"), recording("goforward_16k.wav"));
    let cut = out.join("cut.wav");
    fs::write(&cut, &fs::read(&jfk).unwrap()[..200_000]).unwrap();
    let (cut, not_audio) = (cut.display().to_string(), recording("manifest.json"));
    let upstream = simulator.url();
    let options = ["--upstream", &upstream, "--format", "srt", "-o", &out_text];
    let output =
        run(&[&["transcribe"][..], &options, &[&jfk, &not_audio, &cut, "/nowhere.wav", &short]].concat())
            .await;
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{}", output.stderr);
    assert_eq!(last_line(&output), "voxbridge: 3 of 5 files failed");
    for message in [
        "manifest.json: the file is not audio in a known format",
        "cut.wav: the wav file is damaged or cut off after 6.25 s",
        "cannot read /nowhere.wav",
    ] {
        assert!(output.stderr.contains(message), "{message}: {}", output.stderr);
    }
    // The recording that is cut off is transcribed up to its damage, and is not done.
    assert_eq!(names(&out), ["cut.srt", "cut.srt.resume", "cut.wav", "goforward_16k.srt", "jfk_16k.srt"]);
    let srt = fs::read_to_string(out.join("jfk_16k.srt")).unwrap();
    assert!(srt.starts_with("1\n00:00:00,3") && srt.contains("\n\n4\n00:00:08,"), "{srt}");
    simulator.stop().await;
}

#[tokio::test]
async fn words_and_json_of_several_recordings_are_printed_in_order() {
    let simulator = simulator().await;
    let (jfk, short) = (recording("jfk_16k.wav"), recording("goforward_16k.wav"));
    let upstream = simulator.url();
    let transcribe = ["transcribe", "--upstream", &upstream, &jfk, &short];
    let translate = [&transcribe[..], &["--format", "json", "--translate"]].concat();
    let (text, json) = tokio::join!(run(&transcribe), run(&translate));
    assert_eq!((text.code, last_line(&text)), (0, "voxbridge: transcribed 2 of 2 files"));
    let (first, second) = text.stdout.split_once(&format!("==> {short} <==\n")).unwrap();
    assert!(first.starts_with(&format!("==> {jfk} <==\nsimulated transcript: ")), "{first}");
    assert_eq!((first.lines().count(), second.lines().count()), (5, 1));
    let lines: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files: Vec<_> = lines.iter().map(|line| line["file"].as_str().unwrap()).collect();
    assert_eq!(files, [&jfk, &short]);
    assert_eq!((&lines[0]["task"], &lines[0]["duration"]), (&"translate".into(), &11.0.into()));
    assert_eq!(lines[0]["segments"].as_array().unwrap().len(), 4);
    simulator.stop().await;
}

#[tokio::test]
async fn single_recording_is_printed_as_events_and_closed_pipe_is_quiet() {
    let simulator = simulator().await;
    let (jfk, upstream) = (recording("jfk_16k.wav"), simulator.url());
    let events = run(&["transcribe", "--upstream", &upstream, "--json", &jfk]).await;
    let types: Vec<Value> = events
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].take())
        .collect();
    let count = |kind: &str| types.iter().filter(|found| *found == kind).count();
    assert_eq!((count("transcript"), count("closed"), events.code), (4, 1, 0), "{types:?}");

    let mut command = voxbridge(&["transcribe", "--upstream", &upstream, &jfk]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let ended = timeout(PATIENCE, process.wait_with_output()).await.unwrap().unwrap();
    // The server may still have the worker of the first recording in use, so that the command waits in its queue, and says so.
    let said = String::from_utf8(ended.stderr).unwrap();
    let is_about_queue = |line: &str| line.contains("the upstream's queue");
    assert!(ended.status.success() && said.lines().all(is_about_queue), "{said}");
    simulator.stop().await;
}

#[tokio::test]
async fn texts_become_audio_files_without_a_server() {
    let simulator = simulator().await;
    // A directory with a dot names no format.
    let out = directory("texts.d");
    let upstream = simulator.url();
    let text = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (one, two, blank) = (
        text("one.txt", "Good morning to you."),
        text("two.txt", "And a good night."),
        text("blank.txt", " \n"),
    );
    let out_text = out.display().to_string();
    let speak = ["speak", "--upstream", &upstream, "-o", &out_text, "--file", &one, &blank, &two];
    let output = run(&speak).await;
    assert_eq!((output.code, last_line(&output)), (65, "voxbridge: 1 of 3 files failed"));
    assert!(output.stderr.contains("blank.txt: there is no text to speak"), "{}", output.stderr);
    assert_eq!(names(&out), ["blank.txt", "one.txt", "one.wav", "two.txt", "two.wav"]);
    assert_wav(&out.join("one.wav"));

    let pcm = out.join("three.pcm").display().to_string();
    let output = run(&["speak", "Good morning to you.", "--upstream", &upstream, "-o", &pcm]).await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    let wav_bytes = fs::metadata(out.join("one.wav")).unwrap().len();
    assert_eq!(fs::metadata(&pcm).unwrap().len(), wav_bytes - 44);
    simulator.stop().await;
}

#[tokio::test]
async fn configuration_file_names_upstreams_and_voices() {
    let simulator = simulator().await;
    let out = directory("configured");
    let (config, wav) = (out.join("voxbridge.toml"), out.join("spoken.wav").display().to_string());
    let text = format!(
        "listen = \"192.0.2.1:1\"\n[voices]\nanna = {:?}\n[[upstream]]\nurl = {:?}\n",
        recording("goforward_16k.wav"),
        simulator.url()
    );
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let speak = ["speak", "Good morning to you.", "--config", &config, "-o", &wav];
    let known = run(&[&speak[..], &["--voice", "anna"]].concat()).await;
    assert_eq!(known.code, 0, "{}", known.stderr);
    assert_wav(Path::new(&wav));
    let unknown = run(&[&speak[..], &["--voice", "ana"]].concat()).await;
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("unknown voice `ana`, did you mean `anna`?"), "{}", unknown.stderr);
    fs::write(&config, "language = \"en\"\n").unwrap();
    let none = run(&speak).await;
    assert!(none.code == 2 && none.stderr.contains("upstream"), "{}", none.stderr);
    simulator.stop().await;
}

#[tokio::test]
async fn interrupted_speech_leaves_no_file() {
    let simulator = simulator().await;
    let (out, upstream) = (directory("interrupted"), simulator.url());
    let text = "This sentence is spoken again and again. ".repeat(100);
    let file = out.join("long.wav").display().to_string();
    let process = voxbridge(&["speak", &text, "--upstream", &upstream, "-o", &file])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The part grows while the model speaks.
    let has_audio = || fs::read_dir(&out).unwrap().any(|entry| entry.unwrap().metadata().unwrap().len() > 44);
    wait_until("audio is written", has_audio).await;
    send_signal(process.id().unwrap(), "-INT");
    let ended =
        timeout(PATIENCE, process.wait_with_output()).await.expect("the command does not end").unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(names(&out), [""; 0]);
    simulator.stop().await;
}

#[tokio::test]
async fn http_server_transcribes_and_speaks() {
    let (simulator, bridge) = simulator_and_bridge().await;
    let out = directory("http");
    let (jfk, not_audio) = (recording("jfk_16k.wav"), recording("manifest.json"));
    let url = format!("http://{}", bridge.address);
    let out_text = out.display().to_string();
    let transcribe = ["transcribe", "--url", &url, "--format", "vtt", "-o", &out_text, &jfk, &not_audio];
    let wav = out.join("spoken.wav").display().to_string();
    let speak = ["speak", "Good morning to you.", "--url", &url, "-o", &wav];
    let (transcribed, spoken) = tokio::join!(run(&transcribe), run(&speak));
    assert_eq!((transcribed.code, last_line(&transcribed)), (1, "voxbridge: 1 of 2 files failed"));
    let refused = format!("manifest.json: {url} answered with HTTP 400: Invalid audio: ");
    assert!(transcribed.stderr.contains(&refused), "{}", transcribed.stderr);
    let vtt = fs::read_to_string(out.join("jfk_16k.vtt")).unwrap();
    assert!(vtt.starts_with("WEBVTT\n\n00:00:00.3") && vtt.matches(" --> ").count() == 4, "{vtt}");
    assert_eq!(spoken.code, 0, "{}", spoken.stderr);
    assert_wav(Path::new(&wav));
    let live = bridge.url();
    for url in [&url, &live] {
        let other = run(&["speak", "Good morning.", "--url", url, "-o", &wav, "--voice", "anna"]).await;
        assert_eq!(other.code, 0, "{}", other.stderr);
        assert!(other.stderr.contains("unknown voice `anna`; there are no voices"), "{}", other.stderr);
    }
    let missing = run(&["transcribe", "--url", &format!("{url}/nothing"), &jfk]).await;
    assert!(missing.code == 1 && missing.stderr.contains("answered with HTTP 404"), "{}", missing.stderr);
    bridge.stop().await;
    let gone = run(&["transcribe", "--url", &url, &jfk]).await;
    assert!(gone.code == 69 && gone.stderr.contains(&format!("cannot reach {url}")), "{}", gone.stderr);
    simulator.stop().await;
}

#[tokio::test]
async fn servers_of_openais_realtime_transcribe_translate_and_speak_files() {
    for (server, model, translates) in
        [("openai", "model = \"gpt-realtime\"\n", false), ("vllm-turn", "", true)]
    {
        let simulator = Server::start(&["simulate", "--server", server, "--listen", "127.0.0.1:0"]).await;
        let out = directory(&format!("realtime-{server}"));
        let config = out.join("voxbridge.toml").display().to_string();
        fs::write(&config, format!("[[upstream]]\nurl = \"ws://{}\"\n{model}", simulator.address)).unwrap();
        let (jfk, wav) = (recording("jfk_16k.wav"), out.join("spoken.wav").display().to_string());
        let transcribe = ["transcribe", "--config", &config, "--format", "json", &jfk];
        let translate = [&transcribe[..], &["--translate"]].concat();
        let speak = ["speak", "Good morning to you.", "--config", &config, "-o", &wav];
        let (words, translated, spoken) = tokio::join!(run(&transcribe), run(&translate), run(&speak));
        assert_eq!(words.code, 0, "{server}: {}", words.stderr);
        assert!(words.stdout.contains("simulated transcript"), "{server}: {}", words.stdout);
        assert_eq!(spoken.code, 0, "{server}: {}", spoken.stderr);
        assert_wav(Path::new(&wav));
        assert_eq!(translated.code == 0, translates, "{server}: {}", translated.stderr);
        assert!(translates || translated.stderr.contains("serves"), "{server}: {}", translated.stderr);
        simulator.stop().await;
    }
}

#[tokio::test]
async fn failing_upstream_is_named_with_the_file_and_the_position() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Accepts connections, but opens no session.
    let upstream = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let jfk = recording("jfk_16k.wav");
    let output = run(&["transcribe", "--upstream", &format!("ws://{address}/v1/realtime"), &jfk]).await;
    assert_eq!(output.code, 69, "{}", output.stderr);
    for part in [format!("{jfk}: at 0:00: "), format!("{address}: ")] {
        assert!(output.stderr.contains(&part), "{part}: {}", output.stderr);
    }
    upstream.abort();
}

#[tokio::test]
async fn request_in_a_stuck_queue_fails_and_leaves_nothing_that_looks_done() {
    let out = directory("stuck-queue");
    let times = [("queue_stuck_ms", 15_000, 200), ("queue_max_ms", 120_000, 1000)];
    let mappings = profile_with_numbers("commands-stuck-queue", &times);
    let config = out.join("voxbridge.toml").display().to_string();
    let (srt, wav) = (out.join("a.srt"), out.join("a.wav"));
    let (srt_name, wav_name) = (srt.display().to_string(), wav.display().to_string());
    let spoken = recording("goforward_16k.wav");
    let transcribe = ["transcribe", &spoken, "--config", &config, "--format", "srt", "-o", &srt_name];
    // A second run does not take the first for done, with --resume or without.
    for command in [
        transcribe.to_vec(),
        [&transcribe[..], &["--resume"]].concat(),
        vec!["speak", "Good morning.", "--config", &config, "-o", &wav_name],
    ] {
        let gateway = BusyGateway::start().await;
        let text = format!("mappings = {mappings:?}\n[[upstream]]\nurl = {:?}\n", gateway.url());
        fs::write(&config, text).unwrap();
        let mut process = gateway.start_in_queue(&command).await;
        process.wait_for(WAITS).await;
        let _running = gateway.release().await;
        assert_eq!(process.wait_for_end().await, 69, "{command:?}: {}", process.said);
        assert!(!srt.exists() && !wav.exists(), "{command:?}: {:?}", names(&out));
    }
}

#[tokio::test]
async fn wrong_addresses_and_certificates_fail_without_retries() {
    let jfk = recording("jfk_16k.wav");
    let state = directory("untrusted");
    let serve = ["serve", "--upstream", "ws://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tls-self-signed"];
    let state = ("XDG_STATE_HOME", state.display().to_string());
    let secure = Server::start_with(&serve, &[(state.0, &state.1)]).await;
    let secure_url = format!("wss://{}/v1/realtime", secure.address);
    for (upstream, code, words) in [
        (
            "ws://127.0.0.1:9/v1/realtime",
            69,
            "cannot reach upstream ws://127.0.0.1:9/v1/realtime: connection refused",
        ),
        (
            &secure_url,
            76,
            "is not trusted: its issuer is unknown; to trust it, name a file with it by --upstream-ca",
        ),
    ] {
        for command in [&["transcribe", &jfk][..], &["speak", "Hi.", "-o", "x.wav"]] {
            let output = run(&[command, &["--upstream", upstream]].concat()).await;
            assert!(output.code == code && output.stderr.contains(words), "{upstream}: {}", output.stderr);
            assert!(!output.stderr.contains("attempt"), "the command retried: {}", output.stderr);
        }
    }
    secure.stop().await;
}

#[tokio::test]
async fn empty_answers_of_the_model_are_not_silence() {
    let simulator =
        Server::start(&["simulate", "--listen", "127.0.0.1:0", "--fault", "empty-transcript"]).await;
    let (upstream, silence) = (simulator.url(), directory("silence").join("silence.wav"));
    fs::write(&silence, wav_of_silence(2)).unwrap();
    let spoken = run(&["transcribe", "--upstream", &upstream, &recording("goforward_16k.wav")]).await;
    assert_eq!((spoken.code, spoken.stdout.as_str()), (1, ""), "{}", spoken.stderr);
    assert!(spoken.stderr.contains("found at 0:00, but the model returned no words"), "{}", spoken.stderr);
    let silent = run(&["transcribe", "--upstream", &upstream, &silence.display().to_string()]).await;
    assert_eq!((silent.code, silent.stdout.as_str()), (0, ""), "{}", silent.stderr);
    assert!(silent.stderr.contains("no speech was found in the recording"), "{}", silent.stderr);
    simulator.stop().await;
}

/// Seconds of silence, 16 kHz.
pub(crate) fn wav_of_silence(seconds: u32) -> Vec<u8> {
    let data = seconds * 32_000;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + data).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend([16_000, 32_000_u32].map(u32::to_le_bytes).concat());
    wav.extend(b"\x02\0\x10\0data");
    wav.extend(data.to_le_bytes());
    wav.resize(44 + data as usize, 0);
    wav
}

#[tokio::test]
async fn options_that_cannot_work_together_are_usage_errors() {
    let (jfk, upstream) = (recording("jfk_16k.wav"), "ws://127.0.0.1:9/v1/realtime");
    for (arguments, reason) in [
        (vec!["transcribe", &jfk, &jfk, "--format", "srt"], "need --output DIR"),
        (vec!["transcribe", &jfk, "/nowhere.wav", "-o", "x.srt"], "must be a directory"),
        (vec!["transcribe", &jfk, "--translate"], "--translate needs --upstream"),
        (
            vec!["transcribe", &jfk, "--json", "--url", "http://127.0.0.1:9"],
            "--json needs a server by WebSocket",
        ),
        (vec!["transcribe", &jfk, "--upstream", upstream, "--model", "x"], "cannot be used with"),
        (vec!["transcribe"], "required"),
        (vec!["speak", "-o", "x.wav"], "required"),
        (vec!["speak", "Hi.", "-o", "x.doc"], "no audio format is named \"doc\""),
        (vec!["speak", "Hi.", "-o", "/nowhere/x.wav"], "no such directory"),
    ] {
        let output = run(&arguments).await;
        let code = if reason == "no such directory" { 1 } else { 2 };
        assert!(output.code == code && output.stderr.contains(reason), "{arguments:?}: {}", output.stderr);
    }
}
