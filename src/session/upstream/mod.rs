//!

pub(crate) mod backoff;
pub(crate) mod connection;
pub(crate) mod output_filter;
pub(crate) mod reply_tracker;
