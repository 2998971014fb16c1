//! The key in a request. [`super::keys`] looks it up.
//!
//! A request has at most one key. Sources: `Authorization: Bearer KEY`, `Token KEY` or `KEY`, `X-API-Key: KEY`, a subprotocol, the configured
//! query parameter, also as `Bearer KEY`, and the headers and query parameters that the mapping file of the protocol names. Browsers cannot set headers, so a page offers the subprotocols `voxbridge` and `voxbridge.key.KEY`.
//! The server selects the first and never sends the key back. Pages written for other servers offer their own
//! protocol's name and the key behind it; these names are in the mapping file (`subprotocols`). A key in a subprotocol
//! consists of the characters allowed there: letters, digits and `!#$%&'*+-.^_|~` (RFC 9110 §5.6.2).

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, AsHeaderName, SEC_WEBSOCKET_PROTOCOL},
};

/// Subprotocol that the server selects when another one contains a key.
pub const SUBPROTOCOL: &str = "voxbridge";
/// Prefix of a key in a subprotocol.
pub const SUBPROTOCOL_KEY_PREFIX: &str = "voxbridge.key.";
/// Prefix of the name by which the playground watches a session, in a subprotocol.
const WATCH_PREFIX: &str = "voxbridge.watch.";
/// The header with that name in requests that are no WebSocket's.
const WATCH_HEADER: &str = "voxbridge-watch";
/// Prefix of voxbridge's own subprotocols.
const OWN_PREFIX: &str = "voxbridge.";
/// Prefixes of a key in a subprotocol: voxbridge's own, and that of OpenAI's libraries for browsers.
const KEY_PREFIXES: [&str; 2] = [SUBPROTOCOL_KEY_PREFIX, "openai-insecure-api-key."];
/// Prefix of subprotocols that say something about an OpenAI client, and are no key.
const OPENAI_PREFIX: &str = "openai-";
/// Headers that contain only a key, in all protocols: the usual one, and Azure's.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "api-key"];
/// The request contains several different keys, so that it is unclear which one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeveralKeys;

/// Where the protocols at a path expect a key, beside the places of every protocol.
#[derive(Debug, Clone, Default)]
pub struct KeyPlaces<'m> {
    /// Names of subprotocols that may precede a key.
    pub subprotocols: Vec<&'m str>,
    /// Headers that contain only a key.
    pub headers: Vec<&'m str>,
    /// Query parameters.
    pub parameters: Vec<&'m str>,
}

/// Finds the key of a request, if there is one. `query_keys` are those of the query.
///
/// # Errors
/// The request contains several different keys.
pub fn find_key(
    headers: &HeaderMap,
    query_keys: &[String],
    places: &KeyPlaces<'_>,
) -> Result<Option<String>, SeveralKeys> {
    let subprotocols = &places.subprotocols;
    fn header_values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> + use<'h> {
        headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok()).map(str::trim)
    }
    let authorization = header_values(headers, AUTHORIZATION.as_str()).filter_map(|line| {
        // Some clients send a key without a scheme.
        let (scheme, key) = line.split_once(' ').unwrap_or((line, ""));
        let is_known = ["bearer", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        match (is_known, key) {
            (true, key) => Some(key.trim()),
            (false, "") => Some(line),
            (false, _) => None,
        }
    });
    let offered: Vec<&str> = list_items(headers, SEC_WEBSOCKET_PROTOCOL).collect();
    let prefixed =
        offered.iter().filter_map(|name| KEY_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)));
    let following = offered.windows(2).filter(|pair| {
        subprotocols.contains(&pair[0]) && !subprotocols.contains(&pair[1]) && !is_own_subprotocol(pair[1])
    });
    let all = authorization
        .chain(
            KEY_HEADERS
                .into_iter()
                .chain(places.headers.iter().copied())
                .flat_map(|name| header_values(headers, name)),
        )
        .chain(prefixed)
        .chain(following.map(|pair| pair[1]))
        // Pages for xiaozhi's servers put the whole header into the query.
        .chain(query_keys.iter().map(|key| key.strip_prefix("Bearer ").unwrap_or(key)));
    let mut all = all.filter(|key| !key.is_empty());
    let first = all.next();
    match all.all(|key| Some(key) == first) {
        true => Ok(first.map(str::to_owned)),
        false => Err(SeveralKeys),
    }
}

fn is_own_subprotocol(name: &str) -> bool {
    name == SUBPROTOCOL || name.starts_with(OWN_PREFIX) || name.starts_with(OPENAI_PREFIX)
}

/// The name by which the playground watches the session of a request; `None` if the client asked for no watcher.
pub fn find_watch_name(headers: &HeaderMap) -> Option<&str> {
    let protocols = list_items(headers, SEC_WEBSOCKET_PROTOCOL);
    let mut watched = protocols.filter_map(|name| name.strip_prefix(WATCH_PREFIX));
    watched.next().or_else(|| headers.get(WATCH_HEADER)?.to_str().ok())
}

