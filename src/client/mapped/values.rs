//! The contents of a protocol's `[values]` on one connection: remembered, generated or counted.

use crate::{
    spelling::{
        client::{IdForm, ValueRule, ValueScope, ValueSource},
        field::{FieldValue, display_node},
    },
    vocabulary::{Node, SlotValue},
};

/// Longest remembered text, in characters. Ids of real servers have up to 64.
const REMEMBERED_MAX_CHARS: usize = 256;

/// The values of one connection, in the order of their rules.
#[derive(Debug)]
pub(super) struct ConnectionValues {
    contents: Vec<ValueContent>,
    random: fastrand::Rng,
}

#[derive(Debug, Clone, PartialEq)]
enum ValueContent {
    None,
    Text(String),
    Number(i64),
    Flag(bool),
}

#[cfg(feature = "io")]
impl ValueContent {
    /// The value without quotes; empty for none.
    fn to_text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
        }
    }
}

impl std::fmt::Display for ValueContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Text(text) => f.write_str(&display_node(&Node::Str(text.as_str().into()))),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl ConnectionValues {
    /// Values of a new connection. Equal seeds give equal ids.
    pub(super) fn new(rules: &[ValueRule], seed: u64) -> Self {
        let first = |rule: &ValueRule| match &rule.source {
            ValueSource::Remembered { default: Some(text) } => ValueContent::Text(text.clone()),
            _ => ValueContent::None,
        };
        let contents = rules.iter().map(first).collect();
        let mut values = Self { contents, random: fastrand::Rng::with_seed(seed) };
        (0..rules.len()).for_each(|at| values.renew(rules, at));
        values
    }

    /// Begins the session: renews all values but the remembered ones.
    pub(super) fn begin_session(&mut self, rules: &[ValueRule], seed: u64) {
        let before = std::mem::replace(self, Self::new(rules, seed)).contents;
        for ((content, before), rule) in self.contents.iter_mut().zip(before).zip(rules) {
            if matches!(rule.source, ValueSource::Remembered { .. }) {
                *content = before;
            }
        }
    }

    /// Gives a value a new content: another id, or the next number. A remembered value stays.
    pub(super) fn renew(&mut self, rules: &[ValueRule], at: usize) {
        let content = &mut self.contents[at];
        match &rules[at].source {
            ValueSource::Remembered { .. } => {}
            ValueSource::Generated { prefix, form, .. } => {
                let random = match form {
                    IdForm::Hex => format!("{:016x}", self.random.u64(..)),
                    IdForm::Uuid => uuid(self.random.u128(..)),
                };
                *content = ValueContent::Text(format!("{prefix}{random}"));
            }
            ValueSource::Counted { first, per } => {
                *content = ValueContent::Number(match content {
                    ValueContent::Number(number) => number.saturating_add(1),
                    // Turns, utterances and messages renew their number before its first use.
                    _ if matches!(per, ValueScope::Session | ValueScope::Flush) => *first,
                    _ => first.saturating_sub(1),
                });
            }
        }
    }

    /// Begins a turn, an utterance or the texts of the next flush: renews the values that are valid for one.
    pub(super) fn begin(&mut self, scope: ValueScope, rules: &[ValueRule]) {
        for (at, rule) in rules.iter().enumerate() {
            if rule.source.scope() == Some(scope) {
                self.renew(rules, at);
            }
        }
    }

    /// Remembers a value from a message of the client.
    pub(super) fn remember(&mut self, at: usize, value: &FieldValue) {
        self.contents[at] = match value {
            FieldValue::Text(text) => ValueContent::Text(text.chars().take(REMEMBERED_MAX_CHARS).collect()),
            FieldValue::Integer(number) => ValueContent::Number(*number),
            FieldValue::Flag(flag) => ValueContent::Flag(*flag),
            _ => return,
        };
    }

    /// Checks that a message repeats a remembered value.
    ///
    /// # Errors
    /// Both values, for people.
    pub(super) fn check_same(&self, at: usize, value: &FieldValue) -> Result<(), String> {
        let found = match value {
            FieldValue::Text(text) => ValueContent::Text(text.chars().take(REMEMBERED_MAX_CHARS).collect()),
            FieldValue::Integer(number) => ValueContent::Number(*number),
            _ => return Ok(()),
        };
        match &self.contents[at] {
            expected if *expected == found => Ok(()),
            ValueContent::None => Err(format!("no earlier message had a value to repeat, got {found}")),
            expected => Err(format!("Input should repeat {expected}, got {found}")),
        }
    }

    /// The content of a value, for a template.
    pub(super) fn get(&self, at: usize) -> SlotValue<'_> {
        match &self.contents[at] {
            ValueContent::None => SlotValue::Null,
            ValueContent::Text(text) => SlotValue::Str(text),
            ValueContent::Number(number) => SlotValue::Int(*number),
            ValueContent::Flag(flag) => SlotValue::Bool(*flag),
        }
    }
}

/// The headers of the answer to a handshake, whose session gets this seed.
#[cfg(feature = "io")]
pub(crate) fn answer_headers(mapping: &crate::spelling::ClientMapping, seed: u64) -> Vec<(&str, String)> {
    if mapping.answer_headers.is_empty() {
        return Vec::new();
    }
    let values = ConnectionValues::new(&mapping.values, seed);
    let headers = mapping.answer_headers.iter();
    headers.map(|(name, at)| (name.as_str(), values.contents[*at].to_text())).collect()
}

/// A random UUID (RFC 9562 §5.4): version 4, and the variant of that RFC.
fn uuid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_messages_must_repeat_a_remembered_value() {
        let rules =
            [ValueRule { name: "task".to_owned(), source: ValueSource::Remembered { default: None } }];
        let mut values = ConnectionValues::new(&rules, 0);
        let text = |text: &str| FieldValue::Text(text.to_owned());
        assert!(values.check_same(0, &text("a")).unwrap_err().starts_with("no earlier message"));
        values.remember(0, &text("a"));
        assert_eq!(values.check_same(0, &text("a")), Ok(()));
        assert_eq!(values.check_same(0, &text("b")), Err("Input should repeat 'a', got 'b'".to_owned()));
        assert_eq!(
            values.check_same(0, &FieldValue::Integer(1)),
            Err("Input should repeat 'a', got 1".to_owned())
        );
        let long = "x".repeat(1000);
        values.remember(0, &text(&long));
        assert_eq!(values.check_same(0, &text(&long)), Ok(()));
        assert!(values.check_same(0, &text("y")).unwrap_err().len() < 100);
    }

    #[test]
    fn generated_uuid_has_version_and_variant() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
