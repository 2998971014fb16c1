//! Relayed clients of the model's own protocol in virtual time: one bridge, one gateway, no socket and no
//! sleep.

mod client_errors;
mod commands;
mod legacy_client;
mod legacy_upstream;
mod open_failures;
mod passthrough;
mod pending_answers;
mod properties;
mod support;
mod two_bridges;
mod upstream_replacement;
use crate::harness;
