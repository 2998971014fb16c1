//! `transcribe` and `speak` for many files, and for files that are interrupted: nothing that was transcribed is lost or asked twice.

use super::commands::{PATIENCE, Server, run, voxbridge};
use super::*;

pub(crate) async fn simulator(fault: &[&str]) -> Server {
    Server::start(&[&["simulate", "--listen", "127.0.0.1:0"], fault].concat()).await
}

/// A recording of this many sentences with pauses.
pub(crate) fn sentences(file: &Path, count: usize) {
    let sentence = [recording("goforward"), vec![0; 16_000]].concat();
    fs::write(file, wav::write_s16(&sentence.repeat(count), 16_000)).unwrap();
}

/// Starts of the cues, or of the gaps, in ms.
fn starts_ms(srt: &str) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let ms = |line: &str| {
        let start = line.split(" --> ").next().unwrap();
        let (h, m, s) = (number(&start[..2]), number(&start[3..5]), number(&start[6..8]));
        ((h * 60 + m) * 60 + s) * 1000 + number(&start[9..12])
    };
    srt.lines().filter(|line| line.contains(" --> ")).map(ms).collect()
}

/// Starts a transcription, and waits until its file has this many cues.
async fn transcribe_until(cues: usize, arguments: &[&str], output: &Path) -> Child {
    let process = voxbridge(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let has_cues = || fs::read_to_string(output).is_ok_and(|srt| srt.matches(" --> ").count() >= cues);
    wait_until("cues are written", has_cues).await;
    process
}

#[tokio::test]
async fn killed_or_interrupted_transcription_keeps_its_cues_and_goes_on() {
    // A real server loses a worker when a client is killed that waits for it.
    let (simulator, out) = (simulator(&["--fault", "notices-leavers"]).await, directory("killed"));
    let (file, srt) = (out.join("talk.wav"), out.join("talk.srt"));
    sentences(&file, 10);
    let (upstream, file) = (simulator.url(), file.display().to_string());
    let (srt_text, resume_file) = (srt.display().to_string(), out.join("talk.srt.resume"));
    let command = ["transcribe", "--upstream", &upstream, "--format", "srt", "-o", &srt_text, &file];
    let whole = run(&command).await;
    assert_eq!((whole.code, names(&out).len()), (0, 2), "{}", whole.stderr);
    let expected = starts_ms(&fs::read_to_string(&srt).unwrap());
    assert_eq!(expected.len(), 10);
    fs::remove_file(&srt).unwrap();

    let resume = [&command[..], &["--resume"]].concat();
    let mut kept = String::new();
    for (signal, code, cues) in [("-KILL", None, 2), ("-INT", Some(130), 5), ("-TERM", Some(143), 7)] {
        let process = transcribe_until(cues, &resume, &srt).await;
        send_signal(process.id().unwrap(), signal);
        let ended = timeout(PATIENCE, process.wait_with_output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), code, "{stderr}");
        let now = fs::read_to_string(&srt).unwrap();
        assert!(now.starts_with(&kept) && resume_file.exists(), "{signal}: {kept}\nis now\n{now}");
        if code.is_some() {
            assert!(stderr.contains("talk.srt: the transcript is kept up to 0:"), "{stderr}");
        }
        kept = now;
    }
    let rest = run(&resume).await;
    assert!(rest.code == 0 && rest.stderr.contains("talk.srt: goes on at 0:"), "{}", rest.stderr);
    let srt = fs::read_to_string(&srt).unwrap();
    assert!(srt.starts_with(&kept) && !resume_file.exists(), "{srt}");
    let starts = starts_ms(&srt);
    assert_eq!(starts.len(), expected.len(), "{srt}");
    assert!(starts.iter().zip(&expected).all(|(start, expected)| start.abs_diff(*expected) < 100), "{srt}");
    simulator.stop().await;
}

