//! Paths with parts in braces: `/v1/text-to-speech/{voice}/stream-input`. Such a part of a request's path is the query parameter of
//! that name.

use std::collections::BTreeSet;

use super::ClientMapping;
use crate::spelling::field::FieldRole;

/// Longest part of a path that is a parameter, bytes as they are sent.
const PART_MAX_BYTES: usize = 1024;

/// A compiled path with parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Vec<PathPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathPart {
    Text(String),
    Parameter(String),
}

impl PathPattern {
    /// Compiles a path of a file; `None` for one without braces.
    pub(super) fn compile(path: &str) -> Result<Option<Self>, String> {
        if !path.contains(['{', '}']) {
            return Ok(None);
        }
        let mut names = BTreeSet::new();
        let part = |part: &str| {
            let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
                return match part.contains(['{', '}']) {
                    true => Err(format!(
                        "braces enclose a whole part of a path, such as `/{{voice}}/`, not `{part}`"
                    )),
                    false => Ok(PathPart::Text(part.to_owned())),
                };
            };
            if name.is_empty() || name.contains(['{', '}']) {
                return Err(format!("`{part}` names no query parameter"));
            }
            match names.insert(name.to_owned()) {
                true => Ok(PathPart::Parameter(name.to_owned())),
                false => Err(format!("the path has `{part}` twice")),
            }
        };
        path.split('/').map(part).collect::<Result<_, _>>().map(|parts| Some(Self(parts)))
    }

    /// The parameters of a request's path, decoded; `None` for a path that does not match.
    pub(super) fn parameters(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let mut found = Vec::new();
        let mut parts = path.split('/');
        for known in &self.0 {
            let part = parts.next()?;
            match known {
                PathPart::Text(text) if text == part => {}
                PathPart::Parameter(name) if (1..=PART_MAX_BYTES).contains(&part.len()) => {
                    found.push((name.as_str(), decode_percent(part)));
                }
                _ => return None,
            }
        }
        parts.next().is_none().then_some(found)
    }

    /// Names of the parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            PathPart::Parameter(name) => Some(name.as_str()),
            PathPart::Text(_) => None,
        })
    }

    /// True if both match the same paths.
    pub(in crate::spelling) fn matches_like(&self, other: &Self) -> bool {
        let is_alike = |(one, other): (&PathPart, &PathPart)| match (one, other) {
            (PathPart::Text(one), PathPart::Text(other)) => one == other,
            (PathPart::Parameter(_), PathPart::Parameter(_)) => true,
            _ => false,
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_alike)
    }
}

