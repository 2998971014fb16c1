//! What is exported: three signals, each with a queue, a path and a count of its own.

use crate::named_enum::named_enum;

named_enum! {
    /// A kind of data.
    pub enum Signal {
        /// Spans of sessions.
        Traces = "traces",
        /// All metrics.
        Metrics = "metrics",
        /// Lines of the log.
        Logs = "logs",
    }
}
