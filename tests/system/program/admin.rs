//! The admin listener of the program as built.

use voxbridge_test_support::certs::connector;

use super::*;

#[cfg(feature = "mcp")]
use crate::program::server_process::AdminAnswer;
#[cfg(feature = "mcp")]
use voxbridge::simulator::SimulatorConfig;
#[cfg(feature = "mcp")]
use voxbridge_test_support::{
    bench::{dial, instant_simulator, start_simulator},
    servers::PackageServer,
};

#[tokio::test]
async fn admin_listener_reports_everything() {
    let (url, _simulator) = upstream().await;
    let secret = format!("{url}?mode=chat&token=s3cr3t");
    let server = Server::start(&secret, &[]).await;
    let mut client = server.client().await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;

    let health = server.request("GET", "/healthz").await;
    assert_eq!((health.status, health.json()), (200, json!({"status": "ok", "state": "serving"})));
    let ready = server.request("GET", "/readyz").await;
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    assert_has(&ready, json!({"/ready": true, "/reasons": [], "/warnings": []}));
    assert_eq!((&ready["sessions"], &ready["sessions_max"]), (&json!(1), &json!(1000)));
    assert_eq!((&ready["upstreams"], &ready["upstreams_usable"]), (&json!(1), &json!(1)));
    let listed = &ready["upstream"][0];
    assert_eq!((&listed["dialect"], &listed["in_service"]), (&json!("minicpm-o"), &json!(true)), "{ready}");
    assert_eq!((&listed["sessions_max"], &listed["waiting"]), (&json!(null), &json!(0)), "{ready}");
    assert!(listed["sessions"].is_u64() && !ready.to_string().contains("s3cr3t"), "{ready}");

    let sessions = server.request("GET", "/sessions").await.json();
    let session = &sessions["sessions"][0];
    assert_eq!((&session["client"], &session["profile"]), (&json!("macaw"), &json!("speech")));
    assert_eq!((&session["path"], &session["converses"]), (&json!("/v1/realtime"), &json!(false)));
    assert!(
        session["age_s"].as_f64().unwrap() > 0.0 && session["opened_at"].as_f64().unwrap() > 1.6e9,
        "{session}"
    );
    let id = session["id"].as_str().unwrap();
    assert_eq!(server.request("GET", &format!("/sessions/{id}")).await.json()["id"], id);
    for (query, count) in
        [("client=macaw", 1), ("client=vosk", 0), ("profile=speech&client=macaw", 1), ("no=1", 0)]
    {
        assert_eq!(
            server.request("GET", &format!("/sessions?{query}")).await.json()["count"],
            count,
            "{query}"
        );
    }
    assert_eq!(server.request("GET", "/sessions/sess_000000000000").await.code(), "no_such_session");

    let text = "Accept: text/plain;version=0.0.4\r\n";
    let metrics = server.request_with("GET", "/metrics", text, "").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(!metrics.body.contains("# EOF") && !metrics.body.contains(" info\n"), "{}", metrics.body);
    let metrics = server.request("GET", "/metrics").await;
    assert!(metrics.head.contains("content-type: application/openmetrics-text"), "{}", metrics.head);
    assert!(metrics.body.contains("voxbridge_") && metrics.body.ends_with("# EOF\n"), "{}", metrics.body);
    let shown = server.request("GET", "/config").await;
    assert!(
        !shown.body.contains("s3cr3t") && shown.json()["config"]["sessions_max"] == 1000,
        "{}",
        shown.body
    );

    let head = server.request("HEAD", "/readyz").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let unknown_path = server.request("GET", "/nowhere").await;
    let endpoints = unknown_path.json()["endpoints"].as_array().unwrap().len();
    assert_eq!((unknown_path.status, endpoints), (404, 12), "the answer lists the endpoints");
    assert_eq!(server.request("GET", "/").await.json()["endpoints"].as_array().unwrap().len(), endpoints);
    for (method, path, allow) in [
        ("POST", "/healthz", "allow: get, head\r\n"),
        ("GET", "/drain", "allow: post\r\n"),
        ("GET", "/reload", "allow: post\r\n"),
        ("DELETE", "/loglevel", "allow: get, head, put, post\r\n"),
        ("GET", "/sessions/x/close", "allow: post\r\n"),
    ] {
        let refused = server.request(method, path).await;
        assert!(
            refused.status == 405 && format!("{}\r\n", refused.head).contains(allow),
            "{path}: {refused:?}"
        );
    }
    client.close().await;
}

