//! What strangers send before they are let in, and what operators write about them.

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL},
};

use crate::server::access::{
    address::{Proxies, ProxyHeader},
    credential::{Shown, out_of_query},
    keys::{Keys, entries},
    origin::Origins,
};

/// Any bytes as a credential in every place, an origin, a proxy's header, a query string and a file of keys. Nobody is let in
/// by them.
pub fn access(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let keys = Keys::parse("keys.toml", "[[key]]\nname = \"a\"\nkey = \"7f9c-in-no-corpus\"", |_| None)
        .expect("a test reads it");
    let (rest, in_query) = out_of_query(&text, "api_key");
    assert!(out_of_query(&rest, "api_key").1.is_none());
    let shown = Shown::of(&headers(data), in_query.as_deref(), &["token", "bearer"]);
    let is_in = text.contains("7f9c");
    assert!(is_in || keys.holder(shown.iter(), &[], 0).is_err());
    let origins = Origins::new(Some(&["https://7f9c.example".to_owned()])).expect("it is one");
    assert!(text.to_lowercase().contains("7f9c") || !origins.has(&text));
    for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
        let proxies = Proxies::new(&["10.0.0.0/8".to_owned()], header).expect("it is one");
        let stranger = [192, 0, 2, 1].into();
        assert_eq!(proxies.client(stranger, text.lines().map(str::as_bytes)), stranger);
        proxies.client([10, 0, 0, 1].into(), text.lines().map(str::as_bytes));
    }
    let _ = (Keys::parse("keys.toml", &text, |_| None), entries(&text), Origins::new(Some(&[text.into()])));
}

/// Each line in each header, as far as it may stand there.
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
