//! Conversations in virtual time: one bridge, one gateway in full duplex, no socket and no sleep.

mod anything;
mod ends;
mod figures;
mod flavour;
mod hopeless;
mod interrupting;
mod legacy;
mod long;
#[allow(dead_code, reason = "used in part by each of those below")]
mod mic;
mod oddities;
mod operators;
mod reconnect;
mod rollover;
mod silence;
mod speaking;
mod standby;
mod support;
mod transcribing;
mod troubled;

use crate::pair;
use crate::sanity;

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
