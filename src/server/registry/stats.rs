//! Statistics of a session, written by its own task and read by operators.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;
use tokio::time::Instant;

use super::LiveSession;
use crate::session::{AudioTotals, SessionState};

/// Statistics of a session. Times are ms.
#[derive(Debug, Default)]
pub(in crate::server) struct SessionStats {
    state: AtomicU8,
    /// 1 if the session counts audio.
    counts_audio: AtomicU8,
    audio_in_ms: AtomicU64,
    audio_out_ms: AtomicU64,
    waiting_audio_ms: AtomicU64,
    queue_position: AtomicU32,
    context_tokens: AtomicU32,
    /// Client in and out, upstream in and out.
    bytes: [AtomicU64; 4],
    errors: AtomicU64,
    rollovers: AtomicU64,
    last_event: Mutex<Option<LastEvent>>,
    upstream: Mutex<CurrentUpstream>,
}

#[derive(Debug, Clone, Copy)]
struct LastEvent {
    event: &'static str,
    at: Instant,
}

#[derive(Debug, Clone, Default)]
struct CurrentUpstream {
    name: Option<Arc<str>>,
    session_id: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change replaces the value as a whole, so a poisoned lock holds a valid one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionStats {
    pub(in crate::server) fn state(&self) -> SessionState {
        let state = usize::from(self.state.load(Relaxed));
        SessionState::ALL.get(state).copied().unwrap_or(SessionState::Opening)
    }

    pub(in crate::server) fn set_state(&self, state: SessionState) {
        self.state.store(state as u8, Relaxed);
    }

    pub(in crate::server) fn set_tally(&self, tally: &AudioTotals) {
        let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.counts_audio.store(1, Relaxed);
        self.audio_in_ms.store(ms(tally.received), Relaxed);
        self.audio_out_ms.store(ms(tally.sent), Relaxed);
        self.waiting_audio_ms.store(ms(tally.waiting), Relaxed);
    }

    pub(in crate::server) fn set_bytes(&self, bytes: [u64; 4]) {
        self.bytes.iter().zip(bytes).for_each(|(counter, bytes)| counter.store(bytes, Relaxed));
    }

    /// Position in an upstream's queue; 0 for none.
    pub(in crate::server) fn set_queue_position(&self, position: u32) {
        self.queue_position.store(position, Relaxed);
    }

    pub(in crate::server) fn set_context(&self, tokens: u32) {
        self.context_tokens.store(tokens, Relaxed);
    }

    pub(in crate::server) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub(in crate::server) fn count_rollover(&self) {
        self.rollovers.fetch_add(1, Relaxed);
    }

    /// Records a named event and its time.
    pub(in crate::server) fn record_event(&self, event: &'static str) {
        *lock(&self.last_event) = Some(LastEvent { event, at: Instant::now() });
    }

    pub(in crate::server) fn set_upstream(&self, name: Arc<str>) {
        *lock(&self.upstream) = CurrentUpstream { name: Some(name), session_id: None };
    }

    pub(in crate::server) fn set_upstream_session(&self, session_id: String) {
        lock(&self.upstream).session_id = Some(session_id);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct WireBytes {
    pub client_in: u64,
    pub client_out: u64,
    pub upstream_in: u64,
    pub upstream_out: u64,
}

impl LiveSession {
    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.stats.state()
    }

    /// The statistics for operators.
    pub fn view(&self) -> LiveSessionView {
        let stats = &self.stats;
        let counts_audio = stats.counts_audio.load(Relaxed) > 0;
        let seconds = |ms: &AtomicU64| counts_audio.then(|| ms.load(Relaxed) as f64 / 1000.0);
        let nonzero = |number: &AtomicU32| Some(number.load(Relaxed)).filter(|number| *number > 0);
        let (last_event, upstream) = (*lock(&stats.last_event), lock(&stats.upstream).clone());
        let bytes = |at: usize| stats.bytes[at].load(Relaxed);
        LiveSessionView {
            id: self.info.id.clone(),
            client: self.info.client.clone(),
            profile: self.info.profile.clone(),
            peer: self.info.peer.to_string(),
            path: self.info.path.clone(),
            key: self.info.key.as_deref().map(str::to_owned),
            opened_at: self.info.opened_unix.as_secs_f64(),
            age_s: self.opened.elapsed().as_secs_f64(),
            state: stats.state().name(),
            upstream: upstream.name.map(|name| name.to_string()),
            upstream_session: upstream.session_id,
            audio_in_s: seconds(&stats.audio_in_ms),
            audio_out_s: seconds(&stats.audio_out_ms),
            waiting_s: seconds(&stats.waiting_audio_ms),
            queue_position: nonzero(&stats.queue_position),
            context_tokens: nonzero(&stats.context_tokens),
            bytes: WireBytes {
                client_in: bytes(0),
                client_out: bytes(1),
                upstream_in: bytes(2),
                upstream_out: bytes(3),
            },
            errors: stats.errors.load(Relaxed),
            rollovers: stats.rollovers.load(Relaxed),
            last_event: last_event.map(|last| last.event),
            last_event_ago_s: last_event.map(|last| last.at.elapsed().as_secs_f64()),
        }
    }
}
