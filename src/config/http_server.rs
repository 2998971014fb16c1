//! A server that voxbridge asks by HTTP: the keys that sections for such servers have in common.

use std::{collections::BTreeMap, path::Path};

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::read_token;
use crate::{
    net::{
        Endpoint,
        http_request::{RequestTarget, websocket_uri},
    },
    secret::{Secret, redacted_url},
};

/// A mistake in a section: the key, and a description.
pub(super) type Mistake = (&'static str, String);

/// The keys.
#[derive(Clone, Copy)]
pub(super) struct HttpServer<'c> {
    pub(super) url: &'c str,
    /// A URL of this kind of server, for messages.
    pub(super) example: &'static str,
    /// CA certificates (PEM) to trust besides those of the system.
    pub(super) ca: Option<&'c Path>,
    pub(super) token_file: Option<&'c Path>,
    pub(super) token_env: Option<&'c str>,
    /// Header that carries the bare token; `Authorization: Bearer` by default.
    pub(super) token_header: Option<&'c str>,
    pub(super) headers: &'c BTreeMap<String, String>,
}

impl HttpServer<'_> {
    /// Checks the keys, and reads the token.
    pub(super) fn target(self) -> Result<RequestTarget, Mistake> {
        let invalid = |problem: String| {
            ("url", format!("{:?}: {problem}; it looks like {}", redacted_url(self.url), self.example))
        };
        let uri = websocket_uri(self.url).map_err(invalid)?;
        let endpoint = Endpoint::from_uri(&uri, self.ca)
            .map_err(|problem| if self.ca.is_some() { ("ca", problem) } else { invalid(problem) })?;
        let mut headers = Vec::new();
        for (name, value) in self.headers {
            let header = name.parse().ok().zip(HeaderValue::from_str(value).ok());
            headers.push(header.ok_or_else(|| ("headers", format!("{name:?} or its value is not allowed")))?);
        }
        let key = if self.token_file.is_some() { "token_file" } else { "token_env" };
        if let Some(token) = read_token(self.token_file, self.token_env).map_err(|problem| (key, problem))? {
            headers.push(self.token_header(&token)?);
        }
        Ok(RequestTarget::new(endpoint, &uri, headers))
    }

    fn token_header(self, token: &Secret) -> Result<(HeaderName, HeaderValue), Mistake> {
        let name = self.token_header.map_or(Ok(AUTHORIZATION), str::parse);
        let invalid = |_| ("token_header", "is not a valid header name".to_owned());
        let text = match self.token_header {
            Some(_) => token.expose().to_owned(),
            None => format!("Bearer {}", token.expose()),
        };
        let value = HeaderValue::try_from(text);
        let mut value =
            value.map_err(|_| ("token_file", "the token is not allowed in a header".to_owned()))?;
        value.set_sensitive(true);
        Ok((name.map_err(invalid)?, value))
    }
}
