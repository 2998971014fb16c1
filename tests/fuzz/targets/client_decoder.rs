//! The body is `voxbridge::fuzzing::client_decoder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::client_decoder(data));
