//! Tools: functions that the model may call, and the results of calls. The client has tools, and so have tool servers of the
//! operator and of the client, which voxbridge calls itself.
//!
//! The types know no prompt and no protocol: a client codec, a prompt or a server with calls of its own makes and reads them.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::EntryId;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, unique in an offer.
    pub name: String,
    /// Its purpose, for the model.
    pub description: Option<String>,
    /// JSON schema of its arguments: the text of an object.
    pub parameters: Box<str>,
}

/// A name that the model can write without mistakes, for a tool of this name.
pub(crate) fn writable_name(name: &str) -> String {
    /// OpenAI's bound.
    const NAME_MAX_BYTES: usize = 64;
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' };
    name.chars().map(letter).take(NAME_MAX_BYTES).collect()
}

/// Which calls an answer may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// One of the tool with this name.
    Named(String),
}

/// The tools that the model may call in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOffer {
    /// The tools.
    pub tools: Arc<[Tool]>,
    /// Which calls an answer may have.
    pub choice: ToolChoice,
    /// An answer may have several calls.
    pub is_parallel: bool,
}

impl Default for ToolOffer {
    fn default() -> Self {
        Self { tools: Arc::new([]), choice: ToolChoice::Auto, is_parallel: true }
    }
}

impl ToolOffer {
    /// True if an answer may have calls.
    #[must_use]
    pub fn allows_calls(&self) -> bool {
        !self.tools.is_empty() && self.choice != ToolChoice::None
    }

    /// True if an answer must have a call.
    #[must_use]
    pub fn needs_call(&self) -> bool {
        !self.tools.is_empty() && matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    /// The tool with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Memory of the tools, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_tool = |tool: &Tool| {
            let description = tool.description.as_ref().map_or(0, String::len);
            size_of::<Tool>() + tool.name.len() + description + tool.parameters.len()
        };
        self.tools.iter().map(of_tool).sum()
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Id of the call.
    pub call_id: String,
    /// Words for the model, often JSON.
    pub output: String,
}

/// A tool server of the operator that can be called now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServer {
    /// Its name in the configuration.
    pub name: String,
    /// Longest time of a call.
    pub timeout: Duration,
    /// Most calls in a turn of the user.
    pub calls_max: u32,
    /// Its tools, under its own names.
    pub tools: Vec<Tool>,
}

/// A tool server that the client names.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteServer {
    /// The client's name for it.
    pub label: String,
    /// Its URL, which may hold secrets.
    pub url: String,
    /// Headers of every request, which may hold secrets.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteServer({:?}, {} headers)", self.label, self.headers.len())
    }
}

impl RemoteServer {
    /// Memory of the server, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        size_of::<Self>() + self.label.len() + self.url.len() + headers.sum::<usize>()
    }
}

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTool {
    /// The tool, under the server's own name.
    pub tool: Tool,
    /// Hints on what it does: the text of a JSON object.
    pub annotations: Option<Box<str>>,
}

/// A call of a tool on a tool server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCall {
    /// Entry of the conversation that the call is. Names it within its session.
    pub id: EntryId,
    /// The list of tools of a client's server; `None` for a server of the operator.
    pub list: Option<EntryId>,
    /// Name of the server.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// The arguments: the text of a JSON object.
    pub arguments: String,
    /// Longest time of the call.
    pub timeout: Duration,
}

/// The end of a call on a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerCallResult {
    /// Words for the model: the result, or the error as JSON.
    pub output: String,
    /// Pictures: JPEG or PNG files.
    pub pictures: Vec<Bytes>,
    /// Why there is no result.
    pub failure: Option<CallFailure>,
}

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFailure {
    /// The tool reports an error.
    Tool,
    /// The tool was not called, or its result did not come.
    Call,
}

impl ServerCallResult {
    /// The end of a call that failed.
    #[must_use]
    pub fn failed(problem: &str) -> Self {
        let error = serde_json::json!({ "error": problem });
        Self { output: error.to_string(), pictures: Vec::new(), failure: Some(CallFailure::Call) }
    }

    /// The words of the error in the output.
    #[must_use]
    pub fn error_words(&self) -> String {
        let output: serde_json::Value = serde_json::from_str(&self.output).unwrap_or_default();
        output["error"].as_str().unwrap_or(&self.output).to_owned()
    }

    /// True for the end of a call that failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.output.starts_with("{\"error\":")
    }
}
