//! `transcribe` and `speak` keep a journal beside a file that is not complete; a later run reads it.

use std::time::SystemTime;

use super::{
    commands::{PATIENCE, Server, run, voxbridge},
    interrupted_files::{sentences, simulator},
    *,
};

/// Transcribes a folder as subtitles.
async fn transcribe_folder(target: [&str; 2], folder: &Path) -> CommandOutput {
    let folder = folder.display().to_string();
    run(&["transcribe", target[0], target[1], "-r", "--format", "srt", &folder]).await
}

async fn end(process: Child, signal: &str) -> (Option<i32>, String, String) {
    send_signal(process.id().unwrap(), signal);
    let ended = timeout(PATIENCE, process.wait_with_output()).await.expect("it does not end").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[tokio::test]
async fn resumed_gap_without_words_does_not_end_the_recording() {
    let (failing, out) = (simulator(&["--fault", "die-mid-answer=1,times=2"]).await, directory("empty-gap"));
    sentences(&out.join("talk.wav"), 4);
    let first = transcribe_folder(["--upstream", &failing.url()], &out).await;
    assert_eq!(first.code, 75, "{}", first.stderr);
    failing.stop().await;
    // The run ended before the last two utterances.
    let journal = out.join("talk.srt.resume");
    let text = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    fs::write(&journal, lines[..3].join("\n") + "\n").unwrap();

    let silent = simulator(&["--fault", "empty-transcript,times=1"]).await;
    let second = transcribe_folder(["--upstream", &silent.url()], &out).await;
    assert_eq!(second.code, 0, "{}", second.stderr);
    let srt = fs::read_to_string(out.join("talk.srt")).unwrap();
    assert!(srt.matches(" --> ").count() == 3 && !srt.contains("[not"), "{srt}");
    assert_eq!(names(&out), ["talk.srt", "talk.wav"]);
    silent.stop().await;
}

#[tokio::test]
async fn damaged_recording_is_not_done_and_begins_anew_when_it_is_whole() {
    let (simulator, out) = (simulator(&[]).await, directory("damaged"));
    let (file, upstream) = (out.join(format!("{}.wav", "x".repeat(250))), simulator.url());
    sentences(&file, 2);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    let target = ["--upstream", &upstream];
    for _ in 0..2 {
        let cut = transcribe_folder(target, &out).await;
        assert!(cut.code == 65 && !cut.stderr.contains("already"), "{}", cut.stderr);
        assert_eq!(names(&out).len(), 3, "the journal is kept");
    }
    fs::write(&file, &whole).unwrap();
    let changed = transcribe_folder(target, &out).await;
    let reason = "x.srt: begins anew, because the recording has changed";
    assert!(changed.code == 0 && changed.stderr.contains(reason), "{}", changed.stderr);
    let srt = file.with_extension("srt");
    assert_eq!(fs::read_to_string(&srt).unwrap().matches(" --> ").count(), 2);
    let done = transcribe_folder(target, &out).await;
    assert!(done.stderr.contains("1 of 1 recordings are transcribed already: "), "{}", done.stderr);

    // A text with the name of a transcript is not replaced.
    File::options().append(true).open(&srt).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let refused = transcribe_folder(target, &out).await;
    assert!(refused.code == 2 && refused.stderr.contains("x.srt is older than"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&srt).unwrap().matches(" --> ").count(), 2);
    simulator.stop().await;
}

#[tokio::test]
async fn recording_that_another_run_works_on_is_left_out() {
    let (slow, out) = (simulator(&["--fault", "slow-init=60"]).await, directory("locked"));
    sentences(&out.join("talk.wav"), 1);
    let (upstream, folder) = (slow.url(), out.display().to_string());
    let first = voxbridge(&["transcribe", "--upstream", &upstream, "--format", "srt", &folder])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = out.join("talk.srt.resume");
    wait_until("there is a journal", || journal.metadata().is_ok_and(|file| file.len() > 0)).await;
    let second = transcribe_folder(["--upstream", &upstream], &out).await;
    assert!(second.code == 75 && second.stderr.contains("another voxbridge works on"), "{}", second.stderr);
    assert!(journal.exists());
    end(first, "-KILL").await;
    slow.stop().await;
}

#[tokio::test]
async fn broken_off_answer_of_a_server_is_a_gap_and_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let body = r#"{"text": "One.", "duration": 2, "segments": [{"start": 0, "end": 2, "text": "One."}],
            "incomplete": {"from": 2.0, "code": "unavailable", "message": "the upstream was lost"}}"#;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut received = Vec::new();
            while !received.ends_with(b"--\r\n") && stream.read_buf(&mut received).await.unwrap() > 0 {}
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let out = directory("broken-off");
    sentences(&out.join("talk.wav"), 2);
    for begins_anew in [false, true] {
        let output = transcribe_folder(["--url", &url], &out).await;
        assert!(output.code == 75 && output.stderr.contains("the upstream was lost"), "{}", output.stderr);
        let anew = "talk.srt: begins anew, because what a server at --url has begun";
        assert_eq!(output.stderr.contains(anew), begins_anew, "{}", output.stderr);
        let srt = fs::read_to_string(out.join("talk.srt")).unwrap();
        assert!(srt.contains("\n2\n00:00:02,000 --> ") && srt.contains("[not transcribed: 0:02 to 0:0"));
    }
    assert_eq!(names(&out), ["talk.srt", "talk.srt.resume", "talk.wav"]);
    server.abort();
}

