//! Searches a full run for every secret it used, plain and encoded: text and JSON logs at the highest level,
//! access log, traces with audio, metrics, admin answers, client answers, and the output of `check`, `doctor`
//! and `--help`.

use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::digest::{SHA256, digest};

use super::*;

/// Secrets: client keys in a file, in the environment and as a hash; upstream tokens in a file, in the
/// environment and in a URL; the admin token; and a wrong guess.
const KEY: &str = "K1y+in.a~file#77";
const ENV_KEY: &str = "K2y!in^the|env%88";
const PRINTED_KEY: &str = "K3y'by*its-print99";
const NEXT_KEY: &str = "K4y+after.reload55";
const BAD_KEY: &str = "K5y+in$a`bad_file";
const UP_TOKEN: &str = "T1ken+for/upstream=1";
const UP_ENV_TOKEN: &str = "T2ken+in/the=env2";
const UP_QUERY: &str = "T3ken.in.the.query3";
const UP_HEADER_QUERY: &str = "T4ken.of.who.fails4";
const ADMIN: &str = "A1min+token/77";
const GUESS: &str = "G1ess+of.somebody";
const WORDS: &str = "W1rd.in.a.command";

/// The secrets in every encoding, each with a name for reports.
struct Secrets(Vec<(String, String)>);

impl Secrets {
    fn new(tls_key: &str) -> Self {
        let plain = [
            KEY,
            ENV_KEY,
            PRINTED_KEY,
            NEXT_KEY,
            BAD_KEY,
            UP_TOKEN,
            UP_ENV_TOKEN,
            UP_QUERY,
            UP_HEADER_QUERY,
            ADMIN,
            GUESS,
            WORDS,
        ];
        let mut all: Vec<_> = plain.iter().flat_map(|secret| encodings(secret)).collect();
        // Each line of a private key counts as a secret. Its first ones only name the algorithm and are left
        // out.
        let lines = tls_key.lines().filter(|line| !line.starts_with('-')).skip(1);
        all.extend(lines.map(|line| ("the private key".to_owned(), line.to_owned())));
        Self(all)
    }

    /// Names of the secrets in the text.
    fn find_in(&self, text: &str) -> Vec<&str> {
        self.0.iter().filter(|(_, spelled)| text.contains(spelled)).map(|(name, _)| &**name).collect()
    }
}

/// The secret as plain text, percent-encoded, JSON-escaped, hexadecimal, as SHA-256, and in base64 at every
/// alignment.
fn encodings(secret: &str) -> Vec<(String, String)> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let percent = |keep: &[u8]| -> String {
        let encode_byte = |byte: u8| match byte.is_ascii_alphanumeric() || keep.contains(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        secret.bytes().map(encode_byte).collect()
    };
    let print = digest(&SHA256, secret.as_bytes());
    let mut all = vec![
        ("as it is", secret.to_owned()),
        ("percent-encoded", percent(b"")),
        ("percent-encoded", percent(b"-._~")),
        ("percent-encoded", percent(b"-._~!$&'()*+,;=:@")),
        ("in hexadecimal", hex(secret.as_bytes())),
        ("by its SHA-256", hex(print.as_ref())),
    ];
    // The outermost base64 characters depend on the neighbouring bytes.
    for before in 0..3 {
        let text = STANDARD_NO_PAD.encode([&vec![0; before], secret.as_bytes()].concat());
        let aligned = &text[(before * 8).div_ceil(6)..(before + secret.len()) * 8 / 6];
        all.push(("in base64", aligned.to_owned()));
        all.push(("in base64", aligned.replace('+', "-").replace('/', "_")));
    }
    all.into_iter().map(|(how, text)| (format!("{secret} {how}"), text)).collect()
}