#[tokio::test]
async fn log_level_can_be_changed() {
    let (url, _simulator) = upstream().await;
    let mut server = Server::start(&url, &["--log", "warn"]).await;
    assert_eq!(server.request("GET", "/loglevel").await.json()["level"], "warn");
    assert_eq!(
        server.request_with("PUT", "/loglevel", "", "voxbridge=debug\n").await.json()["level"],
        "voxbridge=debug"
    );
    server.client().await.close().await;
    server.wait_for_log("session opened").await;
    for bad in ["", "voxbridge=loud", "a=b=c"] {
        let refused = server.request_with("POST", "/loglevel", "", bad).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_level"), "{bad:?}");
    }
    let long = server.request_with("PUT", "/loglevel", "", &"x".repeat(5_000)).await;
    assert_eq!((long.status, long.code().as_str()), (400, "bad_body"));
    assert_eq!(server.request("GET", "/loglevel").await.json()["level"], "voxbridge=debug");
}

#[tokio::test]
async fn browser_requests_are_rejected() {
    let (url, _simulator) = upstream().await;
    let server = Server::start(&url, &[]).await;
    for (headers, code) in [
        ("Origin: http://evil.example\r\n", "foreign_origin"),
        ("Origin: null\r\n", "foreign_origin"),
        ("Sec-Fetch-Site: cross-site\r\n", "foreign_origin"),
        ("Host: evil.example\r\n", "unknown_host"),
    ] {
        for (method, path) in [("POST", "/drain"), ("GET", "/sessions"), ("PUT", "/loglevel")] {
            let refused = server.request_with(method, path, headers, "").await;
            assert_eq!((refused.status, refused.code().as_str()), (403, code), "{headers} {path}");
        }
        assert_eq!(server.request_with("GET", "/healthz", headers, "").await.status, 200);
    }
    let ready = server.request_until("/readyz", |answer| answer.code() != "no_upstream").await;
    assert_eq!(ready.status, 200, "the server is not draining");
}

#[tokio::test]
async fn remote_admin_needs_token() {
    let (url, _simulator) = upstream().await;
    let (code, _, words) = run(&["serve", "--upstream", &url, "--admin", "0.0.0.0:0"]).await;
    assert!(code == 2 && words.contains("token_file") && words.contains("client_ca"), "{code}: {words}");
    let (code, _, words) = run(&["check", "--admin", "0.0.0.0:0"]).await;
    assert!(code == 2 && words.contains("token_file"), "{code}: {words}");

    let file = empty_scratch("operations-token").join("token");
    fs::write(&file, "first-s3cr3t\n").unwrap();
    let token_file = file.display().to_string();
    let server = Server::start(&url, &["--admin", "0.0.0.0:0", "--admin-token-file", &token_file]).await;
    let with = async |path: &'static str, token: &str| {
        server
            .request_with(
                "POST",
                path,
                &format!("Host: far.example\r\nAuthorization: Bearer {token}\r\n"),
                "",
            )
            .await
    };
    for wrong in ["", "first", "first-s3cr3t-and-more"] {
        let refused = with("/reload", wrong).await;
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"));
        assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
        assert!(!refused.body.contains("s3cr3t"));
    }
    // The server becomes ready when the upstream has answered.
    server.request_until("/readyz", |answer| answer.status == 200).await;
    for open in ["/healthz", "/readyz"] {
        assert_eq!(server.request_with("GET", open, "Host: 10.1.2.3\r\n", "").await.status, 200, "a probe");
    }
    assert_eq!(server.request("GET", "/config").await.status, 401);
    fs::write(&file, "second-s3cr3t").unwrap();
    assert_eq!(with("/reload", "first-s3cr3t").await.json()["changed"], json!(["the admin token changed"]));
    assert_eq!(with("/reload", "first-s3cr3t").await.status, 401, "the old token was replaced");
    let config = with("/reload", "second-s3cr3t").await;
    assert!(config.status == 200 && !config.body.contains("s3cr3t"), "{config:?}");
    fs::write(&file, "").unwrap();
    let refused = with("/reload", "second-s3cr3t").await;
    assert!(refused.status == 422 && refused.body.contains("the token is empty"), "{refused:?}");
}

