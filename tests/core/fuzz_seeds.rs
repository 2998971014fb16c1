//! Every seed of the fuzz targets through its target's body, so that the bodies stay true without a fuzzer.

use std::path::Path;

use voxbridge::fuzzing;

fn run(target: &str, body: fn(&[u8])) {
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
fn clients() {
    run("client_decoder", fuzzing::client_decoder);
}

#[test]
fn upstreams() {
    run("upstream_decoder", fuzzing::upstream_decoder);
}

#[test]
fn conversations() {
    run("bridge_inputs", fuzzing::bridge_inputs);
}

#[test]
fn mapping_files() {
    run("mapping_file", fuzzing::mapping_file);
}

#[test]
fn recordings() {
    run("wav", fuzzing::wav);
}

#[test]
fn trace_contexts() {
    run("trace_context", fuzzing::trace_context);
}

#[cfg(feature = "io")]
#[test]
fn strangers() {
    run("access", fuzzing::access);
}
