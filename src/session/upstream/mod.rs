//! Upstream session of a lane: its connection, its retries, and the answers it owes.
//!
//! - [`connection`] is one connection from the dial to the end of its transport; [`backoff`] is its retry policy
//! - [`reply_tracker`] matches the model's output to the unit in flight
//! - [`output_filter`] removes control tokens from the model's text

pub(crate) mod backoff;
pub(crate) mod connection;
pub(crate) mod output_filter;
pub(crate) mod reply_tracker;
