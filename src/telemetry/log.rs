//! The log: set up once, from the configuration; and what sessions let operators see.

use std::{
    io::{self, IsTerminal as _},
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing::{debug, info, trace, warn};
use tracing_subscriber::{EnvFilter, reload::Handle};

use crate::{config::LogConfig, session::Observation};

/// Starts logging to standard error.
///
/// # Errors
/// What is wrong with the level or the format.
pub fn init(log: &LogConfig) -> Result<(), String> {
    let level = log.level.as_deref().unwrap_or("info");
    let filter =
        EnvFilter::builder().parse(level).map_err(|error| format!("log level {level:?}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let set = match log.format.as_deref().unwrap_or("text") {
        "text" => {
            let builder = builder.with_filter_reloading();
            remember(level, builder.reload_handle());
            builder.with_ansi(io::stderr().is_terminal()).with_target(false).try_init()
        }
        "json" => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            remember(level, builder.reload_handle());
            builder.try_init()
        }
        other => return Err(format!("log format {other:?}: there is text and json")),
    };
    set.map_err(|error| error.to_string())
}

type Change = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;
/// How the level is changed, and what it is.
static LEVEL: OnceLock<(Change, Mutex<String>)> = OnceLock::new();

fn remember<S: 'static>(level: &str, handle: Handle<EnvFilter, S>) {
    let change = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    // The first log of a process is its log.
    let _ = LEVEL.set((Box::new(change), Mutex::new(level.to_owned())));
}

/// How much is logged: a level or a filter; empty where nothing is.
#[must_use]
pub fn level() -> String {
    let level = LEVEL.get().map(|(_, level)| level.lock().unwrap_or_else(PoisonError::into_inner).clone());
    level.unwrap_or_default()
}

/// Logs so much from now on.
///
/// # Errors
/// What is wrong with the level or the filter.
pub fn set_level(level: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(level);
    let filter = filter.map_err(|error| format!("log level {level:?}: {error}"))?;
    let (change, known) = LEVEL.get().ok_or("nothing is logged here")?;
    change(filter)?;
    level.clone_into(&mut known.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// What operators see. Never audio, text or credentials.
pub(crate) fn observe(observation: &Observation) {
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
