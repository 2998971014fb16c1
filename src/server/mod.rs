//! Everything that touches a socket: accepting clients, dialling upstreams, driving sessions.

pub mod tap;
