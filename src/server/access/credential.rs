//! What a request shows to be let in. Whose it is [`super::keys`] knows.
//!
//! In this order: `Authorization: Bearer KEY` or `Token KEY`, `X-API-Key: KEY`, a subprotocol, and a query parameter where
//! the operator has named one. Browsers can send no headers, so a page offers the subprotocols `voxbridge` and
//! `voxbridge.key.KEY`; the first is agreed to, and the key is never sent back. Pages made for other servers offer the names
//! their own protocol has for it, and the key behind one of them: the names are those in the mapping file (`subprotocols`).
//! A key in a subprotocol is made of what may stand there: letters, digits and `!#$%&'*+-.^_|~` (RFC 9110 §5.6.2).

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL},
};

/// The subprotocol that is agreed to where a key stands in another.
pub const SUBPROTOCOL: &str = "voxbridge";
/// What stands before the key in that other one.
pub const KEY_PREFIX: &str = "voxbridge.key.";
/// The header that names a key and nothing else.
const API_KEY: &str = "x-api-key";
/// As many of them as a request may show: it would not need more than one.
const MOST: usize = 8;

/// What a request shows. Its `Debug` is nobody's business.
#[derive(Default)]
pub struct Shown(Vec<String>);

impl Shown {
    /// All of it, the likeliest first; `subprotocols` are the names behind which a key may stand.
    #[must_use]
    pub fn of(headers: &HeaderMap, in_query: Option<&str>, subprotocols: &[&str]) -> Self {
        let lines = |name: &'static str| {
            headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok()).map(str::trim)
        };
        let authorised = lines(AUTHORIZATION.as_str()).filter_map(|line| {
            let (scheme, key) = line.split_once(' ')?;
            let known = ["bearer", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
            known.then(|| key.trim())
        });
        let offered = lines(SEC_WEBSOCKET_PROTOCOL.as_str()).flat_map(|line| line.split(',')).map(str::trim);
        let offered: Vec<&str> = offered.collect();
        let own = offered.iter().filter_map(|name| name.strip_prefix(KEY_PREFIX));
        let behind = offered.windows(2).filter(|pair| {
            subprotocols.contains(&pair[0]) && !subprotocols.contains(&pair[1]) && !is_own(pair[1])
        });
        let all =
            authorised.chain(lines(API_KEY)).chain(own).chain(behind.map(|pair| pair[1])).chain(in_query);
        Self(all.filter(|key| !key.is_empty()).take(MOST).map(str::to_owned).collect())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn is_own(name: &str) -> bool {
    name == SUBPROTOCOL || name.starts_with(KEY_PREFIX)
}

/// A query string without this parameter, and its first value; all else stays as it was spelled.
#[must_use]
pub fn out_of_query(query: &str, parameter: &str) -> (String, Option<String>) {
    let mut found = None;
    let kept = query.split('&').filter(|pair| {
        let Some((_, value)) =
            form_urlencoded::parse(pair.as_bytes()).next().filter(|(name, _)| name == parameter)
        else {
            return true;
        };
        found.get_or_insert_with(|| value.into_owned());
        false
    });
    let kept = kept.collect::<Vec<_>>().join("&");
    (kept, found)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn shown(lines: &[(&'static str, &str)], in_query: Option<&str>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        Shown::of(&headers, in_query, &["token", "bearer"]).0
    }

    #[test]
    fn every_source_is_read() {
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
            assert_eq!(shown(&[(name, value)], None), ["k"], "{name}: {value}");
        }
        assert_eq!(shown(&[], Some("k")), ["k"]);
        let two = [("sec-websocket-protocol", "token"), ("sec-websocket-protocol", "k")];
        assert_eq!(shown(&two, None), ["k"], "lists may be cut into lines");
        assert_eq!(shown(&[("x-api-key", "a"), ("authorization", "Bearer b")], Some("c")), ["b", "a", "c"]);
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
            assert_eq!(shown(&[(name, value)], None), [""; 0], "{name}: {value}");
        }
    }

    #[test]
    fn what_is_taken_out_of_a_query_leaves_the_rest_as_it_was() {
        let out = |query: &str| out_of_query(query, "api_key");
        assert_eq!(out("model=a%20b&api_key=s%2Bx&x"), ("model=a%20b&x".into(), Some("s+x".into())));
        assert_eq!(out("api%5Fkey=s&api_key=t"), (String::new(), Some("s".into())));
        assert_eq!(out("model=a&api_keys=s"), ("model=a&api_keys=s".into(), None));
        assert_eq!(out(""), (String::new(), None));
    }

    proptest! {
        #[test]
        fn no_header_is_too_odd(
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
            let (rest, found) = out_of_query(&query, "k");
            let shown = Shown::of(&headers, found.as_deref(), &["token"]);
            prop_assert!(shown.iter().count() <= MOST && shown.iter().all(|key| !key.is_empty()));
            prop_assert_eq!(out_of_query(&rest, "k").1, None);
        }
    }
}
