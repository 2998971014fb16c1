//! Extracts named values from a JSON text in one pass: JSON pointers (RFC 6901) in, borrowed scalars out.
//!
//! A message of 128 kB with one base64 string costs one scan and no copy of the string: [`LongStrings`] finds its end with
//! vector instructions, and the JSON parser sees the message without it. Values without a pointer are skipped.

mod key_tree;

use crate::{audio::long_strings::LongStrings, vocabulary::Node};
use std::{borrow::Cow, collections::BTreeMap, fmt};

pub(crate) use self::key_tree::to_snake_case;
use self::key_tree::{KeyNode, KeyTree, pointer_parts};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reason why a text is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// Not JSON; holds the parser's message with line and column.
    #[error("{0}")]
    Json(String),
    /// JSON, but not an object; holds the type of the value.
    #[error("expected a JSON object, got {0}")]
    NotAnObject(&'static str),
}

/// A compiled set of pointers; slots are numbered in the order they were given.
#[derive(Debug, Default)]
pub struct Extractor {
    root: KeyTree,
    slots: usize,
    /// A part in camel case is also found in snake case.
    takes_snake_case: bool,
}

impl Extractor {
    /// Compiles pointers such as `/input/audio` or `/choices/0/text`; equal pointers share a slot's value but keep their own number.
    pub fn compile<'p>(pointers: impl IntoIterator<Item = &'p str>) -> Self {
        let mut extractor = Self::default();
        for pointer in pointers {
            extractor.add(pointer);
        }
        extractor
    }

    /// An extractor that finds `audioStreamEnd` in a pointer also as `audio_stream_end` in a message.
    #[must_use]
    pub fn with_snake_case(takes_snake_case: bool) -> Self {
        Self { takes_snake_case, ..Self::default() }
    }

    /// True if a part in camel case is also found in snake case.
    #[must_use]
    pub const fn takes_snake_case(&self) -> bool {
        self.takes_snake_case
    }

    /// Adds a pointer and returns its slot; a known pointer keeps its slot.
    pub fn add(&mut self, pointer: &str) -> usize {
        self.insert(pointer, false)
    }

    /// Adds a pointer whose value is taken verbatim. No other pointer may lead into this value.
    pub fn add_raw(&mut self, pointer: &str) -> usize {
        self.insert(pointer, true)
    }

    fn insert(&mut self, pointer: &str, is_raw: bool) -> usize {
        let next = self.slots;
        let slot = match self.root.node_at(pointer) {
            Some(node) => {
                node.raw |= is_raw;
                *node.slot.get_or_insert(next)
            }
            // An empty pointer names the message itself, which is always an object: a slot that is never filled.
            None => next,
        };
        if slot == next {
            self.slots += 1;
        }
        if self.takes_snake_case {
            self.root.insert_spellings(&Vec::from_iter(pointer_parts(pointer)), slot, is_raw);
        }
        slot
    }

    /// Builds a message with these values at their slots, the inverse of [`Self::extract`].
    pub fn compose(&self, values: &BTreeMap<usize, Value>) -> Value {
        self.root.compose(values).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// Scans `text`. A pointer without a value stays `None`; the last of repeated keys counts.
    ///
    /// # Errors
    /// [`ExtractError`] for anything but one JSON object.
    pub fn extract<'a>(&self, text: &'a str) -> Result<ExtractedValues<'a>, ExtractError> {
        self.scan(text, None)
    }

    /// Like [`Extractor::extract`], and also collects unknown keys of the object levels that pointers lead through.
    ///
    /// # Errors
    /// [`ExtractError`] for anything but one JSON object.
    pub fn extract_with_unknown<'a>(&self, text: &'a str) -> Result<ExtractedValues<'a>, ExtractError> {
        self.scan(text, Some(Vec::new()))
    }

    /// Reads a line of words, `NAME key:value key:value`: NAME is the value of slot 0, and each pair is a member of the
    /// message. Words without a colon are skipped.
    pub fn extract_words<'a>(&self, line: &'a str) -> ExtractedValues<'a> {
        let mut found = ExtractedValues::new(None);
        let mut words = line.split_whitespace();
        let name = words.next();
        for (key, value) in words.filter_map(|word| word.split_once(':')) {
            if let Some(slot) = self.root.get(key).and_then(|step| step.slot) {
                found.set(slot, Node::Str(Cow::Borrowed(value)));
            }
        }
        if let Some(name) = name {
            found.set(0, Node::Str(Cow::Borrowed(name)));
        }
        found
    }

    fn scan<'a>(
        &self,
        text: &'a str,
        unknown: Option<Vec<String>>,
    ) -> Result<ExtractedValues<'a>, ExtractError> {
        if let Some(cut) = LongStrings::cut(text)
            && let Ok(found) = self.parse(&cut.rest, unknown.clone())
        {
            let values = found.values.into_iter().map(|(slot, node)| (slot, restore(node, &cut, text)));
            let (unknown, list_elements) = (found.unknown, found.list_elements);
            return Ok(ExtractedValues { values: values.collect(), unknown, list_elements });
        }
        // A mistake is reported with its place in the whole message.
        self.parse(text, unknown)
    }

    fn parse<'a>(
        &self,
        text: &'a str,
        unknown: Option<Vec<String>>,
    ) -> Result<ExtractedValues<'a>, ExtractError> {
        let mut found = ExtractedValues::new(unknown);
        let mut json = serde_json::Deserializer::from_str(text);
        let top = NodeVisitor { tree: &self.root, values: &mut found }.deserialize(&mut json);
        let top = top.and_then(|top| json.end().map(|()| top));
        match top.map_err(|error| ExtractError::Json(error.to_string()))? {
            Node::Object => Ok(found),
            other => Err(ExtractError::NotAnObject(other.type_name())),
        }
    }
}

