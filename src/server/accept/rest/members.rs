//! Members of a JSON object, read without building the rest of it.
//!
//! A request names a few members. Everything else in its body is skipped, so that a body takes no more memory than a few
//! times its length, whatever is in it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Most elements of a list.
const LIST_MAX: usize = 256;

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
    /// The body is not a JSON object.
    pub(super) fn read(body: &'b [u8], names: &'static [&'static str]) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let members = json.deserialize_map(NamedMembers(names))?;
        json.end()?;
        Ok(Self(members))
    }

    /// Takes the member with this name.
    pub(super) fn take(&mut self, name: &str) -> Member<'b> {
        let found = self.0.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, member)| std::mem::take(member)).unwrap_or_default()
    }
}

impl IntoIterator for Members<'_> {
    type Item = (&'static str, Vec<String>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// All members as texts, as a form has them.
    fn into_iter(self) -> Self::IntoIter {
        let texts = |member| match member {
            Member::Text(text) => vec![text.into_owned()],
            Member::Scalar(text) => vec![text],
            Member::List(texts) => texts,
            _ => Vec::new(),
        };
        let all: Vec<_> = self.0.into_iter().map(|(name, member)| (name, texts(member))).collect();
        all.into_iter()
    }
}

struct NamedMembers(&'static [&'static str]);

impl<'b> Visitor<'b> for NamedMembers {
    type Value = Vec<(&'static str, Member<'b>)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            match self.0.iter().find(|name| **name == key) {
                Some(name) => {
                    members.retain(|(known, _)| known != name);
                    members.push((name, map.next_value_seed(AnyMember)?));
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

/// Reads a text without a copy where it has no escapes.
struct Text;

impl<'b> DeserializeSeed<'b> for Text {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'b> Visitor<'b> for Text {
    type Value = Cow<'b, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'b str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

struct AnyMember;

impl<'b> DeserializeSeed<'b> for AnyMember {
    type Value = Member<'b>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for AnyMember {
    type Value = Member<'b>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Missing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Member::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Member::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Member::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Member::Scalar(value.to_string()))
    }

    fn visit_borrowed_str<E>(self, text: &'b str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        let mut count = 0;
        while let Some(element) = list.next_element_seed(Self)? {
            count += 1;
            if count > LIST_MAX {
                return Err(A::Error::custom(format_args!("a list has more than {LIST_MAX} elements")));
            }
            match element {
                Member::Text(text) => texts.push(text.into_owned()),
                Member::Scalar(text) => texts.push(text),
                _ => {}
            }
        }
        Ok(Member::List(texts))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut text = None;
        while let Some(key) = map.next_key_seed(Text)? {
            if !["id", "data"].contains(&&*key) {
                map.next_value::<IgnoredAny>()?;
            } else if let Member::Text(found) = map.next_value_seed(Self)? {
                text = Some(found);
            }
        }
        Ok(Member::Object(text))
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
