//! Reads the tool servers in `tools`: entries of the type `mcp`.

use serde_json::{Value, value::RawValue};

use crate::{
    client::{
        json_text::{Fields, JsonKind as _, quote, read_str, write_field},
        realtime::fields::{missing, read_array, read_object, read_text, shortened, wrong_type, wrong_value},
    },
    error::Error,
    vocabulary::{ListedTool, RemoteServer},
};

/// Type of such an entry.
pub(in crate::client::realtime) const MCP: &str = "mcp";
/// Most servers of a session.
pub(in crate::client::realtime) const SERVERS_MAX: usize = 8;
/// Longest label, bytes.
const LABEL_MAX_BYTES: usize = 64;
const URL_MAX_BYTES: usize = 2048;
const HEADERS_MAX: usize = 32;
/// Longest value of a header, bytes: more than tokens have.
const HEADER_MAX_BYTES: usize = 8192;
/// Most names in a filter.
const NAMES_MAX: usize = 256;
const NAME_MAX_BYTES: usize = 256;
/// Fields that are never echoed.
const SECRET_FIELDS: [&str; 2] = ["authorization", "headers"];
/// Fields that name a connector or a tunnel of OpenAI, in place of a URL.
const HOSTED: [&str; 2] = ["connector_id", "tunnel_id"];
/// Headers that voxbridge sets itself, and those of a connection.
const OWN_HEADERS: [&str; 15] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A tool server that the client names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client::realtime) struct DeclaredServer {
    pub(in crate::client::realtime) server: RemoteServer,
    /// OpenAI hosts the server: voxbridge has no way to it.
    pub(super) is_hosted: bool,
    /// Tools that the model may call; all if not given.
    allowed: Option<ToolFilter>,
    approval: Approval,
}

/// Set of tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ToolFilter {
    names: Option<Vec<String>>,
    /// Only tools that say of themselves that they change nothing, or only the others.
    read_only: Option<bool>,
}

/// Which calls the client approves before they are made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Approval {
    Always,
    Never,
    /// Of tools in neither set, those need approval that no one exempts: all, or none if only the first set is given.
    Of {
        always: Option<ToolFilter>,
        never: Option<ToolFilter>,
    },
}

impl DeclaredServer {
    /// True if the model may call this tool.
    pub(super) fn allows(&self, tool: &ListedTool) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(tool))
    }

    /// True if the client approves each call of this tool.
    pub(super) fn needs_approval(&self, tool: &ListedTool) -> bool {
        match &self.approval {
            Approval::Always => true,
            Approval::Never => false,
            Approval::Of { always: Some(always), never: None } => always.contains(tool),
            Approval::Of { always, never } => {
                let is_named = always.as_ref().is_some_and(|always| always.contains(tool));
                is_named || !never.as_ref().is_some_and(|never| never.contains(tool))
            }
        }
    }
}

impl ToolFilter {
    fn contains(&self, listed: &ListedTool) -> bool {
        let annotations: Value = listed
            .annotations
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let is_read_only = annotations["readOnlyHint"] == true;
        self.names.as_ref().is_none_or(|names| names.contains(&listed.tool.name))
            && self.read_only.is_none_or(|read_only| read_only == is_read_only)
    }
}