#[tokio::test]
async fn reload_cannot_open_remote_admin() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("operations-guard");
    fs::write(dir.join("token"), "s3cr3t").unwrap();
    let guarded = "[admin]\nlisten = \"0.0.0.0:0\"\ntoken_file = \"token\"\n";
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--config", &config(&dir, guarded)];
    let server = Server::spawn(voxbridge(&args)).await;
    let reload =
        async || server.request_with("POST", "/reload", "Authorization: Bearer s3cr3t\r\n", "").await;
    // This configuration would be valid after a restart, but the socket stays until then.
    config(&dir, "[admin]\nlisten = \"127.0.0.1:0\"\n");
    let refused = reload().await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "not_reloaded"));
    assert!(refused.body.contains("0.0.0.0:") && refused.body.contains("after a restart"), "{refused:?}");
    assert_eq!(server.request("GET", "/config").await.status, 401, "the token is still required");

    // Removing the section keeps the listener. The report lists changes that apply now and changes that need
    // a restart.
    config(&dir, "");
    let untouched = json!({"changed": [], "after_restart": ["`admin.listen`", "`admin.token_file`"]});
    assert_eq!(reload().await.json(), untouched);
    assert_eq!(server.request("GET", "/config").await.status, 401);
    config(&dir, &format!("{}hosts = [\"voice.lan\"]\n", guarded.replace("0.0.0.0:0", "127.0.0.1:0")));
    let taken = reload().await.json();
    assert_eq!(taken["changed"], json!(["`admin.hosts`"]));
    assert_eq!(taken["after_restart"], json!(["`admin.listen`"]));
}

