//! The body is `voxbridge_test_support::fuzzing::any_session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge_test_support::fuzzing::any_session(data));
