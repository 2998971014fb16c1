//! Who may in, how much, and over TLS: over real sockets.

mod admission;
mod certificates;
mod door;
mod limits;
mod secrets;
mod upstreams;
