//! Profile file of a relay: limits and timeouts.

use serde::Deserialize;

use super::super::{
    MappingKind,
    check::{Document, FileError},
    inherit::parse_extended,
    profile::{HearRules, LaneTimeouts, ListenRules, PlayoutRules, Profile, ReadWindowRules, SpeakRules},
    upstream::Mode,
};
use crate::mapping::check;

/// The file, with what it inherits from the extended profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mapping) struct RelayProfileFile {
    kind: MappingKind,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    extends: Option<String>,
    relay: Option<RelayRules>,
    lanes: Option<LaneTimeouts>,
}

/// Limits and timeouts of a relay.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayRules {
    /// How long audio waits for the end of its turn, ms. Applies to protocols that report both in one event.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub audio_hold_ms: u64,
    /// How long text waits for its audio, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub text_hold_ms: u64,
    /// Most bytes kept of messages that wait for an upstream, and of unanswered appends. A client that exceeds the
    /// limit before its session is open is not read further.
    pub buffer_max_bytes: usize,
    /// Most audio kept while a lost upstream is replaced, ms. The oldest is dropped.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub outage_audio_max_ms: u64,
    /// Attempts to open a session that upstreams end during its initialisation. The client's opening may be the cause.
    pub open_attempts: u32,
    /// Time for the client to open the session once a worker is assigned, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub open_wait_max_ms: u64,
    /// Time to replace a lost upstream session, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub resume_max_ms: u64,
    /// Time for an answer in progress when voxbridge stops, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub finish_max_ms: u64,
    /// Closes a session whose client sends nothing for this time, ms; 0 for no limit.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub idle_ms: u64,
}

impl RelayProfileFile {
    /// True if the file is a relay profile.
    pub(in crate::mapping) fn is_relay_profile(
        document: &Document<'_>,
        base: Option<&Profile>,
    ) -> Result<bool, FileError> {
        #[derive(Deserialize)]
        struct RelayHeader {
            relay: Option<toml::Table>,
        }
        let header: RelayHeader = document.read()?;
        Ok(header.relay.is_some() || base.is_some_and(Profile::is_relay))
    }

    pub(in crate::mapping) fn compile(
        document: &Document<'_>,
        base: Option<&Profile>,
    ) -> Result<Profile, FileError> {
        let base = base.map(|base| &*base.document);
        let is_inherited = |key: &str| ["relay", "lanes"].contains(&key);
        let (read, text): (Self, _) = parse_extended(document, base, is_inherited)?;
        super::super::check_kind(document, read.kind, MappingKind::Profile)?;
        let missing = |section: &str| {
            let message = format!("there is no [{section}], and no profile it `extends` to take it from");
            FileError::for_file(document.file, message)
        };
        Ok(Profile {
            name: read.name,
            title: read.title,
            notes: read.notes,
            extends: read.extends,
            document: text,
            // Each client names its own mode, and a relay serves all modes.
            mode: Mode::Chat,
            listen: ListenRules::default(),
            read_window: ReadWindowRules::default(),
            hear: HearRules::default(),
            speak: SpeakRules::default(),
            playout: PlayoutRules::default(),
            lanes: read.lanes.ok_or_else(|| missing("lanes"))?,
            dialogue: None,
            answers: None,
            relay: Some(read.relay.ok_or_else(|| missing("relay"))?),
        })
    }
}
