//! Edge cases: unusual requests, oversized files, orders at the wrong moment, and exhausted descriptors.

use std::fmt::Write as _;

use super::*;

/// The head of a handshake's answer.
async fn send_http_head(server: &Server, headers: &str) -> String {
    let stream = TcpStream::connect(server.address).await.unwrap();
    open_websocket(stream, "/v1/realtime?model=m", headers, &[]).await.0
}

async fn assert_serves(client: &mut Client) {
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
}

#[tokio::test]
async fn stalled_admin_connections_do_not_block_probes() {
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &[]).await;
    let mut stalled = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(server.admin).await.unwrap();
        let begin = if number % 2 == 0 { &b"GET /healthz HTTP/1.1\r\nX-Slow"[..] } else { b"" };
        // The oldest connections are closed in favour of new ones.
        let _ = stream.write_all(begin).await;
        stalled.push(stream);
    }
    let health = server.request("GET", "/healthz").await;
    assert_eq!(health.status, 200);
    // An order whose body never arrives is not executed and blocks no other.
    let mut slow = TcpStream::connect(server.admin).await.unwrap();
    let order = format!(
        "PUT /loglevel HTTP/1.1\r\nHost: localhost:{}\r\nContent-Length: 5\r\n\r\n",
        server.admin.port()
    );
    slow.write_all(order.as_bytes()).await.unwrap();
    assert_eq!(server.request("GET", "/healthz").await.status, 200);
    let mut first = stalled.swap_remove(0);
    let ended = timeout(PATIENCE, first.read(&mut [0; 64])).await.expect("the connection is still open");
    assert!(matches!(ended, Ok(0) | Err(_)), "the connection closes without an answer");
}

#[tokio::test]
async fn reload_completes_after_requester_disconnects() {
    let dir = scratch("odd-reload");
    let path = config(&dir, "language = \"en\"\n");
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &["--config", &path]).await;
    config(&dir, "language = \"zh\"\n");
    let mut requester = TcpStream::connect(server.admin).await.unwrap();
    let order = format!("POST /reload HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.admin.port());
    requester.write_all(order.as_bytes()).await.unwrap();
    requester.shutdown().await.unwrap();
    drop(requester);
    let holds = server.request_until("/config", |answer| answer.json()["config"]["language"] == "zh").await;
    assert_eq!(holds.status, 200);
}

#[tokio::test]
async fn shared_client_and_admin_address_is_rejected() {
    for (listen, admin) in [("127.0.0.1:18123", "127.0.0.1:18123"), ("8000,0.0.0.0:18123", "127.0.0.1:18123")]
    {
        let args = ["--upstream", "ws://127.0.0.1:9", "--listen", listen, "--admin", admin];
        for command in ["serve", "check"] {
            let (code, _, words) = run(&[&[command][..], &args].concat()).await;
            assert!(code == 2 && words.contains("conflicts with the clients'"), "{command} {code}: {words}");
        }
    }
}

#[tokio::test]
async fn million_key_file_is_rejected_at_once() {
    let dir = scratch("odd-keys");
    let mut keys = String::new();
    for number in 0..1_000_000 {
        writeln!(keys, "[[key]]\nname = \"n{number}\"\nkey = \"k{number}\"").unwrap();
    }
    fs::write(dir.join("many.toml"), keys).unwrap();
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"a\"\nkey = \"k-e-y\"\n").unwrap();
    let path = config(&dir, "access.keys = \"keys.toml\"\n");
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &["--config", &path]).await;
    fs::rename(dir.join("many.toml"), dir.join("keys.toml")).unwrap();
    let refused = server.request("POST", "/reload").await;
    assert!(refused.status == 422 && refused.body.contains("at most 10000 keys"), "{refused:?}");
    assert!(
        send_http_head(&server, "X-API-Key: k-e-y\r\n").await.starts_with("HTTP/1.1 101 "),
        "the previous keys stay valid"
    );
    fs::remove_file(dir.join("keys.toml")).unwrap();
}

