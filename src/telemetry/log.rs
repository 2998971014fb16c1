//! Process log: set up once from the configuration. Also logs the observations of sessions.
//!
//! Every value is escaped and shortened here, because peers determine many of them. A thread of its own writes the
//! lines, so that no session waits for whoever reads standard error.

use std::{
    fmt::Write as _,
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing::{Metadata, debug, field::Field, info, level_filters::LevelFilter, trace, warn};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    field::MakeExt as _,
    filter::{FilterFn, filter_fn},
    fmt::{self, FormatFields, format::Writer},
    layer::{Layered, SubscriberExt as _},
    reload,
    util::SubscriberInitExt as _,
};

use super::{
    line_writer::{LineWriter, LogNotices, LogTarget},
    otlp::log_export::LogExport,
};
use crate::{foreign::PrintableWriter, session::Observation};

/// Crates of the WebSocket library. At level trace, they log whole requests, with upstream tokens, and every
/// frame with its contents; at level debug, close frames.
const WEBSOCKET_CRATES: [&str; 2] = ["tungstenite", "tokio_tungstenite"];

/// The current level and the handle to change it. The log is global to the process.
static LEVEL: OnceLock<(reload::Handle<EnvFilter, Registry>, Mutex<String>)> = OnceLock::new();

/// Longest value in a line, in characters.
const VALUE_MAX_CHARS: usize = 1024;

/// The lines on their way to standard error.
static LINES: OnceLock<LineWriter> = OnceLock::new();

type FilteredRegistry = Layered<FilterFn, Layered<reload::Layer<EnvFilter, Registry>, Registry>>;

/// Starts logging to standard error, and to a collector if there is one.
///
/// # Errors
/// A message about the level or the format.
pub fn init(level: Option<&str>, format: Option<&str>, export: Option<LogExport>) -> Result<(), String> {
    let level = level.unwrap_or("info");
    let (filter, handle) = reload::Layer::new(parse_filter(level)?);
    let format = format.unwrap_or("text");
    let lines_lost = match format {
        "text" => |count| format!(" WARN {count} log lines were lost, because nobody read them in time\n"),
        "json" => {
            |count| format!("{{\"level\":\"WARN\",\"message\":\"log lines were lost\",\"count\":{count}}}\n")
        }
        other => return Err(unknown_format(other)),
    };
    let notices = LogNotices { lines_lost: Some(lines_lost), write_failed: |_| {} };
    let lines = LineWriter::open("log", LogTarget::Stderr, notices)
        .map_err(|error| format!("standard error: {error}"))?;
    let layer = fmt::layer().with_writer(lines.clone());
    let layer = if format == "json" {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.with_ansi(console::colors_enabled_stderr()).with_target(false).fmt_fields(safe_fields()).boxed()
    };
    registry_with(filter).with(layer).with(export).try_init().map_err(|error| error.to_string())?;
    // Cannot fail, like the next one.
    let _ = LINES.set(lines);
    // Cannot fail: `try_init` succeeds only once per process.
    let _ = LEVEL.set((handle, Mutex::new(level.to_owned())));
    Ok(())
}

/// Checks the level and the format without starting the log.
///
/// # Errors
/// A message about the level or the format.
pub fn check(level: Option<&str>, format: Option<&str>) -> Result<(), String> {
    level.map_or(Ok(()), |level| parse_filter(level).map(drop))?;
    match format {
        None | Some("text" | "json") => Ok(()),
        Some(other) => Err(unknown_format(other)),
    }
}

fn unknown_format(format: &str) -> String {
    format!("unknown log format {format:?}; use text or json")
}

/// Waits until every line is written, at most for a second; blocks the thread.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

/// Lines that were lost, because they could not be written in time.
pub(crate) fn lost_lines() -> u64 {
    LINES.get().map_or(0, LineWriter::lost_lines)
}

/// Formats the fields of lines of text: escaped and shortened, whoever determined them.
fn safe_fields() -> impl for<'w> FormatFields<'w> + 'static {
    let write_field = |out: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug| {
        if field.name() != "message" {
            write!(out, "{}=", field.name())?;
        }
        write!(PrintableWriter::new(out, VALUE_MAX_CHARS), "{value:?}")
    };
    fmt::format::debug_fn(write_field).delimited(" ")
}

