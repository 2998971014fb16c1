//! Conversations in virtual time: one bridge, one gateway in full duplex, no socket and no sleep.

mod ends;
mod long;
mod oddities;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/pair.rs"]
mod pair;
mod reconnect;
mod rollover;
#[path = "../support/sanity.rs"]
mod sanity;
mod silence;
mod standby;
mod support;
mod talking;
