//! Conversations in virtual time: one bridge, one gateway in full duplex, no socket and no sleep.

mod properties;
mod session_end;
mod measurements;
mod server_kind;
mod dead_upstream;
mod barge_in;
mod legacy;
mod half_hour;
mod microphone;
mod model_quirks;
mod operator_orders;
mod reconnect;
mod rollover;
mod silence;
mod tts;
mod standby;
mod support;
mod user_transcripts;
mod barge_in_faults;

use crate::harness;
use crate::protocol_checks;

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
