//! Signs of a client's protocol in its request, where several protocols share a path: its headers, its model's name, and a
//! key although no keys are configured. The signs of a protocol are in its mapping file (`[signs]`).
//!
//! [`super::protocol_detection`] looks at path and query before, and at the first message after.

use std::{fmt, sync::Arc};

use hyper::{HeaderMap, header::AUTHORIZATION};
use serde_json::Value;

use crate::{
    server::{
        access::credential::{list_items, split_query_parameter},
        route::matches_glob,
    },
    spelling::{ClientMapping, client::HeaderSign},
};

/// The sign that decided on the protocol, for the log and `/sessions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedBy {
    /// A route names the protocol.
    Route,
    /// Only one protocol is served at the path.
    Path,
    /// Only one protocol is served at the listener.
    Listener,
    /// Only one protocol knows the query.
    Query,
    /// A header of the request.
    Header,
    /// The permissions of the key.
    Key,
    /// The model's name.
    Model,
    /// The first message.
    FirstMessage,
    /// A key although none is asked for.
    UnaskedKey,
    /// Nothing: it is the protocol for clients without a sign.
    Default,
}

impl fmt::Display for DetectedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Route => "route",
            Self::Path => "path",
            Self::Listener => "listener",
            Self::Query => "query",
            Self::Header => "header",
            Self::Key => "key",
            Self::Model => "model",
            Self::FirstMessage => "first_message",
            Self::UnaskedKey => "unasked_key",
            Self::Default => "default",
        })
    }
}

/// Keeps the protocols that the request shows a sign of, by headers before the model's name. Without a sign, all stay, and
/// an unasked key moves the protocols with `unasked_key` to the front.
pub(super) fn narrow_by_signs(
    candidates: &mut Vec<Arc<ClientMapping>>,
    headers: &HeaderMap,
    query: &str,
    asks_for_keys: bool,
) -> Option<DetectedBy> {
    if candidates.len() < 2 {
        return None;
    }
    if keep_matching(candidates, |client| shows_any(headers, &client.signs.headers)) {
        return Some(DetectedBy::Header);
    }
    if keep_matching(candidates, |client| names_its_model(client, query)) {
        return Some(DetectedBy::Model);
    }
    let shows_key = headers.get(AUTHORIZATION).is_some_and(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer ")))
    });
    if shows_key && !asks_for_keys && candidates.iter().any(|client| client.signs.unasked_key) {
        candidates.sort_by_key(|client| !client.signs.unasked_key);
        return Some(DetectedBy::UnaskedKey);
    }
    None
}

/// The query, with the parameter that asks for the beta shape if the headers do.
pub(super) fn add_shape(candidates: &[Arc<ClientMapping>], headers: &HeaderMap, query: String) -> String {
    let is_beta = candidates.iter().any(|client| shows_any(headers, &client.signs.beta_headers));
    match (is_beta, query.is_empty()) {
        (false, _) => query,
        (true, true) => "shape=beta".to_owned(),
        (true, false) => format!("{query}&shape=beta"),
    }
}

/// The query, with the parameters that stand in the path, in place of the query's own.
pub(super) fn add_path<'c>(
    at_path: impl Iterator<Item = &'c Arc<ClientMapping>>,
    path: &str,
    query: String,
) -> String {
    let in_path = at_path.flat_map(|client| client.path_parameters(path).unwrap_or_default());
    in_path.fold(query, |query, (name, value)| {
        let (rest, _) = split_query_parameter(&query, name);
        form_urlencoded::Serializer::new(rest).append_pair(name, &value).finish()
    })
}

/// The query, with the parameters that headers of the request stand for, unless the query has them.
pub(super) fn add_headers(candidates: &[Arc<ClientMapping>], headers: &HeaderMap, query: String) -> String {
    let named = candidates.iter().flat_map(|client| &client.headers);
    named.fold(query, |query, (header, parameter)| {
        let value = headers.get(header.as_str()).and_then(|value| value.to_str().ok());
        match value.filter(|_| split_query_parameter(&query, parameter).1.is_empty()) {
            Some(value) => form_urlencoded::Serializer::new(query).append_pair(parameter, value).finish(),
            None => query,
        }
    })
}

