//! Conversations in virtual time: one bridge, one gateway in full duplex, no socket and no sleep.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/pair.rs"]
mod pair;

mod talking;