#[tokio::test]
async fn unusual_requests_get_error_answers() {
    let dir = scratch("odd-requests");
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"a\"\nkey = \"k-e-y\"\n").unwrap();
    let path = config(
        &dir,
        "[access]\nkeys = \"keys.toml\"\norigins = [\"https://app.example\"]\ntrusted_proxies = [\"127.0.0.1\"]\n",
    );
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &["--config", &path]).await;
    let key = "X-API-Key: k-e-y\r\n";
    let long = |bytes: usize| format!("{key}X-Forwarded-For: {}\r\n", "1.2.3.4,".repeat(bytes / 8));
    for (headers, status) in [
        (key.to_owned(), "101"),
        (format!("{key}Origin: null\r\n"), "403"),
        (format!("{key}Origin: https://app.example\r\nOrigin: https://evil.example\r\n"), "403"),
        (format!("{key}Origin: https://app.example\r\n"), "101"),
        ("Authorization: bearer k-e-y\r\n".to_owned(), "101"),
        ("Authorization: Bearer wrong\r\nAuthorization: Bearer k-e-y\r\n".to_owned(), "400"),
        ("Authorization: Bearer wrong\r\nAuthorization: Basic k-e-y\r\n".to_owned(), "400"),
        ("Authorization: Bearer \r\n".to_owned(), "401"),
        ("Authorization: Bearer wrong\r\n".to_owned(), "401"),
        (long(4096), "101"),
        (long(8192), "431"),
        (format!("{key}X-Forwarded-For: {}\r\n", ",".repeat(4000)), "101"),
        (format!("{key}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "400"),
        (format!("{key}Content-Length: 5\r\n"), "400"),
        (format!("{key}Content-Length: 0\r\n"), "101"),
    ] {
        let answer = send_http_head(&server, &headers).await;
        let short: String = headers.chars().take(100).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{short}: {answer}");
    }
    // A WebSocket upgrade on the metrics path.
    let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let figures = server.request_with("GET", "/metrics", headers, "").await;
    assert!(figures.status == 200 && figures.body.ends_with("# EOF\n"), "{figures:?}");
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (head, _) = open_websocket(stream, "/metrics", key, &[]).await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[tokio::test]
async fn orders_during_shutdown_do_not_change_it() {
    let (url, _simulator) = upstream().await;
    let dir = scratch("odd-drain");
    let path = config(&dir, "language = \"en\"\n[drain]\ntimeout_ms = 20000\n");
    let server = Server::start(&url, &["--config", &path]).await;
    let mut speaker = server.client().await;
    let spoken = recording("goforward");
    speaker.send_audio(&bytes(&spoken[..16_000]), 640).await;
    speaker.wait_for_event("vad.speech_start").await;
    // Upgraded but unidentified: several protocols share the path, and the client has sent nothing.
    let mut opening = Vec::new();
    for _ in 0..5 {
        let client = dial(server.address, "/v1/realtime").await;
        opening.push(client);
    }
    server.signal("-TERM").await;
    server.request_until("/readyz", |answer| answer.code() == "draining").await;
    config(&dir, "language = \"zh\"\n[drain]\ntimeout_ms = 1\n");
    let reloaded = server.request("POST", "/reload").await;
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    server.signal("-HUP").await;
    assert_eq!(server.request("GET", "/readyz").await.code(), "draining", "the drain cannot be undone");
    speaker.send_utterance(&spoken[16_000..]).await;
    speaker.read_to_end().await;
    for client in &mut opening {
        let rest = client.read_to_end().await;
        assert!(rest.iter().any(|frame| matches!(frame, ClientFrame::Close(1012, _))), "{rest:?}");
    }
    assert_eq!(events(&speaker.received, "transcript.final").len(), 1, "{}", speaker.describe_received());
    assert_eq!(server.wait_for_end().await, 0);
}

#[tokio::test]
async fn start_logs_url_of_each_served_protocol_at_debug() {
    let mut server = Server::start("ws://127.0.0.1:9/v1/realtime", &["--log", "voxbridge=debug"]).await;
    let address = server.address;
    for (protocol, target) in [
        ("deepgram-flux", "/v2/listen"),
        ("deepgram-listen", "/v1/listen"),
        ("macaw", "/v1/realtime?model=NAME"),
        ("macaw", "/api/v1/realtime?model=NAME"),
        ("minicpm-o", "/v1/realtime?mode=audio"),
        ("twilio", "/twilio"),
    ] {
        let line = server.wait_for_log(&format!("ws://{address}{target}")).await;
        assert!(line.contains(protocol) && line.contains("serving clients"), "{line}");
        let profile = if protocol == "minicpm-o" { "relay" } else { "speech" };
        assert!(line.contains(&format!("profile=\"{profile}\"")), "{line}");
    }
    let line = server.wait_for_log("upstream cannot be reached: connection refused").await;
    assert!(line.contains("ws://127.0.0.1:9/v1/realtime") && line.contains("auto"), "{line}");
}

#[tokio::test]
async fn first_screen_has_at_most_15_lines_and_ends_with_the_addresses_to_use() {
    let (url, _simulator) = upstream().await;
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--playground"];
    let mut process = voxbridge(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(process.stdout.take().unwrap()).lines();
    let listening = timeout(PATIENCE, printed.next_line()).await.unwrap().unwrap().unwrap();
    let address = listening.trim_start_matches("listening on ").to_owned();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("clients connect to")) {
        lines.push(timeout(PATIENCE, log.next_line()).await.unwrap().unwrap().unwrap());
    }
    // The addresses and the playground are printed, too.
    assert!(lines.len() + 2 <= 15, "{lines:#?}");
    let last = lines.last().unwrap();
    let expected =
        format!("clients connect to ws://{address}; open http://{address}/playground in a browser");
    assert!(last.ends_with(&expected), "{last}");
    let families = lines.iter().filter(|line| line.contains("serving clients"));
    assert!(families.count() > 3 && lines.iter().any(|line| line.contains("twilio")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("://") && line.contains("//ws/")), "{lines:#?}");
    let simulated = "upstream is simulated by voxbridge: no model runs";
    assert!(lines.iter().any(|line| line.contains(simulated)), "{lines:#?}");
    process.kill().await.unwrap();
}

#[tokio::test]
async fn misspelt_variables_and_url_parameters_are_logged_with_the_nearest_name() {
    let (url, _simulator) = upstream().await;
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url];
    let mut server = voxbridge(&args);
    server.env("VOXBRIDGE_LANGAUGE", "zh").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = server.spawn().unwrap();
    let mut printed = BufReader::new(process.stdout.take().unwrap()).lines();
    let listening = timeout(PATIENCE, printed.next_line()).await.unwrap().unwrap().unwrap();
    let _client = dial(listening.trim_start_matches("listening on "), "/plivo?langauge=zh").await;
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut wait_for = async |words: &str| loop {
        let line = timeout(PATIENCE, log.next_line()).await.expect(words).unwrap().unwrap();
        if line.contains(words) {
            break line;
        }
    };
    let line =
        wait_for("VOXBRIDGE_LANGAUGE is unknown and ignored, did you mean `VOXBRIDGE_LANGUAGE`?").await;
    assert!(line.contains("WARN"), "{line}");
    let line = wait_for("connect.langauge: unknown parameter of the URL, did you mean `language`?").await;
    assert!(line.contains("WARN") && line.contains("plivo"), "{line}");
    process.kill().await.unwrap();
}

#[tokio::test]
async fn start_prints_url_of_the_playground() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", "ws://127.0.0.1:9", "--playground"];
    let mut process = voxbridge(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line().await.trim_start_matches("listening on ").to_owned();
    assert_eq!(line().await, format!("playground at http://{address}/playground"));
    process.kill().await.unwrap();
}

#[tokio::test]
async fn named_pipe_without_a_reader_stops_neither_check_nor_serve() {
    let dir = scratch("named-pipe");
    let pipe = dir.join("access.log");
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().await.unwrap().success());
    let path = config(&dir, "[access_log]\npath = \"access.log\"\n");
    let (code, _, words) = run(&["check", "--upstream", "ws://127.0.0.1:9", "--config", &path]).await;
    assert_eq!(code, 0, "{words}");
    let server = Server::start("ws://127.0.0.1:9", &["--config", &path]).await;
    server.client().await.close().await;
    // A reader that comes later gets the line.
    let mut reader = BufReader::new(tokio::fs::File::open(&pipe).await.unwrap()).lines();
    let line = timeout(PATIENCE, reader.next_line()).await.expect("no line").unwrap().unwrap();
    assert!(line.contains("\"client\""), "{line}");
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
}

