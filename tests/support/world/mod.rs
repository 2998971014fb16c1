//! The world of a test: clients, bridges, servers and time.
//!
//! [`client`] and [`received`] are clients that are made from their mappings; they have no socket and no clock, so that they
//! serve tests in virtual time and over sockets alike. [`session`] is one bridge in virtual time, for tests with clients and
//! servers of their own. [`harness`] connects one with a simulated server.

pub mod client;
pub mod config;
pub mod harness;
pub mod http_server;
mod network;
pub mod observed;
pub mod reader;
pub mod received;
pub mod session;

use std::path::Path;

/// Samples as bytes on the wire.
pub fn bytes_of(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// A recording of `examples/speech`, int16 mono 16 kHz.
pub fn recording(file: &str) -> Vec<i16> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/speech").join(file);
    let mut wav = hound::WavReader::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 1), "{file}");
    wav.samples::<i16>().map(Result::unwrap).collect()
}

/// Digital silence.
pub fn zeros(ms: u64) -> Vec<i16> {
    vec![0; (16 * ms) as usize]
}
