//! Messages of OTLP, made of spans, lines and metrics.

mod metrics;

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse},
        metrics::v1::ExportMetricsServiceResponse,
        trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value},
    logs::v1::{LogRecord as LogMessage, ResourceLogs, ScopeLogs},
    resource::v1::Resource as ResourceMessage,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span as SpanMessage, Status,
        span::{Event, SpanKind as KindMessage},
        status::StatusCode,
    },
};
use prost::Message as _;
use tracing::Level;

pub(super) use self::metrics::encode_metrics;
use super::{
    log_export::LogRecord,
    settings::Resource,
    signal::Signal,
    span::{Attribute, Span, SpanKind, Value},
};

/// Flags of a span: its trace is sampled, and it is known whether its parent is remote (`SpanFlags` of OTLP).
const SAMPLED: u32 = 0x101;
/// Its parent is remote.
const IS_REMOTE: u32 = 0x200;

/// Checks that this program can send to a collector.
///
/// # Errors
/// Only in a program without the cargo feature `otlp`.
pub(crate) const fn check() -> Result<(), String> {
    Ok(())
}

/// A request with these spans.
pub(super) fn encode_spans(spans: &[Span], resource: &Resource) -> Vec<u8> {
    let spans = spans.iter().map(span_message).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, schema_url: String::new() }];
    let resource = Some(resource_message(resource));
    let resource_spans = vec![ResourceSpans { resource, scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// A request with these lines of the log.
pub(super) fn encode_lines(lines: &[LogRecord], resource: &Resource) -> Vec<u8> {
    let log_records = lines.iter().map(log_message).collect();
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, schema_url: String::new() }];
    let resource = Some(resource_message(resource));
    let resource_logs = vec![ResourceLogs { resource, scope_logs, schema_url: String::new() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

/// Number of records of a request that the collector did not take, by its answer.
pub(super) fn rejected_records(signal: Signal, answer: &[u8]) -> u64 {
    let rejected = match signal {
        Signal::Traces => ExportTraceServiceResponse::decode(answer)
            .ok()
            .and_then(|answer| answer.partial_success)
            .map(|partial| partial.rejected_spans),
        Signal::Metrics => ExportMetricsServiceResponse::decode(answer)
            .ok()
            .and_then(|answer| answer.partial_success)
            .map(|partial| partial.rejected_data_points),
        Signal::Logs => ExportLogsServiceResponse::decode(answer)
            .ok()
            .and_then(|answer| answer.partial_success)
            .map(|partial| partial.rejected_log_records),
    };
    rejected.and_then(|count| count.try_into().ok()).unwrap_or_default()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn resource_message(resource: &Resource) -> ResourceMessage {
    let attributes = resource.iter().map(|(name, value)| text_attribute(name, value)).collect();
    ResourceMessage { attributes, ..ResourceMessage::default() }
}

fn text_attribute(name: &str, value: &str) -> KeyValue {
    key_value(name, any_value::Value::StringValue(value.to_owned()))
}

fn key_value(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn attribute_messages(attributes: &[Attribute]) -> Vec<KeyValue> {
    let message = |Attribute { name, value }: &Attribute| {
        let text = |text: &str| any_value::Value::StringValue(text.to_owned());
        let value = match value {
            Value::Text(value) => text(value),
            Value::Texts(values) => {
                let values = values.iter().map(|value| AnyValue { value: Some(text(value)) }).collect();
                any_value::Value::ArrayValue(ArrayValue { values })
            }
            Value::Int(number) => any_value::Value::IntValue(*number),
            Value::Float(number) => any_value::Value::DoubleValue(*number),
            Value::Bool(flag) => any_value::Value::BoolValue(*flag),
        };
        key_value(name, value)
    };
    attributes.iter().map(message).collect()
}

fn span_message(span: &Span) -> SpanMessage {
    let (kind, is_entry) = match span.kind {
        SpanKind::Internal => (KindMessage::Internal, false),
        SpanKind::Server => (KindMessage::Server, true),
        SpanKind::Client => (KindMessage::Client, false),
    };
    let has_remote_parent = is_entry && span.parent.is_some();
    let events = span.events.iter().map(|event| Event {
        time_unix_nano: event.unix_ns,
        name: event.name.to_owned(),
        attributes: attribute_messages(&event.attributes),
        dropped_attributes_count: 0,
    });
    let failed = |words: &str| Status { message: words.to_owned(), code: StatusCode::Error.into() };
    SpanMessage {
        trace_id: span.trace_id.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        trace_state: span.trace_state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
        flags: SAMPLED | if has_remote_parent { IS_REMOTE } else { 0 },
        name: span.name.to_string(),
        kind: kind.into(),
        start_time_unix_nano: span.start_unix_ns,
        end_time_unix_nano: span.end_unix_ns,
        attributes: attribute_messages(&span.attributes),
        events: events.collect(),
        dropped_events_count: span.dropped_events,
        status: span.error.as_deref().map(failed),
        ..SpanMessage::default()
    }
}

fn log_message(record: &LogRecord) -> LogMessage {
    // Numbers of `SeverityNumber` in OTLP.
    let severity = match record.level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    };
    LogMessage {
        time_unix_nano: record.unix_ns,
        observed_time_unix_nano: record.unix_ns,
        severity_number: severity,
        severity_text: record.level.to_string(),
        body: Some(AnyValue { value: Some(any_value::Value::StringValue(record.message.clone())) }),
        attributes: attribute_messages(&record.attributes),
        trace_id: record.trace_id.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec()),
        span_id: record.span_id.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec()),
        ..LogMessage::default()
    }
}

#[cfg(test)]
mod tests;
