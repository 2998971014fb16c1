//! Spans of upstream connections, of the questions on them, and of their replacements.
//!
//! A question is one request with its answer: for a transcript, for speech, or for an answer in turns. A conversation in full duplex
//! has none; its turns say all.

use std::time::{Duration, Instant};

use super::{Scope, answers::AnswerSpans, user::UserSpans};
use crate::{
    session::Observation,
    telemetry::otlp::span::{Attribute, Span, SpanKind},
    vocabulary::{
        DisconnectReason, Lane, LaneEvent, LanePurpose, LaneRequest, MessageMeta, ReportedUsage, UpstreamEnd,
    },
};

/// Upstream connections that are not over.
#[derive(Debug, Default)]
pub(super) struct LaneSpans {
    open: Vec<OpenLane>,
}

#[derive(Debug)]
struct OpenLane {
    lane: Lane,
    span: Span,
    /// Upstream and dialect, once connected.
    upstream: Option<Upstream>,
    question: Option<Question>,
}

/// An upstream that is connected.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    name: String,
    dialect: String,
    /// The model that it is asked for, where the configuration names one.
    model: Option<String>,
}

impl Upstream {
    pub(super) fn new(name: &str, dialect: &str, model: Option<&str>) -> Self {
        Self { name: name.to_owned(), dialect: dialect.to_owned(), model: model.map(str::to_owned) }
    }
}

/// A request that is not answered.
#[derive(Debug)]
struct Question {
    span: Span,
    /// The turn or text that it makes.
    makes: Option<u64>,
    /// It is for an answer, whose turn has not begun.
    awaits_turn: bool,
    has_delta: bool,
}

impl LaneSpans {
    fn find(&mut self, lane: Lane) -> Option<&mut OpenLane> {
        self.open.iter_mut().find(|open| open.lane == lane)
    }

    pub(super) fn span_id(&self, lane: Lane) -> Option<u64> {
        self.open.iter().find(|open| open.lane == lane).map(|open| open.span.id)
    }

    pub(super) fn dialled(&mut self, scope: &mut Scope, at: Instant, lane: Lane, purpose: LanePurpose) {
        let mut span = scope.begin(at, "lane", SpanKind::Client);
        span.set("voxbridge.lane", lane.0);
        span.set("voxbridge.lane.purpose", purpose.name());
        self.open.push(OpenLane { lane, span, upstream: None, question: None });
    }

    pub(super) fn connected(&mut self, scope: &Scope, at: Instant, lane: Lane, upstream: Upstream) {
        let Some(open) = self.find(lane) else { return };
        set_upstream(&mut open.span, Some(&upstream));
        open.upstream = Some(upstream);
        scope.note(&mut open.span, at, "connected");
    }

    pub(super) fn note(&mut self, scope: &Scope, at: Instant, lane: Lane, event: &'static str) {
        if let Some(open) = self.find(lane) {
            scope.note(&mut open.span, at, event);
        }
    }

    pub(super) fn closed(
        &mut self,
        scope: &Scope,
        at: Instant,
        lane: Lane,
        reason: Option<&DisconnectReason>,
    ) {
        let Some(index) = self.open.iter().position(|open| open.lane == lane) else { return };
        let OpenLane { mut span, mut question, .. } = self.open.swap_remove(index);
        let is_failure = !matches!(reason, None | Some(DisconnectReason::Closed(1000 | 1001 | 1005, _)));
        if let Some(reason) = reason.filter(|_| is_failure) {
            span.fail("upstream_closed", reason.to_string());
            if let Some(question) = &mut question {
                question.span.fail("upstream_closed", "the upstream closed its connection");
            }
        }
        question.into_iter().for_each(|question| scope.end(at, question.span));
        scope.end(at, span);
    }

    /// Takes note of an observation on a lane.
    pub(super) fn observe(&mut self, scope: &Scope, at: Instant, observation: &Observation) {
        let (lane, event, attribute) = match observation {
            Observation::LaneQueued { lane, position, .. } => (
                lane,
                "queued",
                position.map(|position| Attribute::new("voxbridge.queue.position", position)),
            ),
            Observation::LaneReady { lane, session_id, .. } => {
                let id = session_id.clone().map(|id| Attribute::new("voxbridge.upstream.session", id));
                (lane, "ready", id)
            }
            Observation::LaneUnneeded { lane, .. } => (lane, "unneeded", None),
            Observation::LaneRetry { lane, words, .. } => (lane, "retried", Some(message(words))),
            Observation::LaneTrouble { lane, words } => (lane, "trouble", Some(message(words))),
            Observation::LaneRefused { lane, words, .. } => (lane, "refused", Some(message(words))),
            Observation::LaneFailed { lane, words } => (lane, "failed", Some(message(words))),
            _ => return,
        };
        let Some(OpenLane { span, question, .. }) = self.find(*lane) else { return };
        if let Observation::LaneRefused { .. } | Observation::LaneFailed { .. } = observation {
            let questions = question.as_mut().map(|question| &mut question.span);
            for span in questions.into_iter().chain([&mut *span]) {
                span.fail(event, "the upstream failed or refused the request");
            }
        }
        span.add_event(scope.unix_ns(at), event, attribute.into_iter().collect());
    }

