//! The log: set up once, from the configuration.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::config::LogConfig;

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
        "text" => builder.with_ansi(io::stderr().is_terminal()).with_target(false).try_init(),
        "json" => builder.json().flatten_event(true).try_init(),
        other => return Err(format!("log format {other:?}: there is text and json")),
    };
    set.map_err(|error| error.to_string())
}
