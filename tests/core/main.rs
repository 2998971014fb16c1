//! Tests of everything below the sockets, in virtual time: no socket, no task, no sleep.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod allocations;
mod behaviour;
mod binary;
mod call_recording;
mod captured_exchange;
mod client_pages;
mod conversation;
mod first_audio;
mod fuzz_seeds;
mod gemini;
mod golden;
mod harness;
mod http_lanes;
mod nothing_to_say;
mod openai;
mod own_protocol;
mod pipecat;
mod properties;
mod protocol_checks;
mod published_examples;
mod qwen;
mod read_window;
mod refusals;
mod relay;
mod rest;
mod session;
mod slow_readers;
mod small_files;
mod telephony;
mod traces;
mod turn_end;
mod uploads;
mod xiaozhi;
