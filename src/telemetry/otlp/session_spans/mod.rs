//! The spans of one session: itself, the user's utterances, the model's turns, what a client has spoken, questions to upstreams, calls
//! of tools, upstream connections and their replacements.
//!
//! Names of attributes and operations are those of OpenTelemetry's semantic conventions for generative AI where they have one
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>); the others begin with `voxbridge.`. What users and models say is
//! recorded only if the operator wants it.

mod answers;
mod lanes;
mod user;

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use self::{
    answers::AnswerSpans,
    lanes::{LaneSpans, Upstream},
    user::UserSpans,
};
use super::{
    queue::RecordQueue,
    span::{Attribute, Span, SpanKind, Value},
};
use crate::{
    bridge::EventTap,
    error::{Error, Origin},
    session::{Measurement, Observation},
    telemetry::{access_log::AccessRecord, context::TraceContext},
    trace::redact::fnv1a,
    vocabulary::{
        ClientEvent, ClientRequest, DisconnectReason, EntryId, EntryPart, Lane, LaneEvent, LaneRequest,
        MessageMeta, ServerCall, ServerCallResult, Speaker,
    },
};

/// Most spans of a kind that are open at a time; the oldest ends when there are more.
const OPEN_MAX: usize = 64;

/// Id of the span of a session. It is made from the session's id, so that lines of the log find it.
pub fn session_span_id(session_id: &str) -> u64 {
    fnv1a(session_id.as_bytes()).max(1)
}

/// What is known of a session at its start.
#[derive(Debug)]
pub struct SessionStart<'s> {
    /// Its trace context.
    pub context: &'s TraceContext,
    /// Its id.
    pub id: &'s str,
    /// The client's protocol.
    pub client: &'s str,
    /// Its profile.
    pub profile: &'s str,
    /// The client's address.
    pub peer: SocketAddr,
    /// Path of the client's request.
    pub path: &'s str,
    /// Name of the client's key.
    pub key: Option<&'s str>,
    /// Start of the session.
    pub opened: Instant,
    /// The same, since 1970.
    pub opened_unix: Duration,
}

/// The spans of a session. Clones share them.
#[derive(Debug, Clone)]
pub struct SessionSpans(Arc<Mutex<Recorder>>);

#[derive(Debug)]
struct Recorder {
    scope: Scope,
    session: Span,
    user: UserSpans,
    answers: AnswerSpans,
    lanes: LaneSpans,
}

/// What the spans of a session have in common.
#[derive(Debug)]
struct Scope {
    trace_id: u128,
    trace_state: Option<Arc<str>>,
    session_id: Arc<str>,
    session_span: u64,
    opened: Instant,
    opened_unix: Duration,
    ids: fastrand::Rng,
    /// What users and models say is recorded.
    has_content: bool,
    queue: RecordQueue<Span>,
}