/// A value of the message without long strings, as it stands in the whole text.
fn restore<'a>(node: Node<'_>, cut: &LongStrings, text: &'a str) -> Node<'a> {
    match node {
        Node::Str(Cow::Borrowed(string)) => Node::Str(Cow::Borrowed(cut.original(string, text))),
        Node::Raw(json) => Node::Raw(cut.original(json, text)),
        Node::Str(Cow::Owned(string)) => Node::Str(Cow::Owned(string)),
        Node::List(items) => Node::List(items.into_iter().map(|item| restore(item, cut, text)).collect()),
        Node::Null => Node::Null,
        Node::Bool(value) => Node::Bool(value),
        Node::Int(value) => Node::Int(value),
        Node::Float(value) => Node::Float(value),
        Node::Object => Node::Object,
    }
}

/// Most elements of all lists of a message that are taken: an element takes many times the memory of its text.
const LIST_ELEMENTS_MAX: usize = 256 * 1024;

/// Values of an ordinary message, for which there is room at once.
const VALUES_USUAL: usize = 8;

/// The values of one message.
#[derive(Debug)]
pub struct ExtractedValues<'a> {
    /// Those that the message has, with their slots. A message has few of the slots of its protocol.
    values: Vec<(usize, Node<'a>)>,
    /// Unknown keys, if they are collected.
    unknown: Option<Vec<String>>,
    /// Number of elements of all lists.
    list_elements: usize,
}

impl<'a> ExtractedValues<'a> {
    fn new(unknown: Option<Vec<String>>) -> Self {
        Self { values: Vec::with_capacity(VALUES_USUAL), unknown, list_elements: 0 }
    }

