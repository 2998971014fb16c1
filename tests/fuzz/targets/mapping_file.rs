//! The body is `voxbridge::fuzzing::mapping_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::mapping_file(data));
