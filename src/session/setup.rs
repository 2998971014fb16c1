//! What a session starts from: what of a client protocol, a profile and a dialect concerns it.

use std::sync::Arc;

use super::VoiceCatalog;
use crate::mapping::{
    ClientMapping, Profile, UpstreamMapping,
    client::{AudioIn, AudioOut},
    upstream::{DuplexLimits, Mode, VoiceEncoding},
};

/// What a session starts from.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// What the verbs mean.
    pub profile: Arc<Profile>,
    /// The client protocol's audio and limits.
    pub audio_in: AudioIn,
    /// The client protocol's audio.
    pub audio_out: AudioOut,
    /// Transcripts are told as answers only.
    pub lock_step: bool,
    /// Longest question the upstream takes, ms.
    pub audio_max_ms: u64,
    /// What bounds the upstream's conversations.
    pub duplex: DuplexLimits,
    /// Whether the upstream has chat turns, without which it neither transcribes nor speaks a text that is given to it.
    pub has_chat: bool,
    /// How the upstream takes voice samples, in the order in which that is tried.
    pub voice_encodings: Arc<[VoiceEncoding]>,
    /// Voices by name.
    pub voice_catalog: Arc<VoiceCatalog>,
    /// The session ends after so long, as soon as nobody is cut off by it, ms; 0 for as long as it likes.
    pub session_max_ms: u64,
    /// Seed of everything random: ids and jitter.
    pub seed: u64,
}

impl SessionSetup {
    /// A session of a client protocol with an upstream dialect, as a profile has it; without voices, and with the
    /// protocol's own idle time.
    #[must_use]
    pub fn new(client: &ClientMapping, profile: Arc<Profile>, dialect: &UpstreamMapping, seed: u64) -> Self {
        Self {
            profile,
            audio_in: client.audio_in.clone(),
            audio_out: client.audio_out.clone(),
            lock_step: client.lock_step,
            audio_max_ms: dialect.audio_max_ms,
            duplex: dialect.duplex.clone(),
            has_chat: dialect.modes.contains_key(&Mode::Chat),
            voice_encodings: dialect.voice_encodings.clone(),
            voice_catalog: Arc::default(),
            session_max_ms: 0,
            seed,
        }
    }
}

/// Parameters of a relayed session.
#[derive(Debug, Clone)]
pub struct RelaySetup {
    /// Profile with a `relay` section.
    pub profile: Arc<Profile>,
    /// Closes a client that sends nothing for this time, ms. `None` takes the profile's value, 0 disables the limit.
    pub idle_ms: Option<u64>,
    /// Longest session, ms; 0 for no limit. An answer in progress is finished first.
    pub session_max_ms: u64,
    /// Wall clock at the start, seconds since 1970.
    pub unix_s: f64,
    /// Seed for ids and jitter.
    pub seed: u64,
}
