//! `[record]`: recordings of sessions.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Config;
use crate::server::{
    recordings::{self, RecordedSides, RecordingDirectory, RecordingFormat, RecordingOptions, WhenFull},
    route::Routes,
};

/// `[record]`: recordings of the sessions whose profile or key has `record = true`; off unless `dir` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecordConfig {
    /// Directory for the recordings, an audio file and a JSON file per session.
    pub dir: Option<PathBuf>,
    /// Format of the audio files: `wav` or `opus`.
    pub format: Option<RecordingFormat>,
    /// The sides in the audio files: `both`, `user` or `model`.
    pub what: Option<RecordedSides>,
    /// Bound on all recordings in bytes.
    pub max_bytes: Option<u64>,
    /// At this bound, `refuse` records no session, and `delete_oldest` deletes the oldest recordings.
    pub when_full: Option<WhenFull>,
}

impl RecordConfig {
    /// The format by default.
    pub(super) const DEFAULT_FORMAT: RecordingFormat = RecordingFormat::Wav;
    /// The sides by default.
    pub(super) const DEFAULT_SIDES: RecordedSides = RecordedSides::Both;
    /// What happens at the bound by default: nothing is deleted.
    pub(super) const DEFAULT_WHEN_FULL: WhenFull = WhenFull::Refuse;

    pub(super) fn build(&self) -> Option<Arc<RecordingDirectory>> {
        let options = RecordingOptions {
            dir: self.dir.clone()?,
            format: self.format.unwrap_or(Self::DEFAULT_FORMAT),
            sides: self.what.unwrap_or(Self::DEFAULT_SIDES),
            max_bytes: self.max_bytes.unwrap_or(recordings::DEFAULT_MAX_BYTES),
            when_full: self.when_full.unwrap_or(Self::DEFAULT_WHEN_FULL),
        };
        Some(Arc::new(RecordingDirectory::new(options)))
    }
}

impl Config {
    /// Notes on profiles and keys that want recordings where there are none, and on recordings that nothing wants.
    pub(super) fn recording_notes(&self, routes: &Routes, has_recorded_key: bool) -> Vec<String> {
        let recorded = routes.iter().map(|route| &route.profile).find(|profile| profile.record);
        match (&self.record.dir, recorded) {
            (None, Some(profile)) => {
                vec![format!(
                    "profile {:?} has `record = true`, but [record] has no dir: nothing is recorded",
                    profile.name
                )]
            }
            (None, None) if has_recorded_key => {
                vec!["a key has `record = true`, but [record] has no dir: nothing is recorded".to_owned()]
            }
            (None, None) if self.record != RecordConfig::default() => {
                vec!["[record] has no dir: nothing is recorded".to_owned()]
            }
            (Some(_), None) if !has_recorded_key => {
                vec!["[record] has a dir, but no profile of a route and no key has `record = true`: nothing is recorded".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}
