//! Every client protocol on every server over real sockets, how a connection's protocol is found out, and what hostile
//! clients and servers may do to each of them.
#![cfg(feature = "io")]

#[path = "../support/bench.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod bench;
mod cells;
mod doors;
mod hostile;
mod liar;
mod lies;
mod macaw;
mod recognition;
mod relayed;
mod servers;
mod spoil;
mod spoiled;
