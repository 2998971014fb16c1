//! The canonical form of a URL path, in which paths are compared.

use std::borrow::Cow;

/// The path without a slash at its end and without empty parts: clients that put a path behind a base URL with a slash at its end
/// double it, or leave one before the query.
#[must_use]
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    let has_empty_parts = path.contains("//") || path.len() > 1 && path.ends_with('/');
    if !has_empty_parts {
        return Cow::Borrowed(path);
    }
    let parts = path.split('/').filter(|part| !part.is_empty());
    let joined: String = parts.flat_map(|part| ["/", part]).collect();
    Cow::Owned(if joined.is_empty() { "/".to_owned() } else { joined })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_path_has_no_empty_parts() {
        for (path, canonical) in [
            ("/v1/realtime", "/v1/realtime"),
            ("/v1/realtime/", "/v1/realtime"),
            ("//v1/realtime", "/v1/realtime"),
            ("/openai//v1///realtime//", "/openai/v1/realtime"),
            ("/a%2F/", "/a%2F"),
            ("/", "/"),
            ("//", "/"),
        ] {
            assert_eq!(canonical_path(path), canonical, "{path}");
        }
    }
}
