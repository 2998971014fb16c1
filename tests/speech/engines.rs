//! Real speech engines for tests: their installation, and the word error rate.

use std::{
    process::Command,
    sync::{LazyLock, Mutex},
    thread,
};

use futures_util::future::{BoxFuture, try_join_all};
use tokio::{
    runtime::Runtime,
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore, SemaphorePermit},
};
use voxbridge::{
    simulator::process::{EngineError, EngineProcess},
    verify::words::WordErrors,
};
use voxbridge_test_support::programs::set_up;

use super::*;

pub(crate) use voxbridge::verify::words::{normalise, word_errors};

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

/// Engines of a test's own, for tests of their process; `None` skips the test.
pub(crate) async fn own_engines() -> Option<EngineProcess> {
    Some(EngineProcess::start(&engines_dir()?).await.unwrap())
}

/// Tests that use the engines at once. Beside the other gates, the speech of more would wait so long that clients give up.
const TESTS_AT_ONCE: usize = 6;

/// A test's part in the engines of all tests.
pub(crate) struct SharedEngines {
    pool: Arc<EnginePool>,
    _place: OwnedSemaphorePermit,
}

/// The engines of all tests: one process for each processor. A process for each test would load the model a hundred times, and as
/// many would recognise at once, so that clients with a patience of seconds give up.
struct EnginePool {
    idle: Mutex<Vec<Arc<EngineProcess>>>,
    /// One for each idle process; waiting requests come in their order.
    turns: Semaphore,
    /// One for each test that uses them.
    places: Arc<Semaphore>,
}

/// A process that answers nobody else; it is idle again when this is dropped.
struct EngineTurn<'a> {
    engines: &'a EnginePool,
    process: Arc<EngineProcess>,
    _permit: SemaphorePermit<'a>,
}

impl Drop for EngineTurn<'_> {
    fn drop(&mut self) {
        self.engines.idle.lock().unwrap().push(self.process.clone());
    }
}

impl EnginePool {
    async fn start(dir: PathBuf) -> Arc<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let starting = (0..count).map(|_| EngineProcess::start(&dir));
        let processes = try_join_all(starting).await.unwrap().into_iter().map(Arc::new).collect();
        let places = Arc::new(Semaphore::new(TESTS_AT_ONCE));
        Arc::new(Self { idle: Mutex::new(processes), turns: Semaphore::new(count), places })
    }

    async fn turn(&self) -> EngineTurn<'_> {
        let permit = self.turns.acquire().await.unwrap();
        let process = self.idle.lock().unwrap().pop().unwrap();
        EngineTurn { engines: self, process, _permit: permit }
    }
}

impl SharedEngines {
    /// Transcribes float32 mono samples at 16 kHz.
    pub(crate) async fn recognise(&self, samples: Vec<f32>) -> Result<String, EngineError> {
        let turn = self.pool.turn().await;
        turn.process.recognise(samples).await
    }

    /// Synthesizes a text as float32 mono samples at 24 kHz.
    pub(crate) async fn speak(&self, text: String) -> Result<Vec<f32>, EngineError> {
        let turn = self.pool.turn().await;
        turn.process.speak(text).await
    }
}

impl SpeechEngines for SharedEngines {
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move { Self::recognise(self, samples).await.map_err(|error| error.to_string()) })
    }

    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        Box::pin(async move { Self::speak(self, text).await.map_err(|error| error.to_string()) })
    }
}

/// Running engines, shared by all tests; `None` skips the test. Waits while `TESTS_AT_ONCE` others use them, so a test asks once.
pub(crate) async fn shared_engines() -> Option<Arc<SharedEngines>> {
    // Each test has a runtime of its own, which ends with it.
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    static POOL: OnceCell<Arc<EnginePool>> = OnceCell::const_new();
    let dir = engines_dir()?;
    let start = || async { RUNTIME.spawn(EnginePool::start(dir)).await.unwrap() };
    let pool = POOL.get_or_init(start).await.clone();
    let place = pool.places.clone().acquire_owned().await.unwrap();
    Some(Arc::new(SharedEngines { pool, _place: place }))
}

/// Running engines, for a test that needs the clients, too.
pub(crate) async fn shared_engines_for_clients() -> Option<Arc<SharedEngines>> {
    installed_clients()?;
    shared_engines().await
}

/// Word error rate: replaced, missing and added words over the words of the reference. May exceed 1.
pub(crate) fn word_error_rate(reference: &str, hypothesis: &str) -> f64 {
    WordErrors::between(reference, hypothesis).rate()
}
