//! Real speech engines for tests: their installation, and the word error rate.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use voxbridge::simulator::process::EngineProcess;
use voxbridge::verify::words::WordErrors;
pub(crate) use voxbridge::verify::words::{normalise, word_errors};
use voxbridge_test_support::programs::{installed, set_up};

use crate::client_programs::{installed_clients, project};

/// A directory with working engines, installed on first use (about 10 s and 240 MB; needs npm, pip and apt). `None` skips
/// the test.
///
/// Safe to call from several tests and test programs at once.
pub(crate) fn engines_dir() -> Option<PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let dir = project().join("target/engines");
        set_up(Command::new(project().join("examples/engines/setup")).arg(&dir))?;
        Ok(dir)
    });
    installed(ready).cloned()
}

/// Running engines; `None` skips the test.
pub(crate) async fn start_engines() -> Option<EngineProcess> {
    Some(EngineProcess::start(&engines_dir()?).await.unwrap())
}

/// Running engines, for a test that needs the clients, too.
pub(crate) async fn start_engines_for_clients() -> Option<Arc<EngineProcess>> {
    installed_clients()?;
    start_engines().await.map(Arc::new)
}

/// Word error rate: replaced, missing and added words over the words of the reference. May exceed 1.
pub(crate) fn word_error_rate(reference: &str, hypothesis: &str) -> f64 {
    WordErrors::between(reference, hypothesis).rate()
}
