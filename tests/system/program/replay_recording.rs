//! `voxbridge replay --recording`: the user of a recorded session is heard again.

use super::recordings::{CONFIG, configured, connect, loud_ms, read};
use super::*;

/// Records a question and its answer, and stops the server by this signal. Returns the audio file and the configuration.
async fn record(name: &str, url: &str, config: &str, signal: &str) -> (PathBuf, String) {
    let (dir, config) = configured(name, config);
    let server = Server::start(url, &["--config", &config]).await;
    let mut client = connect(&server).await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("tts.speaking_end").await;
    if signal == "-TERM" {
        client.close().await;
        server.signal(signal).await;
        assert_eq!(server.wait_for_end().await, 0);
    } else {
        sleep(Duration::from_secs(1)).await;
        server.signal(signal).await;
        client.read_to_end().await;
    }
    (audio_in(&dir.join("calls")), config)
}

fn audio_in(dir: &Path) -> PathBuf {
    let mut paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().unwrap() != "json").unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn user_is_heard_again_and_both_sessions_are_compared() {
    let (url, _simulator) = upstream().await;
    let (audio, config) = record("replayed", &url, CONFIG, "-TERM").await;
    let out = empty_scratch("replayed-again");
    let svg = out.join("then-and-now.svg");
    let (code, shown, notes) = run(&[
        "replay",
        "--recording",
        text(&audio),
        "--config",
        &config,
        "--upstream",
        &url,
        "--json",
        "-o",
        text(&out),
        "--svg",
        text(&svg),
    ])
    .await;
    assert_eq!(code, 0, "{notes}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let (then, now) = (&shown["then"], &shown["now"]);
    assert_eq!(then["audio"], text(&audio));
    assert_eq!((&then["profile"], &now["profile"]), (&json!("recorded"), &json!("recorded")));
    let turns = shown["turns"].as_array().unwrap();
    let [turn] = turns.as_slice() else { panic!("{shown:#}") };
    for side in ["then", "now"] {
        let turn = &turn[side];
        assert!(turn["user"].as_str().is_some_and(|words| !words.is_empty()), "{side}: {shown:#}");
        assert!(turn["model"].as_str().is_some_and(|words| !words.is_empty()), "{side}: {shown:#}");
        assert!(turn["first_audio_ms"].is_u64(), "{side}: {shown:#}");
    }
    assert_eq!(turn["then"]["user"], turn["now"]["user"]);
    let apart = turn["then"]["from_ms"].as_i64().unwrap() - turn["now"]["from_ms"].as_i64().unwrap();
    assert!(apart.abs() < 100, "{shown:#}");
    let (samples, _) = read(&out);
    assert!(loud_ms(&samples, 0) > 200 && loud_ms(&samples, 1) > 200, "{notes}");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("heard then") && svg.contains("heard now") && svg.contains("to the first audio"));
}

#[tokio::test]
async fn recording_of_a_killed_server_is_played_to_the_simulated_model_in_another_profile() {
    let (url, _simulator) = upstream().await;
    let opus = format!("{CONFIG}format = \"opus\"\n");
    let (audio, _) = record("replayed-killed", &url, &opus, "-KILL").await;
    let out = empty_scratch("replayed-killed-again");
    // Either of its files names a recording.
    let json = audio.with_extension("json");
    let (code, shown, notes) =
        run(&["replay", "--recording", text(&json), "--profile", "speech", "-o", text(&out)]).await;
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("ends early") && notes.contains("a simulated model answers"), "{notes}");
    let profiles = shown.lines().find(|line| line.starts_with("profile")).unwrap();
    assert!(profiles.contains("recorded") && profiles.ends_with("speech"), "{shown}");
    assert!(shown.contains(" user ") && shown.contains("first words"), "{shown}");
}

#[tokio::test]
async fn files_that_are_no_recording_are_told_apart() {
    let dir = empty_scratch("replayed-odd");
    let file = |name: &str| dir.join(name).display().to_string();
    let wav = |name: &str, channels: u16| {
        let spec = hound::WavSpec {
            channels,
            sample_rate: 24_000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut wav = hound::WavWriter::create(dir.join(name), spec).unwrap();
        (0..4_800 * channels).for_each(|_| wav.write_sample(0_i16).unwrap());
        wav.finalize().unwrap();
    };
    let describe = |name: &str, channels: &[&str], profile: &str| {
        let json = json!({
            "recording": 1, "session": "sess_1", "client": "macaw", "profile": profile, "key": null,
            "opened_unix_ms": 1, "opened": "", "audio": format!("{name}.wav"), "rate_hz": 24_000,
            "channels": channels, "events": [], "duration_ms": 200, "lost_pieces": 0, "left_out_ms": 0,
            "complete": true,
        });
        fs::write(dir.join(format!("{name}.json")), json.to_string()).unwrap();
    };
    wav("alone.wav", 2);
    fs::write(dir.join("other.json"), "{}").unwrap();
    wav("other.wav", 2);
    wav("mono.wav", 1);
    describe("mono", &["user", "model"], "speech");
    wav("model.wav", 1);
    describe("model", &["model"], "speech");
    wav("gone.wav", 2);
    describe("gone", &["user", "model"], "of-last-year");
    describe("silent", &["user", "model"], "speech");
    fs::write(dir.join("text.wav"), "no audio").unwrap();
    describe("text", &["user", "model"], "speech");
    for (name, expected, words) in [
        ("nowhere.wav", 66, "nowhere.wav: No such file"),
        (
            "alone.wav",
            66,
            "alone.json: No such file or directory (os error 2); a recording is an audio file and the JSON",
        ),
        ("other.wav", 65, "other.json: this is not the JSON of a recording"),
        ("mono.wav", 65, "mono.wav: the audio has 1 channels, and its JSON names 2"),
        ("model.wav", 65, "model.wav: it has only what was heard"),
        ("gone.wav", 2, "of-last-year"),
        ("silent.json", 66, "silent.wav: No such file"),
        ("text.wav", 65, "text.wav: the file is not audio"),
    ] {
        let (code, _, problem) = run(&["replay", "--recording", &file(name), "-o", &file("out")]).await;
        assert!(code == expected && problem.contains(words), "{name}: {code} {problem}");
    }
    for arguments in
        [&["replay"][..], &["replay", "a.jsonl", "--recording", "b.wav"], &["replay", "a.jsonl", "--json"]]
    {
        assert_eq!(run(arguments).await.0, 2, "{arguments:?}");
    }
}
