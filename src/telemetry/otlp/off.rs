//! Stands for `proto` in a program that was built without OpenTelemetry: nothing is ever sent.

use super::{log_export::LogRecord, settings::Resource, signal::Signal, span::Span};

/// Checks that this program can send to a collector.
pub(crate) fn check() -> Result<(), String> {
    Err("this program was built without OpenTelemetry (cargo feature `otlp`)".to_owned())
}

pub(super) const fn encode_spans(_: &[Span], _: &Resource) -> Vec<u8> {
    Vec::new()
}

pub(super) const fn encode_lines(_: &[LogRecord], _: &Resource) -> Vec<u8> {
    Vec::new()
}

pub(super) const fn encode_metrics(_: &str, _: &Resource) -> Vec<u8> {
    Vec::new()
}

pub(super) const fn rejected_records(_: Signal, _: &[u8]) -> u64 {
    0
}
