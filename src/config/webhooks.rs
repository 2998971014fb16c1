//! `[webhooks]`: servers that are told about sessions.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::{
    Config, env_var,
    http_server::{HttpServer, Mistake},
    problems::ConfigProblems,
};
use crate::{
    net::http_request::RequestTarget,
    secret::redacted_url,
    server::webhooks::{SigningKey, WebhookEvent, WebhookSettings},
};

/// `[webhooks]`: servers that are told about sessions; off unless `urls` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WebhooksConfig {
    /// `http://` or `https://` URLs. Their secrets are redacted when they are serialized.
    #[serde(default, serialize_with = "serialize_redacted", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// CA certificates (PEM) to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// File with the secret that signs messages, `whsec_…`.
    pub secret_file: Option<PathBuf>,
    /// Environment variable with this secret.
    pub secret_env: Option<String>,
    /// Directory where messages wait, so that they survive a restart; without it, they wait in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<PathBuf>,
    /// Events that are told; all by default.
    pub events: Option<Vec<WebhookEvent>>,
}

fn serialize_redacted<S: Serializer>(urls: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    urls.iter().map(|url| redacted_url(url)).collect::<Vec<_>>().serialize(serializer)
}

impl WebhooksConfig {
    fn build(&self) -> Result<Option<WebhookSettings>, Mistake> {
        if *self == Self::default() {
            return Ok(None);
        }
        if self.urls.is_empty() {
            return Err(("urls", "names no server".to_owned()));
        }
        if self.events.as_ref().is_some_and(Vec::is_empty) {
            return Err(("events", "names no event; leave it out for all".to_owned()));
        }
        let targets = self.urls.iter().map(|url| self.target(url)).collect::<Result<_, _>>()?;
        let events = self.events.clone().unwrap_or_else(|| WebhookEvent::ALL.to_vec());
        Ok(Some(WebhookSettings { targets, events, key: self.key()?, spool: self.spool.clone() }))
    }

    fn target(&self, url: &str) -> Result<RequestTarget, Mistake> {
        let headers = BTreeMap::new();
        let (token_file, token_env, token_header) = (None, None, None);
        let (example, ca) = ("https://HOST/PATH", self.ca.as_deref());
        let server = HttpServer { url, example, ca, token_file, token_env, token_header, headers: &headers };
        let of_urls = |(key, problem)| (if key == "url" { "urls" } else { key }, problem);
        server.target().map_err(of_urls)
    }

    fn key(&self) -> Result<SigningKey, Mistake> {
        let (key, secret) = match (&self.secret_file, &self.secret_env) {
            (Some(path), None) => {
                let bad = |error| ("secret_file", format!("{}: {error}", path.display()));
                ("secret_file", fs::read_to_string(path).map_err(bad)?)
            }
            (None, Some(name)) => {
                let missing = || ("secret_env", format!("the environment has no variable {name}"));
                ("secret_env", env_var(name).ok_or_else(missing)?)
            }
            (None, None) => {
                return Err(("secret_file", "messages need a secret: set it, or secret_env".to_owned()));
            }
            (Some(_), Some(_)) => {
                return Err((
                    "secret_env",
                    "secret_file and secret_env are both set; set only one".to_owned(),
                ));
            }
        };
        SigningKey::from_secret(&secret).map_err(|problem| (key, problem))
    }
}

impl Config {
    /// The webhooks, and all mistakes of their section.
    pub(super) fn build_webhooks(&self, problems: &mut ConfigProblems) -> Option<WebhookSettings> {
        match self.webhooks.build() {
            Ok(settings) => settings,
            Err((key, problem)) => {
                problems.push(&["webhooks", key], format!("webhooks.{key}: {problem}"));
                None
            }
        }
    }
}