/// Changes the log level or filter, such as `info,voxbridge::server=debug`.
///
/// # Errors
/// A message about the filter; the previous one stays in effect.
pub fn set_level(level: &str) -> Result<(), String> {
    let filter = parse_filter(level)?;
    let (handle, current) = LEVEL.get().ok_or("the log was not set up by voxbridge")?;
    handle.reload(filter).map_err(|error| error.to_string())?;
    level.clone_into(&mut current.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// The current level or filter; `None` if voxbridge did not set up the log.
pub fn level() -> Option<String> {
    let (_, current) = LEVEL.get()?;
    Some(current.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

fn parse_filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(level).map_err(|error| format!("log level {level:?}: {error}"))
}

/// Adds the fixed filter for safe output to the configurable one.
fn registry_with(filter: reload::Layer<EnvFilter, Registry>) -> FilteredRegistry {
    tracing_subscriber::registry().with(filter).with(filter_fn(is_safe_to_log as fn(&Metadata<'_>) -> bool))
}

/// Limits other crates to levels that reveal no payloads, whatever the configured level. This must be a separate
/// filter, because in an `EnvFilter` span directives precede target directives.
fn is_safe_to_log(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    let max_level = match crate_name {
        env!("CARGO_PKG_NAME") => LevelFilter::TRACE,
        crate_name if WEBSOCKET_CRATES.contains(&crate_name) => LevelFilter::INFO,
        // It logs messages of tool servers, and its errors a second time.
        "rmcp" => LevelFilter::OFF,
        _ => LevelFilter::DEBUG,
    };
    *metadata.level() <= max_level
}

/// Logs an observation for operators. Never logs audio, text or credentials.
pub(crate) fn log_observation(observation: &Observation) {
    match observation {
        Observation::LaneRetry { lane, pause_ms, .. } => warn!(lane = lane.0, pause_ms, "{observation}"),
        Observation::LaneFailed { lane, .. } | Observation::LaneQueued { lane, .. } => {
            debug!(lane = lane.0, "{observation}");
        }
        Observation::LaneReady { lane, session_id, waited_ms } => {
            debug!(lane = lane.0, upstream_session = session_id, waited_ms, "{observation}");
        }
        Observation::LaneUnneeded { lane, position } => {
            info!(lane = lane.0, position, "{observation}");
        }
        Observation::LaneRefused { lane, by_configuration: false, .. } => {
            info!(lane = lane.0, "{observation}");
        }
        Observation::LaneTrouble { lane, .. } | Observation::LaneRefused { lane, .. } => {
            warn!(lane = lane.0, "{observation}");
        }
        Observation::UnknownFromLane { lane, .. } => trace!(lane = lane.0, "{observation}"),
        Observation::ErrorTold(error) => {
            warn!(kind = error.kind.name(), segment = error.segment_id, "{observation}");
        }
        Observation::RolledOver { reason, gap_ms, standby, kept_ms, known_lines, missing_lines } => {
            info!(
                reason = reason.name(),
                gap_ms, standby, kept_ms, known_lines, missing_lines, "{observation}"
            );
        }
        Observation::RelayResumed { gap_ms, kept, dropped } => {
            info!(gap_ms, kept, dropped, "{observation}");
        }
        Observation::SlowStep { step_ms, count } => warn!(step_ms, count, "{observation}"),
        Observation::Interrupted | Observation::Underrun => debug!("{observation}"),
        Observation::AskedAgain(_) | Observation::Unsupported(_) => warn!("{observation}"),
        Observation::ModelMistake(_) => trace!("{observation}"),
        Observation::NoEffect(_) | Observation::Note(_) => info!("{observation}"),
        Observation::Measured(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::Arc,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_of_peers_are_one_short_printable_line() {
        let log = LogBuffer::default();
        let into = log.clone();
        let layer = fmt::layer().with_writer(move || into.clone()).with_ansi(false).fmt_fields(safe_fields());
        let (filter, _handle) = reload::Layer::new(parse_filter("info").unwrap());
        tracing::subscriber::with_default(registry_with(filter).with(layer), || {
            let forged = "x\n2026-01-01T00:00:00Z ERROR forged \u{1b}[31m";
            let target = "voxbridge::server";
            let _in = tracing::error_span!(target: "voxbridge::server", "session", id = forged).entered();
            info!(target: "voxbridge::server", model = forged, reason = %forged, "rejected: {forged}");
            info!(target: "voxbridge::server", reason = %"y".repeat(2_000_000), target, "closed");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            !text.contains('\u{1b}') && text.matches(r"\nERROR").count() == 0 && text.len() < 4_000,
            "{text}"
        );
        assert!(text.contains(r"rejected: x\n2026") && text.contains("reason=yyy"), "{text}");
    }

    #[test]
    fn library_payloads_are_never_logged_whatever_the_filter() {
        for level in
            ["trace", "info,[session]=trace", "[session{id}]=trace", "tungstenite=trace,rustls=trace"]
        {
            let log = LogBuffer::default();
            let into = log.clone();
            let lines = fmt::layer().with_writer(move || into.clone()).with_ansi(false);
            let (filter, _handle) = reload::Layer::new(parse_filter(level).unwrap());
            tracing::subscriber::with_default(registry_with(filter).with(lines), || {
                let _in = tracing::error_span!("session", id = "s").entered();
                trace!(target: "tungstenite::handshake::client", "a token");
                trace!(target: "tungstenite::protocol", "a frame");
                debug!(target: "tungstenite::protocol", "a close frame");
                trace!(target: "tokio_tungstenite", "a stream");
                trace!(target: "rustls::client::hs", "a hello");
                trace!(target: "hyper::proto", "a head");
                // A crate with the same prefix, and an unrelated one.
                trace!(target: "voxbridge_more", "a stranger");
                warn!(target: "tungstenite::protocol", "trouble");
                trace!(target: "voxbridge::server", "our own");
            });
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("a "), "{level}: {text}");
            let logs_session = level.contains("session") || level == "trace";
            assert_eq!(text.contains("our own"), logs_session, "{level}: {text}");
        }
    }
}
