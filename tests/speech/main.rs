//! Tests with real speech engines behind the simulated model, and with unmodified public clients.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[cfg(feature = "webrtc")]
mod calls;
mod client_libraries;
mod client_programs;
mod client_tools;
mod decoded_files;
mod engine_quality;
mod engines;
mod families;
mod flux_clients;
mod macaw_clients;
mod media_files;
mod openai_clients;
mod opus_packets;
mod phone_calls;
mod pipecat_clients;
mod playground;
#[cfg(target_os = "linux")]
mod python_scripts;
mod readme_rows;
mod rest_clients;
#[cfg(feature = "turn-model")]
mod turn_model;
mod uploaded_speech;
mod word_accuracy;
mod xiaozhi_clients;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Duration,
};

use client_programs::{ClientWeight, installed_clients, node, project, python, recording, run, run_in_turn};
use engines::{
    SharedEngines, normalise, shared_engines, shared_engines_for_clients, word_error_rate, word_errors,
};
use media_files::ffmpeg;
use readme_rows::{page_row, row};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinSet, time::timeout};
use voxbridge::{
    audio::{pcm, wav},
    config::Config,
    media::decode::{DecodeLimits, Decoder},
    server::route::RouteConfig,
    simulator::{SimulatorConfig, engines::SpeechEngines},
};
use voxbridge_test_support::{
    bench::{Bench, Options, instant_simulator, scratch},
    certs,
    programs::{ensure, installed},
};
