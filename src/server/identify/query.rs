//! The query of a request, completed by what a protocol has elsewhere.

use std::sync::Arc;

use hyper::HeaderMap;
use serde_json::Value;

use super::signs::shows_any;
use crate::{server::access::credential::split_query_parameter, spelling::ClientMapping};

/// The query, with the parameter that asks for the beta shape if the headers do.
pub(in crate::server) fn add_shape(
    candidates: &[Arc<ClientMapping>],
    headers: &HeaderMap,
    query: String,
) -> String {
    let is_beta = candidates.iter().any(|client| shows_any(headers, &client.signs.beta_headers));
    match (is_beta, query.is_empty()) {
        (false, _) => query,
        (true, true) => "shape=beta".to_owned(),
        (true, false) => format!("{query}&shape=beta"),
    }
}

/// The query, with the parameters that stand in the path, in place of the query's own.
pub(in crate::server) fn add_path<'c>(
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
pub(in crate::server) fn add_headers(
    candidates: &[Arc<ClientMapping>],
    headers: &HeaderMap,
    query: String,
) -> String {
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
pub(in crate::server) fn add_session(
    candidates: &[Arc<ClientMapping>],
    session: Option<&str>,
    query: String,
) -> String {
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

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::spelling::Library;

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
}