#[test]
fn encoded_secrets_are_found() {
    let secrets = Secrets::new("-----BEGIN\nMIGHAg\nc2VjcmV0a2V5\n-----END\n");
    for (name, spelled) in &secrets.0 {
        assert!(secrets.find_in(&format!("a log says {spelled} and more")).contains(&&**name), "{name}");
    }
    for before in ["", "x", "xy", "xyz"] {
        let basic = STANDARD_NO_PAD.encode(format!("{before}{ADMIN}:more"));
        assert!(!secrets.find_in(&basic).is_empty(), "{basic}");
    }
    assert!(secrets.find_in("a log says nothing").is_empty());
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn keys_file(of_ann: &str) -> String {
    let print: String =
        digest(&SHA256, PRINTED_KEY.as_bytes()).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!(
        "[[key]]\nname = \"ann\"\nkey = \"{of_ann}\"\n[[key]]\nname = \"ops\"\nkey_env = \"OPS_KEY\"\n\
         [[key]]\nname = \"bob\"\nkey_sha256 = \"{print}\"\n"
    )
}

/// Writes all files into a directory; returns a client configuration that trusts its certificate.
fn write_files(name: &str, upstream: SocketAddr) -> (PathBuf, String, TlsConnector) {
    fs::remove_dir_all(scratch(name)).unwrap();
    let dir = scratch(name);
    let (cert, key, tls) = certificate();
    // A short timeout for an unreachable upstream.
    let mappings = profile_with_numbers(&format!("{name}-mappings"), &[("retry_total_ms", 10_000, 300)]);
    let config = format!(
        "mappings = {mappings:?}\naccess_log.path = \"access.log\"\n\
         [[upstream]]\nname = \"good\"\nurl = \"ws://{upstream}/v1/realtime?token={UP_QUERY}\"\ntoken_file = \"token\"\n\
         [[upstream]]\nname = \"bad\"\nurl = \"ws://127.0.0.1:9/v1/realtime?token={UP_HEADER_QUERY}\"\n\
         token_env = \"UP_ENV\"\ntoken_header = \"X-API-Key\"\n\
         [[upstream]]\nname = \"far\"\nurl = \"ws://nowhere.invalid/v1/realtime?token={UP_HEADER_QUERY}\"\n\
         token_env = \"UP_ENV\"\n\
         [[route]]\nmodel = \"bad\"\nprofile = \"speech\"\nupstream = \"bad\"\n\
         [[route]]\nmodel = \"far\"\nprofile = \"speech\"\nupstream = \"far\"\n\
         [[route]]\nprofile = \"speech\"\nupstream = \"good\"\n\
         [trace]\ndir = \"traces\"\naudio = true\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"ADMIN_TOKEN\"\n\
         [tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\
         [access]\nkeys = \"keys.toml\"\nquery_parameter = \"api_key\"\n"
    );
    for (name, text) in [
        ("voxbridge.toml", config.as_str()),
        ("keys.toml", &keys_file(KEY)),
        ("token", UP_TOKEN),
        ("cert.pem", &cert),
        ("key.pem", &key),
    ] {
        write(&dir, name, text);
    }
    (dir, key, tls)
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = voxbridge(args);
    command.arg("--config").arg(dir.join("voxbridge.toml"));
    command.env("OPS_KEY", ENV_KEY).env("UP_ENV", UP_ENV_TOKEN).env("ADMIN_TOKEN", ADMIN);
    command
}

/// Everything a command prints.
async fn command_output(mut command: Command) -> String {
    let output = timeout(PATIENCE, command.output()).await.expect("the command does not end").unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A TLS client with these header lines: returns its HTTP status and everything it received. It speaks and
/// has a text spoken.
async fn client(
    server: &Server,
    tls: &TlsConnector,
    query: &str,
    headers: &[(&'static str, String)],
) -> (u16, String) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let stream = tls.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let mut request = format!("wss://localhost/v1/realtime?{query}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let (mut socket, answer) = match client_async(request, stream).await {
        Ok(both) => both,
        Err(Error::Http(answer)) => {
            let body = String::from_utf8_lossy(answer.body().as_deref().unwrap_or_default()).into_owned();
            return (answer.status().as_u16(), format!("{:?}\n{body}", answer.headers()));
        }
        Err(error) => panic!("{error}"),
    };
    let mut received = format!("{:?}\n", answer.headers());
    let commands = [
        json!({"type": "session.configure", "api_key": WORDS}),
        json!({"type": "tts.speak", "text": "Good morning."}),
    ];
    for command in commands {
        socket.send(Message::text(command.to_string())).await.unwrap();
    }
    for frame in bytes(&recording("goforward")).chunks(6400).chain(bytes(&[0; 8_000]).chunks(6400)) {
        socket.send(Message::binary(frame.to_vec())).await.unwrap();
    }
    socket.send(Message::text(json!({"type": "session.close"}).to_string())).await.unwrap();
    let listening = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                received.push_str(&text);
                received.push('\n');
            }
        }
    };
    timeout(PATIENCE, listening).await.expect("the session does not end");
    (101, received)
}

