//! `[relay]` of a profile: limits and timeouts.

use serde::Deserialize;

use crate::spelling::check;

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
