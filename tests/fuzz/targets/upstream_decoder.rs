//! The body is `voxbridge::fuzzing::upstream_decoder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::upstream_decoder(data));
