//! Credentials of a request. [`super::keys`] maps them to a key.
//!
//! Sources, in order: `Authorization: Bearer KEY` or `Token KEY`, `X-API-Key: KEY`, a subprotocol, and the configured
//! query parameter. Browsers cannot set headers, so a page offers the subprotocols `voxbridge` and `voxbridge.key.KEY`.
//! The server selects the first and never sends the key back. Pages written for other servers offer their own
//! protocol's name and the key behind it; these names are in the mapping file (`subprotocols`). A key in a subprotocol
//! consists of the characters allowed there: letters, digits and `!#$%&'*+-.^_|~` (RFC 9110 §5.6.2).

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL},
};

/// Subprotocol that the server selects when another one contains a key.
pub const SUBPROTOCOL: &str = "voxbridge";
/// Prefix of a key in a subprotocol.
pub const SUBPROTOCOL_KEY_PREFIX: &str = "voxbridge.key.";
/// Header that contains only a key.
const API_KEY_HEADER: &str = "x-api-key";
/// Maximum number of credentials checked per request; a client needs only one.
const CREDENTIALS_MAX: usize = 8;

/// Credentials of a request. Without `Debug`, so that they cannot be logged.
#[derive(Default)]
pub struct Credentials(Vec<String>);

impl Credentials {
    /// Collects all credentials, the most likely first. `subprotocols` are the names that may precede a key.
    pub fn from_request(headers: &HeaderMap, query_key: Option<&str>, subprotocols: &[&str]) -> Self {
        let header_values = |name: &'static str| {
            headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok()).map(str::trim)
        };
        let authorization = header_values(AUTHORIZATION.as_str()).filter_map(|line| {
            let (scheme, key) = line.split_once(' ')?;
            let is_known = ["bearer", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
            is_known.then(|| key.trim())
        });
        let offered =
            header_values(SEC_WEBSOCKET_PROTOCOL.as_str()).flat_map(|line| line.split(',')).map(str::trim);
        let offered: Vec<&str> = offered.collect();
        let prefixed = offered.iter().filter_map(|name| name.strip_prefix(SUBPROTOCOL_KEY_PREFIX));
        let following = offered.windows(2).filter(|pair| {
            subprotocols.contains(&pair[0])
                && !subprotocols.contains(&pair[1])
                && !is_own_subprotocol(pair[1])
        });
        let all = authorization
            .chain(header_values(API_KEY_HEADER))
            .chain(prefixed)
            .chain(following.map(|pair| pair[1]))
            .chain(query_key);
        Self(all.filter(|key| !key.is_empty()).take(CREDENTIALS_MAX).map(str::to_owned).collect())
    }

    /// Iterates over the credentials.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn is_own_subprotocol(name: &str) -> bool {
    name == SUBPROTOCOL || name.starts_with(SUBPROTOCOL_KEY_PREFIX)
}

/// Removes a parameter from a query string; returns the rest unchanged and the parameter's first value.
pub fn split_query_parameter(query: &str, parameter: &str) -> (String, Option<String>) {
    let mut removed = None;
    let rest = query.split('&').filter(|pair| {
        let Some((_, value)) =
            form_urlencoded::parse(pair.as_bytes()).next().filter(|(name, _)| name == parameter)
        else {
            return true;
        };
        removed.get_or_insert_with(|| value.into_owned());
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

    fn credentials(lines: &[(&'static str, &str)], query_key: Option<&str>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        Credentials::from_request(&headers, query_key, &["token", "bearer"]).0
    }

    #[test]
    fn credentials_come_from_every_source_in_order() {
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("authorization", "token  k "),
            ("authorization", "BEARER k"),
            ("x-api-key", "k"),
            ("sec-websocket-protocol", "voxbridge, voxbridge.key.k"),
            ("sec-websocket-protocol", "voxbridge.key.k"),
            ("sec-websocket-protocol", "token, k"),
            ("sec-websocket-protocol", "bearer,k"),
        ] {
            assert_eq!(credentials(&[(name, value)], None), ["k"], "{name}: {value}");
        }
        assert_eq!(credentials(&[], Some("k")), ["k"]);
        let two = [("sec-websocket-protocol", "token"), ("sec-websocket-protocol", "k")];
        assert_eq!(credentials(&two, None), ["k"], "lists may be cut into lines");
        assert_eq!(
            credentials(&[("x-api-key", "a"), ("authorization", "Bearer b")], Some("c")),
            ["b", "a", "c"]
        );
        for (name, value) in [
            ("authorization", "Basic k"),
            ("authorization", "k"),
            ("authorization", "Bearer "),
            ("x-api-key", ""),
            ("sec-websocket-protocol", "k"),
            ("sec-websocket-protocol", "other, k"),
            ("sec-websocket-protocol", "token, bearer"),
            ("sec-websocket-protocol", "token, voxbridge"),
        ] {
            assert_eq!(credentials(&[(name, value)], None), [""; 0], "{name}: {value}");
        }
    }

    #[test]
    fn query_parameter_is_removed_and_the_rest_is_unchanged() {
        let split = |query: &str| split_query_parameter(query, "api_key");
        assert_eq!(split("model=a%20b&api_key=s%2Bx&x"), ("model=a%20b&x".into(), Some("s+x".into())));
        assert_eq!(split("api%5Fkey=s&api_key=t"), (String::new(), Some("s".into())));
        assert_eq!(split("model=a&api_keys=s"), ("model=a&api_keys=s".into(), None));
        assert_eq!(split(""), (String::new(), None));
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
            let credentials = Credentials::from_request(&headers, found.as_deref(), &["token"]);
            prop_assert!(credentials.iter().count() <= CREDENTIALS_MAX && credentials.iter().all(|key| !key.is_empty()));
            prop_assert_eq!(split_query_parameter(&rest, "k").1, None);
        }
    }
}