#[tokio::test]
async fn client_certificate_authenticates_operator() {
    let (url, _simulator) = upstream().await;
    let issuer = authority("ca");
    let ((cert, key), own) = (signed(&issuer, "localhost"), signed(&issuer, "operator"));
    let dir = empty_scratch("operations-tls");
    for (name, text) in [("cert.pem", &cert), ("key.pem", &key), ("ca.pem", &issuer.pem())] {
        fs::write(dir.join(name), text).unwrap();
    }
    let tls = "[admin]\nlisten = \"0.0.0.0:0\"\n[admin.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\
               client_ca = \"ca.pem\"\nclient_certs = \"optional\"\n";
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--config", &config(&dir, tls)];
    let server = Server::spawn(voxbridge(&args)).await;
    let (known, unknown) = (connector(&issuer, Some(&own)), connector(&issuer, None));
    let ask = async |connector: &TlsConnector, path: &str| {
        let stream = TcpStream::connect(("127.0.0.1", server.admin.port())).await.unwrap();
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        send_request(stream, &format!("GET {path} HTTP/1.1\r\nHost: far.example\r\n\r\n")).await
    };
    assert_eq!(ask(&known, "/sessions").await.status, 200);
    let refused = ask(&unknown, "/sessions").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "certificate_needed"));
    let of_anybody = async { while ask(&unknown, "/readyz").await.status != 200 {} };
    timeout(PATIENCE, of_anybody).await.expect("probes need no certificate");
    // The container's health probe trusts the given authority.
    let admin = format!("https://localhost:{}", server.admin.port());
    let ca = dir.join("ca.pem").display().to_string();
    let (code, told, words) = run(&["health", "--admin", &admin, "--ca", &ca]).await;
    assert!(code == 0 && told.contains("\"ready\":true"), "{code}: {told}{words}");
    assert_eq!(run(&["health", "--admin", &admin]).await.0, 69, "the probe trusts no other authority");

    // With a token, TLS requires no client certificate, and the newly named files apply.
    let issuer = authority("ca2");
    let (cert, key) = signed(&issuer, "localhost");
    for (name, text) in [("cert2.pem", &cert), ("key2.pem", &key), ("token", &"s3cr3t".to_owned())] {
        fs::write(dir.join(name), text).unwrap();
    }
    let moved = tls.replace("cert.pem", "cert2.pem").replace("key.pem", "key2.pem");
    let moved = moved.replace("client_certs = \"optional\"\n", "");
    config(&dir, &moved.replace("[admin.tls]", "token_file = \"token\"\n[admin.tls]"));
    server.signal("-HUP").await;
    let without_certificate = connector(&issuer, None);
    let ask = async |headers: &str| {
        let answered = async {
            loop {
                let stream = TcpStream::connect(("127.0.0.1", server.admin.port())).await.unwrap();
                // Until the next reload the server shows the old certificate.
                let name = ServerName::try_from("localhost").unwrap();
                let Ok(stream) = without_certificate.connect(name, stream).await else { continue };
                break send_request(
                    stream,
                    &format!("GET /sessions HTTP/1.1\r\nHost: far.example\r\n{headers}\r\n"),
                )
                .await;
            }
        };
        timeout(PATIENCE, answered).await.expect("the new certificate is never used")
    };
    assert_eq!(ask("").await.status, 401);
    let last = ask("Authorization: Bearer s3cr3t\r\n").await;
    assert_eq!(last.status, 200, "{last:?}");

    // Without a token, TLS requires client certificates and rejects probes; `check` warns about it.
    let words = run(&["check", "--upstream", &url, "--config", &config(&dir, &moved)]).await;
    assert!(
        words.0 == 0
            && format!("{}{}", words.1, words.2).contains("health probes without a client certificate"),
        "{words:?}"
    );
}

#[tokio::test]
async fn readiness_follows_upstream_availability() {
    let (url, simulator) = upstream().await;
    let server = Server::start(&url, &["--sessions-max", "1"]).await;
    let admin = server.admin.to_string();
    server.request_until("/readyz", |answer| answer.status == 200).await;
    let (code, told, _) = run(&["health", "--admin", &admin]).await;
    assert!(code == 0 && told.contains("\"ready\":true"), "{told}");
    let client = server.client().await;
    let full = server.request("GET", "/readyz").await;
    assert_eq!((full.status, full.code().as_str()), (503, "full"));
    let (code, _, words) = run(&["health", "--admin", &admin]).await;
    assert!(code == 1 && words.contains("all 1 session slots"), "{code}: {words}");
    assert_eq!(run(&["health", "--alive", "--admin", &admin]).await.0, 0);
    client.close().await;
    server.request_until("/readyz", |answer| answer.status == 200).await;
    // The upstream dies while unused; a reload checks it at once.
    drop(simulator);
    assert_eq!(server.request("POST", "/reload").await.status, 200);
    server.request_until("/readyz", |answer| answer.code() == "no_upstream").await;

    let without_upstream = Server::start("ws://127.0.0.1:9/v1/realtime", &[]).await;
    let ready = without_upstream.request_until("/readyz", |answer| answer.status == 503).await;
    assert_eq!((ready.code().as_str(), &ready.json()["upstreams_usable"]), ("no_upstream", &json!(0)));
    assert_eq!(without_upstream.request("GET", "/healthz").await.status, 200);
    let closed_port = closed_port().to_string();
    let (code, _, words) = run(&["health", "--admin", &closed_port]).await;
    assert!(code == 69 && words.contains("no admin listener answers"), "{code}: {words}");
    for bad in ["ftp://x:1", "http://"] {
        assert_eq!(run(&["health", "--admin", bad]).await.0, 2, "{bad}");
    }
}

