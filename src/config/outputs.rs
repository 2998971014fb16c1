//! Checks that `serve` can write the files and folders that the configuration names. The check leaves nothing behind.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use super::{Config, problems::ConfigProblems};
use crate::telemetry::line_writer::LogTarget;

impl Config {
    /// Checks the access log and the folders of the traces, recordings and webhooks. A message has the key, the path and the system's error.
    pub(super) fn check_outputs(&self, problems: &mut ConfigProblems) {
        if let Some(LogTarget::File(path)) = self.access_log.path.as_deref().map(LogTarget::from_path) {
            let checked = check_file(&path);
            problems
                .take_named(checked.map_err(|error| format!("access_log.path: {}: {error}", path.display())));
        }
        let folders = [
            ("trace.dir", &self.trace.dir),
            ("record.dir", &self.record.dir),
            ("webhooks.spool", &self.webhooks.spool),
        ];
        for (key, dir) in folders {
            if let Some(dir) = dir {
                let checked = check_folder(dir);
                problems.take_named(checked.map_err(|error| format!("{key}: {}: {error}", dir.display())));
            }
        }
    }
}

/// Checks a file that `serve` appends to, and creates in an existing folder.
fn check_file(path: &Path) -> Result<(), String> {
    // Opening a named pipe would wait for its reader.
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return Ok(());
    }
    match OpenOptions::new().append(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            match fs::metadata(non_empty(folder)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Err(format!("the folder {} does not exist; create it", folder.display()))
                }
                _ => create_file_in(folder),
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Checks a folder that `serve` writes to, and creates if it is missing.
fn check_folder(dir: &Path) -> Result<(), String> {
    let existing = dir.ancestors().find(|dir| non_empty(dir).exists());
    create_file_in(existing.unwrap_or(dir))
}

/// Creates a file in the folder and removes it.
fn create_file_in(folder: &Path) -> Result<(), String> {
    let probe = folder.join(format!(".voxbridge-check-{}", std::process::id()));
    let created = OpenOptions::new().write(true).create_new(true).open(&probe);
    let created = created.map_err(|error| format!("cannot create a file in {}: {error}", folder.display()));
    created.and_then(|_| fs::remove_file(&probe).map_err(|error| error.to_string()))
}

/// The folder; the current one for an empty path, which `parent` gives for a bare name.
fn non_empty(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}
