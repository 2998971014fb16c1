//! Members of a JSON object, read without building the rest of it.
//!
//! A request names a few members. Everything else in its body is skipped, so that a body takes no more memory than a few
//! times its length, whatever is in it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::style::Failure;
use crate::client::json_text::{Key, read_list, read_str};

/// Most elements of a list.
const LIST_MAX: usize = 256;
/// The members of an object that count, where a text is expected.
const TEXTS_OF_OBJECT: [&str; 2] = ["id", "data"];

/// A member of a request's body.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Member<'b> {
    /// The member is not there, or null.
    #[default]
    Missing,
    Text(Cow<'b, str>),
    /// A number or a flag, as text.
    Scalar(String),
    /// A list of texts, numbers and flags, as texts.
    List(Vec<String>),
    /// The text `id` or `data` of an object; the other members of the object do not count.
    Object(Option<Cow<'b, str>>),
}

/// Some members of an object.
#[derive(Debug)]
pub(super) struct Members<'b>(Vec<(&'static str, Member<'b>)>);

impl<'b> Members<'b> {
    /// Reads the members with these names. If one occurs repeatedly, the last counts.
    ///
    /// # Errors
    /// The body is not a JSON object, or a list is too long.
    pub(super) fn read(body: &'b [u8], names: &'static [&'static str]) -> serde_json::Result<Self> {
        let body = without_mark(body);
        let mut json = serde_json::Deserializer::from_slice(body);
        let members = NamedMembers(names).deserialize(&mut json)?;
        json.end()?;
        let members = members.into_iter().map(|(name, json)| Ok((name, Member::read(json)?)));
        members.collect::<serde_json::Result<_>>().map(Self)
    }

    /// Reads members of the object that is this member of the body; none if it is missing, or no object.
    ///
    /// # Errors
    /// As for [`Members::read`].
    pub(super) fn read_within(
        body: &'b [u8],
        outer: &'static [&'static str; 1],
        names: &'static [&'static str],
    ) -> serde_json::Result<Self> {
        let body = without_mark(body);
        let found = NamedMembers(outer).deserialize(&mut serde_json::Deserializer::from_slice(body))?;
        match found.last() {
            Some((_, json)) if json.get().starts_with('{') => Self::read(json.get().as_bytes(), names),
            _ => Ok(Self(Vec::new())),
        }
    }

    /// Takes the member with this name.
    pub(super) fn take(&mut self, name: &str) -> Member<'b> {
        let found = self.0.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, member)| std::mem::take(member)).unwrap_or_default()
    }

    /// All members as texts, as a form has them.
    pub(super) fn into_texts(self) -> Vec<(&'static str, String)> {
        let texts = |(name, member)| {
            let texts = match member {
                Member::Text(text) => vec![text.into_owned()],
                Member::Scalar(text) => vec![text],
                Member::List(texts) => texts,
                _ => Vec::new(),
            };
            texts.into_iter().map(move |text| (name, text))
        };
        self.0.into_iter().flat_map(texts).collect()
    }
}

impl<'b> Member<'b> {
    fn read(json: &'b RawValue) -> serde_json::Result<Self> {
        Ok(match json.get().as_bytes().first() {
            Some(b'n') => Self::Missing,
            Some(b'"') => Self::Text(match read_str(json) {
                Some(text) => text,
                None => serde_json::from_str::<Key<'_>>(json.get())?.0,
            }),
            Some(b'[') => {
                let too_long =
                    || serde_json::Error::custom(format_args!("a list has more than {LIST_MAX} elements"));
                let elements = read_list(json, LIST_MAX).ok_or_else(too_long)?.into_iter();
                Self::List(elements.filter_map(Self::scalar).collect())
            }
            Some(b'{') => {
                let members = NamedMembers(&TEXTS_OF_OBJECT);
                let members = members.deserialize(&mut serde_json::Deserializer::from_str(json.get()))?;
                Self::Object(members.into_iter().filter_map(|(_, json)| read_str(json)).next_back())
            }
            _ => Self::Scalar(json.get().to_owned()),
        })
    }

    /// The text of a string, a number or a flag.
    fn scalar(json: &RawValue) -> Option<String> {
        match json.get().as_bytes().first()? {
            b'"' => read_str(json).map(Cow::into_owned),
            b'n' | b'[' | b'{' => None,
            _ => Some(json.get().to_owned()),
        }
    }
}

/// The text of a body without a byte order mark, which programs on Windows write.
fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// A member that is a whole number; `None` if it is missing or null.
pub(super) fn number_of(body: &mut Members<'_>, name: &'static str) -> Result<Option<u32>, Failure> {
    let wrong = || Failure::parameter(name, format!("Invalid value for '{name}': expected a whole number."));
    match body.take(name) {
        Member::Missing => Ok(None),
        Member::Scalar(text) => text.parse().map(Some).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Reads the members of an object with these names as text, each where it occurs last.
struct NamedMembers(&'static [&'static str]);

impl<'b> DeserializeSeed<'b> for NamedMembers {
    type Value = Vec<(&'static str, &'b RawValue)>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for NamedMembers {
    type Value = Vec<(&'static str, &'b RawValue)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some(key) = map.next_key::<Key<'b>>()? {
            match self.0.iter().find(|name| **name == key.0) {
                Some(name) => {
                    members.retain(|(known, _)| known != name);
                    members.push((name, map.next_value()?));
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["model", "words", "voice", "speed"];

    #[test]
    fn named_members_are_read_and_others_skipped() {
        let body = br#"{"model": "a\u0062", "x": [[{"model": 1}]], "words": ["a", 1, true, null, ["b"], 0.5],
            "voice": {"id": "v", "more": {"id": 2}}, "model": "last", "speed": null}"#;
        let mut members = Members::read(body, &NAMES).unwrap();
        assert_eq!(members.take("model"), Member::Text("last".into()));
        let words = ["a", "1", "true", "0.5"].map(str::to_owned);
        assert_eq!(members.take("words"), Member::List(words.into()));
        assert_eq!(members.take("voice"), Member::Object(Some("v".into())));
        assert_eq!((members.take("speed"), members.take("x")), (Member::Missing, Member::Missing));
    }

    #[test]
    fn bodies_that_are_no_object_are_errors() {
        let long = format!(r#"{{"words": [{}0]}}"#, "0,".repeat(LIST_MAX));
        let deep = format!(r#"{{"words": {}"#, "[".repeat(100_000));
        for body in ["[]", "", "7", "{", r#"{"model": "a"} x"#, &long, &deep] {
            assert!(Members::read(body.as_bytes(), &NAMES).is_err(), "{body:.40}");
        }
    }

    /// Lists and objects of one byte an element took a hundred times the memory of their text.
    #[test]
    fn skipped_members_take_no_memory() {
        for part in ["0,", r#"{"":0},"#, r#"["",[]],"#, "[[],[[]]],"] {
            let body = format!(r#"{{"a": [{}0], "model": "m"}}"#, part.repeat(300_000));
            let read = allocation_counter::measure(|| {
                assert!(Members::read(body.as_bytes(), &NAMES).is_ok(), "{part}");
            });
            assert!(read.bytes_max < 4096, "{part} takes {} bytes", read.bytes_max);
        }
    }
}
