//! Collects a session's line for the access log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    date::rfc3339, error::ErrorKind, server::registry::LiveSession, session::EndReason,
    telemetry::access_log::AccessRecord,
};

/// Limit on the upstream sessions named per line; long conversations keep the newest.
const UPSTREAM_SESSIONS_MAX: usize = 16;

/// Close codes of a client that is done: normal, going away, and none given (RFC 6455 §7.4.1).
const ORDINARY_CLOSES: [u16; 3] = [1000, 1001, 1005];

/// Facts collected so far.
#[derive(Debug, Default)]
pub(super) struct AccessLogNotes {
    upstream_sessions: Vec<String>,
    upstreams: BTreeSet<Arc<str>>,
    lanes: u32,
    longest_queue_wait: Option<Duration>,
    pub(super) first_transcript: Option<Duration>,
    pub(super) first_audio: Option<Duration>,
    rollovers: u32,
    longest_gap_ms: Option<u64>,
    pub(super) barge_ins: u32,
    pub(super) underruns: u32,
    context_peak: u32,
    errors: BTreeMap<&'static str, u32>,
    pub(super) reason: Option<EndReason>,
    client_close: Option<(&'static str, Option<u16>)>,
    upstream_close: Option<(&'static str, Option<u16>)>,
}

impl AccessLogNotes {
    pub(super) fn add_lane(&mut self, upstream: &Arc<str>) {
        self.lanes += 1;
        self.upstreams.insert(upstream.clone());
    }

    pub(super) fn add_upstream_session(&mut self, id: &str) {
        if self.upstream_sessions.len() == UPSTREAM_SESSIONS_MAX {
            self.upstream_sessions.remove(0);
        }
        self.upstream_sessions.push(id.to_owned());
    }

    pub(super) fn record_queue_wait(&mut self, after: Duration) {
        self.longest_queue_wait = self.longest_queue_wait.max(Some(after));
    }

    pub(super) fn record_rollover(&mut self, gap_ms: u64) {
        self.rollovers += 1;
        self.longest_gap_ms = self.longest_gap_ms.max(Some(gap_ms));
    }

    pub(super) fn record_context(&mut self, tokens: u32) {
        self.context_peak = self.context_peak.max(tokens);
    }

    pub(super) fn record_error(&mut self, kind: ErrorKind) {
        *self.errors.entry(kind.name()).or_default() += 1;
    }

    pub(super) fn record_upstream_close(&mut self, by_upstream: bool, code: Option<u16>) {
        self.upstream_close = Some((if by_upstream { "upstream" } else { "bridge" }, code));
    }

    /// Records the first close of the client's connection; returns false for later ones.
    pub(super) fn record_client_close(&mut self, by_client: bool, code: Option<u16>) -> bool {
        let is_first = self.client_close.is_none();
        self.client_close.get_or_insert((if by_client { "client" } else { "bridge" }, code));
        is_first
    }

    /// Why the session ended. A client that closed its connection in the ordinary way is not one that was lost.
    pub(super) fn end_reason(&self) -> EndReason {
        match (self.reason.unwrap_or(EndReason::ClientGone), self.client_close) {
            (EndReason::ClientGone, Some(("client", Some(code)))) if ORDINARY_CLOSES.contains(&code) => {
                EndReason::ClientClose
            }
            (reason, _) => reason,
        }
    }

    /// The access log line, without the byte and audio counters.
    pub(super) fn to_record(&self, session: &LiveSession, reason: EndReason) -> AccessRecord {
        let ms = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64() * 1000.0);
        let (info, lasted) = (&session.info, session.opened.elapsed());
        AccessRecord {
            opened: rfc3339(info.opened_unix.as_secs_f64()),
            closed: rfc3339((info.opened_unix + lasted).as_secs_f64()),
            duration_s: lasted.as_secs_f64(),
            session: info.id.clone(),
            upstream_sessions: self.upstream_sessions.clone(),
            upstreams: self.upstreams.iter().map(|name| (**name).to_owned()).collect(),
            client: info.client.clone(),
            profile: info.profile.clone(),
            path: info.path.clone(),
            key: info.key.as_deref().map(str::to_owned),
            subject: info.subject.clone(),
            peer: info.peer.to_string(),
            lanes: self.lanes,
            queue_ms: ms(self.longest_queue_wait),
            first_transcript_ms: ms(self.first_transcript),
            first_audio_ms: ms(self.first_audio),
            rollovers: self.rollovers,
            gap_ms: self.longest_gap_ms.map(|gap| gap as f64),
            barge_ins: self.barge_ins,
            underruns: self.underruns,
            context_peak_tokens: Some(self.context_peak).filter(|tokens| *tokens > 0),
            errors: self.errors.clone(),
            reason: reason.name(),
            ended_by: reason.side(),
            client_close: self.client_close.and_then(|(_, code)| code),
            client_closed_by: self.client_close.map(|(by, _)| by),
            upstream_close: self.upstream_close.and_then(|(_, code)| code),
            upstream_closed_by: self.upstream_close.map(|(by, _)| by),
            ..AccessRecord::default()
        }
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
            let mut notes = AccessLogNotes { reason: Some(reason), ..AccessLogNotes::default() };
            notes.record_client_close(by_client, code);
            assert_eq!(notes.end_reason(), end, "{by_client} {code:?} {reason:?}");
        }
    }
}
