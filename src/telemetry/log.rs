//! The log: set up once, from the configuration; and what sessions let operators see.

use std::{
    io::{self, IsTerminal as _},
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

/// What the WebSocket library's log is found by. At the level trace it quotes whole requests, with the tokens that upstreams
/// are shown, and every frame with what is said in it; at the level debug, close frames.
const WEBSOCKET_CRATES: [&str; 2] = ["tungstenite", "tokio_tungstenite"];

/// The level in use and the way to change it. The log is the process's own, unlike all else.
static LEVEL: OnceLock<(reload::Handle<EnvFilter, Registry>, Mutex<String>)> = OnceLock::new();

type FilteredRegistry = Layered<FilterFn, Layered<reload::Layer<EnvFilter, Registry>, Registry>>;

/// Starts logging to standard error.
///
/// # Errors
/// What is wrong with the level or the format.
pub fn init(log: &LogConfig) -> Result<(), String> {
    let level = log.level.as_deref().unwrap_or("info");
    let (filter, handle) = reload::Layer::new(parse_filter(level)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format.as_deref().unwrap_or("text") {
        "text" => lines.with_ansi(io::stderr().is_terminal()).with_target(false).boxed(),
        "json" => lines.json().flatten_event(true).boxed(),
        other => return Err(format!("log format {other:?}: there is text and json")),
    };
    registry_with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
    // Only who has set up the log gets here, and that is one.
    let _ = LEVEL.set((handle, Mutex::new(level.to_owned())));
    Ok(())
}

/// Logs this much from now on: a level, or a filter such as `info,voxbridge::server=debug`.
///
/// # Errors
/// What is wrong with it, in words; what held before still holds.
pub fn set_level(level: &str) -> Result<(), String> {
    let filter = parse_filter(level)?;
    let (handle, current) = LEVEL.get().ok_or("the log was not set up by voxbridge")?;
    handle.reload(filter).map_err(|error| error.to_string())?;
    level.clone_into(&mut current.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// How much is logged, as it was last set; `None` where the log was not set up by voxbridge.
#[must_use]
pub fn level() -> Option<String> {
    let (_, current) = LEVEL.get()?;
    Some(current.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

fn parse_filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(level).map_err(|error| format!("log level {level:?}: {error}"))
}

/// What is asked for, and fit to be logged.
fn registry_with(filter: reload::Layer<EnvFilter, Registry>) -> FilteredRegistry {
    tracing_subscriber::registry().with(filter).with(filter_fn(is_safe_to_log as fn(&Metadata<'_>) -> bool))
}

/// Whatever the level: libraries do not say what they carry. A filter of its own that nobody sets, because in one that is set
/// what is said of spans comes before what is said of targets.
fn is_safe_to_log(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    let max_level = match crate_name {
        env!("CARGO_PKG_NAME") => LevelFilter::TRACE,
        crate_name if WEBSOCKET_CRATES.contains(&crate_name) => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    *metadata.level() <= max_level
}

/// What operators see. Never audio, text or credentials.
pub(crate) fn log_observation(observation: &Observation) {
    match observation {
        Observation::LaneRetry { lane, words, pause_ms } => {
            warn!(lane = lane.0, pause_ms, "{words}; trying again");
        }
        Observation::LaneFailed { lane, words } => debug!(lane = lane.0, "{words}"),
        Observation::LaneReady { lane, session_id, waited_ms } => {
            debug!(lane = lane.0, upstream_session = session_id, waited_ms, "lane ready");
        }
        Observation::LaneQueued { lane, words, .. } => debug!(lane = lane.0, "queued upstream: {words}"),
        Observation::LaneTrouble { lane, words } => warn!(lane = lane.0, "the upstream had trouble: {words}"),
        Observation::UnknownFromLane { lane, words } => trace!(lane = lane.0, "the upstream sent {words}"),
        Observation::ErrorTold(error) => {
            warn!(kind = ?error.kind, segment = error.segment_id, "{}", error.detail);
        }
        Observation::RolledOver { reason, gap_ms, standby, kept_ms } => {
            info!(
                reason = reason.name(),
                gap_ms, standby, kept_ms, "the conversation goes on in another upstream session"
            );
        }
        Observation::RelayResumed { gap_ms, kept, dropped } => {
            info!(gap_ms, kept, dropped, "a lost upstream session was replaced");
        }
        Observation::Interrupted => debug!("the model was interrupted"),
        Observation::SlowStep { step_ms, count } => {
            warn!(step_ms, count, "the upstream takes longer for a second of audio than a second");
        }
        Observation::Underrun => debug!("the client ran out of audio while the model was speaking"),
        Observation::AskedAgain(words) => warn!("asking again: {words}"),
        Observation::NoEffect(words) => info!("without effect: {words}"),
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
                // Of the same beginning, and another's.
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
