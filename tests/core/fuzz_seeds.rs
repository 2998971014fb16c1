//! Runs every fuzz seed, and random changes of the seeds, through the targets' bodies, so that they are tested without a fuzzer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use voxbridge_test_support::fuzzing;

/// Inputs of a target with their names: written by hand, and found by fuzzers (`tests/fuzz/pack`).
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let folder = fs::read_dir(corpus.join(target)).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().map(|path| (path.display().to_string(), fs::read(path).unwrap()));
    let packed = fs::read(corpus.join("packed").join(target)).unwrap();
    files.chain(unpack(&packed)).collect()
}

/// Packed inputs, each after its length in four bytes.
fn unpack(mut packed: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk() {
        let (input, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        inputs.push((format!("packed input {}", inputs.len()), input.to_vec()));
        packed = rest;
    }
    inputs
}

fn run_seeds(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(seeds.len() >= 10, "{target} has {} seeds", seeds.len());
    for (name, seed) in seeds {
        println!("{target}: {name}");
        body(&seed);
    }
}

/// A seed in which some bytes are replaced, removed or repeated.
fn changed_seed(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, seed)| seed).collect();
    let change = (any::<prop::sample::Index>(), 0usize..4, any::<u8>());
    (prop::sample::select(seeds), prop::collection::vec(change, 1..12)).prop_map(|(mut bytes, changes)| {
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 => drop(bytes.drain(at..(at + usize::from(byte % 8)).min(bytes.len()))),
                2 => bytes.extend_from_within(at..(at + usize::from(byte)).min(bytes.len())),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn client_decoder_accepts_changed_seeds(bytes in changed_seed("client_decoder")) {
        fuzzing::client_decoder(&bytes);
    }

    #[test]
    fn opus_decoder_accepts_changed_seeds(bytes in changed_seed("opus")) {
        fuzzing::opus(&bytes);
    }

    #[test]
    fn lanes_accept_changed_seeds(bytes in changed_seed("lane_frames")) {
        fuzzing::lane_frames(&bytes);
    }

    #[test]
    fn clients_accept_changed_seeds(bytes in changed_seed("client_frames")) {
        fuzzing::client_frames(&bytes);
    }

    #[test]
    fn forms_accept_changed_seeds(bytes in changed_seed("upload_form")) {
        fuzzing::upload_form(&bytes);
    }

    #[test]
    fn tcp_streams_accept_changed_seeds(bytes in changed_seed("tcp_stream")) {
        fuzzing::tcp_stream(&bytes);
    }

    #[test]
    fn decoder_of_uploads_accepts_changed_seeds(bytes in changed_seed("container")) {
        fuzzing::container(&bytes);
    }

    #[test]
    fn bridge_inputs_accept_changed_seeds(bytes in changed_seed("bridge_inputs")) {
        fuzzing::bridge_inputs(&bytes);
    }

    #[test]
    fn sessions_accept_changed_seeds(bytes in changed_seed("any_session")) {
        fuzzing::any_session(&bytes);
    }
}

#[cfg(feature = "webrtc")]
proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn calls_accept_changed_offers(bytes in changed_seed("call_offer")) {
        fuzzing::call_offer(&bytes);
    }

    #[test]
    fn calls_accept_changed_packets(bytes in changed_seed("call_packets")) {
        fuzzing::call_packets(&bytes);
    }

    #[test]
    fn calls_accept_changed_audio(bytes in changed_seed("call_audio")) {
        fuzzing::call_audio(&bytes);
    }
}

#[cfg(feature = "webrtc")]
#[test]
fn calls_accept_seeds() {
    run_seeds("call_offer", fuzzing::call_offer);
    run_seeds("call_packets", fuzzing::call_packets);
    run_seeds("call_audio", fuzzing::call_audio);
}

#[test]
fn client_decoder_accepts_seeds() {
    run_seeds("client_decoder", fuzzing::client_decoder);
}

#[test]
fn upstream_decoder_accepts_seeds() {
    run_seeds("upstream_decoder", fuzzing::upstream_decoder);
}

#[test]
fn bridge_inputs_accept_seeds() {
    run_seeds("bridge_inputs", fuzzing::bridge_inputs);
}

#[test]
fn sessions_accept_seeds() {
    run_seeds("any_session", fuzzing::any_session);
}

#[test]
fn mapping_file_reader_accepts_seeds() {
    run_seeds("mapping_file", fuzzing::mapping_file);
}

#[test]
fn wav_reader_accepts_seeds() {
    run_seeds("wav", fuzzing::wav);
}

#[test]
fn opus_decoder_accepts_seeds() {
    run_seeds("opus", fuzzing::opus);
}

#[test]
fn trace_context_reader_accepts_seeds() {
    run_seeds("trace_context", fuzzing::trace_context);
}

#[test]
fn access_checks_accept_seeds() {
    run_seeds("access", fuzzing::access);
}

#[test]
fn lanes_accept_seeds() {
    run_seeds("lane_frames", fuzzing::lane_frames);
    run_seeds("event_stream", fuzzing::event_stream);
}

#[test]
fn clients_in_a_row_accept_seeds() {
    run_seeds("client_frames", fuzzing::client_frames);
    run_seeds("protobuf", fuzzing::protobuf);
    run_seeds("sideband", fuzzing::sideband);
}

#[test]
fn streams_before_a_session_accept_seeds() {
    run_seeds("upload_form", fuzzing::upload_form);
    run_seeds("tcp_stream", fuzzing::tcp_stream);
}

#[test]
fn decoder_of_uploads_accepts_seeds() {
    run_seeds("container", fuzzing::container);
}

#[test]
fn trace_reader_accepts_seeds() {
    run_seeds("trace", fuzzing::trace);
}