#[tokio::test]
async fn reload_reports_changes_and_rejects_bad_files() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("operations-reload");
    let path = config(&dir, "language = \"en\"\n");
    let server = Server::start(&url, &["--config", &path]).await;
    let mut client = server.client().await;
    server.request_until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(server.request("POST", "/reload").await.json(), json!({"changed": [], "after_restart": []}));
    config(&dir, "language = \"zh\"\nsessions_max = 7\n");
    let changed = json!({"changed": ["`language`"], "after_restart": ["`sessions_max`"]});
    assert_eq!(server.request("POST", "/reload").await.json(), changed);
    let shown = server.request("GET", "/config").await.json()["config"].clone();
    assert_eq!((&shown["language"], &shown["sessions_max"]), (&json!("zh"), &json!(1000)), "{shown}");
    // The change still waits for a restart.
    let pending = json!({"changed": [], "after_restart": ["`sessions_max`"]});
    assert_eq!(server.request("POST", "/reload").await.json(), pending);
    assert_eq!(server.request_with("PUT", "/loglevel", "", "debug").await.status, 200);
    assert_eq!(server.request("GET", "/config").await.json()["config"]["log"]["level"], "debug");

    config(&dir, "langauge = \"en\"\n");
    let invalid = server.request("POST", "/reload").await;
    assert_eq!((invalid.status, invalid.code().as_str()), (422, "not_reloaded"));
    assert!(invalid.body.contains("did you mean `language`"), "{}", invalid.body);
    let ready = server.request("GET", "/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["warnings"][0]["code"]),
        (200, &json!("not_reloaded")),
        "the previous configuration stays valid"
    );
    assert_eq!(server.request("GET", "/config").await.json()["config"]["language"], "zh");

    // Reloads run one after the other, each with its own answer.
    config(&dir, "language = \"en\"\n");
    let all = join_all((0..12).map(|_| server.request("POST", "/reload"))).await;
    assert!(all.iter().all(|answer| answer.status == 200));
    let first = all.iter().filter(|answer| answer.json()["changed"] == json!(["`language`"])).count();
    assert_eq!(first, 1, "only one reload reports the change");
    assert_eq!(server.request("GET", "/readyz").await.json()["warnings"], json!([]));
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    client.close().await;
}

#[tokio::test]
async fn ending_or_rolling_over_one_session_leaves_others() {
    let (url, _simulator) = upstream().await;
    let server = Server::start(&url, &[]).await;
    let mut chosen = server.client().await;
    let id = server.only_session().await;
    let mut other = server.client().await;
    let refused = server.request("POST", &format!("/sessions/{id}/rollover")).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "no_conversation"));
    assert!(refused.body.contains("profile is \\\"speech\\\""), "{}", refused.body);
    for order in ["close", "rollover"] {
        assert_eq!(server.request("POST", &format!("/sessions/nobody/{order}")).await.status, 404);
    }
    assert_eq!(server.request("POST", &format!("/sessions/{id}/close")).await.status, 202);
    let rest = chosen.read_to_end().await;
    assert_eq!(events(rest, "session.closed")[0]["reason"], "operator_request");
    assert!(rest.contains(&ClientFrame::Close(1001, "operator_request".into())), "{rest:?}");
    server.request_until(&format!("/sessions/{id}"), |answer| answer.status == 404).await;
    other.send_utterance(&recording("goforward")).await;
    other.wait_for_event("transcript.final").await;
    other.close().await;

    let talking = Server::start(&url, &["--profile", "conversation"]).await;
    let mut client = talking.client().await;
    client.send_json(json!({"type": "session.configure", "rollover_events": true})).await;
    let order = format!("/sessions/{}/rollover", talking.only_session().await);
    assert_eq!(talking.request("POST", &order).await.status, 202);
    let rolled = |frame: &ClientFrame| frame.kind() == "session.rollover";
    let frames = client.stream_until(&[], rolled).await;
    assert_eq!(events(frames, "session.rollover")[0]["reason"], "operator_request");
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let (url, _simulator) = upstream().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--upstream", &url, "--listen"];
    let (code, _, words) = run(&[&serve[..], &[&address]].concat()).await;
    assert!(code == 1 && words.contains(&address) && words.contains("with --listen"), "{code}: {words}");
    let (code, _, words) = run(&[&serve[..], &["127.0.0.1:0", "--admin", &address]].concat()).await;
    assert!(code == 1 && words.contains(&address) && words.contains("with --admin"), "{code}: {words}");
}

