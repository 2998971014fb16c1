//! Who may in, how much, and over TLS: over real sockets.

mod admission;
mod certificates;
mod access_server;
mod limits;
mod secrets;
mod upstream_credentials;