/// Reads an entry.
///
/// # Errors
/// The mistake, without values that may be secret.
pub(in crate::client::realtime) fn read_server(
    fields: &Fields<'_>,
    path: &str,
) -> Result<DeclaredServer, Error> {
    let at = |key: &str| format!("{path}.{key}");
    let label = fields.given("server_label").ok_or_else(|| missing(&at("server_label")))?;
    let label = read_text(label, &at("server_label"), LABEL_MAX_BYTES)?;
    if label.trim().is_empty() || label.chars().any(char::is_control) {
        return Err(wrong_value(&at("server_label"), "a label"));
    }
    let url = fields.given("server_url");
    let is_hosted = url.is_none() && HOSTED.iter().any(|key| fields.given(key).is_some());
    if url.is_none() && !is_hosted {
        return Err(missing(&at("server_url")));
    }
    let url =
        url.map(|url| read_text(url, &at("server_url"), URL_MAX_BYTES)).transpose()?.unwrap_or_default();
    let mut headers = Vec::new();
    if let Some(given) = fields.given("headers") {
        read_headers(given, &at("headers"), &mut headers)?;
    }
    if let Some(token) = fields.given("authorization") {
        let token = read_text(token, &at("authorization"), HEADER_MAX_BYTES)?;
        check_header("authorization", &token, &at("authorization"))?;
        headers.retain(|(name, _)| name != "authorization");
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    let allowed = fields.given("allowed_tools").map(|value| read_filter(value, &at("allowed_tools")));
    Ok(DeclaredServer {
        server: RemoteServer { label, url, headers },
        is_hosted,
        allowed: allowed.transpose()?,
        approval: read_approval(fields.given("require_approval"), &at("require_approval"))?,
    })
}

fn read_headers(value: &RawValue, path: &str, headers: &mut Vec<(String, String)>) -> Result<(), Error> {
    for (name, value) in read_object(value, path)?.iter() {
        let path = format!("{path}.{}", shortened(name));
        let value = read_text(value, &path, HEADER_MAX_BYTES)?;
        let name = name.to_ascii_lowercase();
        check_header(&name, &value, &path)?;
        if headers.len() == HEADERS_MAX || headers.iter().any(|(known, _)| *known == name) {
            return Err(wrong_value(&path, &format!("at most {HEADERS_MAX} headers, each once")));
        }
        headers.push((name, value));
    }
    Ok(())
}

/// Rejects what is no header (RFC 9110), and those that are voxbridge's.
fn check_header(name: &str, value: &str, path: &str) -> Result<(), Error> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || OWN_HEADERS.contains(&name) {
        return Err(wrong_value(path, "a header that a client may set"));
    }
    match value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        true => Ok(()),
        false => Err(wrong_value(path, "printable ASCII characters")),
    }
}

/// `allowed_tools`, or a set of `require_approval`: a list of names, or an object.
fn read_filter(value: &RawValue, path: &str) -> Result<ToolFilter, Error> {
    if value.kind() == "an array" {
        return Ok(ToolFilter { names: Some(read_names(value, path)?), read_only: None });
    }
    let fields = read_object(value, path)?;
    let names = fields.given("tool_names").map(|names| read_names(names, &format!("{path}.tool_names")));
    let read_only = match fields.given("read_only").map(RawValue::get) {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(wrong_value(&format!("{path}.read_only"), "a boolean")),
    };
    Ok(ToolFilter { names: names.transpose()?, read_only })
}

fn read_names(value: &RawValue, path: &str) -> Result<Vec<String>, Error> {
    let names = read_array(value, path, NAMES_MAX)?.into_iter().enumerate();
    names.map(|(at, name)| read_text(name, &format!("{path}[{at}]"), NAME_MAX_BYTES)).collect()
}

/// `require_approval`: without it, the client approves every call, as with OpenAI.
fn read_approval(value: Option<&RawValue>, path: &str) -> Result<Approval, Error> {
    let Some(value) = value else { return Ok(Approval::Always) };
    match (value.kind(), read_str(value).as_deref()) {
        (_, Some("always")) => Ok(Approval::Always),
        (_, Some("never")) => Ok(Approval::Never),
        ("an object", _) => {
            let fields = read_object(value, path)?;
            let set = |key: &str| {
                fields.given(key).map(|value| read_filter(value, &format!("{path}.{key}"))).transpose()
            };
            Ok(Approval::Of { always: set("always")?, never: set("never")? })
        }
        ("a string", _) => Err(wrong_value(path, "'always', 'never' or an object")),
        _ => Err(wrong_type(path, "a string or an object", value)),
    }
}

/// The list of tools without what may be secret in its servers.
pub(in crate::client::realtime) fn without_secrets(
    tools: &RawValue,
    path: &str,
) -> Result<Box<RawValue>, Error> {
    if tools.kind() != "an array" {
        return Ok(tools.to_owned());
    }
    let mut list = String::new();
    for tool in read_array(tools, path, usize::MAX)? {
        list.push(if list.is_empty() { '[' } else { ',' });
        match Fields::read(tool)
            .filter(|fields| fields.get("type").and_then(read_str).as_deref() == Some(MCP))
        {
            None => list.push_str(tool.get()),
            Some(fields) => {
                let mut shown = String::new();
                for (key, value) in fields.iter().filter(|(key, _)| !SECRET_FIELDS.contains(key)) {
                    match (key, read_str(value)) {
                        ("server_url", Some(url)) => {
                            write_field(
                                &mut shown,
                                key,
                                &quote(url.split(['?', '#']).next().unwrap_or_default()),
                            );
                        }
                        _ => write_field(&mut shown, key, value.get()),
                    }
                }
                shown.push('}');
                list.push_str(&shown);
            }
        }
    }
    list.push_str(if list.is_empty() { "[]" } else { "]" });
    RawValue::from_string(list).map_err(|_| wrong_value(path, "a list of tools"))
}
