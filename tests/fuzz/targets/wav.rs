//! The body is `voxbridge::fuzzing::wav`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::wav(data));
