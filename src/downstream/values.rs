//! The contents of a protocol's `[values]` on one connection: remembered, generated or counted.

use crate::mapping::{
    client::{ValueRule, ValueScope, ValueSource},
    field::FieldValue,
    template::SlotValue,
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
            ValueSource::Generated { prefix, .. } => {
                *content = ValueContent::Text(format!("{prefix}{:016x}", self.random.u64(..)));
            }
            ValueSource::Counted { first, per } => {
                *content = ValueContent::Number(match content {
                    ValueContent::Number(number) => number.saturating_add(1),
                    // Turns and messages renew their number before its first use.
                    _ if *per == ValueScope::Session => *first,
                    _ => first.saturating_sub(1),
                });
            }
        }
    }

    /// Begins a turn or an utterance: renews the values that are valid for one.
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
