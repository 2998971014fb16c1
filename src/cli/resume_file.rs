//! Files beside a result that keep what is needed to go on after an interruption: `FILE.resume`, until the result is complete.
//!
//! While a run has such a file, it is locked: no other run works on the result.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use super::error::ClientError;
use super::output_file::{part_path, unwritable};
use crate::secret::hex;

/// Longest name of a file, bytes, on all usual file systems.
const NAME_MAX_BYTES: usize = 255;

/// Attempts to open a file that its owner replaces or removes at the same time.
const ATTEMPTS: usize = 10;

/// The file beside this result. One with a long name has a hash for it.
pub(super) fn path_beside(result: &Path) -> PathBuf {
    let mut name = result.file_name().unwrap_or_default().to_owned();
    name.push(".resume");
    if name.len() > NAME_MAX_BYTES {
        name = format!("{}.resume", &checksum(name.as_encoded_bytes())[..16]).into();
    }
    result.with_file_name(name)
}

/// SHA-256 in hexadecimal digits.
pub(super) fn checksum(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Opens a file, or creates it, and locks it.
///
/// # Errors
/// Another run has it, or it cannot be written.
pub(super) fn open(path: &Path) -> Result<File, ClientError> {
    let opened = open_locked(path).map_err(|reason| unwritable(path, reason))?;
    opened.ok_or_else(|| ClientError::BusyFile(path.to_path_buf()))
}

fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let mut attempts = 0;
    loop {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let opened = file.metadata()?;
        let is_current =
            fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
        attempts += 1;
        if is_current || attempts == ATTEMPTS {
            return Ok(Some(file));
        }
    }
}

/// Replaces a file by a locked one with this text, which is on the disk before it has the name.
pub(super) fn replace(path: &Path, text: &str) -> Result<File, ClientError> {
    let part = part_path(path);
    let replaced = File::create_new(&part).and_then(|mut file| {
        // On a file system without locks, the run goes on without one.
        let _ = file.try_lock();
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&part, path)?;
        Ok(file)
    });
    replaced.inspect_err(|_| drop(fs::remove_file(&part))).map_err(|reason| unwritable(path, reason))
}

/// Removes a file: the result is complete.
pub(super) fn remove(path: &Path) -> Result<(), ClientError> {
    match fs::remove_file(path) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => Err(unwritable(path, reason)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_long_names_have_names_that_a_file_system_takes() {
        let long = |end: &str| PathBuf::from("talks").join("x".repeat(246) + end);
        assert_eq!(path_beside(&long(".s")), long(".s.resume"));
        let [srt, vtt] = [".srt", ".vtt"].map(|end| path_beside(&long(end)));
        assert!(srt != vtt && srt.file_name().unwrap().len() < 30 && srt.starts_with("talks"), "{srt:?}");
    }
}
