//! The world of a test: clients, bridges, servers and time.
//!
//! [`client`] and [`received`] are clients that are made from their mappings; they have no socket and no clock, so that they
//! serve tests in virtual time and over sockets alike. [`session`] is one bridge in virtual time, and [`gateway`] is one
//! simulated gateway, for tests with clients and servers of their own. [`harness`] connects a bridge with a simulated server, which
//! may be behind another bridge.

pub mod client;
pub mod config;
pub mod gateway;
pub mod harness;
pub mod http_server;
mod network;
pub mod observed;
pub mod reader;
pub mod received;
mod second_bridge;
mod server;
pub mod session;

use std::{collections::BTreeMap, path::Path, sync::Mutex, time::Duration};

use voxbridge::audio::pcm;

/// Samples as bytes on the wire.
pub fn bytes_of(samples: &[i16]) -> Vec<u8> {
    pcm::s16le_bytes(samples)
}

/// A recording of `examples/speech`, int16 mono 16 kHz.
pub fn recording(file: &str) -> Vec<i16> {
    static READ: Mutex<BTreeMap<String, Vec<i16>>> = Mutex::new(BTreeMap::new());
    READ.lock().unwrap().entry(file.to_owned()).or_insert_with(|| read_recording(file)).clone()
}

fn read_recording(file: &str) -> Vec<i16> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/speech").join(file);
    let mut wav = hound::WavReader::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 1), "{file}");
    wav.samples::<i16>().map(Result::unwrap).collect()
}

/// Digital silence.
pub fn zeros(ms: u64) -> Vec<i16> {
    vec![0; (16 * ms) as usize]
}

/// Continuous speech: a stretch of a recording whose pauses are at most 0.1 s, repeated.
pub fn voice(ms: u64) -> Vec<i16> {
    let spoken = &recording("librivox_0870_16k.wav")[16 * 200..16 * 6700];
    spoken.iter().copied().cycle().take((16 * ms) as usize).collect()
}

/// The first two seconds of a sentence.
pub fn two_seconds() -> Vec<i16> {
    recording("jfk_16k.wav")[..32_000].to_vec()
}

/// A short utterance with the silence that ends it.
pub fn utterance() -> Vec<i16> {
    [voice(1200), zeros(800)].concat()
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