    /// Value of a slot; `None` if the message lacks it.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&Node<'a>> {
        self.values.iter().find(|(known, _)| *known == slot).map(|(_, node)| node)
    }

    /// Sets the value of a slot.
    fn set(&mut self, slot: usize, node: Node<'a>) {
        match self.values.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, known)) => *known = node,
            None => self.values.push((slot, node)),
        }
    }

    /// Unknown keys ([`Extractor::extract_with_unknown`]), up to a bound.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        self.unknown.as_deref().unwrap_or_default()
    }

    fn note_unknown(&mut self, key: &str) {
        const MAX_UNKNOWN: usize = 8;
        if let Some(unknown) = self.unknown.as_mut().filter(|unknown| unknown.len() < MAX_UNKNOWN) {
            unknown.push(key.chars().take(64).collect());
        }
    }

    /// Takes the value of a slot.
    pub fn take(&mut self, slot: usize) -> Option<Node<'a>> {
        let at = self.values.iter().position(|(known, _)| *known == slot)?;
        Some(self.values.swap_remove(at).1)
    }
}

/// Visits a value whose keys `branch` knows.
struct NodeVisitor<'s, 'f, 'a> {
    tree: &'s KeyTree,
    values: &'f mut ExtractedValues<'a>,
}

impl<'a> DeserializeSeed<'a> for NodeVisitor<'_, '_, 'a> {
    type Value = Node<'a>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Node<'a>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for NodeVisitor<'_, '_, 'a> {
    type Value = Node<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node<'a>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node<'a>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node<'a>, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node<'a>, E> {
        Ok(i64::try_from(value).map_or(Node::Float(value as f64), Node::Int))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node<'a>, E> {
        Ok(Node::Float(value))
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'a str) -> Result<Node<'a>, E> {
        Ok(Node::Str(Cow::Borrowed(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node<'a>, E> {
        Ok(Node::Str(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Node<'a>, A::Error> {
        let empty = KeyTree::default();
        let mut list = Vec::new();
        loop {
            let is_known = !self.tree.keys.is_empty();
            let step = if is_known { self.tree.get(&list.len().to_string()) } else { None };
            let tree = step.map_or(&empty, |step| &step.children);
            let found = items.next_element_seed(NodeVisitor { tree, values: &mut *self.values })?;
            let Some(node) = found else { return Ok(Node::List(list)) };
            if let Some(slot) = step.and_then(|step| step.slot) {
                self.values.set(slot, node.clone());
            }
            self.values.list_elements += 1;
            if self.values.list_elements > LIST_ELEMENTS_MAX {
                return Err(de::Error::custom(format_args!(
                    "lists of more than {LIST_ELEMENTS_MAX} elements"
                )));
            }
            list.push(node);
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Node<'a>, A::Error> {
        let notes_unknown = self.values.unknown.is_some() && !self.tree.keys.is_empty();
        while let Some(step) = map.next_key_seed(KeyLookup(self.tree, notes_unknown))? {
            match step {
                Err(key) => {
                    if let Some(key) = key {
                        self.values.note_unknown(&key);
                    }
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(KeyNode { slot: Some(slot), raw: true, .. }) => {
                    let raw = map.next_value::<&serde_json::value::RawValue>()?;
                    let node = if raw.get() == "null" { Node::Null } else { Node::Raw(raw.get()) };
                    self.values.set(*slot, node);
                }
                Ok(step) => {
                    let node =
                        map.next_value_seed(NodeVisitor { tree: &step.children, values: &mut *self.values })?;
                    if let Some(slot) = step.slot {
                        self.values.set(slot, node);
                    }
                }
            }
        }
        Ok(Node::Object)
    }
}

/// Looks up a borrowed key, so that only unknown keys are allocated.
struct KeyLookup<'s>(&'s KeyTree, bool);

impl<'a, 's> DeserializeSeed<'a> for KeyLookup<'s> {
    type Value = Result<&'s KeyNode, Option<String>>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_identifier(self)
    }
}

impl<'s> Visitor<'_> for KeyLookup<'s> {
    type Value = Result<&'s KeyNode, Option<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.get(key).ok_or_else(|| self.1.then(|| key.to_owned())))
    }
}

#[cfg(test)]
mod tests;
