//! Everything that runs in real time, in one program: its tests mostly wait, and they wait side by side.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[cfg(target_os = "linux")]
mod program;
mod simulator;
mod sockets;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{
    SinkExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    process::Command,
    runtime::Runtime,
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, interval, sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async,
    tungstenite::{Error, Message},
};
use voxbridge::{
    audio::wav,
    config::Config,
    simulator::{
        Backend, ConnId, Fault, FaultKind, HttpApi, RealtimeServer, SimDialect, SimTiming, SimulatorConfig,
        engines::SpeechEngines,
        read_watermark,
        socket::{InputRecorder, RecordedInput},
    },
    spelling::Library,
    trace::Trace,
};
use voxbridge_test_support::{
    PICTURE,
    bench::{
        Bench, Client, ClientFrame, RunningServer, assert_pairs_closed, audio, bytes, closed_port,
        conversation_profile_with, dial, events, http_upstream, instant_simulator, open_websocket,
        profile_with_numbers, recording, samples, scratch, serve_each, speech_dir, start_simulator,
        upstream_of,
    },
    cases::{assert_has, listed},
    certs::{authority, self_signed, serve_tls, signed},
    programs::{clear_settings, send_signal},
    servers::PackageServer,
    tcp_proxy::TcpProxy,
    wait::{wait_until, wait_until_async},
};
