//! `[mcp.NAME]`: servers of tools that voxbridge calls for the model, by the Model Context Protocol.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize, Serializer};

use super::{
    Config, env_var,
    http_server::{HttpServer, Mistake},
    problems::ConfigProblems,
};
use crate::{
    secret::{Secret, redacted_url},
    server::{
        route::Routes,
        tool_servers::{self, ToolServerSettings, ToolServerTransport},
    },
    suggestion::suggest_known,
};

/// Variables that a child has of this process: where programs and files are, and how texts are written.
const KEPT_VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR", "XDG_CACHE_HOME"];
/// Longest time of a call, ms.
const DEFAULT_TIMEOUT_MS: u64 = 20_000;
/// Most calls in a turn of the user.
const DEFAULT_CALLS_MAX: u32 = 8;

/// `[mcp.NAME]`: one server of tools, by URL or as a child process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct McpConfig {
    /// `http://` or `https://` URL of its streamable HTTP. Its secrets are redacted when it is serialized.
    #[serde(default, serialize_with = "serialize_redacted")]
    pub url: Option<String>,
    /// CA certificates (PEM) to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// File with the token for this server.
    pub token_file: Option<PathBuf>,
    /// Environment variable with the token for this server.
    pub token_env: Option<String>,
    /// Header that carries the bare token; `Authorization: Bearer` by default.
    pub token_header: Option<String>,
    /// Other headers of every request, without secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Program that is started as a child process, and its arguments. There is no shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Working directory of the child process.
    pub directory: Option<PathBuf>,
    /// Variables of the child's environment, without secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Variables of the child's environment, each with a file that has its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_files: BTreeMap<String, PathBuf>,
    /// Variables of voxbridge's environment that the child gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_from: Vec<String>,
    /// Tools that are offered; all by default.
    pub tools: Option<Vec<String>>,
    /// Longest time of a call, ms.
    pub timeout_ms: Option<u64>,
    /// Most calls in a turn of the user.
    pub calls_max: Option<u32>,
}

fn serialize_redacted<S: Serializer>(url: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_deref().map(redacted_url).serialize(serializer)
}

impl McpConfig {
    /// Checks the section, and reads its files.
    fn build(&self, name: &str) -> Result<ToolServerSettings, Mistake> {
        let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_-".contains(&letter);
        if name.is_empty() || name.len() > 32 || !name.bytes().all(is_plain) {
            let problem = "a name has letters, digits, '_' and '-', at most 32 of them";
            return Err(("", problem.to_owned()));
        }
        if self.timeout_ms.is_some_and(|ms| !(100..=600_000).contains(&ms)) {
            return Err(("timeout_ms", "must be 100 to 600000".to_owned()));
        }
        if self.calls_max.is_some_and(|max| !(1..=100).contains(&max)) {
            return Err(("calls_max", "must be 1 to 100".to_owned()));
        }
        if self.tools.as_ref().is_some_and(Vec::is_empty) {
            return Err(("tools", "names no tool; leave it out to offer all".to_owned()));
        }
        Ok(ToolServerSettings {
            name: name.to_owned(),
            transport: self.transport()?,
            allowed: self.tools.clone(),
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            calls_max: self.calls_max.unwrap_or(DEFAULT_CALLS_MAX),
        })
    }

    fn transport(&self) -> Result<ToolServerTransport, Mistake> {
        let of_child = [
            ("directory", self.directory.is_some()),
            ("environment", !self.environment.is_empty()),
            ("environment_files", !self.environment_files.is_empty()),
            ("environment_from", !self.environment_from.is_empty()),
        ];
        let of_url = [
            ("ca", self.ca.is_some()),
            ("token_file", self.token_file.is_some()),
            ("token_env", self.token_env.is_some()),
            ("token_header", self.token_header.is_some()),
            ("headers", !self.headers.is_empty()),
        ];
        match (&self.url, self.command.split_first()) {
            (None, None) => Err(("", "needs `url`, or `command` for a child process".to_owned())),
            (Some(_), Some(_)) => {
                Err(("command", "`url` and `command` are both set; set only one".to_owned()))
            }
            (Some(url), None) => {
                check_unset(&of_child, "has no effect beside `url`")?;
                self.http(url)
            }
            (None, Some((program, arguments))) => {
                check_unset(&of_url, "has no effect beside `command`")?;
                if program.trim().is_empty() {
                    return Err(("command", "names no program".to_owned()));
                }
                Ok(ToolServerTransport::Child {
                    program: program.clone(),
                    arguments: arguments.to_vec(),
                    environment: self.child_environment()?,
                    directory: self.directory.clone(),
                })
            }
        }
    }

    fn http(&self, url: &str) -> Result<ToolServerTransport, Mistake> {
        let server = HttpServer {
            url,
            example: "https://HOST/mcp",
            ca: self.ca.as_deref(),
            token_file: self.token_file.as_deref(),
            token_env: self.token_env.as_deref(),
            token_header: self.token_header.as_deref(),
            headers: &self.headers,
        };
        Ok(ToolServerTransport::Http { target: server.target()?, is_public: false })
    }

    fn child_environment(&self) -> Result<Vec<(String, Secret)>, Mistake> {
        let kept = KEPT_VARIABLES.into_iter().filter_map(|name| Some((name, env_var(name)?)));
        let mut variables: Vec<_> = kept.map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
        for (name, value) in &self.environment {
            variables.push((name.clone(), Secret::new(value.as_str())));
        }
        for (name, path) in &self.environment_files {
            let bad = |error| ("environment_files", format!("{}: {error}", path.display()));
            let value = fs::read_to_string(path).map_err(bad)?;
            variables.push((name.clone(), Secret::new(value.trim())));
        }
        for name in &self.environment_from {
            let missing = || ("environment_from", format!("the environment has no variable {name}"));
            variables.push((name.clone(), Secret::new(env_var(name).ok_or_else(missing)?)));
        }
        Ok(variables)
    }
}

