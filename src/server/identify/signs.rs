//! Signs of a client's protocol in its request, where several protocols share a path: its headers, its model's name, and a
//! key although no keys are configured. The signs of a protocol are in its mapping file (`[signs]`).

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, USER_AGENT},
};

use super::{DetectedBy, Identified};
use crate::{
    server::{
        access::credential::{list_items, split_query_parameter},
        route::matches_glob,
    },
    spelling::{ClientMapping, client::HeaderSign},
};

impl Identified {
    /// Keeps the protocols that the request shows a sign of, by headers before the model's name. Without a sign, all stay, and
    /// an unasked key moves the protocols with `unasked_key` to the front. Returns true for a sign.
    pub(in crate::server) fn narrow_by_signs(
        &mut self,
        headers: &HeaderMap,
        query: &str,
        asks_for_keys: bool,
    ) -> bool {
        let by = self.is_open().then(|| self.find_sign(headers, query, asks_for_keys)).flatten();
        self.by = by.unwrap_or(self.by);
        by.is_some()
    }

    fn find_sign(&mut self, headers: &HeaderMap, query: &str, asks_for_keys: bool) -> Option<DetectedBy> {
        if self.keep(|client| shows_any(headers, &client.signs.headers)) {
            return Some(DetectedBy::Header);
        }
        if self.keep(|client| names_its_model(client, query)) {
            return Some(DetectedBy::Model);
        }
        let shows_key = headers.get(AUTHORIZATION).is_some_and(|value| {
            value.to_str().is_ok_and(|value| {
                value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "))
            })
        });
        if shows_key && !asks_for_keys && self.candidates.iter().any(|client| client.signs.unasked_key) {
            self.candidates.sort_by_key(|client| !client.signs.unasked_key);
            return Some(DetectedBy::UnaskedKey);
        }
        None
    }
}

/// True if the client is another voxbridge (`server/upstream_pool/dial`).
pub(in crate::server) fn is_bridge(headers: &HeaderMap) -> bool {
    headers.get(USER_AGENT).is_some_and(|value| value.as_bytes().starts_with(b"voxbridge/"))
}

/// True if one of the headers is there with a matching value. Lists are compared item by item.
pub(super) fn shows_any(headers: &HeaderMap, signs: &[HeaderSign]) -> bool {
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
        let candidates = ["macaw", "openai-realtime"].map(|name| library.client(name).unwrap()).into();
        let mut client = Identified::among(candidates, DetectedBy::Default).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let by = client.narrow_by_signs(&headers, query, asks).then_some(client.by());
        (client.candidates().iter().map(|client| client.name.clone()).collect(), by)
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
