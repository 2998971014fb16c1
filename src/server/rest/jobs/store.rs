//! Store of uploads and jobs: bounded in number, in bytes and in age, for each key. A request finds only what came with its
//! own key and by the same protocol.
//!
//! Recordings and transcripts are in memory, so a restart loses them. Their bytes count in the memory of messages in transit, too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use super::super::{session::Segment, style::Failure};
use crate::{
    error::ErrorKind, secret::random_hex, server::memory::MemoryShare, spelling::client::JobSettings,
};

/// Most uploads and jobs of one key.
const OF_KEY_MAX: usize = 1000;
/// Most uploads and jobs of all keys.
const OF_ALL_MAX: usize = 10_000;
/// All keys together may keep as many bytes as this many keys.
const KEYS_WITH_ALL: usize = 2;
/// How long an upload without a job is kept.
const UPLOAD_AGE: Duration = Duration::from_secs(30 * 60);
/// How long a job is kept: queues are left after two minutes by default, and a recording of four hours takes less than one.
const JOB_AGE: Duration = Duration::from_secs(24 * 3600);
/// Most jobs of one key that are transcribed at a time; the others wait here, and leave the server's sessions to other clients.
const RUNNING_OF_KEY_MAX: usize = 4;
/// What an entry takes beside its recording or transcript, bytes, estimated.
const ENTRY_BYTES: usize = 1024;

/// Owner of uploads and jobs: the name of the key, and the protocol. All clients without a key are one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) key: Option<Arc<str>>,
    pub(super) protocol: String,
}

/// An uploaded recording.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    pub(super) recording: Bytes,
    pub(super) name: String,
    /// Length of the recording as its header has it, and its channels.
    pub(super) duration: Option<Duration>,
    pub(super) channels: usize,
    /// True once a job has taken it.
    is_used: bool,
}

/// A recording and its name.
pub(super) struct NamedRecording {
    pub(super) bytes: Bytes,
    pub(super) name: String,
}

/// What the header of a recording says.
pub(super) struct RecordingHeader {
    pub(super) duration: Option<Duration>,
    pub(super) channels: usize,
}

impl Upload {
    /// An upload that no job has taken.
    pub(super) fn new(recording: NamedRecording, header: RecordingHeader) -> Self {
        let (NamedRecording { bytes, name }, RecordingHeader { duration, channels }) = (recording, header);
        Self { recording: bytes, name, duration, channels, is_used: false }
    }
}

/// A transcription.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) settings: Arc<JobSettings>,
    pub(super) model: String,
    pub(super) name: String,
    pub(super) state: JobState,
    /// When it ended, Unix time in seconds.
    pub(super) ended_unix_s: Option<f64>,
}

impl Job {
    /// A job that waits.
    pub(super) fn new(settings: JobSettings, model: String, name: String) -> Self {
        Self { settings: Arc::new(settings), model, name, state: JobState::Waiting, ended_unix_s: None }
    }
}

/// State of a job.
#[derive(Debug, Clone)]
pub(super) enum JobState {
    Waiting,
    Running,
    Done(Arc<JobResult>),
    Failed(Arc<JobFailure>),
}

/// The transcript of a job.
#[derive(Debug)]
pub(super) struct JobResult {
    pub(super) segments: Vec<Segment>,
    pub(super) duration: Duration,
    /// From where on it is incomplete, and why, as JSON.
    pub(super) incomplete: Option<String>,
}

/// Why a job failed.
#[derive(Debug)]
pub(super) struct JobFailure {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

impl JobResult {
    /// Memory of the transcript, estimated.
    fn bytes(&self) -> usize {
        let of_words = |segment: &Segment| {
            segment.words.iter().flatten().map(|word| word.word.len() + 64).sum::<usize>()
        };
        self.segments.iter().map(|segment| segment.text.len() + 128 + of_words(segment)).sum()
    }
}

/// An upload or job.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    Upload(Upload),
    Job(Job),
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    kept: Kept,
    /// Tells the transcription of a job when the entry is dropped.
    _is_kept: Option<watch::Sender<()>>,
    /// Counts up with every entry.
    number: u64,
    created_unix_s: f64,
    expires: Instant,
    bytes: usize,
    /// Counts the recording.
    memory: Option<MemoryShare>,
}

