//! The body is `voxbridge_test_support::fuzzing::lane_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge_test_support::fuzzing::lane_frames(data));
