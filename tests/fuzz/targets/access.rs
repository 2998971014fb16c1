//! The body is `voxbridge::fuzzing::access`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::access(data));
