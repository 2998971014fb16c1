//! Fuzz target for input before authentication and for the operators' access files.

use tokio_tungstenite::tungstenite::http::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL},
};

use voxbridge::server::access::{
    address::{ProxyHeader, TrustedProxies},
    credential::{KeyPlaces, find_key, split_query_parameter},
    keys::{ApiKeys, entry_digests},
    origin::AllowedOrigins,
};

/// Uses any bytes as a credential in every place, an origin, a proxy header, a query string and a key file.
/// These settings grant no access.
pub fn access(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let keys = ApiKeys::parse("keys.toml", "[[key]]\nname = \"a\"\nkey = \"7f9c-in-no-corpus\"", |_| None)
        .expect("a test reads this key file");
    let (rest, in_query) = split_query_parameter(&text, "api_key");
    assert!(split_query_parameter(&rest, "api_key").1.is_empty());
    let places = KeyPlaces {
        subprotocols: vec!["token", "bearer"],
        headers: vec!["xi-api-key"],
        parameters: vec!["token"],
    };
    let key = find_key(&headers(data), &in_query, &places).unwrap_or_default();
    let contains_key = text.contains("7f9c");
    assert!(contains_key || keys.authenticate(key.as_deref(), &[], 0).is_err());
    let origins =
        AllowedOrigins::new(Some(&["https://7f9c.example".to_owned()])).expect("the origin is valid");
    assert!(text.to_lowercase().contains("7f9c") || !origins.is_allowed(&text));
    for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
        let proxies = TrustedProxies::new(&["10.0.0.0/8".to_owned()], header).expect("the network is valid");
        let untrusted = [192, 0, 2, 1].into();
        assert_eq!(proxies.client_address(untrusted, text.lines().map(str::as_bytes)), untrusted);
        proxies.client_address([10, 0, 0, 1].into(), text.lines().map(str::as_bytes));
    }
    let _ = (
        ApiKeys::parse("keys.toml", &text, |_| None),
        entry_digests(&text),
        AllowedOrigins::new(Some(&[text.into()])),
    );
}

/// The headers of these lines, as far as they are valid.
fn headers(data: &[u8]) -> HeaderMap {
    let names = [AUTHORIZATION, HeaderName::from_static("x-api-key"), SEC_WEBSOCKET_PROTOCOL];
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(32) {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        names.iter().for_each(|name| {
            headers.append(name, value.clone());
        });
    }
    headers
}
