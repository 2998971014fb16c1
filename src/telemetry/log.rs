//! Process log: set up once from the configuration. Also logs the observations of sessions.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing::{Metadata, debug, info, level_filters::LevelFilter, trace, warn};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::{FilterFn, filter_fn},
    fmt,
    layer::{Layered, SubscriberExt as _},
    reload,
    util::SubscriberInitExt as _,
};

use crate::{config::LogConfig, session::Observation};

/// Crates of the WebSocket library. At level trace, they log whole requests, with upstream tokens, and every
/// frame with its contents; at level debug, close frames.
const WEBSOCKET_CRATES: [&str; 2] = ["tungstenite", "tokio_tungstenite"];

/// The current level and the handle to change it. The log is global to the process.
static LEVEL: OnceLock<(reload::Handle<EnvFilter, Registry>, Mutex<String>)> = OnceLock::new();

type FilteredRegistry = Layered<FilterFn, Layered<reload::Layer<EnvFilter, Registry>, Registry>>;

/// Starts logging to standard error.
///
/// # Errors
/// A message about the level or the format.
pub fn init(log: &LogConfig) -> Result<(), String> {
    let level = log.level.as_deref().unwrap_or("info");
    let (filter, handle) = reload::Layer::new(parse_filter(level)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format.as_deref().unwrap_or("text") {
        "text" => lines.with_ansi(console::colors_enabled_stderr()).with_target(false).boxed(),
        "json" => lines.json().flatten_event(true).boxed(),
        other => return Err(format!("unknown log format {other:?}; use text or json")),
    };
    registry_with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
    // Cannot fail: `try_init` succeeds only once per process.
    let _ = LEVEL.set((handle, Mutex::new(level.to_owned())));
    Ok(())
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
        _ => LevelFilter::DEBUG,
    };
    *metadata.level() <= max_level
}

/// Logs an observation for operators. Never logs audio, text or credentials.
pub(crate) fn log_observation(observation: &Observation) {
    match observation {
        Observation::LaneRetry { lane, words, pause_ms } => {
            warn!(lane = lane.0, pause_ms, "{words}; retrying in {pause_ms} ms");
        }
        Observation::LaneFailed { lane, words } => debug!(lane = lane.0, "{words}"),
        Observation::LaneReady { lane, session_id, waited_ms } => {
            debug!(lane = lane.0, upstream_session = session_id, waited_ms, "lane ready");
        }
        Observation::LaneQueued { lane, words, .. } => {
            debug!(lane = lane.0, "waiting in the upstream's queue: {words}");
        }
        Observation::LaneTrouble { lane, words } => {
            warn!(lane = lane.0, "the upstream reported an error: {words}");
        }
        Observation::UnknownFromLane { lane, words } => {
            trace!(lane = lane.0, "ignored an upstream message: {words}");
        }
        Observation::ErrorTold(error) => {
            warn!(kind = ?error.kind, segment = error.segment_id, "{}", error.detail);
        }
        Observation::RolledOver { reason, gap_ms, standby, kept_ms } => {
            info!(
                reason = reason.name(),
                gap_ms, standby, kept_ms, "rollover: the conversation moved to another upstream session"
            );
        }
        Observation::RelayResumed { gap_ms, kept, dropped } => {
            info!(gap_ms, kept, dropped, "replaced a lost upstream session");
        }
        Observation::Interrupted => debug!("the model was interrupted"),
        Observation::SlowStep { step_ms, count } => {
            warn!(
                step_ms,
                count, "the upstream is slower than real time: it takes longer than 1 s for 1 s of audio"
            );
        }
        Observation::Underrun => debug!("underrun: the client ran out of audio while the model was speaking"),
        Observation::AskedAgain(words) => warn!("retrying the request: {words}"),
        Observation::NoEffect(words) => info!("ignored a setting without effect: {words}"),
        Observation::Measured(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

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
