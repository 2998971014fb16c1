//! Public MiniCPM-o servers without their models: the packages that `tests/servers/setup` installs.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
};

use serde_json::Value;

use crate::programs::{installed, set_up};

/// A server that ends with the test.
pub struct PackageServer {
    program: Child,
    address: SocketAddr,
    reports: Arc<Mutex<Vec<Value>>>,
}

impl PackageServer {
    /// Starts SGLang-Omni's realtime server with these options of `tests/servers/sglang_omni_server.py`. `None` skips the
    /// test: the machine has no Python.
    pub fn sglang_omni(options: &[&str]) -> Option<Self> {
        static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let ready = READY.get_or_init(|| install("sglang-omni"));
        Some(Self::start(installed(ready)?, "sglang_omni_server.py", options))
    }

    /// vLLM-Omni's own client, by `tests/servers/vllm_omni_client.py`. `None` skips the test: the machine has no Python.
    pub fn vllm_omni_client() -> Option<Command> {
        static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let packages = installed(READY.get_or_init(|| install("vllm-omni")))?;
        Some(python(packages, "vllm_omni_client.py"))
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

impl Drop for PackageServer {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _status = self.program.wait();
    }
}

/// A program of `tests/servers` with these packages.
fn python(packages: &Path, script: &str) -> Command {
    let mut command = Command::new("python3");
    // Ignores the user's Python settings and the machine's packages. Compiles no files.
    command.env_remove("PYTHONHOME").env("PYTHONPATH", packages).args(["-S", "-B"]);
    command.arg(scripts().join(script));
    command
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers")
}

/// Installs a server's packages in `target/servers`, on first use; the error says what is missing.
fn install(name: &str) -> Result<PathBuf, String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers").join(name);
    set_up(Command::new(scripts().join("setup")).arg(name).arg(&dir))?;
    Ok(dir)
}
