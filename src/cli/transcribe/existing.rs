//! State of a transcript before the work on it begins.

use std::path::Path;

use crate::cli::output_file::Destination;
use crate::cli::resume_file::path_beside;

/// State of a transcript before the work on it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or what an interrupted run has left.
    Unfinished,
    /// A transcript of this recording.
    Complete,
    /// A file that is older than the recording.
    Older,
}

/// Looks for the transcript of a recording.
pub(super) fn find(recording: &Path, destination: &Destination) -> Found {
    let Destination::File(path) = destination else { return Found::Unfinished };
    if !path.is_file() || path_beside(path).exists() {
        return Found::Unfinished;
    }
    let changed = |file: &Path| file.metadata().and_then(|metadata| metadata.modified()).ok();
    match (changed(path), changed(recording)) {
        (Some(transcript), Some(recording)) if transcript < recording => Found::Older,
        _ => Found::Complete,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn file_is_a_transcript_if_it_has_no_journal_and_is_not_older_than_the_recording() {
        let path = |ending: &str| {
            std::env::temp_dir().join(format!("voxbridge-existing-{}.{ending}", std::process::id()))
        };
        let (recording, transcript) = (path("wav"), path("srt"));
        let now = || find(&recording, &Destination::File(transcript.clone()));
        let set_time = |file: &Path, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::create(file).unwrap().set_modified(time).unwrap();
        };
        set_time(&recording, 200);
        assert_eq!(now(), Found::Unfinished);
        for (seconds, found) in [(100, Found::Older), (200, Found::Complete), (300, Found::Complete)] {
            set_time(&transcript, seconds);
            assert_eq!(now(), found, "{seconds}");
        }
        let journal = path_beside(&transcript);
        fs::write(&journal, "").unwrap();
        assert_eq!(now(), Found::Unfinished);
        for file in [recording, transcript, journal] {
            fs::remove_file(file).unwrap();
        }
    }
}
