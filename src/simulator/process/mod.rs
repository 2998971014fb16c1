//! Real speech engines in a separate process: Moonshine recognises, flite speaks.
//!
//! The engines are Python packages and a C program, so they run behind two pipes, outside voxbridge.
//! `examples/engines/setup` fetches them into a directory. `examples/engines/engines.py`, embedded in this binary, runs
//! them and describes the messages. This module starts that helper and sends it requests.
//!
//! The engines are not a model. They let the simulator prove that words survive the bridge. One task owns the helper
//! and sends one request at a time, in order.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::helper::{Helper, HelperAnswer, HelperRequest, ReadyHeader};
use super::engines::SpeechEngines;
use crate::audio::{SPEECH_RATE_HZ, pcm};

mod helper;

/// First line of the stamp that `setup` writes into a complete directory (`SET` there).
const STAMP_HEADER: &str = "set=2";

/// Required files besides the stamp; if another one is missing, the helper fails at start with its own reason.
const REQUIRED_PARTS: [&str; 4] = [
    "moonshine-base/encoder_model.onnx",
    "moonshine-base/decoder_model_merged.onnx",
    "moonshine-base/tokenizer.json",
    "python/onnxruntime",
];

/// flite voice that Moonshine understands best (mappings/notes/engines.md#flite: 1 % word errors).
const FLITE_VOICE: &str = "awb";

/// Loading takes 0.8 s, and longer from a cold disk or on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time of an answer beyond the duration of its audio; both engines are faster than real time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of queued requests; further callers wait for a slot.
const QUEUE_CAPACITY: usize = 16;

/// Reason for a missing answer of the engines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The directory is not a complete set of engines.
    #[error("no speech engines in {dir}: {reason}; set them up with: examples/engines/setup {dir}", dir = dir.display())]
    Missing {
        /// The requested directory.
        dir: PathBuf,
        /// The missing part.
        reason: String,
    },
    /// The helper failed to start.
    #[error("speech engines failed to start: {0}")]
    Start(String),
    /// The helper exited; all further requests fail.
    #[error("speech engines stopped: {0}")]
    Stopped(String),
    /// The engines rejected this request; the next one may succeed.
    #[error("speech engines rejected the request: {0}")]
    Refused(String),
}

/// A directory with a complete set of engines.
#[derive(Debug, Clone)]
pub struct EngineSet {
    dir: PathBuf,
    /// Interpreter for which the packages were fetched; compiled packages fit no other version.
    python: PathBuf,
}

/// Handle to the running engines. The process ends when the last handle and its pending requests are dropped.
#[derive(Debug)]
pub struct EngineProcess {
    requests: mpsc::Sender<QueuedRequest>,
    recogniser: String,
    synthesiser: String,
    process_id: u32,
}

/// Checks that a directory holds a complete set of engines.
///
/// # Errors
/// [`EngineError::Missing`], which names the missing part and the setup command.
pub fn find_engines(dir: &Path) -> Result<EngineSet, EngineError> {
    let missing = |reason: String| EngineError::Missing { dir: dir.to_owned(), reason };
    if !dir.is_dir() {
        return Err(missing("the directory does not exist".into()));
    }
    let stamp = std::fs::read_to_string(dir.join("stamp"))
        .map_err(|_| missing("the setup was not run or not completed".into()))?;
    let mut lines = stamp.lines();
    if lines.next() != Some(STAMP_HEADER) {
        return Err(missing("the engines were set up for another version of voxbridge".into()));
    }
    if let Some(part) = REQUIRED_PARTS.into_iter().find(|part| !dir.join(part).exists()) {
        return Err(missing(format!("{part} is missing")));
    }
    let python = lines.find_map(|line| line.strip_prefix("python=")).map(PathBuf::from);
    match python {
        Some(python) if python.exists() => Ok(EngineSet { dir: dir.to_owned(), python }),
        _ => Err(missing("the Python interpreter used by the setup is missing".into())),
    }
}

impl SpeechEngines for EngineProcess {
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        let answer = Self::recognise(self, samples);
        Box::pin(async move { answer.await.map_err(|error| error.to_string()) })
    }

    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        let answer = Self::speak(self, text);
        Box::pin(async move { answer.await.map_err(|error| error.to_string()) })
    }
}