/// True for a text in the shape of a language tag (RFC 5646 §2.1), such as `en`, `cmn` or `pt-BR`; `_` may separate its parts.
fn is_language_tag(text: &str) -> bool {
    let mut parts = text.split(['-', '_']);
    let is_language =
        |part: &str| (2..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_part =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    parts.next().is_some_and(is_language) && parts.all(is_part)
}

/// Decodes `%2F` and its like (RFC 3986 §2.1). Other bytes stay, `+` too; wrong UTF-8 becomes U+FFFD.
pub(crate) fn decode_percent(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind
            .get(..2)
            .filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl ClientMapping {
    /// True if this is one of its paths without parameters.
    pub(in crate::spelling) fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|known| known == path && !known.contains('{'))
    }

    /// The query parameters in a request's path; `None` if the protocol has no such path.
    #[must_use]
    pub fn path_parameters(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let found = self.path_patterns.iter().filter_map(|pattern| pattern.parameters(path));
        found.into_iter().find(|found| found.iter().all(|(name, value)| self.may_be(name, value)))
    }

    /// False for a part that is no language although the parameter is one, so that `/v2/{language}` is not every path below `/v2`.
    fn may_be(&self, name: &str, part: &str) -> bool {
        let field = self.query.iter().find(|field| field.name == name);
        let is_language = field.is_some_and(|field| field.file.to == Some(FieldRole::Language));
        !is_language || is_language_tag(part)
    }

    /// True if both protocols are served at some path.
    fn shares_a_path_with(&self, other: &Self) -> bool {
        let is_shared =
            |pattern: &PathPattern| other.path_patterns.iter().any(|known| known.matches_like(pattern));
        self.paths.iter().any(|path| other.paths.contains(path)) || self.path_patterns.iter().any(is_shared)
    }

    /// How the paths conflict with another protocol's that cannot be told apart.
    pub(in crate::spelling) fn path_conflict(&self, other: &Self) -> Option<PathConflict> {
        let conflicts = self.shares_a_path_with(other) && !self.is_distinguishable_from(other);
        conflicts.then_some(PathConflict { key: &["paths"], missing: "no query parameter or command" })
    }

    /// How the paths of `[jobs]` conflict with another protocol's. A header with a key tells requests apart, and for uploads whether
    /// the body is a form.
    pub(in crate::spelling) fn job_conflict(&self, other: &Self) -> Option<PathConflict> {
        let (jobs, others) = (self.jobs.as_ref()?, other.jobs.as_ref()?);
        let [own, theirs] = [&self.key_headers, &other.key_headers];
        if !own.is_empty() && !theirs.is_empty() && !own.iter().any(|name| theirs.contains(name)) {
            return None;
        }
        if jobs.serves(&others.path) || others.serves(&jobs.path) {
            return Some(PathConflict { key: &["jobs", "path"], missing: "no header of `key_headers`" });
        }
        let (uploads, theirs) = (jobs.uploads.as_ref()?, others.uploads.as_ref()?);
        let is_shared = jobs.serves(&theirs.path) || others.serves(&uploads.path);
        let conflicts = is_shared && uploads.field.is_some() == theirs.field.is_some();
        let missing = "neither a header of `key_headers` nor the `field` of a form";
        conflicts.then_some(PathConflict { key: &["jobs", "uploads", "path"], missing })
    }
}

/// A conflict of two protocols at one path.
pub(in crate::spelling) struct PathConflict {
    /// The key at fault.
    pub(in crate::spelling) key: &'static [&'static str],
    /// What could distinguish the two.
    pub(in crate::spelling) missing: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_in_a_path_is_a_language_tag() {
        let library = crate::spelling::Library::embedded().unwrap();
        let speechmatics = library.client("speechmatics").unwrap();
        for (path, is_served) in [
            ("/v2/en", true),
            ("/v2/cmn_en_ms_ta", true),
            ("/v2/pt-BR", true),
            ("/v2/realtime", false),
            ("/v2/en-", false),
            ("/v2/e1", false),
        ] {
            assert_eq!(speechmatics.path_parameters(path).is_some(), is_served, "{path}");
        }
        let speaks = library.client("elevenlabs-speak").unwrap();
        assert!(speaks.path_parameters("/v1/text-to-speech/any voice/stream-input").is_some());
    }

    #[test]
    fn parts_in_braces_are_parameters() {
        let pattern = PathPattern::compile("/v1/{voice}/stream/{kind}").unwrap().unwrap();
        let found = |path: &str| {
            let found = pattern.parameters(path)?;
            Some(
                found
                    .into_iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(found("/v1/a%20b+%2f/stream/x").as_deref(), Some("voice=a b+/ kind=x"));
        assert_eq!(found("/v1/%zz%e4%/stream/%+1").as_deref(), Some("voice=%zz\u{fffd}% kind=%+1"));
        for other in
            ["/v1//stream/x", "/v1/a/stream", "/v1/a/stream/x/", "/v1/a/stram/x", "v1/a/stream/x", ""]
        {
            assert_eq!(found(other), None, "{other}");
        }
        let long = |bytes| format!("/v1/{}/stream/x", "a".repeat(bytes));
        assert!(found(&long(PART_MAX_BYTES)).is_some() && found(&long(PART_MAX_BYTES + 1)).is_none());
        assert_eq!(PathPattern::compile("/v1/voice"), Ok(None));
        for wrong in ["/v1/{voice", "/v1/a{voice}", "/{}", "/{a}/{a}", "/{{a}}"] {
            assert!(PathPattern::compile(wrong).is_err(), "{wrong}");
        }
    }
}
