//! Protocol detection, and hostile clients and servers, over real sockets.

mod faulty_server;
mod invalid_messages;
mod mutated_clients;
mod mutation;
mod protocol_detection;
mod protocols;
mod relay_client;
mod server_faults;

use mutation::{Mutation, any_mutation};
use protocols::{Outcome, PROTOCOLS, Protocol, bench, send_ignoring_errors};
use relay_client::{RelayDialect, assert_close, describe_received};

use super::*;
