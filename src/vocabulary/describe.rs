//! Words for logs, traces and messages: an upstream's queue, and the end of its session.

use std::fmt::{self, Display, Formatter};

use super::UpstreamEnd;

/// Position in an upstream's queue.
#[must_use]
pub fn describe_queue(position: Option<u32>, length: Option<u32>, wait_s: Option<f64>) -> String {
    let position = position.map_or("unknown".to_owned(), |position| position.to_string());
    let length = length.map_or(String::new(), |length| format!(" of {length}"));
    let wait = wait_s.map_or(String::new(), |wait| format!(", about {wait:.0} s"));
    format!("position {position}{length}{wait}")
}

impl Display for UpstreamEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.detail.is_empty() { "without a reason" } else { &self.detail })
    }
}
