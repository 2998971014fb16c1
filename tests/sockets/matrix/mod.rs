//! Every client protocol on every server over real sockets, how a connection's protocol is found out, and what hostile
//! clients and servers may do to each of them.

mod combinations;
mod protocols;
mod invalid_messages;
mod faulty_server;
mod server_faults;
mod macaw_client;
mod protocol_detection;
mod relay_client;
mod servers;
mod mutation;
mod mutated_clients;
use voxbridge_test_support::bench;
