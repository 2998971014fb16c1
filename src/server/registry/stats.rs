//! What is known of a session: its own task writes it while it runs. Operators read it then, and the log and the access log at its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::LiveSession;
use crate::{
    error::ErrorKind,
    session::{AudioTotals, EndReason, SessionState},
};

/// Limit on the upstream sessions that are named; long conversations keep the newest.
const UPSTREAM_SESSIONS_MAX: usize = 16;

/// Close codes of a client that is done: normal, going away, and none given (RFC 6455 §7.4.1).
const ORDINARY_CLOSES: [u16; 3] = [1000, 1001, 1005];

/// Statistics of a session.
#[derive(Debug, Default)]
pub(super) struct SessionStats {
    pub(super) state: SessionState,
    /// `None` for a session that counts no audio.
    pub(super) audio: Option<AudioTotals>,
    pub(super) traffic: TrafficCounts,
    /// Position in an upstream's queue; 0 for none.
    pub(super) queue_position: u32,
    pub(super) longest_queue_wait: Option<Duration>,
    /// Tokens in the context of the model, and the most so far.
    pub(super) context_tokens: u32,
    pub(super) context_peak: u32,
    /// Errors by the name of their kind.
    pub(super) errors: BTreeMap<&'static str, u32>,
    pub(super) rollovers: u32,
    pub(super) longest_gap_ms: Option<u64>,
    pub(super) first_transcript: Option<Duration>,
    pub(super) first_audio: Option<Duration>,
    pub(super) barge_ins: u32,
    pub(super) underruns: u32,
    pub(super) last_event: Option<(&'static str, Instant)>,
    /// Upstream of the lane that was connected last, and the name of its session there once it is ready.
    pub(super) upstream: Option<Arc<str>>,
    pub(super) upstream_session: Option<String>,
    /// All upstreams, their newest sessions, and the number of lanes.
    pub(super) upstreams: BTreeSet<Arc<str>>,
    pub(super) upstream_sessions: Vec<String>,
    pub(super) lanes: u32,
    end_reason: Option<EndReason>,
    pub(super) client_close: Option<Close>,
    pub(super) upstream_close: Option<Close>,
}

/// Frame and byte counters, in and out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TrafficCounts {
    pub(crate) client_frames: [u64; 2],
    pub(crate) upstream_frames: [u64; 2],
    pub(super) client_bytes: [u64; 2],
    pub(super) upstream_bytes: [u64; 2],
}

/// Close of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) by: &'static str,
    pub(super) code: Option<u16>,
}

impl SessionStats {
    /// A lane is connected to this upstream.
    pub(super) fn add_lane(&mut self, upstream: &Arc<str>) {
        self.lanes += 1;
        self.upstreams.insert(upstream.clone());
        (self.upstream, self.upstream_session) = (Some(upstream.clone()), None);
    }

    /// The upstream has named its session.
    pub(super) fn add_upstream_session(&mut self, id: &str) {
        if self.upstream_sessions.len() == UPSTREAM_SESSIONS_MAX {
            self.upstream_sessions.remove(0);
        }
        self.upstream_sessions.push(id.to_owned());
        self.upstream_session = Some(id.to_owned());
    }

    /// A lane is closed. Says which side closed it, and its close code.
    pub(super) fn close_lane(&mut self, by_upstream: bool, code: Option<u16>) {
        self.upstream_close = Some(Close { by: if by_upstream { "upstream" } else { "bridge" }, code });
        (self.queue_position, self.context_tokens) = (0, 0);
    }

    /// Notes the first close of the client's connection; returns false for later ones.
    pub(super) fn close_client(&mut self, by_client: bool, code: Option<u16>) -> bool {
        let is_first = self.client_close.is_none();
        self.client_close.get_or_insert(Close { by: if by_client { "client" } else { "bridge" }, code });
        is_first
    }

    pub(super) fn add_queue_wait(&mut self, after: Duration) {
        self.longest_queue_wait = self.longest_queue_wait.max(Some(after));
    }

    pub(super) fn add_rollover(&mut self, gap_ms: u64) {
        self.rollovers += 1;
        self.longest_gap_ms = self.longest_gap_ms.max(Some(gap_ms));
    }

    pub(super) fn set_context(&mut self, tokens: u32) {
        self.context_tokens = tokens;
        self.context_peak = self.context_peak.max(tokens);
    }

    pub(super) fn add_error(&mut self, kind: ErrorKind) {
        *self.errors.entry(kind.name()).or_default() += 1;
    }

    /// The session ends for this reason. The first one counts, unless the session was cut off.
    pub(super) fn end(&mut self, reason: EndReason) {
        if reason == EndReason::CutOff {
            self.end_reason = Some(reason);
        }
        self.end_reason.get_or_insert(reason);
    }

    /// The session ends early, unless a reason is known.
    pub(super) fn cut_off(&mut self) {
        self.end_reason.get_or_insert(EndReason::CutOff);
    }

    /// Why the session ended. A client that closed its connection in the ordinary way is not one that was lost.
    pub(super) fn end_reason(&self) -> EndReason {
        match (self.end_reason.unwrap_or(EndReason::ClientGone), self.client_close) {
            (EndReason::ClientGone, Some(Close { by: "client", code: Some(code) }))
                if ORDINARY_CLOSES.contains(&code) =>
            {
                EndReason::ClientClose
            }
            (reason, _) => reason,
        }
    }
}

impl LiveSession {
    /// The statistics. Only the session's own task changes them.
    pub(super) fn stats(&self) -> MutexGuard<'_, SessionStats> {
        // Every change leaves valid values, so a poisoned lock holds them.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a named event, its time, and what it changes.
    pub(super) fn record_event(&self, event: &'static str, change: impl FnOnce(&mut SessionStats)) {
        let mut stats = self.stats();
        stats.last_event = Some((event, Instant::now()));
        change(&mut stats);
    }

    /// Records that the session ends for this reason.
    pub(super) fn record_end(&self, reason: EndReason) {
        self.record_event("ending", |stats| stats.end(reason));
        if reason == EndReason::CutOff {
            self.cut_off.store(true, Ordering::Relaxed);
        }
    }

    /// The state of the session.
    pub fn state(&self) -> SessionState {
        self.stats().state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_closes_in_the_ordinary_way_is_not_lost() {
        for (by_client, code, reason, end) in [
            (true, Some(1000), EndReason::ClientGone, EndReason::ClientClose),
            (true, Some(1001), EndReason::ClientGone, EndReason::ClientClose),
            (true, Some(1005), EndReason::ClientGone, EndReason::ClientClose),
            (true, Some(1011), EndReason::ClientGone, EndReason::ClientGone),
            (true, None, EndReason::ClientGone, EndReason::ClientGone),
            (false, Some(1000), EndReason::ClientGone, EndReason::ClientGone),
            (true, Some(1000), EndReason::Idle, EndReason::Idle),
        ] {
            let mut stats = SessionStats::default();
            stats.end(reason);
            stats.close_client(by_client, code);
            assert_eq!(stats.end_reason(), end, "{by_client} {code:?} {reason:?}");
        }
    }
}
