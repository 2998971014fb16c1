//! The file of a relay profile: how long what is kept, held and waited for.

use serde::Deserialize;

use super::super::{
    MappingKind,
    check::FileError,
    profile::{HearRules, LaneTimeouts, ListenRules, PlayoutRules, Profile, ReadWindowRules, SpeakRules},
    upstream::Mode,
};
use crate::mapping::check;

/// The file, as written. A section that is absent is the one of the profile it extends.
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

/// How a session is relayed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayRules {
    /// How long audio is held that may be the last of a turn, where a protocol tells both in one, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub audio_hold_ms: u64,
    /// How long text is held for its audio, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub text_hold_ms: u64,
    /// Most that is kept of what the client sent as long as no upstream can take it, and of what is not answered, bytes. Who
    /// sends more than that before a session is open is read no further until it is.
    pub buffer_max_bytes: usize,
    /// Most audio that is kept while an upstream that was lost is replaced, ms; the oldest is dropped.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub outage_audio_max_ms: u64,
    /// How often a session is opened that upstreams end while it is initialised: what the client asks for may be at fault.
    pub open_attempts: u32,
    /// A client that has been assigned a worker opens the session within this time, ms, or it ends.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub open_wait_max_ms: u64,
    /// An upstream session that was lost is replaced within this time, ms, or the client's ends.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub resume_max_ms: u64,
    /// When voxbridge stops, an answer may take this long to end, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub finish_max_ms: u64,
    /// A session whose client sends nothing for this long is closed, ms; 0 for never_sent.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub idle_ms: u64,
}

impl RelayProfileFile {
    /// Whether a profile's file is one of these.
    pub(in crate::mapping) fn is_relay_profile(
        file: &str,
        source: &str,
        base: Option<&Profile>,
    ) -> Result<bool, FileError> {
        #[derive(Deserialize)]
        struct RelayHeader {
            relay: Option<toml::Table>,
        }
        let header: RelayHeader = check::parse_toml(file, source)?;
        Ok(header.relay.is_some() || base.is_some_and(Profile::is_relay))
    }

    pub(in crate::mapping) fn compile(
        file: &str,
        source: &str,
        base: Option<&Profile>,
    ) -> Result<Profile, FileError> {
        let read: Self = check::parse_toml(file, source)?;
        super::super::check_kind(file, source, read.kind, MappingKind::Profile)?;
        let missing = |section: &str| {
            let message = format!("there is no [{section}], and no profile it `extends` to take it from");
            FileError::for_file(file, message)
        };
        let relay = read.relay.or_else(|| base.and_then(|base| base.relay));
        let lanes = read.lanes.or_else(|| base.map(|base| base.lanes));
        Ok(Profile {
            name: read.name,
            title: read.title,
            notes: read.notes,
            extends: read.extends,
            // Each client names its own; a relay serves them all.
            mode: Mode::Chat,
            listen: ListenRules::default(),
            read_window: ReadWindowRules::default(),
            hear: HearRules::default(),
            speak: SpeakRules::default(),
            playout: PlayoutRules::default(),
            lanes: lanes.ok_or_else(|| missing("lanes"))?,
            dialogue: None,
            relay: Some(relay.ok_or_else(|| missing("relay"))?),
        })
    }
}
