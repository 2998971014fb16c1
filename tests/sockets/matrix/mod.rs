//! Every client protocol on every server over real sockets, how a connection's protocol is found out, and what hostile
//! clients and servers may do to each of them.

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