/// Checks that none of these keys is set.
fn check_unset(keys: &[(&'static str, bool)], problem: &str) -> Result<(), Mistake> {
    match keys.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err((key, problem.to_owned())),
        None => Ok(()),
    }
}

impl Config {
    /// The tool servers, without those that have mistakes.
    pub(super) fn build_tool_servers(&self, problems: &mut ConfigProblems) -> Vec<ToolServerSettings> {
        if !self.mcp.is_empty() {
            problems.take(&["mcp"], tool_servers::check().map_err(|problem| format!("mcp: {problem}")));
        }
        let mut servers = Vec::new();
        for (name, section) in &self.mcp {
            match section.build(name) {
                Ok(server) => servers.push(server),
                Err(("", problem)) => problems.push(&["mcp", name], format!("mcp.{name}: {problem}")),
                Err((key, problem)) => {
                    problems.push(&["mcp", name, key], format!("mcp.{name}.{key}: {problem}"));
                }
            }
        }
        servers
    }

    /// Checks that the tool servers that profiles name are configured.
    pub(super) fn check_named_tool_servers(&self, routes: &Routes, problems: &mut ConfigProblems) {
        for (at, route) in routes.iter().enumerate() {
            for name in route.profile.tool_servers().iter().filter(|name| !self.mcp.contains_key(*name)) {
                let known = match self.mcp.is_empty() {
                    true => format!("; describe it in [mcp.{name}]"),
                    false => suggest_known(name, || self.mcp.keys().map(String::as_str)),
                };
                let message = format!(
                    "profile {:?} offers the tools of `{name}` ([answer.tools] mcp), which is no [mcp] server{known}",
                    route.profile.name
                );
                let at = at.to_string();
                let is_configured = self.routes.get(at.parse::<usize>().unwrap_or(usize::MAX)).is_some();
                if is_configured {
                    problems.push(&["route", &at, "profile"], message);
                } else {
                    problems.push(&["profile"], message);
                }
            }
        }
    }

    /// Notes on tool servers whose tools no session gets.
    pub(crate) fn tool_server_notes(&self, routes: &Routes) -> Vec<String> {
        let is_offered =
            |name: &String| routes.iter().any(|route| route.profile.tool_servers().contains(name));
        let unused = self.mcp.keys().filter(|name| !is_offered(name)).map(|name| {
            format!(
                "mcp.{name}: no profile in use offers its tools; name it in [answer.tools] mcp of a profile"
            )
        });
        let duplex = routes.iter().filter(|route| route.profile.dialogue.is_some());
        let mut duplex: Vec<&str> = duplex.map(|route| route.profile.name.as_str()).collect();
        duplex.dedup();
        let duplex = duplex.into_iter().filter(|_| !self.mcp.is_empty()).map(|profile| {
            format!(
                "profile {profile:?} is full duplex, where MiniCPM-o calls no tools: it offers none of [mcp]"
            )
        });
        unused.chain(duplex).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(toml: &str) -> String {
        let section: McpConfig = toml::from_str(toml).unwrap();
        section
            .build("home")
            .map(|_| String::new())
            .unwrap_or_else(|(key, problem)| format!("{key}: {problem}"))
    }

    #[test]
    fn mistakes_are_told_with_their_key() {
        for (toml, words) in [
            ("", ": needs `url`, or `command`"),
            ("url = \"http://a/\"\ncommand = [\"x\"]", "command: `url` and `command` are both set"),
            ("url = \"ws://a/\"", "url: \"ws://a/\": the scheme must be http or https"),
            ("url = \"httpx://a/\"", "url: \"httpx://a/\": the scheme must be"),
            ("url = \"http://u:p@a/mcp?key=k\"", "url: \"http://***@a/mcp?key=***\": credentials"),
            (
                "url = \"http://a/\"\nenvironment_from = [\"A\"]",
                "environment_from: has no effect beside `url`",
            ),
            ("command = [\"x\"]\ntoken_env = \"A\"", "token_env: has no effect beside `command`"),
            ("command = [\"\"]", "command: names no program"),
            (
                "url = \"http://a/\"\ntoken_env = \"NO_SUCH_VARIABLE\"",
                "token_env: token_env: the environment",
            ),
            ("url = \"http://a/\"\nheaders = { \"a b\" = \"c\" }", "headers: \"a b\" or its value"),
            (
                "command = [\"x\"]\nenvironment_from = [\"NO_SUCH_VARIABLE\"]",
                "environment_from: the environment",
            ),
            ("command = [\"x\"]\nenvironment_files = { A = \"/nowhere\" }", "environment_files: /nowhere: "),
            ("url = \"http://a/\"\ntimeout_ms = 5", "timeout_ms: must be 100"),
            ("url = \"http://a/\"\ncalls_max = 0", "calls_max: must be 1"),
            ("url = \"http://a/\"\ntools = []", "tools: names no tool"),
        ] {
            let found = problem(toml);
            assert!(found.starts_with(words), "{toml}: {found}");
        }
        assert_eq!(problem("url = \"https://a/mcp\"\ntools = [\"x\"]\ncalls_max = 3"), "");
        assert_eq!(problem("command = [\"uvx\", \"mcp-server-time\"]\nenvironment = { A = \"b\" }"), "");
    }

    #[test]
    fn secrets_of_the_url_are_not_serialized() {
        let section: McpConfig = toml::from_str("url = \"https://a/mcp?key=secret\"").unwrap();
        let text = toml::to_string(&section).unwrap();
        assert!(text.contains("key=***") && !text.contains("secret"), "{text}");
    }
}