impl Scope {
    /// An instant since 1970, ns.
    fn unix_ns(&self, at: Instant) -> u64 {
        let unix = match at.checked_duration_since(self.opened) {
            Some(after) => self.opened_unix + after,
            None => self.opened_unix.saturating_sub(self.opened - at),
        };
        u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins a span, as a part of the session unless it gets another parent.
    fn begin(&mut self, at: Instant, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Span {
        let unix_ns = self.unix_ns(at);
        let conversation = Attribute::new("gen_ai.conversation.id", self.session_id.to_string());
        Span {
            trace_id: self.trace_id,
            id: self.ids.u64(1..),
            parent: Some(self.session_span),
            trace_state: self.trace_state.clone(),
            name: name.into(),
            kind,
            start_unix_ns: unix_ns,
            end_unix_ns: unix_ns,
            attributes: vec![conversation],
            events: Vec::new(),
            dropped_events: 0,
            error: None,
        }
    }

    /// Adds an event to a span.
    fn note(&self, span: &mut Span, at: Instant, name: &'static str) {
        span.add_event(self.unix_ns(at), name, Vec::new());
    }

    /// Ends a span and queues it for the collector.
    fn end(&self, at: Instant, mut span: Span) {
        span.end_unix_ns = self.unix_ns(at).max(span.start_unix_ns);
        self.queue.push(span);
    }

    /// Sets an attribute with words of users, models or tools, if these are recorded.
    fn set_content(&self, span: &mut Span, name: &'static str, words: impl FnOnce() -> String) {
        if self.has_content {
            span.set(name, words());
        }
    }
}

impl SessionSpans {
    /// Begins the span of a session.
    pub(super) fn begin(start: &SessionStart<'_>, has_content: bool, queue: RecordQueue<Span>) -> Self {
        let mut scope = Scope {
            trace_id: start.context.trace_id.0,
            trace_state: start.context.state.as_deref().map(Arc::from),
            session_id: start.id.into(),
            session_span: session_span_id(start.id),
            opened: start.opened,
            opened_unix: start.opened_unix,
            ids: fastrand::Rng::new(),
            has_content,
            queue,
        };
        let mut session = scope.begin(start.opened, "session", SpanKind::Server);
        (session.id, session.parent) = (scope.session_span, start.context.parent_id);
        session.set("session.id", start.id.to_owned());
        session.set("client.address", start.peer.ip().to_string());
        session.set("url.path", start.path.to_owned());
        session.set("voxbridge.client", start.client.to_owned());
        session.set("voxbridge.profile", start.profile.to_owned());
        session.set_if_known("voxbridge.key", start.key.map(str::to_owned));
        let answers = AnswerSpans::new(start.profile);
        let (user, lanes) = (UserSpans::default(), LaneSpans::default());
        Self(Arc::new(Mutex::new(Recorder { scope, session, user, answers, lanes })))
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        // Every change leaves valid spans, so a poisoned lock holds them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Id of a lane's span.
    pub fn lane_span_id(&self, lane: Lane) -> Option<u64> {
        self.recorder().lanes.span_id(lane)
    }

    /// A lane is connected to this upstream, which speaks this dialect. It is asked for this model, if the configuration names one.
    pub fn lane_connected(
        &self,
        at: Instant,
        lane: Lane,
        upstream: &str,
        dialect: &str,
        model: Option<&str>,
    ) {
        let Recorder { scope, lanes, .. } = &mut *self.recorder();
        lanes.connected(scope, at, lane, Upstream::new(upstream, dialect, model));
    }

    /// A lane is closed: by its upstream with this reason, or by voxbridge without one.
    pub fn lane_closed(&self, at: Instant, lane: Lane, reason: Option<&DisconnectReason>) {
        let Recorder { scope, lanes, .. } = &mut *self.recorder();
        lanes.closed(scope, at, lane, reason);
    }

    /// Takes note of a measurement.
    pub fn measure(&self, at: Instant, measurement: &Measurement) {
        let Recorder { scope, lanes, .. } = &mut *self.recorder();
        match measurement {
            Measurement::LaneDialled { lane, purpose } => lanes.dialled(scope, at, *lane, *purpose),
            Measurement::LaneGranted { lane, .. } => lanes.note(scope, at, *lane, "worker_granted"),
            _ => {}
        }
    }

    /// Takes note of an observation.
    pub fn observe(&self, at: Instant, observation: &Observation) {
        let Recorder { scope, session, answers, lanes, .. } = &mut *self.recorder();
        match observation {
            Observation::Interrupted => answers.interrupted(scope, at),
            Observation::Underrun => answers.note_heard(scope, at, "underrun"),
            Observation::ErrorTold(error) => {
                session.add_event(scope.unix_ns(at), "error", error_attributes(error));
            }
            Observation::RolledOver { .. } | Observation::RelayResumed { .. } => {
                lanes::end_rollover(scope, at, observation);
            }
            _ => lanes.observe(scope, at, observation),
        }
    }

    /// Ends the session's span, with its line of the access log, and those that are still open.
    pub fn finish(&self, at: Instant, record: &AccessRecord) {
        let Recorder { scope, session, user, answers, lanes } = &mut *self.recorder();
        user.end_all(scope, at);
        answers.end_all(scope, at);
        lanes.end_all(scope, at);
        let mut span = session.clone();
        set_totals(&mut span, record);
        if matches!(record.reason, "upstream" | "upstream_exhausted" | "cut_off" | "client_error") {
            span.fail(record.reason, record.reason);
        }
        scope.end(at, span);
    }
}

/// What an error event says. The words of an error that the client made may quote it.
fn error_attributes(error: &Error) -> Vec<Attribute> {
    let mut attributes = vec![
        Attribute::new("error.type", error.kind.name()),
        Attribute::new("voxbridge.error.origin", error.kind.origin().name()),
    ];
    if error.kind.origin() != Origin::Client {
        attributes.push(Attribute::new("error.message", error.detail.clone()));
    }
    attributes
}

/// Adds the totals of the access log's line.
fn set_totals(span: &mut Span, record: &AccessRecord) {
    span.set("voxbridge.end.reason", record.reason);
    span.set("voxbridge.end.by", record.ended_by);
    span.set("voxbridge.upstreams", record.upstreams.clone());
    span.set("voxbridge.lanes", record.lanes);
    span.set("voxbridge.rollovers", record.rollovers);
    span.set("voxbridge.barge_ins", record.barge_ins);
    span.set("voxbridge.underruns", record.underruns);
    let totals: [(&str, Option<Value>); 5] = [
        ("voxbridge.audio_in.seconds", record.audio_in_s.map(Value::from)),
        ("voxbridge.audio_out.seconds", record.audio_out_s.map(Value::from)),
        ("voxbridge.audio_dropped.seconds", record.dropped_s.map(Value::from)),
        ("voxbridge.audio_muted.seconds", record.muted_s.map(Value::from)),
        ("voxbridge.client.close_code", record.client_close.map(|code| u32::from(code).into())),
    ];
    for (name, value) in totals {
        span.set_if_known(name, value);
    }
}

impl EventTap for SessionSpans {
    fn client_request(&mut self, now: Instant, request: &ClientRequest<'_>) {
        let ClientRequest::AddEntry(entry, _) = request else { return };
        let Recorder { scope, answers, .. } = &mut *self.recorder();
        for part in &entry.parts {
            if let EntryPart::Result(result) = part {
                answers.client_tool_ended(scope, now, result);
            }
        }
    }

    fn client_event(&mut self, now: Instant, event: &ClientEvent) {
        let Recorder { scope, user, answers, lanes, .. } = &mut *self.recorder();
        match event {
            // Those that follow each other by the frame, and say nothing of a span.
            ClientEvent::Audio(_) | ClientEvent::AudioReceived { .. } | ClientEvent::AudioAnswered { .. } => {
            }
            ClientEvent::AnswerStarted { .. } => {
                let turn = answers.handle_event(scope, now, event);
                lanes.adopt_question(turn, answers);
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::Assistant, .. } => {
                answers.handle_event(scope, now, event);
            }
            ClientEvent::SpeechStarted { .. }
            | ClientEvent::SpeechEnded { .. }
            | ClientEvent::AudioCommitted { .. }
            | ClientEvent::AudioCleared
            | ClientEvent::TranscriptFinal { .. }
            | ClientEvent::TurnEnded { .. }
            | ClientEvent::Error(_) => user.handle_event(scope, now, event),
            _ => {
                answers.handle_event(scope, now, event);
            }
        }
    }

    fn lane_request(&mut self, now: Instant, lane: Lane, request: &LaneRequest) {
        let Recorder { scope, user, answers, lanes, .. } = &mut *self.recorder();
        lanes.requested(scope, now, lane, request, user, answers);
    }

    fn lane_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>, meta: &MessageMeta<'_>) {
        let Recorder { scope, answers, lanes, .. } = &mut *self.recorder();
        lanes.answered(scope, now, lane, event, meta, answers);
    }

    fn tool_called(&mut self, now: Instant, call: &ServerCall) {
        let Recorder { scope, answers, .. } = &mut *self.recorder();
        answers.server_tool_called(scope, now, call);
    }

    fn tool_ended(&mut self, now: Instant, call: EntryId, result: &ServerCallResult) {
        let Recorder { scope, answers, .. } = &mut *self.recorder();
        answers.server_tool_ended(scope, now, call, result);
    }
}

#[cfg(test)]
mod tests;
