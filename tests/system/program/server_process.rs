//! `voxbridge serve` as a process, and HTTP requests to its admin listener.

use std::sync::Weak;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    process::ChildStdout,
    sync::{Mutex, OwnedMutexGuard},
};

use super::*;

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Held by the kind of heavy tests that runs now.
static MACHINE: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// Heavy tests that run side by side, and not beside those of another kind.
struct Kind(Mutex<Weak<OwnedMutexGuard<()>>>);

static BUSY: Kind = Kind(Mutex::const_new(Weak::new()));
static CALM: Kind = Kind(Mutex::const_new(Weak::new()));

impl Kind {
    /// Waits until no test of another kind runs. The last test to drop its handle lets others in.
    async fn enter(&self) -> Arc<OwnedMutexGuard<()>> {
        let mut running = self.0.lock().await;
        if let Some(machine) = running.upgrade() {
            return machine;
        }
        let machine = Arc::new(Arc::clone(&MACHINE).lock_owned().await);
        *running = Arc::downgrade(&machine);
        machine
    }
}

/// Lets this test keep the machine busy, beside others that do.
pub(crate) async fn busy_machine() -> Arc<OwnedMutexGuard<()>> {
    BUSY.enter().await
}

/// Runs this test, whose clients must keep up with the clock, without one that keeps the machine busy beside it.
pub(crate) async fn calm_machine() -> Arc<OwnedMutexGuard<()>> {
    CALM.enter().await
}

/// A server and its two addresses.
pub(crate) struct Server {
    pub(crate) process: Child,
    /// Standard output, open and not read any more.
    _stdout: Lines<BufReader<ChildStdout>>,
    /// Lines of standard error; `None` if the server logs to a file.
    log: Option<Lines<BufReader<ChildStderr>>>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// An answer of the admin listener.
#[derive(Debug)]
pub(crate) struct AdminAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl AdminAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The code of an error, or of all reasons.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        let reasons = body["reasons"].as_array().into_iter().flatten().map(|reason| &reason["code"]);
        let codes = body["error"].get("code").into_iter().chain(reasons);
        codes.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// A simulated server with four workers, and its URL.
pub(crate) async fn upstream() -> (String, RunningServer) {
    let simulator = SimulatorConfig { record: false, workers: 4, ..instant_simulator() };
    let (address, running, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    (format!("ws://{address}/v1/realtime"), running)
}

/// An empty directory for one test.
pub(crate) fn empty_scratch(name: &str) -> PathBuf {
    fs::remove_dir_all(scratch(name)).unwrap();
    scratch(name)
}

/// Memory of the server by this field of its status, KiB.
pub(crate) fn resident_kib(server: &Server, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The Macaw protocol with another text in one event.
pub(crate) fn macaw_with_error_text(word: &str) -> String {
    let source = include_str!("../../../mappings/client/macaw.toml");
    let changed = source.replace("Unknown command type: ${detail}", &format!("{word}: ${{detail}}"));
    assert_ne!(changed, source);
    changed
}

/// The program with these arguments and an empty environment.
pub(crate) fn voxbridge(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
    command.args(args).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    clear_settings(command.as_std_mut());
    command
}

impl Server {
    /// Starts a server for this upstream with these additional arguments.
    pub(crate) async fn start(upstream: &str, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0", "--upstream", upstream], args].concat();
        let admin = if args.contains(&"--admin") { &[][..] } else { &["--admin", "127.0.0.1:0"] };
        Self::spawn(voxbridge(&[&args, admin].concat())).await
    }

    /// Starts this command, whose first lines print both addresses.
    pub(crate) async fn spawn(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address = async |before: &str| {
            let line = timeout(PATIENCE, lines.next_line())
                .await
                .unwrap()
                .unwrap()
                .expect("the server does not start");
            let address = line.strip_prefix(before).unwrap_or_else(|| panic!("{line}"));
            let address = address.trim_start_matches("http://").trim_start_matches("https://");
            address.parse::<SocketAddr>().unwrap()
        };
        let (clients, admin) = (address("listening on ").await, address("admin at ").await);
        let log = process.stderr.take().map(|log| BufReader::new(log).lines());
        Self { process, _stdout: lines, log, address: clients, admin }
    }

    pub(crate) async fn signal(&self, signal: &str) {
        send_signal(self.process.id().unwrap(), signal);
    }

    /// Waits for a log line with these words.
    pub(crate) async fn wait_for_log(&mut self, words: &str) -> String {
        let matching_line = async {
            let log = self.log.as_mut().expect("the server logs to standard error");
            loop {
                let line = log.next_line().await.unwrap().expect("the log ends");
                if line.contains(words) {
                    return line;
                }
            }
        };
        timeout(PATIENCE, matching_line).await.unwrap_or_else(|_| panic!("the log has no {words:?}"))
    }

    /// Waits for the end and returns the exit code.
    pub(crate) async fn wait_for_end(mut self) -> i32 {
        let ended = timeout(PATIENCE, self.process.wait()).await.expect("the server does not stop").unwrap();
        ended.code().expect("the server was killed")
    }

    pub(crate) async fn request(&self, method: &str, path: &str) -> AdminAnswer {
        self.request_with(method, path, "", "").await
    }

    /// A request with additional header lines and a body.
    pub(crate) async fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> AdminAnswer {
        let port = self.admin.port();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let host =
            if headers.contains("Host: ") { String::new() } else { format!("Host: localhost:{port}\r\n") };
        send_request(
            stream,
            &format!(
                "{method} {path} HTTP/1.1\r\n{host}Content-Length: {}\r\n{headers}\r\n{body}",
                body.len()
            ),
        )
        .await
    }

    /// Repeats the request until the answer satisfies the condition.
    pub(crate) async fn request_until(
        &self,
        path: &str,
        matches: impl Fn(&AdminAnswer) -> bool,
    ) -> AdminAnswer {
        let asking = async {
            loop {
                let answer = self.request("GET", path).await;
                if matches(&answer) {
                    return answer;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path}: the condition never holds"))
    }

    /// A client with an open session.
    pub(crate) async fn client(&self) -> Client {
        let (head, mut client) = self.dial().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert_eq!(client.next().await.kind(), "session.created");
        client
    }

    pub(crate) async fn dial(&self) -> (String, Client) {
        open_websocket(TcpStream::connect(self.address).await.unwrap(), "/v1/realtime?model=m", "", &[]).await
    }

    /// The id of the only session.
    pub(crate) async fn only_session(&self) -> String {
        let sessions = self.request("GET", "/sessions").await.json();
        assert_eq!(sessions["count"], 1, "{sessions}");
        sessions["sessions"][0]["id"].as_str().unwrap().to_owned()
    }
}

/// The answer to a request on its own connection.
pub(crate) async fn send_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> AdminAnswer {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer");
    assert!(read.is_ok() || !answer.is_empty(), "{read:?}");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not an HTTP answer: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    AdminAnswer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Runs a command to its end: exit code, standard output, standard error.
pub(crate) async fn run(args: &[&str]) -> (i32, String, String) {
    let output =
        timeout(PATIENCE, voxbridge(args).output()).await.expect("the command does not end").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Writes a test's own configuration file.
pub(crate) fn config(dir: &Path, toml: &str) -> String {
    let path = dir.join("voxbridge.toml");
    fs::write(&path, toml).unwrap();
    path.display().to_string()
}
