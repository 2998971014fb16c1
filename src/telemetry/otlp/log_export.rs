//! Lines of the log on their way to the collector, with their level, fields and trace.

use std::fmt::{Debug, Write as _};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{
    queue::RecordQueue,
    session_spans::session_span_id,
    span::{Attribute, Value},
};
use crate::telemetry::{context::TraceParent, metrics::scrape::unix_now_s};

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// Since 1970, ns.
    pub unix_ns: u64,
    /// Its level.
    pub level: Level,
    /// The message.
    pub message: String,
    /// Fields of the line and of its session.
    pub attributes: Vec<Attribute>,
    /// Trace of its session.
    pub trace_id: Option<u128>,
    /// Span of its session.
    pub span_id: Option<u64>,
}

/// Gives the lines of voxbridge's own log to the collector. Those of libraries tell of each request, also of those to the collector.
#[derive(Debug)]
pub struct LogExport {
    queue: RecordQueue<LogRecord>,
}

impl LogExport {
    pub(super) const fn new(queue: RecordQueue<LogRecord>) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for LogExport {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SessionFields::of(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with(env!("CARGO_PKG_NAME")) {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut record = LogRecord {
            unix_ns: (unix_now_s() * 1e9) as u64,
            level: *metadata.level(),
            message: fields.message,
            attributes: fields.others,
            trace_id: None,
            span_id: None,
        };
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(session) = span.extensions().get::<SessionFields>() {
                record.attributes.extend(session.attributes.iter().cloned());
                (record.trace_id, record.span_id) =
                    (record.trace_id.or(session.trace_id), record.span_id.or(session.span_id));
            }
        }
        self.queue.push(record);
    }
}

/// What a session's lines have in common.
struct SessionFields {
    attributes: Vec<Attribute>,
    trace_id: Option<u128>,
    span_id: Option<u64>,
}

impl SessionFields {
    fn of(fields: Fields) -> Self {
        let text = |name: &str| {
            fields.others.iter().find_map(|field| match &field.value {
                Value::Text(text) if field.name == name => Some(&**text),
                _ => None,
            })
        };
        let trace_id = text("trace_id").and_then(|id| TraceParent::parse(&format!("00-{id}-{:016x}-00", 1)));
        let span_id = text("id").filter(|id| !id.is_empty()).map(session_span_id);
        let renamed = |Attribute { name, value }: &Attribute| match *name {
            "trace_id" => None,
            "id" => Some(Attribute { name: "session.id", value: value.clone() }),
            "peer" => Some(Attribute { name: "client.address", value: value.clone() }),
            "client" => Some(Attribute { name: "voxbridge.client", value: value.clone() }),
            "key" => Some(Attribute { name: "voxbridge.key", value: value.clone() }),
            name => Some(Attribute { name, value: value.clone() }),
        };
        let attributes = fields.others.iter().filter_map(renamed).collect();
        Self { attributes, trace_id: trace_id.map(|parent| parent.trace_id.0), span_id }
    }
}

/// The message and the other fields.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<Attribute>,
}

impl Fields {
    fn push(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.push(Attribute::new(field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.push(field, format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.push(field, value.to_owned());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tracing::{error_span, info, warn};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn line_of_a_session_has_its_fields_and_its_trace() {
        let (sender, mut lines) = mpsc::channel(10);
        let export = LogExport::new(RecordQueue::new(sender, Default::default()));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(export), || {
            let (trace_id, key) = ("4bf92f3577b34da6a3ce929d0e0e4736", None::<&str>);
            let span = error_span!("session", id = "sess_1", client = "macaw", peer = %"192.0.2.1:5", key, %trace_id);
            let _in = span.entered();
            warn!(target: "voxbridge::server", count = 3_u64, reason = "slow", "lost {}", 3);
            info!(target: "hyper::proto", "a request");
        });
        let line = lines.try_recv().unwrap();
        assert_eq!((line.message.as_str(), line.level), ("lost 3", Level::WARN));
        assert_eq!(line.trace_id, Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736));
        assert_eq!(line.span_id, Some(session_span_id("sess_1")));
        let attributes = [
            Attribute::new("count", 3_u64),
            Attribute::new("reason", "slow"),
            Attribute::new("session.id", "sess_1"),
            Attribute::new("voxbridge.client", "macaw"),
            Attribute::new("client.address", "192.0.2.1:5"),
        ];
        assert_eq!(line.attributes, attributes);
        assert!(lines.try_recv().is_err(), "lines of libraries stay here");
    }
}
