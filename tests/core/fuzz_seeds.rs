//! Runs every fuzz seed through its target's body, so that the bodies are tested without a fuzzer.

use std::path::Path;

use voxbridge_test_support::fuzzing;

fn run_seeds(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 10, "{target} has {} seeds", seeds.len());
    for seed in seeds {
        println!("{}", seed.display());
        body(&std::fs::read(&seed).unwrap());
    }
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
fn mapping_file_reader_accepts_seeds() {
    run_seeds("mapping_file", fuzzing::mapping_file);
}

#[test]
fn wav_reader_accepts_seeds() {
    run_seeds("wav", fuzzing::wav);
}

#[test]
fn trace_context_reader_accepts_seeds() {
    run_seeds("trace_context", fuzzing::trace_context);
}

#[test]
fn access_checks_accept_seeds() {
    run_seeds("access", fuzzing::access);
}
