//! The program as built: its commands, its signals and its README.
#![cfg(all(feature = "io", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod admin;
mod citations;
mod commands;
mod demo;
mod doctor;
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
mod packaging;
mod process;
mod queue_exits;
mod readme;
mod rolling_restart;
mod secrets;
mod server_process;
mod shutdown;
mod soak;
mod stalls;
mod tls;
mod traces_and_reload;
mod verify;
