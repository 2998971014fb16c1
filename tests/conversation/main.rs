//! Conversations in virtual time: one bridge, one gateway in full duplex, no socket and no sleep.

mod anything;
mod ends;
mod flavour;
mod hopeless;
mod interrupting;
mod legacy;
mod long;
#[allow(dead_code, reason = "used in part by each of those below")]
mod mic;
mod oddities;
mod operators;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/pair.rs"]
mod pair;
mod reconnect;
mod rollover;
#[path = "../support/sanity.rs"]
mod sanity;
mod silence;
mod speaking;
mod standby;
mod support;
mod transcribing;
mod troubled;

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
