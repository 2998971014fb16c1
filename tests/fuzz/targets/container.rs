//! The body is `voxbridge_test_support::fuzzing::container`.
#![no_main]

use std::{panic, sync::Once};

static FIRST: Once = Once::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // The decoder catches panics of the libraries, so a panic alone must not end the fuzzer. libFuzzer sees those of the body.
    FIRST.call_once(|| drop(panic::take_hook()));
    voxbridge_test_support::fuzzing::container(data);
});
