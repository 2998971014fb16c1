//! Clients that speak the model's own protocol, relayed in virtual time: one bridge, one gateway, no socket and no sleep.

mod answers;
mod anything;
mod errors;
mod failing;
mod older;
mod passing;
mod replacing;
mod support;
mod there_and_back;
mod translating;
use crate::pair;
