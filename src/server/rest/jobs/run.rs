//! Transcribes the recording of a job, behind the request that created it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};
use tracing::{info, warn};

use super::{
    super::{
        session::Opening,
        style::Failure,
        transcribe::{self, Recognized, Transcription},
    },
    JobStore, now_s,
    store::{JobFailure, JobResult, JobState},
};
use crate::{
    error::ErrorKind,
    server::{accept::session_start::Admission, memory::MemoryShare, session_task::wait_for_drain_order},
    spelling::client::JobSettings,
    vocabulary::Setting,
};

/// How often a job that finds no free session asks again.
const ADMISSION_RETRY: Duration = Duration::from_secs(1);
/// Longest wait for a free session, after that for the key's own jobs.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(3600);

/// A job that was created, and what it needs.
pub(super) struct Work {
    pub(super) id: String,
    pub(super) opening: Opening,
    pub(super) settings: Arc<JobSettings>,
    pub(super) model: String,
    pub(super) recording: Bytes,
    pub(super) memory: MemoryShare,
    /// Ends when the job is deleted.
    pub(super) is_kept: watch::Receiver<()>,
    pub(super) permits: Arc<Semaphore>,
}

/// Fails a job that ends without a state, as after a panic.
struct Ending {
    store: JobStore,
    id: String,
}

impl Ending {
    fn set(&self, state: JobState) {
        self.store.set_state(&self.id, state, now_s());
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let lost = Failure::internal("The transcription ended unexpectedly");
        self.set(JobState::Failed(Arc::new(failure(&lost))));
    }
}

/// Transcribes, and keeps the transcript or the failure.
pub(super) async fn run(work: Work) {
    let server = &work.opening.server;
    let ending = Ending { store: server.jobs.clone(), id: work.id.clone() };
    let (drain, is_kept) = (server.drain.clone(), work.is_kept.clone());
    let Some(ended) = until_stopped(transcribe(work, &ending), drain, is_kept).await else {
        info!(job = ending.id, "deleted before it was transcribed");
        return;
    };
    ending.set(match ended {
        Ok(result) => JobState::Done(Arc::new(result)),
        Err(failed) => {
            let failed = failure(&failed);
            warn!(job = ending.id, problem = failed.message, "transcription failed");
            JobState::Failed(Arc::new(failed))
        }
    });
}

/// Transcribes until the job is deleted (`None`) or the server's listener closes (a failure).
async fn until_stopped<T>(
    transcribing: impl Future<Output = Result<T, Failure>>,
    drain: watch::Receiver<Option<Duration>>,
    mut is_kept: watch::Receiver<()>,
) -> Option<Result<T, Failure>> {
    tokio::select! {
        ended = transcribing => Some(ended),
        _ = is_kept.changed() => None,
        _ = wait_for_drain_order(drain) => {
            Some(Err(Failure::of_session(ErrorKind::Unavailable, "voxbridge is stopping")))
        }
    }
}

async fn transcribe(work: Work, ending: &Ending) -> Result<JobResult, Failure> {
    let Work { opening, settings, model, recording, memory, permits, .. } = work;
    // The semaphore is never closed.
    let _permit = permits.acquire_owned().await;
    let admission = admit(&opening).await?;
    ending.set(JobState::Running);
    let job = transcribe::Job { recording, model, settings: session_settings(&settings) };
    let (transcription, _served) = Transcription::start(opening, admission, memory, job).await?;
    let Recognized { segments, duration, broken_off } = transcription.collect().await?;
    let incomplete = broken_off.map(|broken_off| broken_off.json().to_string());
    Ok(JobResult { segments, duration, incomplete })
}

/// Waits for a free session of the server and of the quotas.
async fn admit(opening: &Opening) -> Result<Admission, Failure> {
    let start = Instant::now();
    loop {
        match opening.admit() {
            Err(failure) if failure.is_temporary() && start.elapsed() < ADMISSION_WAIT_MAX => {
                sleep(ADMISSION_RETRY).await;
            }
            admitted => return admitted,
        }
    }
}

fn session_settings(settings: &JobSettings) -> Vec<Setting> {
    let mut session = vec![
        Setting::Task(settings.translates),
        Setting::HotWords(settings.hot_words.clone()),
        Setting::EstimatedWordTimes(true),
    ];
    session.extend(settings.language.clone().map(Setting::Language));
    session.extend(settings.prompt.clone().map(Setting::TranscriptionPrompt));
    session
}

fn failure(failed: &Failure) -> JobFailure {
    let (status, code, message) = failed.words();
    JobFailure { status: status.as_u16(), code, message }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn job_ends_with_its_deletion_and_with_the_server() {
        let (order, drain) = watch::channel(None);
        let (kept, is_kept) = watch::channel(());
        let done = until_stopped(async { Ok(7) }, drain.clone(), is_kept.clone()).await;
        assert!(matches!(done, Some(Ok(7))), "neither was ordered");
        let never = || pending::<Result<(), Failure>>();
        drop(kept);
        assert!(until_stopped(never(), drain.clone(), is_kept).await.is_none(), "deleted");
        let (_kept, is_kept) = watch::channel(());
        order.send_replace(Some(Duration::from_secs(25)));
        let stopped = until_stopped(never(), drain, is_kept).await;
        assert_eq!(stopped.unwrap().unwrap_err().words().0.as_u16(), 503);
    }
}
