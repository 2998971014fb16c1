//! The query of a request.

use super::super::accept::request_body::ReceivedRequest;

/// The query of a request.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(request: &ReceivedRequest) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// All values of this parameter that are not empty.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The first of them.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// True for a flag that is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}
