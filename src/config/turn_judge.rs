//! `[turn_judge]`: a server that judges the ends of turns, in place of a model in this process.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::http_server::{HttpServer, Mistake};
use crate::{net::http_request::RequestTarget, secret::redacted_url};

/// `[turn_judge]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TurnJudgeConfig {
    /// `http://` or `https://` URL that takes the audio of a pause. Its secrets are redacted when it is serialized.
    #[serde(serialize_with = "serialize_redacted")]
    pub url: String,
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
}

fn serialize_redacted<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    redacted_url(url).serialize(serializer)
}

impl TurnJudgeConfig {
    /// The server. Reads its files.
    pub(super) fn server(&self) -> Result<RequestTarget, Mistake> {
        let server = HttpServer {
            url: &self.url,
            example: "https://HOST/raw",
            ca: self.ca.as_deref(),
            token_file: self.token_file.as_deref(),
            token_env: self.token_env.as_deref(),
            token_header: self.token_header.as_deref(),
            headers: &self.headers,
        };
        server.target()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_their_key() {
        for (toml, expected) in [
            (
                "url = \"ws://a/\"",
                "url: \"ws://a/\": the scheme must be http or https; it looks like https://HOST/raw",
            ),
            ("url = \"http:///raw\"", "url: "),
            (
                "url = \"http://a/\"\nheaders = { \"a b\" = \"c\" }",
                "headers: \"a b\" or its value is not allowed",
            ),
            ("url = \"http://a/\"\ntoken_file = \"/nowhere/token\"", "token_file: "),
        ] {
            let section: TurnJudgeConfig = toml::from_str(toml).unwrap();
            let Err((key, problem)) = section.server() else { panic!("{toml} is accepted") };
            let found = format!("{key}: {problem}");
            assert!(found.starts_with(expected), "{found}");
        }
        let section: TurnJudgeConfig = toml::from_str("url = \"http://a:8080/raw?x=1\"").unwrap();
        assert_eq!(section.server().map(|server| server.path).ok().as_deref(), Some("/raw?x=1"));
    }
}
