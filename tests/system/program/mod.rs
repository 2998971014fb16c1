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

use std::{fs::File, process::Output, sync::atomic::Ordering::SeqCst};

use commands::{CommandOutput, assert_wav, queue_exits::WAITS};
use files::{directory, names};
use server_process::{
    PATIENCE, Server, busy_machine, calm_machine, config, empty_scratch, macaw_with_error_text, resident_kib,
    run, send_request, upstream, voxbridge,
};
use tls::certificate;
use tokio::{
    io::Lines,
    process::{Child, ChildStderr},
};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use voxbridge_test_support::programs::{ensure, installed};

use super::*;
