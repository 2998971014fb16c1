//! How a session does, as its own task last said: numbers to be read by whoever looks.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;
use tokio::time::Instant;

use super::Live;
use crate::session::{State, Tally};

/// How a session does. Times are ms.
#[derive(Debug, Default)]
pub(in crate::server) struct Facts {
    state: AtomicU8,
    /// Audio is counted.
    audio: AtomicU8,
    audio_in: AtomicU64,
    audio_out: AtomicU64,
    waiting: AtomicU64,
    queue_position: AtomicU32,
    context_tokens: AtomicU32,
    /// Client in and out, upstream in and out.
    bytes: [AtomicU64; 4],
    errors: AtomicU64,
    rollovers: AtomicU64,
    last: Mutex<Option<Last>>,
    upstream: Mutex<Upstream>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    event: &'static str,
    at: Instant,
}

#[derive(Debug, Clone, Default)]
struct Upstream {
    name: Option<Arc<str>>,
    session_id: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // It is replaced as a whole, whatever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Facts {
    pub(in crate::server) fn state(&self) -> State {
        let state = usize::from(self.state.load(Relaxed));
        State::ALL.get(state).copied().unwrap_or(State::Opening)
    }

    pub(in crate::server) fn set_state(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    pub(in crate::server) fn set_tally(&self, tally: &Tally) {
        let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.audio.store(1, Relaxed);
        self.audio_in.store(ms(tally.came), Relaxed);
        self.audio_out.store(ms(tally.sent), Relaxed);
        self.waiting.store(ms(tally.waiting), Relaxed);
    }

    pub(in crate::server) fn set_bytes(&self, bytes: [u64; 4]) {
        self.bytes.iter().zip(bytes).for_each(|(known, bytes)| known.store(bytes, Relaxed));
    }

    /// Its place in an upstream's queue; 0 for none.
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

    /// Something happened that is worth a name.
    pub(in crate::server) fn happened(&self, event: &'static str) {
        *locked(&self.last) = Some(Last { event, at: Instant::now() });
    }

    pub(in crate::server) fn set_upstream(&self, name: Arc<str>) {
        *locked(&self.upstream) = Upstream { name: Some(name), session_id: None };
    }

    pub(in crate::server) fn set_upstream_session(&self, session_id: String) {
        locked(&self.upstream).session_id = Some(session_id);
    }
}

/// A session as operators see it; `null` for what is not known. Times are in seconds.
///
/// ```json
/// {"id": "sess_0123456789ab", "client": "macaw", "profile": "speech", "peer": "10.0.0.7:53124", "path": "/v1/realtime",
///  "key": "robots", "opened_at": 1790000000.1, "age_s": 12.5, "state": "listening", "upstream": "gpu-a", "upstream_session": "abc",
///  "audio_in_s": 11.9, "audio_out_s": 2.4, "waiting_s": 0.8, "queue_position": null, "context_tokens": 812,
///  "bytes": {"client_in": 381000, "client_out": 115000, "upstream_in": 310000, "upstream_out": 508000},
///  "errors": 0, "rollovers": 0, "last_event": "first_audio", "last_event_ago_s": 3.1}
/// ```
///
/// `state` is a [`State`]'s name. `waiting_s` is the user's audio that waits for an upstream. A relayed session has no
/// audio of its own that could be counted. What is counted a second at most ago may be missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation, and the example above")]
pub struct View {
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
    pub bytes: Bytes,
    pub errors: u64,
    pub rollovers: u64,
    pub last_event: Option<&'static str>,
    pub last_event_ago_s: Option<f64>,
}

/// Bytes on the wire so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Bytes {
    pub client_in: u64,
    pub client_out: u64,
    pub upstream_in: u64,
    pub upstream_out: u64,
}

impl Live {
    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.facts.state()
    }

    /// How it does, to be shown.
    #[must_use]
    pub fn view(&self) -> View {
        let facts = &self.facts;
        let counted = facts.audio.load(Relaxed) > 0;
        let seconds = |ms: &AtomicU64| counted.then(|| ms.load(Relaxed) as f64 / 1000.0);
        let known = |number: &AtomicU32| Some(number.load(Relaxed)).filter(|number| *number > 0);
        let (last, upstream) = (*locked(&facts.last), locked(&facts.upstream).clone());
        let bytes = |at: usize| facts.bytes[at].load(Relaxed);
        View {
            id: self.who.id.clone(),
            client: self.who.client.clone(),
            profile: self.who.profile.clone(),
            peer: self.who.peer.to_string(),
            path: self.who.path.clone(),
            key: self.who.key.as_deref().map(str::to_owned),
            opened_at: self.who.opened_unix.as_secs_f64(),
            age_s: self.opened.elapsed().as_secs_f64(),
            state: facts.state().name(),
            upstream: upstream.name.map(|name| name.to_string()),
            upstream_session: upstream.session_id,
            audio_in_s: seconds(&facts.audio_in),
            audio_out_s: seconds(&facts.audio_out),
            waiting_s: seconds(&facts.waiting),
            queue_position: known(&facts.queue_position),
            context_tokens: known(&facts.context_tokens),
            bytes: Bytes {
                client_in: bytes(0),
                client_out: bytes(1),
                upstream_in: bytes(2),
                upstream_out: bytes(3),
            },
            errors: facts.errors.load(Relaxed),
            rollovers: facts.rollovers.load(Relaxed),
            last_event: last.map(|last| last.event),
            last_event_ago_s: last.map(|last| last.at.elapsed().as_secs_f64()),
        }
    }
}
