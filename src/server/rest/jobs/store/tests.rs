//! Bounds, owners and ages of the store.

use tokio::time::advance;

use super::*;

const MIB: usize = 1024 * 1024;

fn owner(key: &str) -> Owner {
    Owner { key: Some(key.into()), protocol: "a".to_owned() }
}

fn upload(store: &JobStore, key: &str, bytes: usize) -> Result<String, u16> {
    let recording = NamedRecording { bytes: vec![0; bytes].into(), name: "a.wav".to_owned() };
    let upload = Upload::new(recording, RecordingHeader { duration: None, channels: 1 });
    let added = store.add_upload(owner(key), upload, MemoryShare::default(), 4 * MIB, 0.0);
    added.map(|found| found.id).map_err(|failure| failure.status.as_u16())
}

fn job(store: &JobStore, key: &str, bytes: usize) -> Result<NewJob, u16> {
    let job = Job::new(JobSettings::default(), "m".to_owned(), "a.wav".to_owned());
    store.add_job(owner(key), job, bytes, 4 * MIB, 0.0).map_err(|failure| failure.status.as_u16())
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_key_are_bounded_and_used_uploads_give_way() {
    let store = JobStore::default();
    let first = upload(&store, "ann", 2 * MIB).unwrap();
    assert!(upload(&store, "ann", MIB).is_ok());
    assert_eq!(upload(&store, "ann", 2 * MIB), Err(429), "no job has taken the uploads yet");
    assert!(upload(&store, "bob", 2 * MIB).is_ok(), "another key has room of its own");
    assert!(store.recording_of(&owner("ann"), &first).is_some());
    assert!(upload(&store, "ann", 2 * MIB).is_ok());
    assert!(store.find(&owner("ann"), &first).is_none(), "it made room");
    assert_eq!(upload(&store, "ann", 5 * MIB), Err(429));
}

#[tokio::test(start_paused = true)]
async fn bytes_of_all_keys_are_bounded_together() {
    let store = JobStore::default();
    assert!(upload(&store, "ann", 3 * MIB).is_ok() && upload(&store, "bob", 3 * MIB).is_ok());
    assert_eq!(upload(&store, "carl", 3 * MIB), Err(503), "no key's fault");
    assert!(upload(&store, "carl", MIB).is_ok());
}

#[tokio::test(start_paused = true)]
async fn number_of_a_keys_jobs_is_bounded_and_ended_ones_give_way() {
    let store = JobStore::default();
    let first = job(&store, "ann", 0).unwrap().found.id;
    for _ in 1..OF_KEY_MAX {
        job(&store, "ann", 0).unwrap();
    }
    assert_eq!(job(&store, "ann", 0).err(), Some(429));
    let failure = JobFailure { status: 500, code: "lost".to_owned(), message: String::new() };
    store.set_state(&first, JobState::Failed(Arc::new(failure)), 7.0);
    assert!(job(&store, "ann", 0).is_ok());
    assert!(store.find(&owner("ann"), &first).is_none(), "the ended job made room");
}

#[tokio::test(start_paused = true)]
async fn entries_are_found_by_their_owner_until_they_expire() {
    let store = JobStore::default();
    let (upload, job) = (upload(&store, "ann", 10).unwrap(), job(&store, "ann", 10).unwrap());
    for id in [&upload, &job.found.id] {
        assert!(store.find(&owner("ann"), id).is_some());
        assert!(store.find(&owner("bob"), id).is_none(), "another key");
        let elsewhere = Owner { protocol: "b".to_owned(), ..owner("ann") };
        assert!(store.find(&elsewhere, id).is_none(), "another protocol");
        assert!(store.delete(&owner("bob"), id).is_none());
    }
    advance(UPLOAD_AGE).await;
    assert!(store.find(&owner("ann"), &upload).is_none());
    assert!(store.find(&owner("ann"), &job.found.id).is_some());
    advance(JOB_AGE).await;
    assert!(store.find(&owner("ann"), &job.found.id).is_none());
}

#[tokio::test(start_paused = true)]
async fn deleted_job_is_cancelled_and_keeps_no_state() {
    let store = JobStore::default();
    let mut job = job(&store, "ann", 10).unwrap();
    assert!(!job.is_kept.has_changed().unwrap());
    assert!(store.delete(&owner("ann"), &job.found.id).is_some());
    assert!(job.is_kept.changed().await.is_err(), "its transcription is told");
    store.set_state(&job.found.id, JobState::Running, 0.0);
    assert!(store.find(&owner("ann"), &job.found.id).is_none());
}

#[tokio::test(start_paused = true)]
async fn first_end_of_a_job_counts() {
    let store = JobStore::default();
    let id = job(&store, "ann", 10).unwrap().found.id;
    let result = JobResult { segments: Vec::new(), duration: Duration::ZERO, incomplete: None };
    store.set_state(&id, JobState::Done(Arc::new(result)), 7.0);
    let failure = JobFailure { status: 500, code: "lost".to_owned(), message: String::new() };
    store.set_state(&id, JobState::Failed(Arc::new(failure)), 8.0);
    let Kept::Job(job) = store.find(&owner("ann"), &id).unwrap().kept else { panic!("a job") };
    assert!(matches!(job.state, JobState::Done(_)) && job.ended_unix_s == Some(7.0));
}
