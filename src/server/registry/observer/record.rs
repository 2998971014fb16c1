//! What a session's line in the access log is made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    error::ErrorKind,
    server::registry::Live,
    session::Reason,
    telemetry::access_log::{Record, rfc3339},
};

/// Of a conversation of a day only the newest sessions are named.
const UPSTREAM_SESSIONS_MAX: usize = 16;

/// What was noted so far.
#[derive(Debug, Default)]
pub(super) struct Notes {
    upstream_sessions: Vec<String>,
    upstreams: BTreeSet<Arc<str>>,
    lanes: u32,
    queue: Option<Duration>,
    pub(super) first_transcript: Option<Duration>,
    pub(super) first_audio: Option<Duration>,
    rollovers: u32,
    gap_ms: Option<u64>,
    pub(super) barge_ins: u32,
    pub(super) underruns: u32,
    context_peak: u32,
    errors: BTreeMap<&'static str, u32>,
    pub(super) reason: Option<Reason>,
    client_close: Option<(&'static str, Option<u16>)>,
    upstream_close: Option<(&'static str, Option<u16>)>,
}

impl Notes {
    pub(super) fn connected(&mut self, upstream: &Arc<str>) {
        self.lanes += 1;
        self.upstreams.insert(upstream.clone());
    }

    pub(super) fn upstream_session(&mut self, id: &str) {
        if self.upstream_sessions.len() == UPSTREAM_SESSIONS_MAX {
            self.upstream_sessions.remove(0);
        }
        self.upstream_sessions.push(id.to_owned());
    }

    pub(super) fn queued(&mut self, after: Duration) {
        self.queue = self.queue.max(Some(after));
    }

    pub(super) fn rolled_over(&mut self, gap_ms: u64) {
        self.rollovers += 1;
        self.gap_ms = self.gap_ms.max(Some(gap_ms));
    }

    pub(super) fn context(&mut self, tokens: u32) {
        self.context_peak = self.context_peak.max(tokens);
    }

    pub(super) fn error(&mut self, kind: ErrorKind) {
        *self.errors.entry(kind.name()).or_default() += 1;
    }

    pub(super) fn upstream_closed(&mut self, by_upstream: bool, code: Option<u16>) {
        self.upstream_close = Some((if by_upstream { "upstream" } else { "bridge" }, code));
    }

    /// Whether it was not known before: who closes first has closed it.
    pub(super) fn client_closed(&mut self, by_client: bool, code: Option<u16>) -> bool {
        let news = self.client_close.is_none();
        self.client_close.get_or_insert((if by_client { "client" } else { "bridge" }, code));
        news
    }

    /// The line, but for what others have counted.
    pub(super) fn record(&self, live: &Live, reason: Reason) -> Record {
        let ms = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64() * 1000.0);
        let (who, lasted) = (&live.who, live.opened.elapsed());
        Record {
            opened: rfc3339(who.opened_unix),
            closed: rfc3339(who.opened_unix + lasted),
            duration_s: lasted.as_secs_f64(),
            session: who.id.clone(),
            upstream_sessions: self.upstream_sessions.clone(),
            upstreams: self.upstreams.iter().map(|name| (**name).to_owned()).collect(),
            client: who.client.clone(),
            profile: who.profile.clone(),
            path: who.path.clone(),
            key: who.key.as_deref().map(str::to_owned),
            subject: who.subject.clone(),
            peer: who.peer.to_string(),
            lanes: self.lanes,
            queue_ms: ms(self.queue),
            first_transcript_ms: ms(self.first_transcript),
            first_audio_ms: ms(self.first_audio),
            rollovers: self.rollovers,
            gap_ms: self.gap_ms.map(|gap| gap as f64),
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
            ..Record::default()
        }
    }
}
