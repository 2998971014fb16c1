//! Every client protocol on every server over real sockets; protocol detection; hostile clients and servers.

mod combinations;
mod faulty_server;
mod invalid_messages;
mod macaw_client;
mod mutated_clients;
mod mutation;
mod protocol_detection;
mod protocols;
mod relay_client;
mod server_faults;
mod servers;
use voxbridge_test_support::bench;
