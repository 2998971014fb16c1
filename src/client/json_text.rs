//! JSON of the client as text. A tree of values can take a hundred times the memory of its text, so messages are read field by
//! field, lists have a bound, and what is kept is kept as text.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// Most fields of an object.
const FIELDS_MAX: usize = 64;

/// Fields of an object in their order, each as its text.
#[derive(Debug, Default)]
pub(crate) struct Fields<'m>(Vec<(Cow<'m, str>, &'m RawValue)>);

impl<'m> Fields<'m> {
    /// Reads an object; `None` for another value, or an object of too many fields.
    pub(crate) fn read(json: &'m RawValue) -> Option<Self> {
        serde_json::from_str(json.get()).ok()
    }

    /// The field's text.
    pub(crate) fn get(&self, key: &str) -> Option<&'m RawValue> {
        self.0.iter().rfind(|(known, _)| known == key).map(|(_, value)| *value)
    }

    /// The field's text, unless it is absent or null.
    pub(crate) fn given(&self, key: &str) -> Option<&'m RawValue> {
        self.get(key).filter(|value| value.get() != "null")
    }

    /// The object without a field.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(known, _)| known != key);
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'m RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }
}

impl<'de: 'm, 'm> Deserialize<'de> for Fields<'m> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {FIELDS_MAX} fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    if fields.0.len() == FIELDS_MAX {
                        return Err(serde::de::Error::invalid_length(FIELDS_MAX + 1, &self));
                    }
                    fields.0.push((key.0, map.next_value()?));
                }
                Ok(fields)
            }
        }

        json.deserialize_map(FieldsVisitor)
    }
}

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
pub(crate) struct Key<'m>(#[serde(borrow)] pub(crate) Cow<'m, str>);

/// Reads an array of at most `max` elements; `None` for another value, or more elements.
pub(crate) fn read_list(json: &RawValue, max: usize) -> Option<Vec<&RawValue>> {
    struct ListVisitor(usize);

    impl<'de> Visitor<'de> for ListVisitor {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an array of at most {} elements", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == self.0 {
                    return Err(serde::de::Error::invalid_length(self.0 + 1, &self));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    serde_json::Deserializer::from_str(json.get()).deserialize_seq(ListVisitor(max)).ok()
}

/// Reads a string, borrowed if it has no escapes; `None` for another value. Halves of letters become U+FFFD.
pub(crate) fn read_str(json: &RawValue) -> Option<Cow<'_, str>> {
    if let Ok(Key(text)) = serde_json::from_str(json.get()) {
        return Some(text);
    }
    serde_json::from_str::<String>(&mended(json.get())?).ok().map(Cow::Owned)
}

/// JSON that other readers take, in a form that serde_json takes, too; `None` for any other text. It has a byte order mark, which
/// .NET and PowerShell write, or an escaped half of a surrogate pair (`"\ud83d"`), which JavaScript writes when a text was cut
/// within a letter.
pub(crate) fn mended(json: &str) -> Option<String> {
    let text = json.trim_start_matches('\u{feff}');
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let len = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(_), _) => {
                mended.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            // The escaped letter may be a backslash.
            (None, _) => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        mended.push_str(&escape[..len]);
        rest = &escape[len..];
    }
    mended.push_str(rest);
    (mended != json).then_some(mended)
}

/// The half of a surrogate pair that is escaped here.
fn surrogate(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok().filter(|half| (0xd800..=0xdfff).contains(half))
}

/// Adds a field to the text of an object, which is empty before the first and lacks its closing brace.
pub(crate) fn write_field(object: &mut String, key: &str, value: &str) {
    object.push(if object.is_empty() { '{' } else { ',' });
    object.push_str(&quote(key));
    object.push(':');
    object.push_str(value);
}

/// The text of a string.
pub(crate) fn quote(words: &str) -> String {
    Value::from(words).to_string()
}

/// Name of a value's type, with its article.
pub(crate) trait JsonKind {
    fn kind(&self) -> &'static str;
}

impl JsonKind for Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

impl JsonKind for RawValue {
    fn kind(&self) -> &'static str {
        match self.get().as_bytes().first() {
            Some(b'n') => "null",
            Some(b't' | b'f') => "a boolean",
            Some(b'"') => "a string",
            Some(b'[') => "an array",
            Some(b'{') => "an object",
            _ => "a number",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn fields_and_elements_are_texts_and_bounded() {
        let fields = Fields::read(raw(r#"{"a": [1, {"b": 2}], "\u0062": null, "a": "last"}"#)).unwrap();
        assert_eq!(fields.get("a").map(RawValue::get), Some(r#""last""#));
        assert!(fields.get("b").is_some() && fields.given("b").is_none());
        assert_eq!(fields.iter().count(), 3);
        let many: Vec<String> = (0..=FIELDS_MAX).map(|number| format!(r#""{number}":0"#)).collect();
        assert!(Fields::read(raw(&format!("{{{}}}", many.join(",")))).is_none());
        assert!(Fields::read(raw(&format!("{{{}}}", many[1..].join(",")))).is_some());
        assert!(Fields::read(raw("[]")).is_none());
        assert_eq!(read_list(raw("[1, [2]]"), 2).unwrap().len(), 2);
        assert!(read_list(raw("[1, [2], 3]"), 2).is_none() && read_list(raw("{}"), 2).is_none());
    }

    #[test]
    fn strings_are_borrowed_unless_they_have_escapes() {
        assert!(matches!(read_str(raw(r#""plain ü""#)), Some(Cow::Borrowed("plain ü"))));
        assert_eq!(read_str(raw(r#""a\/b""#)).as_deref(), Some("a/b"));
        assert_eq!(read_str(raw("7")), None);
    }

    #[test]
    fn marks_and_halves_of_letters_are_mended() {
        for (json, expected) in [
            ("\u{feff}{}", Some("{}")),
            (r#"{"a": "x\ud83d"}"#, Some(r#"{"a": "x\ufffd"}"#)),
            (r#""\uDE00\ud83d\uDE00\ud83d\n""#, Some(r#""\ufffd\ud83d\uDE00\ufffd\n""#)),
            (r#""\\ud83d""#, None),
            (r#""\u00e4ü\"#, None),
            (r#"{"a": "b"}"#, None),
        ] {
            assert_eq!(mended(json).as_deref(), expected, "{json}");
        }
        assert_eq!(read_str(raw(r#""a\ud83d""#)).as_deref(), Some("a\u{fffd}"));
    }

    #[test]
    fn text_and_value_have_the_same_type_name() {
        for json in ["null", "true", "-1.5", r#""a""#, "[]", "{}"] {
            assert_eq!(raw(json).kind(), serde_json::from_str::<Value>(json).unwrap().kind(), "{json}");
        }
    }
}
