//! Observability for operators: the log, metrics, the access log, trace context and OpenTelemetry.
//!
//! To change here: a metric with a closed set of labels, or a field of a log. Not here: the decision that something
//! is worth counting, which its caller makes.
//!
//! - [`log`]: set up once; its level can change at runtime
//! - [`metrics`]: counted continuously, rendered on request
//! - [`access_log`]: one line per session
//! - [`line_writer`]: writes the lines of both logs, so that sessions do not wait for them
//! - [`context`]: the distributed trace of a session
//! - [`otlp`]: spans of sessions, metrics and the log for a collector of OpenTelemetry
//!
//! None of them contains audio, text or credentials; spans contain text if the operator wants it.

#[cfg(feature = "io")]
pub mod access_log;
pub mod context;
#[cfg(feature = "io")]
pub mod line_writer;
#[cfg(feature = "io")]
pub mod log;
#[cfg(feature = "io")]
pub mod metrics;

#[cfg(feature = "io")]
pub mod otlp;

#[cfg(feature = "io")]
pub use self::log::init;
#[cfg(feature = "io")]
pub(crate) use self::log::log_observation;