impl Entry {
    /// An entry that has no number yet. Its recording or transcript has this many bytes.
    fn new(owner: Owner, kept: Kept, bytes: usize, created_unix_s: f64) -> Self {
        let age = match kept {
            Kept::Upload(_) => UPLOAD_AGE,
            Kept::Job(_) => JOB_AGE,
        };
        let (expires, bytes) = (Instant::now() + age, bytes + ENTRY_BYTES);
        Self { owner, kept, _is_kept: None, number: 0, created_unix_s, expires, bytes, memory: None }
    }

    /// True for what may give way to a newer entry of its owner.
    const fn is_idle(&self) -> bool {
        match &self.kept {
            Kept::Upload(upload) => upload.is_used,
            Kept::Job(job) => matches!(job.state, JobState::Done(_) | JobState::Failed(_)),
        }
    }
}

/// An entry that was found.
pub(super) struct Found {
    pub(super) id: String,
    pub(super) kept: Kept,
    pub(super) created_unix_s: f64,
}

/// A job that was created, and what its transcription needs.
pub(super) struct NewJob {
    pub(super) found: Found,
    pub(super) settings: Arc<JobSettings>,
    /// Completes with an error when the job is deleted.
    pub(super) is_kept: watch::Receiver<()>,
    /// Permits for the owner's jobs.
    pub(super) permits: Arc<Semaphore>,
}

/// The uploads and jobs of all keys. Survives a reload; clones share it.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct JobStore(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<String, Entry>,
    added: u64,
    permits: HashMap<Owner, Weak<Semaphore>>,
}

impl JobStore {
    /// Keeps a recording. `memory` counts it, and `max_bytes` bounds what one key may keep.
    ///
    /// # Errors
    /// HTTP 429: the key keeps too much already.
    pub(super) fn add_upload(
        &self,
        owner: Owner,
        upload: Upload,
        memory: MemoryShare,
        max_bytes: usize,
        unix_s: f64,
    ) -> Result<Found, Failure> {
        let bytes = upload.recording.len();
        let entry = Entry::new(owner, Kept::Upload(upload), bytes, unix_s);
        self.lock().insert(Entry { memory: Some(memory), ..entry }, max_bytes)
    }

    /// Keeps a job, whose recording of this many bytes waits with it.
    ///
    /// # Errors
    /// HTTP 429: the key keeps too much already.
    pub(super) fn add_job(
        &self,
        owner: Owner,
        job: Job,
        recording_bytes: usize,
        max_bytes: usize,
        unix_s: f64,
    ) -> Result<NewJob, Failure> {
        let (sender, is_kept) = watch::channel(());
        let settings = job.settings.clone();
        let mut entries = self.lock();
        let permits = entries.permits_of(&owner);
        let entry = Entry::new(owner, Kept::Job(job), recording_bytes, unix_s);
        let found = entries.insert(Entry { _is_kept: Some(sender), ..entry }, max_bytes)?;
        Ok(NewJob { found, settings, is_kept, permits })
    }

    /// Finds what the owner keeps by this id.
    pub(super) fn find(&self, owner: &Owner, id: &str) -> Option<Found> {
        let mut entries = self.lock();
        entries.drop_expired();
        let entry = entries.by_id.get(id).filter(|entry| entry.owner == *owner)?;
        Some(Found::of(id, entry))
    }

    /// Takes the recording of an upload for a job.
    pub(super) fn recording_of(&self, owner: &Owner, id: &str) -> Option<NamedRecording> {
        let mut entries = self.lock();
        entries.drop_expired();
        let entry = entries.by_id.get_mut(id).filter(|entry| entry.owner == *owner)?;
        match &mut entry.kept {
            Kept::Upload(upload) => {
                upload.is_used = true;
                Some(NamedRecording { bytes: upload.recording.clone(), name: upload.name.clone() })
            }
            Kept::Job(_) => None,
        }
    }

    /// Deletes what the owner keeps by this id; a job that is not done is cancelled.
    pub(super) fn delete(&self, owner: &Owner, id: &str) -> Option<Found> {
        let found = self.find(owner, id)?;
        self.lock().by_id.remove(id);
        Some(found)
    }

