//! Runs the server as a process and searches logs, traces, answers and the output of `check` for every secret
//! used.

use tokio::sync::mpsc;

use super::*;

const SECRETS: [&str; 5] = ["key-s3cret", "new-s3cret", "wrong-s3cret", "env-s3cret", "up-s3cret"];

/// Writes all files into a directory.
fn write_files(upstream: SocketAddr) -> PathBuf {
    let dir = scratch("access-secrets");
    let _ = fs::remove_dir_all(dir.join("traces"));
    let config = format!(
        "[[upstream]]\nurl = \"ws://{upstream}/v1/realtime\"\ntoken_file = \"token\"\n[trace]\ndir = \"traces\"\n\
         [access]\nkeys = \"keys.toml\"\nquery_parameter = \"api_key\"\n"
    );
    let keys =
        "[[key]]\nname = \"ann\"\nkey = \"key-s3cret\"\n[[key]]\nname = \"ops\"\nkey_env = \"OPS_KEY\"\n";
    for (name, text) in [("voxbridge.toml", config.as_str()), ("keys.toml", keys), ("token", "up-s3cret")] {
        fs::write(dir.join(name), text).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    dir
}

fn command(dir: &Path, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
    clear_settings(command.as_std_mut());
    command.arg(name).arg("--config").arg(dir.join("voxbridge.toml")).env("OPS_KEY", "env-s3cret");
    command
}

fn assert_clean(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {what}: {text}");
    }
}

#[tokio::test]
async fn secrets_appear_in_no_output() {
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let dir = write_files(upstream);
    let checked = command(&dir, "check").output().await.unwrap();
    let printed = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(checked.status.success() && printed.contains("keys.toml"), "{printed}");
    assert!(!printed.contains("# warning"), "{printed}");
    assert_clean("what check prints", &printed);

    let mut process = command(&dir, "serve")
        .args(["--listen", "127.0.0.1:0", "--log", "trace"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, stdout.next_line()).await.unwrap().unwrap().unwrap();
    let address = line.trim_start_matches("listening on ").to_owned();
    let mut err = BufReader::new(process.stderr.take().unwrap()).lines();
    let (log, mut logged) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(line)) = err.next_line().await {
            let _ = log.send(line);
        }
    });
    let mut log_lines = String::new();
    let mut until = async |words: &str, lines: &mut String| loop {
        let Ok(Some(line)) = timeout(PATIENCE, logged.recv()).await else {
            panic!("{words:?} is never logged: {lines}");
        };
        let found = line.contains(words);
        lines.push_str(&format!("{line}\n"));
        if found {
            return;
        }
    };

    let request = b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\
        Authorization: Bearer key-s3cret\r\n\r\n";
    let answer = send_request(TcpStream::connect(&address).await.unwrap(), request).await;
    let issued = serde_json::from_str::<Value>(&answer.body).unwrap();
    let issued = issued["value"].as_str().unwrap();

    let dial = async |query: &str, headers: &str| {
        let stream = TcpStream::connect(&address).await.unwrap();
        connect(stream, &format!("/v1/realtime?model=m{query}"), headers).await
    };
    for (query, headers, status) in [
        ("", "Authorization: Bearer key-s3cret\r\n", 101),
        ("", "X-API-Key: env-s3cret\r\n", 101),
        ("", "Sec-WebSocket-Protocol: voxbridge, voxbridge.key.key-s3cret\r\n", 101),
        ("&api_key=key-s3cret", "", 101),
        ("", &format!("Authorization: Bearer {issued}\r\n"), 101),
        ("&api_key=wrong-s3cret", "", 401),
        ("", "Authorization: Bearer wrong-s3cret\r\n", 401),
    ] {
        let mut answer = dial(query, headers).await;
        assert_eq!(answer.status, status, "{query} {headers}");
        assert_clean("an answer", &format!("{}{}", answer.head, answer.body));
        if status == 101 {
            let text = r#"{"type": "tts.speak", "text": "Hello."}"#;
            answer.send(Message::text(text)).await;
            while answer.message().await.is_some_and(|message| !message.to_string().contains("speaking_end"))
            {
            }
            answer.close().await;
        }
    }
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"ann\"\nkey = \"new-s3cret\"\n").unwrap();
    send_signal(process.id().unwrap(), "-HUP");
    until("changed for new sessions: key ann changed, key ops is gone", &mut log_lines).await;
    assert_eq!(dial("", "Authorization: Bearer new-s3cret\r\n").await.status, 101);
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"ann\"\nkey = [\"wrong-s3cret\"]\n").unwrap();
    send_signal(process.id().unwrap(), "-HUP");
    until("not reloaded", &mut log_lines).await;
    send_signal(process.id().unwrap(), "-TERM");
    let ended = timeout(PATIENCE, process.wait()).await;
    while let Ok(Some(line)) = timeout(PATIENCE, logged.recv()).await {
        log_lines.push_str(&format!("{line}\n"));
    }
    assert!(ended.is_ok_and(|status| status.unwrap().success()), "{log_lines}");
    assert!(log_lines.contains("key=\"ann\"") && log_lines.len() > 1000, "{log_lines}");
    assert_clean("the log", &log_lines);
    assert!(log_lines.contains("client secret issued") && !log_lines.contains(&issued[3..]), "{log_lines}");
    let traces: Vec<_> = fs::read_dir(dir.join("traces")).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(traces.len() >= 4, "{traces:?}");
    for trace in &traces {
        let trace = fs::read_to_string(trace).unwrap();
        assert_clean("a trace", &trace);
        assert!(!trace.contains(issued), "{trace}");
    }
}
