//! Settings of a tool server: how it is reached, and what of it is offered.

use std::{path::PathBuf, time::Duration};

use crate::{net::http_request::RequestTarget, secret::Secret};

/// A tool server of the configuration.
#[derive(Clone)]
#[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "there are no tool servers"))]
pub struct ToolServerSettings {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub(crate) transport: ToolServerTransport,
    /// Tools that are offered; all if not set.
    pub(crate) allowed: Option<Vec<String>>,
    /// Longest time of a call.
    pub(crate) timeout: Duration,
    /// Most calls in a turn of the user.
    pub(crate) calls_max: u32,
}

/// How a tool server is reached.
#[derive(Clone)]
#[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "there are no tool servers"))]
pub(crate) enum ToolServerTransport {
    /// Streamable HTTP.
    Http {
        /// The server.
        target: RequestTarget,
        /// A client has named the server: inner addresses are refused.
        is_public: bool,
    },
    /// A child process, on its standard input and output.
    Child {
        /// The program, by path or name.
        program: String,
        arguments: Vec<String>,
        /// Its environment.
        environment: Vec<(String, Secret)>,
        /// Its working directory, if that is another.
        directory: Option<PathBuf>,
    },
}
