//! Every client protocol on every server over real sockets, how a connection's protocol is found out, and what hostile
//! clients and servers may do to each of them.

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
use crate::bench;