impl EngineProcess {
    /// Starts the engines of a directory and waits until they are loaded.
    ///
    /// # Errors
    /// [`EngineError::Missing`] if the directory is incomplete, [`EngineError::Start`] if the helper fails to start.
    pub async fn start(dir: &Path) -> Result<Self, EngineError> {
        let set = find_engines(dir)?;
        let mut helper =
            Helper::spawn(&set.python, &set.dir).map_err(|e| EngineError::Start(e.to_string()))?;
        let process_id = helper.process_id();
        let ready = match timeout(START_TIMEOUT, helper.read_header::<ReadyHeader>()).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(error)) => return Err(EngineError::Start(helper.describe_failure(&error).await)),
            Err(_) => {
                return Err(EngineError::Start(format!("not ready after {} s", START_TIMEOUT.as_secs())));
            }
        };
        if !ready.ready {
            return Err(EngineError::Start(ready.error.unwrap_or_else(|| "no reason given".into())));
        }
        tracing::info!(
            pid = process_id,
            recogniser = ready.recogniser,
            synthesiser = ready.synthesiser,
            "speech engines ready"
        );
        let (requests, queue) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(run_helper(helper, queue));
        Ok(Self { requests, recogniser: ready.recogniser, synthesiser: ready.synthesiser, process_id })
    }

    /// Transcribes float32 mono samples at 16 kHz; the transcript is empty if there is no speech.
    ///
    /// The future borrows nothing. Dropping it discards the answer and keeps the order of the others.
    pub fn recognise(
        &self,
        samples: Vec<f32>,
    ) -> impl Future<Output = Result<String, EngineError>> + Send + use<> {
        let seconds = samples.len() as u64 / u64::from(SPEECH_RATE_HZ);
        let audio = pcm::f32le_bytes(&samples);
        let timeout = ANSWER_TIMEOUT + Duration::from_secs(seconds);
        let answer = self.ask(HelperRequest::Recognise { bytes: audio.len() }, audio, timeout);
        async move { answer.await.map(|(text, _)| text) }
    }

    /// Synthesizes a text as float32 mono samples at 24 kHz.
    ///
    /// The future borrows nothing. Dropping it discards the answer and keeps the order of the others.
    pub fn speak(&self, text: String) -> impl Future<Output = Result<Vec<f32>, EngineError>> + Send + use<> {
        let answer = self.ask(HelperRequest::Speak { text, voice: FLITE_VOICE }, Vec::new(), ANSWER_TIMEOUT);
        async move { answer.await.map(|(_, audio)| pcm::f32le_samples(&audio)) }
    }

    /// Name of the recogniser, such as `moonshine-base`.
    pub fn recogniser(&self) -> &str {
        &self.recogniser
    }

    /// Name of the synthesizer, such as `flite awb`.
    pub fn synthesiser(&self) -> &str {
        &self.synthesiser
    }

    /// Process id of the helper.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    fn ask(
        &self,
        request: HelperRequest,
        audio: Vec<u8>,
        timeout: Duration,
    ) -> impl Future<Output = Result<HelperAnswer, EngineError>> + Send + use<> {
        let requests = self.requests.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            // The task outlives every handle unless the runtime shuts down.
            let gone = || EngineError::Stopped("voxbridge is shutting down".into());
            requests.send(QueuedRequest { request, audio, timeout, reply }).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        }
    }
}

#[derive(Debug)]
struct QueuedRequest {
    request: HelperRequest,
    audio: Vec<u8>,
    timeout: Duration,
    reply: oneshot::Sender<Result<HelperAnswer, EngineError>>,
}

/// Answers requests in order until all handles are dropped. After the helper exits, rejects them with its exit reason.
async fn run_helper(mut helper: Helper, mut requests: mpsc::Receiver<QueuedRequest>) {
    let reason = loop {
        let queued = tokio::select! {
            queued = requests.recv() => queued,
            // Detects an exit at once, not at the next request.
            reason = helper.wait_for_exit() => break reason,
        };
        let Some(mut queued) = queued else { return };
        if queued.reply.is_closed() {
            continue;
        }
        let stop_reason =
            match timeout(queued.timeout, helper.request(&queued.request, std::mem::take(&mut queued.audio)))
                .await
            {
                Ok(Ok(answer)) => {
                    let _ = queued.reply.send(answer.map_err(EngineError::Refused));
                    continue;
                }
                Ok(Err(error)) => helper.describe_failure(&error).await,
                Err(_) => format!("no answer in {} s", queued.timeout.as_secs()),
            };
        let _ = queued.reply.send(Err(EngineError::Stopped(stop_reason.clone())));
        break stop_reason;
    };
    tracing::warn!(reason, "speech engines stopped");
    // A late answer would be taken for the next one, so a helper that timed out is stopped as well.
    drop(helper);
    while let Some(queued) = requests.recv().await {
        let _ = queued.reply.send(Err(EngineError::Stopped(reason.clone())));
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
