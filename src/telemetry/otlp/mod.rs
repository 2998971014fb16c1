//! OpenTelemetry: traces of sessions, metrics and the log, sent to a collector by OTLP over HTTP with protobuf.
//!
//! To change here: what a span, a metric or a line becomes, and how it is sent. Not here: what is worth counting or logging.
//!
//! Sessions never wait for the collector. Spans and lines wait in queues with bounds; those that do not fit, or that the collector
//! does not take in time, are lost and counted.
//!
//! - [`settings`]: where to, how much, and as whom; the key of the configuration and the `OTEL_…` variables
//! - [`session_spans`]: the spans of one session; [`span`]: one of them
//! - [`log_export`]: lines of the log
//! - `queue`, `exporter`, `gzip` and `collector`: on the way; `proto`: the messages. A program without the cargo feature `otlp` has none
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>; <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

mod collector;
mod exporter;
mod gzip;
pub mod log_export;
#[cfg(feature = "otlp")]
mod proto;
#[cfg(not(feature = "otlp"))]
#[path = "off.rs"]
mod proto;
mod queue;
pub mod session_spans;
pub mod settings;
pub mod signal;
pub mod span;

use std::{fmt, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use self::{
    exporter::Exporter,
    log_export::{LogExport, LogRecord},
    queue::{Lost, RecordQueue},
    session_spans::{SessionSpans, SessionStart},
    settings::OtlpSettings,
    signal::Signal,
    span::Span,
};
use super::{context::TraceContext, metrics::Metrics};

pub(crate) use self::proto::check;

/// Spans or lines that may wait: minutes of a hundred conversations.
const QUEUE_MAX: usize = 4096;

/// The way to the collector. Clones share it.
#[derive(Clone)]
pub struct Otlp(Arc<Shared>);

struct Shared {
    settings: OtlpSettings,
    /// `None` without traces.
    spans: Option<RecordQueue<Span>>,
    /// `None` without the log.
    lines: Option<RecordQueue<LogRecord>>,
    lost: Lost,
    /// Set when everything that waits must be sent.
    stop: watch::Sender<bool>,
}

/// What sends to the collector, before it runs.
pub struct Exporters {
    settings: OtlpSettings,
    spans: mpsc::Receiver<Span>,
    lines: mpsc::Receiver<LogRecord>,
    lost: Lost,
    stop: watch::Receiver<bool>,
}

impl Otlp {
    /// The way to the collector of these settings. Nothing is sent before [`Exporters::run`].
    pub fn new(settings: OtlpSettings) -> (Self, Exporters) {
        let ((stop, stopped), lost) = (watch::channel(false), Lost::default());
        let (span_sender, spans) = mpsc::channel(QUEUE_MAX);
        let (line_sender, lines) = mpsc::channel(QUEUE_MAX);
        let shared = Shared {
            spans: settings.traces.is_some().then(|| RecordQueue::new(span_sender, lost.spans.clone())),
            lines: settings.logs.is_some().then(|| RecordQueue::new(line_sender, lost.lines.clone())),
            settings: settings.clone(),
            lost: lost.clone(),
            stop,
        };
        (Self(Arc::new(shared)), Exporters { settings, spans, lines, lost, stop: stopped })
    }

    /// The trace context of a session, with the decision whether its trace is recorded.
    pub fn sampled_context(&self, context: &Arc<TraceContext>) -> Arc<TraceContext> {
        match &self.0.spans {
            None => context.clone(),
            Some(_) => {
                let sampled = self.0.settings.sampler.is_sampled(context);
                Arc::new(TraceContext { sampled, ..(**context).clone() })
            }
        }
    }

    /// Begins the spans of a session; `None` if its trace is not recorded.
    pub fn begin_session(&self, start: &SessionStart<'_>) -> Option<SessionSpans> {
        let queue = self.0.spans.clone().filter(|_| start.context.sampled)?;
        Some(SessionSpans::begin(start, self.0.settings.has_content, queue))
    }

    /// The part of the log that goes to the collector, if it wants that.
    pub fn log_export(&self) -> Option<LogExport> {
        self.0.lines.clone().map(LogExport::new)
    }

    /// What was lost since the start, by its kind.
    pub fn lost(&self) -> [(&'static str, u64); 3] {
        self.0.lost.counts()
    }

    /// Ends the exporters, after they have tried once to send what waits.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

impl Exporters {
    /// Sends spans, lines and these metrics to the collector until [`Otlp::stop`].
    pub async fn run(self, metrics: Metrics) {
        let Self { settings, spans, lines, lost, stop } = self;
        let settings = Arc::new(settings);
        let exporter = |signal: Signal, target: &settings::Target| {
            Exporter::new(signal, target.clone(), settings.clone(), lost.of(signal), stop.clone())
        };
        let mut running = JoinSet::new();
        if let Some(target) = &settings.traces {
            running.spawn(exporter(Signal::Traces, target).send_records(spans, proto::encode_spans));
        }
        if let Some(target) = &settings.logs {
            running.spawn(exporter(Signal::Logs, target).send_records(lines, proto::encode_lines));
        }
        if let Some(target) = &settings.metrics {
            running.spawn(exporter(Signal::Metrics, target).send_metrics(metrics));
        }
        while running.join_next().await.is_some() {}
    }
}

impl fmt::Debug for Exporters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporters").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests;
