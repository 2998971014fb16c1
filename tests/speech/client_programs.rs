//! Public clients for tests: their installation and their execution.

use std::process::Output;

use tokio::sync::{Semaphore, SemaphorePermit};
use voxbridge_test_support::programs::{self, set_up};

use super::*;

/// Longer than any client takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

pub(crate) fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory with the clients, installed on first use (3 minutes and 192 MB, besides Chromium; needs pip and npm). `None`
/// skips the test.
pub(crate) fn installed_clients() -> Option<PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let dir = project().join("target/clients");
        set_up(std::process::Command::new(project().join("tests/clients/setup")).arg(&dir))?;
        Ok(dir)
    });
    installed(ready).cloned()
}

/// The directory with the clients, in a test that has asked for [`installed_clients`].
pub(crate) fn clients_dir() -> PathBuf {
    installed_clients().expect("the test asked for the clients before")
}

/// A script of `tests/clients` with these packages of [`clients_dir`], and stand-ins for devices and programs.
pub(crate) fn python(script: impl AsRef<Path>, packages: &[&str]) -> Command {
    let dir = clients_dir();
    let packages = packages.iter().map(|package| dir.join(package));
    let stand_ins = project().join("tests/clients/microphone");
    let script = project().join("tests/clients").join(script);
    programs::python(&script, &packages.chain([stand_ins]).collect::<Vec<_>>()).into()
}

/// Node with the packages of [`clients_dir`], ready to run a script of `tests/clients`.
pub(crate) fn node(script: &str) -> Command {
    let dir = clients_dir();
    // There if the system's is too old.
    let node = dir.join("node");
    let mut command = if node.exists() { Command::new(node) } else { Command::new("node") };
    command.arg(project().join("tests/clients").join(script));
    command.env("NODE_PATH", dir.join("node_modules"));
    command
}

pub(crate) fn recording(name: &str) -> PathBuf {
    project().join("examples/speech").join(name)
}

/// Computing of a client beside that of others.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientWeight {
    Script = 1,
    /// Its audio has gaps when it gets no processor for a while.
    Browser = 4,
}

/// Waits until this client may run: a few at a time, because the engines compute on this machine, too.
pub(crate) async fn client_turn(weight: ClientWeight) -> SemaphorePermit<'static> {
    static TURNS: Semaphore = Semaphore::const_new(6);
    TURNS.acquire_many(weight as u32).await.unwrap()
}

/// Like [`run`], but a few clients at a time.
pub(crate) async fn run_in_turn(command: Command, weight: ClientWeight) -> String {
    let _turn = client_turn(weight).await;
    run(command).await
}

/// Runs a client to its successful end and returns its output.
pub(crate) async fn run(mut command: Command) -> String {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let Output { status, stdout, stderr } =
        timeout(PATIENCE, running).await.expect("the client does not end").unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    println!("{out}{err}");
    assert!(status.success() && err.is_empty(), "{command:?}: {status}\n{out}\n{err}");
    out.into_owned()
}
