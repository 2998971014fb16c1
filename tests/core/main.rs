//! Tests of everything below the sockets, in virtual time: no socket, no task, no sleep.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod allocations;
mod behaviour;
mod binary;
mod call_recording;
mod captured_exchange;
mod client_pages;
mod conversation;
mod first_audio;
mod fuzz_seeds;
mod gemini;
mod golden;
mod harness;
mod http_lanes;
mod nothing_to_say;
mod openai;
mod own_protocol;
mod pipecat;
mod properties;
mod protocol_checks;
mod published_examples;
mod qwen;
mod read_window;
mod refusals;
mod relay;
mod rest;
mod session;
mod slow_readers;
mod small_files;
mod telephony;
mod traces;
mod turn_end;
mod uploads;
mod xiaozhi;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, Instant},
};

use allocation_counter::measure;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use harness::{
    ClientFrame, Harness, HarnessConfig, HttpScript, ScriptedJudge, Traffic, bytes_of, ms, recording, secs,
    two_seconds, utterance, voice, zeros,
};
use proptest::{collection::vec, sample::select, strategy::ValueTree as _, test_runner::TestRunner};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use voxbridge::{
    audio::{encoding::Encoding, pcm, wav},
    bridge::{Input, Output},
    client::Codec,
    error::{Error, ErrorKind},
    media::decode::{DecodeLimits, Decoder},
    session::{Measurement, Observation, SessionState, VoiceCatalog},
    simulator::{
        Backend, EngineAnswer, EngineRequest, RealtimeServer, SimDialect, SimulatorConfig, VllmVersion,
    },
    spelling::{Library, MappingKind},
    trace::{
        AudioRetention, Trace,
        first_audio::{FirstAudio, Trigger},
        replay::replay,
    },
    upstream::Dialect,
    vocabulary::{
        ClientEvent, DisconnectReason, Frame, Lane, LaneEvent, LanePurpose, Message, RolloverReason,
        ServerCallResult, Tool, ToolServer, VoiceSample,
    },
};
use voxbridge_test_support::{
    PICTURE,
    cases::{assert_has, listed, rows, some_of},
    hot::contains,
    world::{
        config::ScriptedTools,
        session::{Opening, VirtualSession, epoch},
    },
};
