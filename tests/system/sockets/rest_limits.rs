//! Uploads that stall, trickle or never end: they hold no session slot, and other clients still come in.

use futures_util::future::select_all;

use super::{rest::PATIENCE, *};

/// A connection that has announced a form of this length.
async fn announce(bench: &Bench, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn answer_on(stream: &mut TcpStream) -> Answer {
    let mut received = Vec::new();
    // The server may close the connection with bytes unread.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("no answer");
    Answer::of(&received)
}

#[tokio::test]
async fn unfinished_uploads_hold_no_session_slot() {
    let bench = Bench::of(Config { sessions_max: Some(1), ..Config::default() }).await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut stream = announce(&bench, 1000).await;
        stream.write_all(b"--b\r\n").await.unwrap();
        stalled.push(stream);
    }
    let spoken = speak(&bench, BEARER, &json!({"model": "m", "input": "Hello."})).await;
    assert_eq!(spoken.status, 200, "{spoken:?}");
}

/// Hundreds of stalled uploads give way to new ones.
#[tokio::test]
async fn number_of_unfinished_uploads_is_bounded() {
    let bench = Bench::start().await;
    let mut unfinished = Vec::new();
    for _ in 0..257 {
        unfinished.push(announce(&bench, 1000).await);
    }
    let answers = unfinished.iter_mut().map(|stream| Box::pin(answer_on(stream)));
    let (answer, ..) = select_all(answers).await;
    assert!(answer.status == 503 && answer.text().contains("slowest"), "{answer:?}");
}

#[tokio::test]
async fn body_that_trickles_is_given_up_after_half_a_minute() {
    let bench = Bench::start().await;
    let mut stream = announce(&bench, 100_000).await;
    stream.write_all(b"--b\r\n").await.unwrap();
    for _ in 0..8 {
        pause();
        advance(Duration::from_secs(5)).await;
        resume();
        // The server may have closed the connection.
        let _ = stream.write_all(b"x").await;
    }
    let answer = answer_on(&mut stream).await;
    assert!(answer.status == 408 && answer.text().contains("64 KiB came in 30 s"), "{answer:?}");
}

/// The search for the boundary took time in the square of the length.
#[tokio::test]
async fn body_without_the_boundary_is_refused_at_its_start() {
    let bench = Bench::start().await;
    let mut stream = announce(&bench, 20_000_000).await;
    stream.write_all(&[b'x'; 20 * 1024]).await.unwrap();
    let answer = answer_on(&mut stream).await;
    assert!(answer.status == 400 && answer.text().contains("16 KiB"), "{answer:?}");
}

#[tokio::test]
async fn stalled_upload_leaves_memory_to_newcomers() {
    let mut config = Config::default();
    config.limits.memory_max_bytes = Some(8 << 20);
    let bench = Bench::of(config).await;
    let mut stalled = announce(&bench, 25_000_000).await;
    stalled.write_all(b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n").await.unwrap();
    // More than the kernel buffers: the server reads most of it.
    let recording = vec![0; 24_000_000];
    let sending = timeout(Duration::from_secs(2), stalled.write_all(&recording));
    let newcomers = async {
        for _ in 0..20 {
            let spoken = speak(&bench, BEARER, &json!({"model": "m", "input": "Hello."})).await;
            assert_eq!(spoken.status, 200, "{spoken:?}");
        }
    };
    tokio::join!(sending, newcomers).0.ok();
    let spoken = speak(&bench, BEARER, &json!({"model": "m", "input": "Hello."})).await;
    assert_eq!(spoken.status, 200, "{spoken:?}");
}

/// The bytes of a next request hid that the client had gone.
#[tokio::test]
async fn client_that_hangs_up_after_more_bytes_ends_its_session() {
    let simulator = SimulatorConfig {
        timing: SimTiming::default(),
        faults: vec!["never-answers".parse::<Fault>().unwrap()],
        ..instant_simulator()
    };
    let bench = Bench::with_config(simulator, Config::default()).await;
    let body = form(&wav(&recording("goforward")), &[("model", "whisper-1")]);
    let mut stream = announce(&bench, body.len()).await;
    stream.write_all(&body).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let waits = async {
        while bench.sessions.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("no session");
    drop(stream);
    wait_until("the sessions end", || bench.sessions.is_empty()).await;
}

/// Requests that follow each other at once are answered in turn.
#[tokio::test]
async fn pipelined_requests_are_answered_in_turn() {
    let bench = Bench::start().await;
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    let spoken = r#"{"model":"m","input":"Hello.","response_format":"pcm"}"#;
    let requests = format!(
        "GET /health HTTP/1.1\r\nHost: x\r\n\r\n\
         POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{spoken}\
         POST /v1/speak HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n\
         GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        spoken.len()
    );
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("no answer").unwrap();
    let received = String::from_utf8_lossy(&received);
    let statuses: Vec<_> =
        received.match_indices("HTTP/1.1 ").map(|(at, _)| &received[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "400", "404"]);
}

#[tokio::test]
async fn large_json_without_use_is_skipped() {
    let bench = Bench::start().await;
    let body = [br#"{"model": "m", "a": ["#.as_slice(), &b"0,".repeat(2_000_000), b"0]}"].concat();
    let answer = request(
        bench.address(),
        "POST",
        TRANSCRIPTIONS,
        "Content-Type: application/json\r\nAuthorization: Bearer k\r\n",
        &body,
    )
    .await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(answer.json()["error"]["param"], "file");
}

/// A client that sends all of its upload before it reads finds the answer, and its connection goes on.
#[tokio::test]
async fn refused_upload_is_read_on_so_that_the_client_finds_its_answer() {
    let bench = Bench::start().await;
    let form_type = "multipart/form-data; boundary=b";
    for (path, content_type, length, status) in [
        (TRANSCRIPTIONS, form_type, 31_000_000, 413),
        (TRANSCRIPTIONS, form_type, 60_000_000, 413),
        (TRANSCRIPTIONS, form_type, 3_000_000, 400),
        (TRANSCRIPTIONS, "text/plain", 3_000_000, 400),
        ("/v1/audio/speech", "application/json", 20_000_000, 413),
        ("/v1/listen", "audio/wav", 30_000_000, 413),
        ("/nowhere", form_type, 3_000_000, 404),
        ("/v1/models", form_type, 3_000_000, 405),
    ] {
        let mut stream = TcpStream::connect(bench.address()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: {length}\r\nContent-Type: {content_type}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let sent = timeout(PATIENCE, stream.write_all(&vec![0; length])).await.expect("it is not read");
        sent.unwrap_or_else(|error| panic!("{path}, {length} bytes: {error}"));
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut received = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("no answer").unwrap();
        let received = String::from_utf8_lossy(&received);
        assert!(received.starts_with(&format!("HTTP/1.1 {status} ")), "{path}, {length}: {received}");
        assert!(received.contains("HTTP/1.1 200 OK"), "{path}, {length}: {received}");
    }
}

/// A client that waits for consent to send (`Expect: 100-continue`) gets its refusal at once.
#[tokio::test]
async fn refused_upload_that_was_not_begun_is_not_asked_for() {
    let bench = Bench::start().await;
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 40000000\r\n\
         Expect: 100-continue\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = vec![0; 64];
    let count = timeout(PATIENCE, stream.read(&mut received)).await.expect("no answer").unwrap();
    assert!(received[..count].starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&received));
}
