//! The body is `voxbridge::fuzzing::bridge_inputs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::bridge_inputs(data));