#[tokio::test]
async fn recording_that_was_killed_in_real_time_is_not_done() {
    let simulator = simulator(&[]).await;
    let upstream = simulator.url();
    let bridge = Server::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream]).await;
    let out = directory("real-time");
    sentences(&out.join("talk.wav"), 3);
    let (url, folder) = (bridge.url(), out.display().to_string());
    let process = voxbridge(&["transcribe", "--url", &url, &folder]).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("something is transcribed", || out.join("talk.txt").exists()).await;
    end(process, "-KILL").await;
    assert_eq!(names(&out), ["talk.txt", "talk.txt.resume", "talk.wav"]);
    let again = run(&["transcribe", "--upstream", &upstream, &folder]).await;
    assert!(again.code == 0 && again.stderr.contains("talk.txt: begins anew, because"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(out.join("talk.txt")).unwrap().lines().count(), 3);
    assert_eq!(names(&out), ["talk.txt", "talk.wav"]);
    bridge.stop().await;
    simulator.stop().await;
}

#[tokio::test]
async fn stopped_command_prints_the_transcripts_that_wait_for_an_earlier_one() {
    let (simulator, out) = (simulator(&[]).await, directory("waiting"));
    let short = out.join("short.wav");
    sentences(&short, 1);
    let (upstream, short) = (simulator.url(), short.display().to_string());
    // The recording on standard input never comes.
    let arguments = ["transcribe", "--upstream", &upstream, "--jobs", "2", "-", &short, "/nowhere.wav"];
    let mut command = voxbridge(&arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut said = Vec::new();
    let failed = async {
        while !String::from_utf8_lossy(&said).contains("cannot read /nowhere.wav") {
            stderr.read_buf(&mut said).await.unwrap();
        }
    };
    timeout(PATIENCE, failed).await.expect("the error waits for the first recording");
    // The command ends although its standard input does not.
    let _stdin = process.stdin.take();
    send_signal(process.id().unwrap(), "-INT");
    let ended = timeout(PATIENCE, process.wait_with_output()).await.unwrap().unwrap();
    let stdout = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(stdout.starts_with(&format!("==> {short} <==\nsimulated transcript")), "{stdout}");
    simulator.stop().await;
}

#[tokio::test]
async fn interrupted_book_goes_on_after_the_parts_that_were_spoken() {
    let (simulator, out) = (simulator(&[]).await, directory("interrupted-book"));
    let text = format!("# One\n\nIt began.\n\n# Two\n\n{}", "It went on and on. ".repeat(40));
    fs::write(out.join("book.md"), text).unwrap();
    let (upstream, book) = (simulator.url(), out.join("book.md").display().to_string());
    let speak = |file: &str| {
        let file = out.join(file).display().to_string();
        ["speak", "--upstream", &upstream, "--resume", "--file", &book, "-o", &file].map(str::to_owned)
    };
    let expected = speak("whole.wav");
    let expected = run(&expected.each_ref().map(String::as_str)).await;
    assert_eq!(expected.code, 0, "{}", expected.stderr);
    let arguments = speak("book.wav");
    let arguments = arguments.each_ref().map(String::as_str);
    let process = voxbridge(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let kept = out.join("book.wav.resume");
    // Three short parts, of a second of speech or less, and the begin of a long one.
    wait_until("speech is kept", || kept.metadata().is_ok_and(|file| file.len() > 400_000)).await;
    let (code, _, stderr) = end(process, "-INT").await;
    assert!(code == Some(130) && stderr.contains("book.wav.resume: 3 of 4 parts are kept"), "{stderr}");
    let resumed = run(&arguments).await;
    assert!(resumed.stderr.contains("book.wav: goes on after 3 of 4 parts"), "{}", resumed.stderr);
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    assert_eq!(names(&out), ["book.md", "book.wav", "whole.wav"]);
    let [book, whole] = ["book.wav", "whole.wav"].map(|name| fs::read(out.join(name)).unwrap());
    assert_eq!(book.len(), whole.len());
    simulator.stop().await;
}
