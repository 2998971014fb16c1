//! Public MiniCPM-o servers without their models: the packages that `tests/support/fetch` installs.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::SinkExt as _;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use crate::{
    bench::serve_each,
    programs::{self, fetch_packages, installed},
};

/// A server that accepts sessions and answers nothing, not even a close.
pub async fn unresponsive_upstream() -> SocketAddr {
    serve_each(move |stream| async move {
        let Ok(mut socket) = accept_async(stream).await else { return };
        for reply in
            [r#"{"type": "session.queue_done"}"#, r#"{"type": "session.created", "session_id": "s"}"#]
        {
            socket.send(Message::text(reply)).await.unwrap();
        }
        std::future::pending::<()>().await;
    })
    .await
}

/// A server that ends with the test.
pub struct PackageServer {
    program: Child,
    address: SocketAddr,
    reports: Arc<Mutex<Vec<Value>>>,
}

/// Where vLLM-Omni's package is installed.
fn vllm_omni_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("vllm-omni")))
}

/// Where the package of vLLM-Omni's next version, a pre-release, is installed.
fn vllm_omni_next_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("vllm-omni-0.32")))
}

/// Where speech-to-speech's package is installed.
fn speech_to_speech_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("speech-to-speech")))
}

/// Where the Model Context Protocol's package is installed.
fn mcp_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("mcp")))
}

/// Where the messages of OpenTelemetry are installed.
fn otlp_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("otlp")))
}

/// Where SGLang-Omni's package is installed.
fn sglang_omni_packages() -> Option<&'static PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    installed(READY.get_or_init(|| install("sglang-omni")))
}

impl PackageServer {
    /// Starts SGLang-Omni's realtime server with these options of `tests/servers/sglang_omni_server.py`. `None` skips the
    /// test: the machine has no Python.
    pub fn sglang_omni(options: &[&str]) -> Option<Self> {
        Some(Self::start(sglang_omni_packages()?, "sglang_omni_server.py", options))
    }

    /// Starts vLLM-Omni's duplex endpoint with these options of `tests/servers/vllm_omni_server.py`. `None` skips the test:
    /// the machine has no Python.
    pub fn vllm_omni(options: &[&str]) -> Option<Self> {
        Some(Self::start(vllm_omni_packages()?, "vllm_omni_server.py", options))
    }

    /// Like [`PackageServer::vllm_omni`], of version 0.32.
    pub fn vllm_omni_next(options: &[&str]) -> Option<Self> {
        Some(Self::start(vllm_omni_next_packages()?, "vllm_omni_server.py", options))
    }

    /// Starts vLLM-Omni's turn handler, of version 0.32, with these options of `tests/servers/vllm_omni_turn_server.py`. `None`
    /// skips the test: the machine has no Python.
    pub fn vllm_omni_turns(options: &[&str]) -> Option<Self> {
        Some(Self::start(vllm_omni_next_packages()?, "vllm_omni_turn_server.py", options))
    }

    /// Starts vLLM-Omni's duplex endpoint, of version 0.32, with the plug-in of another model, by
    /// `tests/servers/vllm_omni_plugin_server.py`. `None` skips the test: the machine has no Python.
    pub fn vllm_omni_plugin(plugin: &str) -> Option<Self> {
        Some(Self::start(vllm_omni_next_packages()?, "vllm_omni_plugin_server.py", &[plugin]))
    }

    /// Starts speech-to-speech's realtime server, by `tests/servers/speech_to_speech_server.py`. `None` skips the test: the
    /// machine has no Python.
    pub fn speech_to_speech() -> Option<Self> {
        Some(Self::start(speech_to_speech_packages()?, "speech_to_speech_server.py", &[]))
    }

    /// Starts a server of the Model Context Protocol over HTTP, with these further options of `tests/servers/mcp_server.py`. `None`
    /// skips the test: the machine has no Python.
    pub fn mcp(options: &[&str]) -> Option<Self> {
        Some(Self::start(mcp_packages()?, "mcp_server.py", &[&["--http"], options].concat()))
    }

    /// The same server as a program that talks on its standard input and output: its arguments, and where its packages are. `None`
    /// skips the test: the machine has no Python.
    pub fn mcp_command() -> Option<(Vec<String>, &'static Path)> {
        let script = scripts().join("mcp_server.py").display().to_string();
        let command = ["python3", "-S", "-B", &script].map(str::to_owned).to_vec();
        Some((command, mcp_packages()?))
    }

    /// Starts a receiver of OpenTelemetry's protocol, by `tests/servers/otlp_receiver.py`. `None` skips the test: the machine has no
    /// Python.
    pub fn otlp() -> Option<Self> {
        Some(Self::start(otlp_packages()?, "otlp_receiver.py", &[]))
    }

    /// vLLM-Omni's own client, by `tests/servers/vllm_omni_client.py`. `None` skips the test: the machine has no Python.
    pub fn vllm_omni_client() -> Option<Command> {
        Some(python(vllm_omni_packages()?, "vllm_omni_client.py"))
    }

    /// A client that keeps to SGLang-Omni's rules, by `tests/servers/sglang_omni_client.py`. `None` skips the test: the machine
    /// has no Python.
    pub fn sglang_omni_client() -> Option<Command> {
        Some(python(sglang_omni_packages()?, "sglang_omni_client.py"))
    }

    fn start(packages: &Path, script: &str, options: &[&str]) -> Self {
        let mut command = python(packages, script);
        command.args(options);
        let mut program = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().expect("the server ends").unwrap()).unwrap();
        let port = first["port"].as_u64().unwrap().try_into().unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let shared = reports.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { program, address: SocketAddr::from(([127, 0, 0, 1], port)), reports }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that the server has reported so far: sessions and units.
    pub fn reports(&self) -> Vec<Value> {
        self.reports.lock().unwrap().clone()
    }
}

/// Requests to vLLM-Omni's scripted model.
impl PackageServer {
    /// Asks the model for something.
    pub async fn script(&self, wishes: Value) {
        let body = wishes.to_string();
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        self.http(&format!("POST /script HTTP/1.1\r\n{head}"), &body).await;
    }

    /// The audio that the model heard, for each session.
    pub async fn record(&self) -> Vec<Value> {
        serde_json::from_str(&self.http("GET /record HTTP/1.1\r\n", "").await).unwrap()
    }

    async fn http(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{head}host: localhost\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        body.to_owned()
    }
}

/// int16 samples that a record has as base64.
pub fn recorded_samples(record: &Value) -> Vec<i16> {
    let bytes = STANDARD.decode(record["pcm"].as_str().unwrap()).unwrap();
    bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

impl Drop for PackageServer {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _status = self.program.wait();
    }
}

/// A program of `tests/servers` with these packages.
fn python(packages: &Path, script: &str) -> Command {
    programs::python(&scripts().join(script), &[packages.to_owned()])
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers")
}

/// Installs a server's packages in `target/servers`, on first use; the error says what is missing.
fn install(name: &str) -> Result<PathBuf, String> {
    fetch_packages(&format!("servers/{name}"))
}
