//! The program as built: its commands, its signals and its README.

mod admin;
mod citations;
mod commands;
mod edge_cases;
mod fd_limit;
mod file_journals;
mod files;
mod hostile;
mod hot_reload;
mod interrupted_files;
mod load;
mod logs;
mod long_deltas;
#[cfg(feature = "otlp")]
mod otlp;
mod packaging;
mod process;
mod readme;
mod recordings;
mod replay_recording;
mod rolling_restart;
mod secrets;
mod server_process;
mod shutdown;
mod soak;
mod stalls;
mod tls;
mod traces_and_reload;
mod webhooks;