#[tokio::test]
async fn server_listens_on_several_addresses() {
    let ipv6 = std::net::TcpListener::bind("[::1]:0").map_err(|error| format!("IPv6 on loopback: {error}"));
    if installed(&ipv6).is_none() {
        return;
    }
    let dir = scratch("several-addresses");
    let path = config(&dir, "listen = [\"127.0.0.1:0\", \"[::1]:0\"]\n");
    for addresses in [&["--config", &path][..], &["--listen", "127.0.0.1:0", "--listen", "[::1]:0"]] {
        let args = [&["serve", "--upstream", "ws://127.0.0.1:9"], addresses].concat();
        let mut process = voxbridge(&args).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for ip in ["127.0.0.1:", "[::1]:"] {
            let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
            let address = line.strip_prefix("listening on ").unwrap();
            assert!(address.starts_with(ip), "{line}");
            // Both addresses answer more than one client.
            for _ in 0..3 {
                let mut client = dial(address, "/v1/realtime?model=m").await;
                assert_eq!(client.next().await.kind(), "session.created");
            }
        }
    }
}

#[tokio::test]
async fn exhausted_descriptors_keep_sessions_and_recover() {
    let (url, _simulator) = upstream().await;
    let program =
        voxbridge(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 48; exec \"$@\"", "sh"]).arg(program.as_std().get_program());
    command.args(program.as_std().get_args()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Server::spawn(command).await;
    let mut client = server.client().await;
    assert_serves(&mut client).await;
    let crowd = join_all((0..120).map(|_| TcpStream::connect(server.address))).await;
    server.wait_for_log("cannot accept connections").await;
    // Its lanes need descriptors as well. The session waits until some are free and is not closed.
    client.send_json(serde_json::json!({"type": "no.such"})).await;
    assert_eq!(client.wait_for_event("error").await["code"], "unknown_command");
    // Stalled connections are closed in favour of healthy ones.
    let mut other = server.client().await;
    drop(crowd);
    assert_serves(&mut client).await;
    assert_serves(&mut other).await;
    assert_eq!(server.request("GET", "/healthz").await.status, 200);
}
