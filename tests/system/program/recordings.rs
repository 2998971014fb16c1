//! Recordings of sessions by a running server, also by one that is killed.

use super::*;

pub(super) const CONFIG: &str =
    "mappings = \"mappings\"\nprofile = \"recorded\"\n[record]\ndir = \"calls\"\n";
const PROFILE: &str =
    "kind = \"profile\"\nname = \"recorded\"\ntitle = \"Recorded\"\nextends = \"assistant\"\nrecord = true\n";

/// A folder with a configuration that records sessions.
pub(super) fn configured(name: &str, config: &str) -> (PathBuf, String) {
    let dir = empty_scratch(name);
    fs::create_dir(dir.join("mappings")).unwrap();
    fs::write(dir.join("mappings/recorded.toml"), PROFILE).unwrap();
    let file = dir.join("voxbridge.toml");
    fs::write(&file, config).unwrap();
    (dir, file.display().to_string())
}

pub(super) async fn connect(server: &Server) -> Client {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut client = open_websocket(stream, "/v1/realtime?model=m", "", &[]).await.1;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

/// The newest recording: its samples by side, and its JSON.
pub(super) fn read(dir: &Path) -> (Vec<[i16; 2]>, Value) {
    let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let json = names.iter().rfind(|name| name.extension().unwrap() == "json").unwrap();
    let json: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let mut wav = hound::WavReader::open(dir.join(json["audio"].as_str().unwrap())).unwrap();
    let samples: Vec<i16> = wav.samples().map(Result::unwrap).collect();
    (samples.chunks_exact(2).map(|sides| [sides[0], sides[1]]).collect(), json)
}

pub(super) fn loud_ms(samples: &[[i16; 2]], side: usize) -> usize {
    samples.iter().filter(|sides| sides[side].unsigned_abs() > 300).count() / 24
}

fn events(json: &Value) -> Vec<&str> {
    json["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn session_is_recorded_with_its_words_and_a_profile_without_is_not() {
    let (url, _simulator) = upstream().await;
    let (dir, config) = configured("recorded", CONFIG);
    let server = Server::start(&url, &["--config", &config]).await;
    let mut client = connect(&server).await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("tts.speaking_end").await;
    client.close().await;
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
    let (samples, json) = read(&dir.join("calls"));
    assert!(loud_ms(&samples, 0) > 200 && loud_ms(&samples, 1) > 200, "{json}");
    let events = events(&json);
    for event in [
        "speech_started",
        "user_transcript",
        "answer_started",
        "first_audio",
        "speaking_started",
        "model_transcript",
        "answer_ended",
    ] {
        assert!(events.contains(&event), "{event}: {json:#}");
    }
    assert_has(&json, json!({"/complete": true, "/lost_pieces": 0, "/profile": "recorded"}));
    let ms = json["duration_ms"].as_u64().unwrap();
    assert!(ms.abs_diff(samples.len() as u64 / 24) <= 1, "{ms}");

    let server = Server::start(&url, &["--config", &config, "--profile", "speech"]).await;
    connect(&server).await.close().await;
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
    assert_eq!(fs::read_dir(dir.join("calls")).unwrap().count(), 2);
    let (code, text, problem) =
        run(&["check", "--config", &config, "--profile", "speech", "--upstream", &url]).await;
    assert!(code == 0 && format!("{text}{problem}").contains("nothing is recorded"), "{text}{problem}");
}

#[tokio::test]
async fn recording_of_a_killed_server_is_readable_up_to_the_last_second() {
    let (url, _simulator) = upstream().await;
    let (dir, config) = configured("killed", CONFIG);
    let server = Server::start(&url, &["--config", &config]).await;
    let mut client = connect(&server).await;
    let opened = Instant::now();
    // Without the pauses, so that any second of it has the voice.
    let mut frames = recording("goforward").chunks_exact(320).map(<[i16]>::to_vec).collect::<Vec<_>>();
    frames.retain(|frame| frame.iter().any(|sample| sample.unsigned_abs() > 2_000));
    for frame in frames.iter().cycle().take(200) {
        client.send_audio(&bytes(frame), 640).await;
        sleep(Duration::from_millis(20)).await;
    }
    let lasted = opened.elapsed();
    server.signal("-KILL").await;
    client.read_to_end().await;
    let (samples, json) = read(&dir.join("calls"));
    let recorded = Duration::from_millis(samples.len() as u64 / 24);
    assert!(recorded + Duration::from_secs(1) > lasted, "{recorded:?} of {lasted:?}");
    assert!(loud_ms(&samples[samples.len() - 24_000..], 0) > 50, "the last second has the user's voice");
    assert_eq!(json["complete"], false);
    assert!(events(&json).contains(&"speech_started"), "{json:#}");
}

#[tokio::test]
async fn unusable_directory_is_found_by_check_and_at_the_start() {
    let (url, _simulator) = upstream().await;
    let (dir, config) = configured("record-unusable", &CONFIG.replace("calls", "file"));
    fs::write(dir.join("file"), "").unwrap();
    for command in [["check"].as_slice(), &["serve", "--listen", "127.0.0.1:0"]] {
        let arguments = [command, &["--config", &config, "--upstream", &url]].concat();
        let (code, _, problem) = run(&arguments).await;
        assert!(code != 0 && problem.contains("file"), "{command:?}: {code} {problem}");
    }
}

/// Starts a server that records to a disk of 600 KB of its own: three seconds. `None` where users may not mount one.
async fn server_with_small_disk(url: &str, dir: &Path, config: &str) -> Option<Server> {
    let mount = "mount -t tmpfs -o size=600k,mode=0777 tmpfs \"$0\" && exec \"$@\"";
    let namespace = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let mut can_mount = std::process::Command::new("unshare");
    can_mount.args(namespace).args([mount, text_of(dir), "true"]);
    let may = can_mount.output().is_ok_and(|output| output.status.success());
    installed(&may.then_some(()).ok_or("users may not mount a tmpfs".to_owned()))?;
    let program = voxbridge(&[]);
    let mut command = Command::new("unshare");
    command.args(namespace).args([mount, text_of(dir)]).arg(program.as_std().get_program());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--upstream",
        url,
        "--config",
        config,
    ]);
    command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    clear_settings(command.as_std_mut());
    Some(Server::spawn(command).await)
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn full_disk_ends_a_recording_with_one_line_and_leaves_the_session_alone() {
    let (url, _simulator) = upstream().await;
    let (dir, config) = configured("record-full-disk", CONFIG);
    let calls = dir.join("calls");
    fs::create_dir(&calls).unwrap();
    let Some(mut server) = server_with_small_disk(&url, &calls, &config).await else { return };
    let mut client = connect(&server).await;
    for _ in 0..3 {
        client.send_utterance(&recording("goforward")).await;
        client.wait_for_event("tts.speaking_end").await;
    }
    let line = server.wait_for_log("cannot record the session; it goes on without").await;
    assert!(line.contains("No space left on device") && line.contains(text_of(&calls)), "{line}");
    let metrics = server.request("GET", "/metrics").await.body;
    assert!(metrics.contains("voxbridge_recordings_incomplete_total 1"), "{metrics}");
    // Only the server sees its disk.
    let seen = format!("/proc/{}/root{}", server.process.id().unwrap(), calls.display());
    let (samples, json) = read(Path::new(&seen));
    assert!(samples.len() > 24_000 && json["complete"] == false, "{} {json:#}", samples.len());
    assert!(events(&json).contains(&"speech_started"), "{json:#}");
    client.close().await;
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
}