#[tokio::test]
async fn stuck_admin_client_harms_no_session() {
    let (url, _simulator) = upstream().await;
    let server = Server::start(&url, &[]).await;
    let mut stuck = Vec::new();
    for _ in 0..40 {
        stuck.push(TcpStream::connect(server.admin).await.unwrap());
    }
    let mut client = server.client().await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    client.close().await;
    drop(stuck);
    assert_eq!(server.request("GET", "/healthz").await.status, 200);
}

/// The server's tools are called once, and another server is down.
#[cfg(feature = "mcp")]
#[tokio::test]
async fn tool_servers_are_reported_by_readiness_and_metrics() {
    const CALL: &str = r#"<tool_call>{"name": "temperature", "arguments": {"room": "hall"}}</tool_call>"#;
    let Some(house) = PackageServer::mcp(&[]) else { return };
    let simulator =
        SimulatorConfig { answers: [CALL, "It is warm."].map(str::to_owned).to_vec(), ..instant_simulator() };
    let (upstream, _simulator, _recorder) = start_simulator("127.0.0.1:0", simulator, None).await;
    let dir = empty_scratch("admin-tool-servers");
    let mappings = dir.join("mappings");
    fs::create_dir_all(&mappings).unwrap();
    let profile = "kind = \"profile\"\nname = \"butler\"\ntitle = \"-\"\nextends = \"assistant\"\n[answer.tools]\nmcp = [\"house\", \"shed\"]\n";
    fs::write(mappings.join("butler.toml"), profile).unwrap();
    let toml = format!(
        "profile = \"butler\"\nmappings = {mappings:?}\n[mcp.house]\nurl = \"http://{}/mcp\"\n[mcp.shed]\nurl = \"http://{}/mcp\"\n",
        house.address(),
        closed_port()
    );
    let server =
        Server::start(&format!("ws://{upstream}/v1/realtime"), &["--config", &config(&dir, &toml)]).await;

    // A server that is down costs its tools only.
    let is_ready = |answer: &AdminAnswer| {
        let ready = answer.json();
        ready["ready"] == true && ready["tool_server"][0]["is_connected"] == true
    };
    let ready = server.request_until("/readyz", is_ready).await.json();
    let listed = json!([
        {"name": "house", "is_connected": true, "tools": 9},
        {"name": "shed", "is_connected": false, "tools": 0}
    ]);
    assert_eq!(ready["tool_server"], listed);
    let message = "tool server shed is not connected: its tools are not offered";
    assert_eq!(ready["warnings"], json!([{"code": "tool_server_down", "message": message}]));

    let mut client = dial(server.address, "/v1/realtime?model=any").await;
    client
        .send_json(
            json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}),
        )
        .await;
    let content = json!([{"type": "input_text", "text": "How warm is it?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send_json(json!({"type": "conversation.item.create", "item": item})).await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.done").await;
    let metrics = server.request("GET", "/metrics").await.body;
    let has = |name: &str, labels: &[&str], value: &str| {
        metrics.lines().any(|line| {
            line.starts_with(name) && line.ends_with(value) && labels.iter().all(|label| line.contains(label))
        })
    };
    assert!(has("voxbridge_tool_server_up{", &["server=\"house\""], " 1"), "{metrics}");
    assert!(has("voxbridge_tool_server_up{", &["server=\"shed\""], " 0"), "{metrics}");
    let labels = ["server=\"house\"", "result=\"ok\""];
    assert!(has("voxbridge_tool_call_seconds_count{", &labels, " 1"), "{metrics}");
}
