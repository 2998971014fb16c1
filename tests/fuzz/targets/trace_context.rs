//! The body is `voxbridge::fuzzing::trace_context`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| voxbridge::fuzzing::trace_context(data));