/// The query, with the settings of the request's client secret for protocols that know them, and with their model if the query
/// names none.
pub(super) fn add_session(candidates: &[Arc<ClientMapping>], session: Option<&str>, query: String) -> String {
    let Some(client) = candidates.iter().find(|client| client.realtime.is_some() || client.is_live) else {
        return query;
    };
    let Some(session) = session else { return query };
    let names_model = client
        .model_parameters()
        .any(|parameter| !split_query_parameter(&query, &parameter.name).1.is_empty());
    let settings: Value = serde_json::from_str(session).unwrap_or_default();
    let model = settings["model"].as_str().filter(|_| !names_model);
    let mut pairs = form_urlencoded::Serializer::new(query);
    pairs.append_pair("session", session);
    pairs.extend_pairs(model.map(|model| ("model", model)));
    pairs.finish()
}

/// Keeps what matches, if anything does. Returns true if that tells the protocol.
fn keep_matching(candidates: &mut Vec<Arc<ClientMapping>>, matches: impl Fn(&ClientMapping) -> bool) -> bool {
    let found = candidates.iter().any(|client| matches(client));
    if found {
        candidates.retain(|client| matches(client));
    }
    found
}

/// True if one of the headers is there with a matching value. Lists are compared item by item.
fn shows_any(headers: &HeaderMap, signs: &[HeaderSign]) -> bool {
    signs.iter().any(|sign| list_items(headers, &sign.name).any(|value| matches_glob(&sign.value, value)))
}

fn names_its_model(client: &ClientMapping, query: &str) -> bool {
    let mut models =
        client.model_parameters().flat_map(|parameter| split_query_parameter(query, &parameter.name).1);
    models.any(|model| client.signs.models.iter().any(|pattern| matches_glob(pattern, &model)))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::spelling::Library;

    fn detected(
        lines: &[(&'static str, &str)],
        query: &str,
        asks: bool,
    ) -> (Vec<String>, Option<DetectedBy>) {
        let library = Library::embedded().unwrap();
        let mut candidates: Vec<_> =
            ["macaw", "openai-realtime"].map(|name| library.client(name).unwrap()).into();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let by = narrow_by_signs(&mut candidates, &headers, query, asks);
        (candidates.iter().map(|client| client.name.clone()).collect(), by)
    }

    #[test]
    fn signs_of_real_clients_tell_the_protocol() {
        let openai = vec!["openai-realtime".to_owned()];
        for line in [
            ("sec-websocket-protocol", "realtime, openai-insecure-api-key.k"),
            ("openai-beta", "realtime=v1"),
            ("x-openai-agents-sdk", "openai-agents-sdk.0.20.0"),
            ("user-agent", "LiveKit Agents"),
            ("user-agent", "Agents/JavaScript 0.20.0"),
            ("user-agent", "OpenAI/Python 3.54.0"),
            ("x-stainless-lang", "python"),
            ("api-key", "azure"),
        ] {
            assert_eq!(
                detected(&[line], "model=x", false),
                (openai.clone(), Some(DetectedBy::Header)),
                "{line:?}"
            );
        }
        assert_eq!(detected(&[], "model=gpt-realtime", false), (openai, Some(DetectedBy::Model)));
    }

    #[test]
    fn headers_stand_for_query_parameters_unless_the_query_has_them() {
        let library = Library::embedded().unwrap();
        let candidates = [library.client("xiaozhi").unwrap()];
        let query = |headers: &[(&'static str, &'static str)], query: &str| {
            let pairs = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            add_headers(&candidates, &pairs.collect(), query.to_owned())
        };
        assert_eq!(query(&[("protocol-version", "3")], ""), "version=3");
        assert_eq!(query(&[("protocol-version", "2&model=x")], "model=m"), "model=m&version=2%26model%3Dx");
        assert_eq!(query(&[("protocol-version", "3")], "version=1"), "version=1");
        assert_eq!(query(&[("device-id", "a")], "model=m"), "model=m");
    }

    #[test]
    fn macaw_clients_show_no_sign() {
        let both = vec!["macaw".to_owned(), "openai-realtime".to_owned()];
        for line in
            [("user-agent", "Python/3.12 websockets/15.0"), ("x-api-key", "k"), ("authorization", "Token k")]
        {
            assert_eq!(
                detected(&[line], "model=faster-whisper-tiny", false),
                (both.clone(), None),
                "{line:?}"
            );
        }
        let bearer = [("authorization", "Bearer k")];
        assert_eq!(detected(&bearer, "model=x", true), (both.clone(), None), "keys are asked for");
        let reversed = both.into_iter().rev().collect();
        assert_eq!(detected(&bearer, "model=x", false), (reversed, Some(DetectedBy::UnaskedKey)));
    }
}
