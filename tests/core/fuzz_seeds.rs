//! Runs every fuzz seed, and random changes of the seeds, through the targets' bodies, so that they are tested without a fuzzer.

use proptest::prelude::*;
use voxbridge_test_support::fuzzing;

use super::*;

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
    (select(seeds), vec(change, 1..12)).prop_map(|(mut bytes, changes)| {
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

/// A property for each body: it accepts changed seeds of its target.
macro_rules! accept_changed_seeds {
    ($($test:ident: $target:ident),+ $(,)?) => {
        proptest! {
            #![proptest_config(crate::properties::config())]
            $(
                #[test]
                fn $test(bytes in changed_seed(stringify!($target))) {
                    fuzzing::$target(&bytes);
                }
            )+
        }
    };
}

/// A test for each line: the bodies accept their targets' seeds.
macro_rules! accept_seeds {
    ($($test:ident: $($target:ident),+;)+) => {
        $(
            #[test]
            fn $test() {
                $(run_seeds(stringify!($target), fuzzing::$target);)+
            }
        )+
    };
}

accept_changed_seeds! {
    client_decoder_accepts_changed_seeds: client_decoder,
    opus_decoder_accepts_changed_seeds: opus,
    lanes_accept_changed_seeds: lane_frames,
    clients_accept_changed_seeds: client_frames,
    forms_accept_changed_seeds: upload_form,
    tcp_streams_accept_changed_seeds: tcp_stream,
    decoder_of_uploads_accepts_changed_seeds: container,
    bridge_inputs_accept_changed_seeds: bridge_inputs,
    sessions_accept_changed_seeds: any_session,
}

#[cfg(feature = "webrtc")]
accept_changed_seeds! {
    calls_accept_changed_offers: call_offer,
    calls_accept_changed_packets: call_packets,
    calls_accept_changed_audio: call_audio,
}

#[cfg(feature = "webrtc")]
accept_seeds! {
    calls_accept_seeds: call_offer, call_packets, call_audio;
}

accept_seeds! {
    client_decoder_accepts_seeds: client_decoder;
    upstream_decoder_accepts_seeds: upstream_decoder;
    bridge_inputs_accept_seeds: bridge_inputs;
    sessions_accept_seeds: any_session;
    mapping_file_reader_accepts_seeds: mapping_file;
    wav_reader_accepts_seeds: wav;
    opus_decoder_accepts_seeds: opus;
    trace_context_reader_accepts_seeds: trace_context;
    access_checks_accept_seeds: access;
    lanes_accept_seeds: lane_frames, event_stream;
    clients_in_a_row_accept_seeds: client_frames, protobuf, sideband;
    streams_before_a_session_accept_seeds: upload_form, tcp_stream;
    decoder_of_uploads_accepts_seeds: container;
    trace_reader_accepts_seeds: trace;
}
