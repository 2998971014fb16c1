//! The log: set up once, from the configuration; and what sessions let operators see.

use std::{
    io::{self, IsTerminal as _},
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing::{debug, info, trace, warn};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, fmt, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

use crate::{config::LogConfig, session::Observation};

/// Where the WebSocket library logs, at the level trace, whole requests with the tokens that upstreams are shown, and every
/// frame with what is said in it.
const TELLS_ALL: [&str; 2] = ["tungstenite::handshake::client=info", "tungstenite::protocol=info"];

/// The level in use and the way to change it. The log is the process's own, unlike all else.
static LEVEL: OnceLock<(reload::Handle<EnvFilter, Registry>, Mutex<String>)> = OnceLock::new();

/// Starts logging to standard error.
///
/// # Errors
/// What is wrong with the level or the format.
pub fn init(log: &LogConfig) -> Result<(), String> {
    let level = log.level.as_deref().unwrap_or("info");
    let (filter, handle) = reload::Layer::new(filter_of(level)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format.as_deref().unwrap_or("text") {
        "text" => lines.with_ansi(io::stderr().is_terminal()).with_target(false).boxed(),
        "json" => lines.json().flatten_event(true).boxed(),
        other => return Err(format!("log format {other:?}: there is text and json")),
    };
    let registry = tracing_subscriber::registry().with(filter).with(lines);
    registry.try_init().map_err(|error| error.to_string())?;
    // Only who has set up the log gets here, and that is one.
    let _ = LEVEL.set((handle, Mutex::new(level.to_owned())));
    Ok(())
}

/// Logs this much from now on: a level, or a filter such as `info,voxbridge::server=debug`.
///
/// # Errors
/// What is wrong with it, in words; what held before still holds.
pub fn set_level(level: &str) -> Result<(), String> {
    let filter = filter_of(level)?;
    let (handle, known) = LEVEL.get().ok_or("the log was not set up by voxbridge")?;
    handle.reload(filter).map_err(|error| error.to_string())?;
    level.clone_into(&mut known.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// How much is logged, as it was last set; `None` where the log was not set up by voxbridge.
#[must_use]
pub fn level() -> Option<String> {
    let (_, known) = LEVEL.get()?;
    Some(known.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

fn filter_of(level: &str) -> Result<EnvFilter, String> {
    let filter =
        EnvFilter::builder().parse(level).map_err(|error| format!("log level {level:?}: {error}"))?;
    TELLS_ALL.into_iter().try_fold(filter, |filter, quiet| {
        let quiet = quiet.parse().map_err(|error| format!("{quiet}: {error}"))?;
        Ok(filter.add_directive(quiet))
    })
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
