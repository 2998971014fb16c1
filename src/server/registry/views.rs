//! Readers of a session's statistics: the list of sessions, the access log and the log.

use serde::Serialize;
use tokio::time::Duration;
use tracing::info;

use super::{
    LiveSession,
    stats::{Close, SessionStats},
};
use crate::{date::rfc3339, session::AudioTotals, telemetry::access_log::AccessRecord};

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
/// `state` is the name of a [`crate::session::SessionState`]. `waiting_s` is user audio that waits for an upstream. Relayed sessions
/// do not count audio. Counters may lag by up to a second.
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
    /// The statistics for operators.
    pub fn view(&self) -> LiveSessionView {
        let (info, stats) = (&self.info, self.stats());
        let seconds = |of: fn(&AudioTotals) -> Duration| {
            stats.audio.as_ref().map(|audio| of(audio).as_millis() as f64 / 1000.0)
        };
        LiveSessionView {
            id: info.id.clone(),
            client: info.client.clone(),
            profile: info.profile.clone(),
            peer: info.peer.to_string(),
            path: info.path.clone(),
            detected_by: info.detected_by.clone(),
            key: info.key.as_deref().map(str::to_owned),
            opened_at: info.opened_unix.as_secs_f64(),
            age_s: self.opened.elapsed().as_secs_f64(),
            state: stats.state.name(),
            upstream: stats.upstream.as_deref().map(str::to_owned),
            upstream_session: stats.upstream_session.clone(),
            audio_in_s: seconds(|audio| audio.received),
            audio_out_s: seconds(|audio| audio.sent),
            waiting_s: seconds(|audio| audio.waiting),
            queue_position: nonzero(stats.queue_position),
            context_tokens: nonzero(stats.context_tokens),
            bytes: stats.bytes(),
            errors: stats.errors.values().map(|count| u64::from(*count)).sum(),
            rollovers: stats.rollovers.into(),
            last_event: stats.last_event.map(|(event, _)| event),
            last_event_ago_s: stats.last_event.map(|(_, at)| at.elapsed().as_secs_f64()),
        }
    }

    /// The access log line of a session that has lasted this long.
    pub(super) fn access_record(&self, lasted: Duration) -> AccessRecord {
        let (info, stats) = (&self.info, self.stats());
        let ms = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64() * 1000.0);
        let seconds =
            |of: fn(&AudioTotals) -> Duration| stats.audio.as_ref().map(|audio| of(audio).as_secs_f64());
        let (bytes, reason) = (stats.bytes(), stats.end_reason());
        let code = |close: Option<Close>| close.and_then(|close| close.code);
        let closed_by = |close: Option<Close>| close.map(|close| close.by);
        AccessRecord {
            opened: rfc3339(info.opened_unix.as_secs_f64()),
            closed: rfc3339((info.opened_unix + lasted).as_secs_f64()),
            duration_s: lasted.as_secs_f64(),
            session: info.id.clone(),
            upstream_sessions: stats.upstream_sessions.clone(),
            upstreams: stats.upstreams.iter().map(|name| (**name).to_owned()).collect(),
            client: info.client.clone(),
            profile: info.profile.clone(),
            path: info.path.clone(),
            peer: info.peer.to_string(),
            key: info.key.as_deref().map(str::to_owned),
            subject: info.subject.clone(),
            trace_id: Some(info.trace_id.to_string()),
            audio_in_s: seconds(|audio| audio.received),
            audio_out_s: seconds(|audio| audio.sent),
            dropped_s: seconds(|audio| audio.dropped_too_fast + audio.dropped_backlog),
            muted_s: seconds(|audio| audio.muted + audio.silenced),
            client_in_bytes: bytes.client_in,
            client_out_bytes: bytes.client_out,
            upstream_in_bytes: bytes.upstream_in,
            upstream_out_bytes: bytes.upstream_out,
            lanes: stats.lanes,
            queue_ms: ms(stats.longest_queue_wait),
            first_transcript_ms: ms(stats.first_transcript),
            first_audio_ms: ms(stats.first_audio),
            rollovers: stats.rollovers,
            gap_ms: stats.longest_gap_ms.map(|gap| gap as f64),
            barge_ins: stats.barge_ins,
            underruns: stats.underruns,
            context_peak_tokens: nonzero(stats.context_peak),
            errors: stats.errors.clone(),
            reason: reason.name(),
            ended_by: reason.side(),
            client_close: code(stats.client_close),
            client_closed_by: closed_by(stats.client_close),
            upstream_close: code(stats.upstream_close),
            upstream_closed_by: closed_by(stats.upstream_close),
        }
    }

    /// Logs the end of a session that has lasted this long.
    pub(super) fn log_end(&self, lasted: Duration) {
        let stats = self.stats();
        let (reason, duration_s) = (stats.end_reason().name(), hundredths(lasted));
        let Some(audio) = stats.audio else { return info!(reason, duration_s, "session ended") };
        info!(
            reason,
            duration_s,
            audio_in_s = hundredths(audio.received),
            audio_out_s = hundredths(audio.sent),
            audio_muted_s = hundredths(audio.muted),
            audio_silenced_s = hundredths(audio.silenced),
            audio_to_model_s = hundredths(audio.appended),
            audio_dropped_s = hundredths(audio.dropped_too_fast + audio.dropped_backlog),
            barge_ins = stats.barge_ins,
            "session ended"
        );
    }
}

impl SessionStats {
    const fn bytes(&self) -> WireBytes {
        let ([client_in, client_out], [upstream_in, upstream_out]) =
            (self.traffic.client_bytes, self.traffic.upstream_bytes);
        WireBytes { client_in, client_out, upstream_in, upstream_out }
    }
}

fn nonzero(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number > 0)
}

/// Seconds, rounded to hundredths for the log.
fn hundredths(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100.0).round() / 100.0
}
