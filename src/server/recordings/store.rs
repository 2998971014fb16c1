//! The bound on the files of all recordings in a directory, and what happens when it is reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::info;

use super::RecordingOptions;
use crate::named_enum::named_enum;

named_enum! {
    /// What happens when the recordings reach their bound.
    pub enum WhenFull {
        /// Sessions are not recorded until there is room again.
        Refuse = "refuse",
        /// The oldest recordings are deleted.
        DeleteOldest = "delete_oldest",
    }
}

/// Extensions of the files of recordings. Other files in the directory are no recordings.
const EXTENSIONS: [&str; 3] = ["wav", "opus", "json"];
/// Part of the bound that is made free at a time, so that the directory is not read for every write.
const FREED_PART: u64 = 64;

/// All recordings of a directory. Its functions read and write files.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    max_bytes: u64,
    when_full: WhenFull,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Debug, Default)]
struct Usage {
    /// Bytes of all files as of the last look into the directory, and what was written since; `None` before the first look.
    bytes: Option<u64>,
    /// Names without extension of recordings that are being written.
    writing: BTreeSet<String>,
}

/// Files of one recording.
#[derive(Debug, Default)]
struct Found {
    bytes: u64,
    paths: Vec<PathBuf>,
}

impl Store {
    pub(super) fn new(options: &RecordingOptions) -> Self {
        let RecordingOptions { dir, max_bytes, when_full, .. } = options;
        Self { dir: dir.clone(), max_bytes: *max_bytes, when_full: *when_full, usage: Arc::default() }
    }

    /// This store with what is being written for `previous`, a store of the same directory.
    pub(super) fn with_writers_of(&self, previous: &Self) -> Self {
        let usage = previous.usage.clone();
        Self { dir: self.dir.clone(), max_bytes: self.max_bytes, when_full: self.when_full, usage }
    }

    /// Begins a recording with this name. Its files are not deleted until [`Store::end`].
    ///
    /// # Errors
    /// There is no room for more than a beginning.
    pub(super) fn begin(&self, name: &str) -> io::Result<()> {
        self.usage().writing.insert(name.to_owned());
        let room = self.max_bytes / FREED_PART;
        let began = self.reserve(room);
        match began {
            Ok(()) => self.usage().bytes.iter_mut().for_each(|bytes| *bytes = bytes.saturating_sub(room)),
            Err(_) => self.end(name),
        }
        began
    }

    /// Ends a recording.
    pub(super) fn end(&self, name: &str) {
        self.usage().writing.remove(name);
    }

    /// Takes room for this many bytes.
    ///
    /// # Errors
    /// There is no room, or the directory cannot be read.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut usage = self.usage();
        let known = usage.bytes.map(|known| known + bytes);
        if let Some(total) = known.filter(|total| *total <= self.max_bytes) {
            usage.bytes = Some(total);
            return Ok(());
        }
        // The operator may have deleted some, too.
        let mut found = find_recordings(&self.dir)?;
        let mut total: u64 = found.values().map(|found| found.bytes).sum();
        if self.when_full == WhenFull::DeleteOldest && total + bytes > self.max_bytes {
            found.retain(|name, _| !usage.writing.contains(name));
            self.delete_oldest(&mut total, bytes, &found)?;
        }
        if total + bytes > self.max_bytes {
            usage.bytes = None;
            return Err(io::Error::other(format!(
                "the recordings have {total} bytes, and the limit is {} (record.max_bytes)",
                self.max_bytes
            )));
        }
        usage.bytes = Some(total + bytes);
        Ok(())
    }

    /// Deletes the oldest recordings until there is room for this many bytes and a bit more.
    fn delete_oldest(&self, total: &mut u64, bytes: u64, found: &BTreeMap<String, Found>) -> io::Result<()> {
        let goal = self.max_bytes.saturating_sub(bytes + self.max_bytes / FREED_PART);
        for (name, recording) in found {
            if *total <= goal {
                break;
            }
            for path in &recording.paths {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            info!(
                recording = name,
                bytes = recording.bytes,
                "deleted the oldest recording: record.max_bytes"
            );
            *total = total.saturating_sub(recording.bytes);
        }
        Ok(())
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        // Every change leaves valid numbers, so a poisoned lock holds some.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recordings in a directory by name, oldest first: a name begins with the time of the start.
fn find_recordings(dir: &Path) -> io::Result<BTreeMap<String, Found>> {
    let mut recordings: BTreeMap<String, Found> = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_stem().and_then(|name| name.to_str());
        let is_ours =
            |name: &&str| name.split_once('-').is_some_and(|(ms, id)| is_time(ms) && id.starts_with("sess_"));
        if let Some(name) = name.filter(is_ours)
            && extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
            && let Ok(found) = fs::metadata(&path)
        {
            let recording = recordings.entry(name.to_owned()).or_default();
            recording.bytes += found.len();
            recording.paths.push(path);
        }
    }
    Ok(recordings)
}

/// Milliseconds since 1970, as names have them.
fn is_time(text: &str) -> bool {
    text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit())
}
