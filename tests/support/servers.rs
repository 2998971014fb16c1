//! Public MiniCPM-o servers without their models: the unchanged protocol side of their packages, in a process of its own.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::programs::{installed, set_up};

/// A running server; it ends with the value.
pub struct PublicServer {
    process: Child,
    address: SocketAddr,
}

impl PublicServer {
    /// Starts the server of this name, whose packages are fetched on first use. `None` skips the test.
    pub fn start(name: &str, args: &[&str]) -> Option<Self> {
        static READY: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
        let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
        let packages = ready.entry(name.to_owned()).or_insert_with(|| fetch(name));
        let packages = installed(packages)?.clone();
        drop(ready);
        let script = format!("tests/servers/{}_server.py", name.replace('-', "_"));
        let mut command = Command::new("python3");
        // Without the machine's own packages, which other machines may not have.
        command.args(["-S", "-B"]).arg(project().join(script)).arg(packages).args(args);
        let mut process = command.env_remove("PYTHONHOME").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("{name} does not start: {line:?}"));
        Some(Self { process, address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks the scripted model for something.
    pub async fn script(&self, wishes: Value) {
        let body = wishes.to_string();
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        self.http(&format!("POST /script HTTP/1.1\r\n{head}"), &body).await;
    }

    /// What the scripted model heard, for each session.
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

impl Drop for PublicServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// int16 samples that a record has as base64.
pub fn recorded_samples(record: &Value) -> Vec<i16> {
    let bytes = STANDARD.decode(record["pcm"].as_str().unwrap()).unwrap();
    bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

fn fetch(name: &str) -> Result<PathBuf, String> {
    let dir = project().join("target/servers").join(name);
    set_up(Command::new(project().join("tests/servers/setup")).arg(name).arg(&dir))?;
    Ok(dir)
}

fn project() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
