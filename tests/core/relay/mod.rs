//! Clients that speak the model's own protocol, relayed in virtual time: one bridge, one gateway, no socket and no sleep.

mod pending_answers;
mod properties;
mod client_errors;
mod open_failures;
mod legacy_upstream;
mod passthrough;
mod upstream_replacement;
mod support;
mod two_bridges;
mod legacy_client;
use crate::harness;
