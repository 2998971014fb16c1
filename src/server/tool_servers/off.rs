//! Stands for [`super::mcp`] in a program that was built without it: there are no tool servers.

use std::sync::Arc;

use super::{ToolCaller, ToolServerSettings};
use crate::vocabulary::ListedTool;

/// Why this program has no tool servers.
const OFF: &str = "this program was built without the Model Context Protocol (cargo feature `mcp`)";

/// Checks that this program has tool servers.
pub(crate) fn check() -> Result<(), String> {
    Err(OFF.to_owned())
}

/// A connection, which there never is.
pub(super) enum Connected {}

/// Connects to a server.
pub(super) async fn connect(_: &ToolServerSettings) -> Result<Connected, String> {
    Err(OFF.to_owned())
}

impl Connected {
    pub(super) async fn list_tools(&self, _: &ToolServerSettings) -> Result<Vec<ListedTool>, String> {
        match *self {}
    }

    pub(super) fn caller(&self) -> Arc<dyn ToolCaller> {
        match *self {}
    }

    pub(super) async fn wait_for_change(&self) -> Result<(), String> {
        match *self {}
    }
}
