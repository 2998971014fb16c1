//! Server, clients and simulators in one process over real sockets.

mod access;
mod audio_fidelity;
mod bare_tcp;
mod batched_reads;
#[cfg(feature = "webrtc")]
mod calls;
#[cfg(feature = "mcp")]
mod client_tool_servers;
mod cloud_sockets;
mod conversations;
mod handshakes;
mod http_upstreams;
mod llama_cpp_omni;
mod matrix;
mod migration;
mod mixed_upstreams;
mod observability;
mod openai_upstream;
mod opus;
#[cfg(feature = "otlp")]
mod otlp;
mod pipecat;
mod refusals;
mod relay;
mod rest;
mod rest_break_off;
mod rest_jobs;
mod rest_limits;
mod rest_queue;
mod rest_vendors;
mod server;
mod sglang_omni;
#[cfg(feature = "mcp")]
mod tool_servers;
mod unneeded_lanes;
mod upstream_faults;
mod upstream_pool;
mod upstream_tls;
mod vllm_omni;
pub(crate) mod webhooks;
mod xiaozhi;

use access::access_server::AccessServer;
use opus_pure::{Application, OpusEncoder};
use rest::{Answer, BEARER, SPEECH, TRANSCRIPTIONS, form, request, speak, two_utterances, upload, wav};
use tokio::time::{advance, pause, resume};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use voxbridge::{
    audio::{opus::packet_samples, wav::resample_all},
    config::UpstreamConfig,
    server::{
        Server,
        route::RouteConfig,
        tap::{Tap, TapFrame, TapPoint},
    },
    telemetry::metrics::Metrics,
};
use voxbridge_test_support::{
    bench::{KEPT_PORT, Options, bytes as bytes_of, configuration, is, mappings_with, upstream_at},
    servers::recorded_samples,
};

use super::*;
