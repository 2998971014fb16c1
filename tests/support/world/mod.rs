//! The world of a test: clients that are made from their mappings. They have no socket and no clock, so that they serve tests in
//! virtual time and over sockets alike.

pub mod client;
pub mod received;
