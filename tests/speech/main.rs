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