#[tokio::test]
async fn failed_utterance_is_marked_and_asked_for_again() {
    let (failing, out) = (simulator(&["--fault", "die-mid-answer=1,times=2"]).await, directory("gaps"));
    let (file, srt) = (out.join("talk.wav"), out.join("talk.srt").display().to_string());
    sentences(&file, 4);
    let file = file.display().to_string();
    let arguments = |upstream: &str| {
        ["transcribe", "--upstream", upstream, "-o", &srt, "--format", "srt", &file].map(str::to_owned)
    };
    let run_with = async |upstream: &str, more: &[&str]| {
        let arguments = arguments(upstream);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run(&arguments).await
    };
    let first = run_with(&failing.url(), &[]).await;
    assert_eq!(first.code, 75, "{}", first.stderr);
    for words in ["talk.wav: 0:00 to 0:0", "1 of 4 utterances were not transcribed, and are marked"] {
        assert!(first.stderr.contains(words), "{words}: {}", first.stderr);
    }
    let text = fs::read_to_string(&srt).unwrap();
    assert!(text.matches(" --> ").count() == 4 && text.contains("\n[not transcribed: 0:00 to 0:0"), "{text}");
    failing.stop().await;

    let lost = run_with("ws://127.0.0.1:9/v1/realtime", &["--resume"]).await;
    assert_eq!((lost.code, fs::read_to_string(&srt).unwrap()), (69, text.clone()), "{}", lost.stderr);
    let healthy = simulator(&[]).await;
    let other = run_with(&healthy.url(), &["--resume", "--language", "zh"]).await;
    assert!(other.code == 2 && other.stderr.contains("talk.srt.resume belongs to"), "{}", other.stderr);
    // The kept transcripts stay without --overwrite.
    let second = run_with(&healthy.url(), &[]).await;
    assert!(second.code == 0 && second.stderr.contains("talk.srt: goes on at "), "{}", second.stderr);
    let closed = fs::read_to_string(&srt).unwrap();
    assert!(closed.matches("simulated transcript").count() == 4 && !closed.contains("[not"), "{closed}");
    let rest = |srt: &str| srt.split_once("\n\n2\n").unwrap().1.to_owned();
    assert_eq!(rest(&closed), rest(&text), "the others are as they were");
    assert_eq!(names(&out), ["talk.srt", "talk.wav"]);
    healthy.stop().await;
}

#[tokio::test]
async fn folder_is_transcribed_beside_its_recordings_and_what_is_done_is_left_out() {
    let (simulator, out) = (simulator(&[]).await, directory("folder"));
    fs::create_dir(out.join("deep")).unwrap();
    for name in ["a.wav", "deep/b.wav"] {
        sentences(&out.join(name), 1);
    }
    let (upstream, folder) = (simulator.url(), out.display().to_string());
    let command =
        ["transcribe", "--upstream", &upstream, "-r", "--format", "json", "--word-timestamps", &folder];
    let first = run(&command).await;
    assert_eq!((first.code, first.stdout.as_str()), (0, ""), "{}", first.stderr);
    let text = fs::read_to_string(out.join("deep/b.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let words = json["segments"][0]["words"].as_array().unwrap();
    assert!(words.len() == 6 && words[0]["word"] == " simulated" && words[0]["probability"].is_null());
    assert!(words.iter().all(|it| it["estimated"] == true && it["start"].as_f64() <= it["end"].as_f64()));
    fs::write(out.join("a.json"), "mine").unwrap();
    let second = run(&command).await;
    assert!(second.stderr.contains("2 of 2 recordings are transcribed already"), "{}", second.stderr);
    assert_eq!((second.code, fs::read_to_string(out.join("a.json")).unwrap().as_str()), (0, "mine"));
    let anew = run(&[&command[..], &["--overwrite"]].concat()).await;
    assert!(anew.code == 0 && fs::read_to_string(out.join("a.json")).unwrap() != "mine", "{}", anew.stderr);
    simulator.stop().await;
}

#[tokio::test]
async fn book_becomes_one_mp3_file_with_chapters_and_pauses() {
    let (simulator, out) = (simulator(&[]).await, directory("book"));
    fs::write(out.join("1.md"), "# The first\n\nIt began.\n\nIt ended.\n").unwrap();
    fs::write(out.join("2.txt"), "Another day.\n").unwrap();
    let (upstream, folder) = (simulator.url(), out.display().to_string());
    let speak = async |output: &str, pause: &str| {
        let path: PathBuf = out.join(output);
        let text = path.display().to_string();
        let arguments = ["speak", "--upstream", &upstream, "--file", &folder, "--join", "-o", &text];
        let output =
            run(&[&arguments[..], &["--paragraph-pause", pause, "--chapter-pause", pause]].concat()).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        fs::read(path).unwrap()
    };
    let (mp3, long, short) =
        tokio::join!(speak("book.mp3", "1"), speak("long.pcm", "1"), speak("short.pcm", "0"));
    assert_eq!(long.len() - short.len(), 3 * 48_000, "a second before each paragraph but the first");
    let chapters = mp3.windows(4).filter(|bytes| bytes == b"CHAP").count();
    let has = |text: &[u8]| mp3.windows(text.len()).any(|window| window == text);
    assert!(mp3.starts_with(b"ID3") && chapters == 2 && has(b"\x03The first") && has(b"\x032"), "{chapters}");
    simulator.stop().await;
}