/// The items of a header whose value is a list, over all its lines (RFC 9110 §5.3).
pub(crate) fn list_items(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Removes a parameter from a query string; returns the rest unchanged and the parameter's values.
pub fn split_query_parameter(query: &str, parameter: &str) -> (String, Vec<String>) {
    let mut removed = Vec::new();
    let rest = query.split('&').filter(|pair| {
        let Some((_, value)) =
            form_urlencoded::parse(pair.as_bytes()).next().filter(|(name, _)| name == parameter)
        else {
            return true;
        };
        removed.push(value.into_owned());
        false
    });
    let rest = rest.collect::<Vec<_>>().join("&");
    (rest, removed)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn key(lines: &[(&'static str, &str)], query_keys: &[&str]) -> Result<Option<String>, SeveralKeys> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let query_keys: Vec<_> = query_keys.iter().map(|key| (*key).to_owned()).collect();
        let places = KeyPlaces {
            subprotocols: vec!["token", "bearer"],
            headers: vec!["x-gladia-key"],
            parameters: Vec::new(),
        };
        find_key(&headers, &query_keys, &places)
    }

    #[test]
    fn key_comes_from_any_source() {
        let one = Ok(Some("k".to_owned()));
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("authorization", "token  k "),
            ("authorization", "BEARER k"),
            ("authorization", "k"),
            ("x-api-key", "k"),
            ("api-key", "k"),
            ("x-gladia-key", "k"),
            ("sec-websocket-protocol", "realtime, openai-insecure-api-key.k, openai-agents-sdk.1"),
            ("sec-websocket-protocol", "voxbridge, voxbridge.key.k"),
            ("sec-websocket-protocol", "voxbridge.key.k"),
            ("sec-websocket-protocol", "token, k"),
            ("sec-websocket-protocol", "bearer,k"),
        ] {
            assert_eq!(key(&[(name, value)], &[]), one, "{name}: {value}");
        }
        assert_eq!((key(&[], &["k"]), key(&[], &["Bearer k"])), (one.clone(), one.clone()));
        let two = [("sec-websocket-protocol", "token"), ("sec-websocket-protocol", "k")];
        assert_eq!(key(&two, &[]), one, "lists may be cut into lines");
        assert_eq!(key(&[("x-api-key", "k"), ("authorization", "Bearer k")], &["k", "k"]), one);
        for (name, value) in [
            ("authorization", "Basic k"),
            ("authorization", "Bearer "),
            ("x-api-key", ""),
            ("sec-websocket-protocol", "k"),
            ("sec-websocket-protocol", "other, k"),
            ("sec-websocket-protocol", "token, bearer"),
            ("sec-websocket-protocol", "token, voxbridge"),
            ("sec-websocket-protocol", "token, openai-beta.realtime-v1"),
        ] {
            assert_eq!(key(&[(name, value)], &[]), Ok(None), "{name}: {value}");
        }
    }

    #[test]
    fn different_keys_in_one_request_are_rejected() {
        let (bearer, header) = (("authorization", "Bearer a"), ("x-api-key", "a"));
        let offered = ("sec-websocket-protocol", "voxbridge.key.b");
        for (lines, query_keys) in [
            (&[bearer, ("authorization", "Token b")][..], &[][..]),
            (&[bearer, ("x-api-key", "b")], &[]),
            (&[header, ("x-api-key", "b")], &[]),
            (&[bearer, offered], &[]),
            (&[bearer], &["b"]),
            (&[], &["a", "b"]),
        ] {
            assert_eq!(key(lines, query_keys), Err(SeveralKeys), "{lines:?} {query_keys:?}");
        }
    }

    #[test]
    fn query_parameter_is_removed_and_the_rest_is_unchanged() {
        let split = |query: &str| split_query_parameter(query, "api_key");
        assert_eq!(split("model=a%20b&api_key=s%2Bx&x"), ("model=a%20b&x".into(), vec!["s+x".into()]));
        assert_eq!(split("api%5Fkey=s&api_key=t"), (String::new(), vec!["s".into(), "t".into()]));
        assert_eq!(split("model=a&api_keys=s"), ("model=a&api_keys=s".into(), vec![]));
        assert_eq!(split(""), (String::new(), vec![]));
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(
            lines in proptest::collection::vec((0..3usize, proptest::collection::vec(any::<u8>(), 0..80)), 0..20),
            query: String,
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in &lines {
                let name = ["authorization", "x-api-key", "sec-websocket-protocol"][*name];
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(name, value);
                }
            }
            let (rest, found) = split_query_parameter(&query, "k");
            let places = KeyPlaces { subprotocols: vec!["token"], ..KeyPlaces::default() };
            prop_assert_ne!(find_key(&headers, &found, &places), Ok(Some(String::new())));
            prop_assert!(split_query_parameter(&rest, "k").1.is_empty());
        }
    }
}