    /// Sets the state of a job, unless it has ended or was deleted.
    pub(super) fn set_state(&self, id: &str, state: JobState, unix_s: f64) {
        let mut entries = self.lock();
        let Some(entry) = entries.by_id.get_mut(id) else { return };
        let Kept::Job(job) = &mut entry.kept else { return };
        if job.ended_unix_s.is_some() {
            return;
        }
        entry.bytes = ENTRY_BYTES
            + match &state {
                // The request that runs counts its recording itself.
                JobState::Waiting | JobState::Running | JobState::Failed(_) => 0,
                JobState::Done(result) => result.bytes(),
            };
        if matches!(state, JobState::Done(_) | JobState::Failed(_)) {
            job.ended_unix_s = Some(unix_s);
        }
        job.state = state;
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Every change leaves valid entries, so a poisoned lock holds some.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn of(id: &str, entry: &Entry) -> Self {
        Self { id: id.to_owned(), kept: entry.kept.clone(), created_unix_s: entry.created_unix_s }
    }
}

impl Entries {
    /// Adds an entry if its owner, who may keep this much, has room for it.
    fn insert(&mut self, entry: Entry, max_bytes: usize) -> Result<Found, Failure> {
        self.drop_expired();
        self.make_room(&entry.owner, entry.bytes, max_bytes)?;
        let random = random_hex::<16>()
            .ok_or_else(|| Failure::of_session(ErrorKind::Unavailable, "no random numbers"))?;
        let id = format!(
            "{}-{}-{}-{}-{}",
            &random[..8],
            &random[8..12],
            &random[12..16],
            &random[16..20],
            &random[20..]
        );
        self.added += 1;
        let entry = Entry { number: self.added, ..entry };
        let found = Found::of(&id, &entry);
        self.by_id.insert(id, entry);
        Ok(found)
    }

    fn drop_expired(&mut self) {
        let now = Instant::now();
        self.by_id.retain(|_, entry| entry.expires > now);
    }

    /// Drops the oldest of what the owner no longer needs, until the new entry fits.
    fn make_room(&mut self, owner: &Owner, bytes: usize, max_bytes: usize) -> Result<(), Failure> {
        loop {
            let of_key = || self.by_id.iter().filter(|(_, entry)| entry.owner.key == owner.key);
            let (count, held) = (of_key().count(), of_key().map(|(_, entry)| entry.bytes).sum::<usize>());
            let of_all: usize = self.by_id.values().map(|entry| entry.bytes).sum();
            let key_has_room = count < OF_KEY_MAX && held + bytes <= max_bytes;
            let has_room = self.by_id.len() < OF_ALL_MAX && of_all + bytes <= KEYS_WITH_ALL * max_bytes;
            if key_has_room && has_room {
                return Ok(());
            }
            let idle = of_key().filter(|(_, entry)| entry.is_idle());
            let oldest = idle.min_by_key(|(_, entry)| (entry.memory.is_none(), entry.number));
            let Some(id) = oldest.map(|(id, _)| id.clone()) else {
                return Err(no_room(key_has_room, count, held));
            };
            self.by_id.remove(&id);
        }
    }

    fn permits_of(&mut self, owner: &Owner) -> Arc<Semaphore> {
        let owner = Owner { key: owner.key.clone(), protocol: String::new() };
        if let Some(permits) = self.permits.get(&owner).and_then(Weak::upgrade) {
            return permits;
        }
        self.permits.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(RUNNING_OF_KEY_MAX));
        self.permits.insert(owner, Arc::downgrade(&permits));
        permits
    }
}

/// HTTP 429 if the key has no room, HTTP 503 if the server has none.
fn no_room(key_has_room: bool, count: usize, held: usize) -> Failure {
    if key_has_room {
        return Failure::of_session(
            ErrorKind::Unavailable,
            "The server has no room for another recording or job",
        );
    }
    let held = held >> 20;
    let message = format!(
        "There is no room for another recording or job: {count} of this key wait or are not used yet, with {held} MiB"
    );
    Failure::of_session(ErrorKind::QueueFull, message)
}

#[cfg(test)]
mod tests;