    /// A lane's upstream is asked for this.
    pub(super) fn requested(
        &mut self,
        scope: &mut Scope,
        now: Instant,
        lane: Lane,
        request: &LaneRequest,
        user: &UserSpans,
        answers: &mut AnswerSpans,
    ) {
        let Some(open) = self.find(lane) else { return };
        let (operation, parent) = match request {
            LaneRequest::Transcribe { .. } => ("transcribe", user.oldest()),
            LaneRequest::Chat(_) => ("chat", answers.newest_turn()),
            LaneRequest::Speak { .. } => ("speak", Some(answers.speaking(scope, now))),
            LaneRequest::Cancel => {
                return open.end_question(scope, now, Some("cancelled"));
            }
            _ => return,
        };
        open.end_question(scope, now, None);
        let mut span = scope.begin(now, operation, SpanKind::Client);
        span.parent = parent.or(span.parent);
        span.set("gen_ai.operation.name", operation);
        span.set("voxbridge.lane", lane.0);
        set_upstream(&mut span, open.upstream.as_ref());
        if let LaneRequest::Chat(turn) = request {
            span.set("gen_ai.request.max_tokens", turn.max_tokens);
            span.set_if_known("gen_ai.request.temperature", turn.temperature);
        }
        let awaits_turn = operation == "chat" && parent.is_none();
        let makes = parent.filter(|_| operation != "transcribe");
        if let Some(id) = makes {
            answers.note_question(id, span.start_unix_ns, "asked");
        }
        open.question = Some(Question { span, makes, awaits_turn, has_delta: false });
    }

    /// The turn begins whose question was asked before.
    pub(super) fn adopt_question(&mut self, turn: Option<u64>, answers: &mut AnswerSpans) {
        let Some(turn) = turn else { return };
        let mut questions = self.open.iter_mut().filter_map(|open| open.question.as_mut());
        if let Some(question) = questions.find(|question| question.awaits_turn) {
            (question.awaits_turn, question.makes, question.span.parent) = (false, Some(turn), Some(turn));
            answers.note_question(turn, question.span.start_unix_ns, "asked");
            if let Some(delta) = question.span.events.iter().find(|event| event.name == "first_delta") {
                answers.note_question(turn, delta.unix_ns, "first_delta");
            }
        }
    }

    /// A lane's upstream sent this.
    pub(super) fn answered(
        &mut self,
        scope: &Scope,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: &MessageMeta<'_>,
        answers: &mut AnswerSpans,
    ) {
        let Some(open) = self.find(lane) else { return };
        let Some(question) = &mut open.question else { return };
        let is_progress = match event {
            LaneEvent::Text(text) => !text.trim().is_empty(),
            LaneEvent::Audio(sound) => !sound.is_none(),
            LaneEvent::Call { .. } => true,
            LaneEvent::Done { .. } => {
                meta.usage.iter().for_each(|usage| set_usage(&mut question.span, usage));
                return open.end_question(scope, now, None);
            }
            LaneEvent::Closed(UpstreamEnd { kind, .. }) => {
                let error = if kind.is_refusal() { "refused" } else { "upstream_ended" };
                question.span.fail(error, "the upstream ended its session");
                return open.end_question(scope, now, None);
            }
            _ => false,
        };
        if is_progress && !std::mem::replace(&mut question.has_delta, true) {
            scope.note(&mut question.span, now, "first_delta");
            if let Some(id) = question.makes {
                answers.note_question(id, scope.unix_ns(now), "first_delta");
            }
        }
    }

    pub(super) fn end_all(&mut self, scope: &Scope, now: Instant) {
        for mut open in std::mem::take(&mut self.open) {
            open.end_question(scope, now, None);
            scope.end(now, open.span);
        }
    }
}

impl OpenLane {
    /// Ends the question, with this event if it does so early.
    fn end_question(&mut self, scope: &Scope, now: Instant, event: Option<&'static str>) {
        if let Some(Question { mut span, .. }) = self.question.take() {
            event.into_iter().for_each(|event| scope.note(&mut span, now, event));
            scope.end(now, span);
        }
    }
}

/// A conversation goes on in another upstream session: the span of the time without one.
pub(super) fn end_rollover(scope: &mut Scope, at: Instant, observation: &Observation) {
    let (gap_ms, attributes) = match observation {
        Observation::RolledOver { reason, gap_ms, standby, kept_ms, known_lines, missing_lines } => (
            *gap_ms,
            vec![
                Attribute::new("voxbridge.rollover.reason", reason.name()),
                Attribute::new("voxbridge.rollover.standby", *standby),
                Attribute::new("voxbridge.rollover.kept.seconds", *kept_ms as f64 / 1000.0),
                Attribute::new("voxbridge.rollover.known_lines", *known_lines),
                Attribute::new("voxbridge.rollover.missing_lines", *missing_lines),
            ],
        ),
        Observation::RelayResumed { gap_ms, kept, dropped } => (
            *gap_ms,
            vec![
                Attribute::new("voxbridge.rollover.reason", "upstream_lost"),
                Attribute::new("voxbridge.rollover.kept_messages", *kept),
                Attribute::new("voxbridge.rollover.dropped_messages", *dropped),
            ],
        ),
        _ => return,
    };
    let began = at.checked_sub(Duration::from_millis(gap_ms)).unwrap_or(at);
    let mut span = scope.begin(began, "rollover", SpanKind::Internal);
    span.attributes.extend(attributes);
    scope.end(at, span);
}

fn message(words: &str) -> Attribute {
    Attribute::new("error.message", words.to_owned())
}

fn set_upstream(span: &mut Span, upstream: Option<&Upstream>) {
    let Some(Upstream { name, dialect, model }) = upstream else { return };
    span.set("voxbridge.upstream", name.clone());
    span.set("gen_ai.provider.name", dialect.clone());
    span.set_if_known("gen_ai.request.model", model.clone());
}

fn set_usage(span: &mut Span, usage: &ReportedUsage) {
    span.set_if_known("gen_ai.usage.input_tokens", usage.input_tokens);
    span.set_if_known("gen_ai.usage.output_tokens", usage.output_tokens);
}
