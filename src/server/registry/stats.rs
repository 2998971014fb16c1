//! Statistics of a session, written by its own task and read by operators.

use std::sync::{Arc, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::time::Instant;

use super::LiveSession;
use crate::session::{AudioTotals, SessionState};

/// Statistics of a session.
#[derive(Debug, Clone)]
pub(in crate::server) struct SessionStats {
    pub(in crate::server) state: SessionState,
    /// `None` for a session that counts no audio.
    pub(in crate::server) audio: Option<AudioTotals>,
    /// Position in an upstream's queue; 0 for none.
    pub(in crate::server) queue_position: u32,
    pub(in crate::server) context_tokens: u32,
    pub(in crate::server) bytes: WireBytes,
    pub(in crate::server) errors: u64,
    pub(in crate::server) rollovers: u64,
    pub(in crate::server) last_event: Option<(&'static str, Instant)>,
    pub(in crate::server) upstream: Option<Arc<str>>,
    pub(in crate::server) upstream_session: Option<String>,
}

impl Default for SessionStats {
    fn default() -> Self {
        Self {
            state: SessionState::Opening,
            audio: None,
            queue_position: 0,
            context_tokens: 0,
            bytes: WireBytes::default(),
            errors: 0,
            rollovers: 0,
            last_event: None,
            upstream: None,
            upstream_session: None,
        }
    }
}

/// A session as operators see it; `null` for unknown values. Times are in seconds.
///
/// ```json
/// {"id": "sess_0123456789ab", "client": "macaw", "profile": "speech", "peer": "10.0.0.7:53124", "path": "/v1/realtime",
///  "key": "robots", "opened_at": 1790000000.1, "age_s": 12.5, "state": "listening", "upstream": "gpu-a", "upstream_session": "abc",
///  "audio_in_s": 11.9, "audio_out_s": 2.4, "waiting_s": 0.8, "queue_position": null, "context_tokens": 812,
///  "bytes": {"client_in": 381000, "client_out": 115000, "upstream_in": 310000, "upstream_out": 508000},
///  "errors": 0, "rollovers": 0, "last_event": "first_audio", "last_event_ago_s": 3.1}
/// ```
///
/// `state` is a [`SessionState`]'s name. `waiting_s` is user audio that waits for an upstream. Relayed sessions do
/// not count audio. Counters may lag by up to a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation, and the example above")]
pub struct LiveSessionView {
    pub id: String,
    pub client: String,
    pub profile: String,
    pub peer: String,
    pub path: String,
    /// The sign that decided on the client protocol.
    pub detected_by: String,
    pub key: Option<String>,
    pub opened_at: f64,
    pub age_s: f64,
    pub state: &'static str,
    pub upstream: Option<String>,
    pub upstream_session: Option<String>,
    pub audio_in_s: Option<f64>,
    pub audio_out_s: Option<f64>,
    pub waiting_s: Option<f64>,
    pub queue_position: Option<u32>,
    pub context_tokens: Option<u32>,
    pub bytes: WireBytes,
    pub errors: u64,
    pub rollovers: u64,
    pub last_event: Option<&'static str>,
    pub last_event_ago_s: Option<f64>,
}

/// Bytes on the wire so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct WireBytes {
    pub client_in: u64,
    pub client_out: u64,
    pub upstream_in: u64,
    pub upstream_out: u64,
}

impl LiveSession {
    /// The statistics. Only the session's own task changes them.
    pub(in crate::server) fn stats(&self) -> MutexGuard<'_, SessionStats> {
        // Every change leaves valid values, so a poisoned lock holds them.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a named event and its time.
    pub(in crate::server) fn record_event(&self, event: &'static str) {
        self.stats().last_event = Some((event, Instant::now()));
    }

    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.stats().state
    }

    /// The statistics for operators.
    pub fn view(&self) -> LiveSessionView {
        let stats = self.stats().clone();
        let seconds = |of: fn(&AudioTotals) -> std::time::Duration| {
            stats.audio.as_ref().map(|audio| of(audio).as_millis() as f64 / 1000.0)
        };
        let nonzero = |number: u32| Some(number).filter(|number| *number > 0);
        LiveSessionView {
            id: self.info.id.clone(),
            client: self.info.client.clone(),
            profile: self.info.profile.clone(),
            peer: self.info.peer.to_string(),
            path: self.info.path.clone(),
            detected_by: self.info.detected_by.clone(),
            key: self.info.key.as_deref().map(str::to_owned),
            opened_at: self.info.opened_unix.as_secs_f64(),
            age_s: self.opened.elapsed().as_secs_f64(),
            state: stats.state.name(),
            upstream: stats.upstream.map(|name| name.to_string()),
            upstream_session: stats.upstream_session,
            audio_in_s: seconds(|audio| audio.received),
            audio_out_s: seconds(|audio| audio.sent),
            waiting_s: seconds(|audio| audio.waiting),
            queue_position: nonzero(stats.queue_position),
            context_tokens: nonzero(stats.context_tokens),
            bytes: stats.bytes,
            errors: stats.errors,
            rollovers: stats.rollovers,
            last_event: stats.last_event.map(|(event, _)| event),
            last_event_ago_s: stats.last_event.map(|(_, at)| at.elapsed().as_secs_f64()),
        }
    }
}