/// Runs the server with this log format and collects all readable output by its source.
async fn full_run(format: &str) -> (Vec<(String, String)>, Secrets) {
    let simulator = SimulatorConfig { record: false, workers: 8, ..instant_simulator() };
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let (dir, tls_key, tls) = write_files(&format!("secrets-{format}"), upstream);
    let secrets = Secrets::new(&tls_key);
    let mut all = Vec::new();
    let mut take = |what: &str, text: String| all.push((what.to_owned(), text));
    take("check", command_output(command(&dir, &["check"])).await);
    let report = if format == "json" { "--json" } else { "--log=trace" };
    take("doctor", command_output(command(&dir, &["doctor", "--timeout", "5", report])).await);
    let mut help = voxbridge(&["serve", "--help"]);
    help.env("VOXBRIDGE_UPSTREAM", format!("ws://gpu/?token={UP_QUERY}")).env("OPS_KEY", ENV_KEY);
    take("--help", command_output(help).await);

    let args = ["serve", "--listen", "127.0.0.1:0", "--log", "trace,[session]=trace", "--log-format", format];
    let mut serve = command(&dir, &args);
    let log = dir.join("log");
    serve.stderr(File::create(&log).unwrap());
    let server = Server::spawn(serve).await;
    for (query, headers, status) in [
        ("model=m", vec![("authorization", format!("Bearer {KEY}"))], 101),
        ("model=m", vec![("authorization", format!("bearer {KEY}"))], 101),
        ("model=m", vec![("x-api-key", ENV_KEY.to_owned())], 101),
        ("model=m", vec![("sec-websocket-protocol", format!("voxbridge, voxbridge.key.{PRINTED_KEY}"))], 101),
        ("model=m&api_key=K1y%2Bin.a~file%2377", vec![], 101),
        ("model=bad", vec![("x-api-key", KEY.to_owned())], 101),
        ("model=far", vec![("x-api-key", KEY.to_owned())], 101),
        ("model=m", vec![("authorization", format!("Bearer {GUESS}"))], 401),
        ("model=m", vec![("authorization", format!("Basic {GUESS}"))], 401),
        ("model=m&api_key=G1ess%2Bof.somebody", vec![], 401),
        ("model=m", vec![("sec-websocket-protocol", format!("voxbridge.key.{GUESS}"))], 401),
    ] {
        let (answered, told) = client(&server, &tls, query, &headers).await;
        assert_eq!(answered, status, "{query} {headers:?}: {told}");
        take("what a client is told", told);
    }
    // A plain-text connection, and an unreadable head.
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET /v1/realtime?api_key={GUESS} HTTP/1.1\r\nX-API-Key: {GUESS}\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut plain, request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer).await;
    take("what a client without TLS is told", answer);

    let authorised = format!("Authorization: Bearer {ADMIN}\r\n");
    let wrong = format!("Authorization: Bearer {GUESS}\r\n");
    write(&dir, "keys.toml", &keys_file(NEXT_KEY));
    let reloaded = server.request_with("POST", "/reload", &authorised, "").await;
    assert_eq!((reloaded.status, reloaded.json()["changed"].to_string().contains("ann")), (200, true));
    take("a reload", reloaded.body);
    let good = fs::read_to_string(dir.join("voxbridge.toml")).unwrap();
    for (file, text) in [
        ("keys.toml", keys_file(BAD_KEY).replace("key = \"", "key = [\"").replace("\"\n[[", "\"]\n[[")),
        ("keys.toml", format!("{}{}", keys_file(BAD_KEY), keys_file(BAD_KEY))),
        ("key.pem", tls_key.replace("-----END", &format!("{BAD_KEY}\n-----END"))),
        (
            "voxbridge.toml",
            good.replace("?token=", "?mode=chat&token=").replacen("mode=chat", "mode=audio", 1),
        ),
        ("voxbridge.toml", good.replace("ws://", "http://")),
        ("voxbridge.toml", good.replace("ws://127.0.0.1:9", &format!("ws://me:{BAD_KEY}@127.0.0.1:9"))),
        ("voxbridge.toml", good.replace("url = ", "ulr = ")),
        ("voxbridge.toml", good.replace("url = \"", "url = [\"")),
        ("voxbridge.toml", good.replace("token_file", "status_path = \"x\"\ntoken_file")),
        ("voxbridge.toml", good.replace("name = \"bad\"", "name = \" \"")),
        ("voxbridge.toml", good.replace("name = \"bad\"", "name = \"good\"")),
        ("voxbridge.toml", good.replace("UP_ENV", "NOT_THERE")),
    ] {
        let before = fs::read_to_string(dir.join(file)).unwrap();
        assert_ne!(before, text, "{file}");
        write(&dir, file, &text);
        let refused = server.request_with("POST", "/reload", &authorised, "").await;
        assert_eq!(refused.status, 422, "{file}: {}", refused.body);
        take("a reload that is refused", refused.body);
        take("a check that finds a mistake", command_output(command(&dir, &["check"])).await);
        write(&dir, file, &before);
    }
    for (method, path) in [
        ("GET", "/metrics"),
        ("GET", "/config"),
        ("GET", "/sessions"),
        ("GET", "/readyz"),
        ("GET", "/loglevel"),
        ("PUT", "/loglevel"),
        ("GET", "/nowhere?api_key=G1ess%2Bof.somebody"),
    ] {
        take(path, server.request_with(method, path, &authorised, "").await.body);
        take(path, server.request_with(method, path, &wrong, "").await.body);
    }
    let (_, told) = client(&server, &tls, "model=m", &[("x-api-key", NEXT_KEY.to_owned())]).await;
    take("what a client is told", told);
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
    take("the log", fs::read_to_string(log).unwrap());
    take("the access log", fs::read_to_string(dir.join("access.log")).unwrap());
    for file in fs::read_dir(dir.join("traces")).unwrap() {
        take("a trace", fs::read_to_string(file.unwrap().path()).unwrap());
    }
    (all, secrets)
}

/// Checks that no output holds a secret, and that the search would find one in each.
fn assert_no_secret((all, secrets): &(Vec<(String, String)>, Secrets)) {
    for (what, text) in all {
        let found = secrets.find_in(text);
        let line = text.lines().find(|line| !secrets.find_in(line).is_empty());
        assert!(found.is_empty(), "{what} holds {found:?}: {line:?}");
        assert!(!secrets.find_in(&format!("{text}{ADMIN}")).is_empty());
    }
    let length_of = |what: &str| all.iter().filter(|one| one.0 == what).map(|one| one.1.len()).sum::<usize>();
    for what in ["check", "doctor", "the log", "the access log", "a trace", "/config", "/metrics"] {
        println!("{what}: {} bytes", length_of(what));
        assert!(length_of(what) > 300, "{what} is nearly empty");
    }
}

#[tokio::test]
async fn full_run_with_text_logs_reveals_no_secret() {
    assert_no_secret(&full_run("text").await);
}

#[tokio::test]
async fn full_run_with_json_logs_reveals_no_secret() {
    assert_no_secret(&full_run("json").await);
}
