//! Authentication, quotas and TLS over real sockets.

pub(crate) mod access_server;
mod admission;
mod certificates;
mod client_secrets;
mod limits;
mod playground;
mod rest;
mod secrets;
mod upstream_credentials;

use access_server::{HandshakeAnswer, MACAW, PATIENCE, assert_disconnected, connect, send_request};

use super::*;

/// The header with this key.
fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}
