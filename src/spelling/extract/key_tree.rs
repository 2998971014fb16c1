//! The keys of a message that pointers lead through.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Keys of one object level. Few keys, so a scan beats a map.
#[derive(Debug, Default)]
pub(super) struct KeyTree {
    pub(super) keys: Vec<(Box<str>, KeyNode)>,
}

#[derive(Debug, Default)]
pub(super) struct KeyNode {
    pub(super) slot: Option<usize>,
    pub(super) children: KeyTree,
    /// The value is taken verbatim.
    pub(super) raw: bool,
    /// The key is another spelling of one beside it.
    pub(super) is_other_spelling: bool,
}

impl KeyTree {
    /// The object of this level; `None` if it would be empty. Values inside an object replace a value for the object.
    pub(super) fn compose(&self, values: &BTreeMap<usize, Value>) -> Option<Value> {
        let entry = |(key, node): &(Box<str>, KeyNode)| {
            let own = node.slot.and_then(|slot| values.get(&slot).cloned());
            Some((key.to_string(), node.children.compose(values).or(own)?))
        };
        let own_keys = self.keys.iter().filter(|(_, node)| !node.is_other_spelling);
        let mut object: Map<String, Value> = own_keys.filter_map(entry).collect();
        if self.keys.len() == 1
            && let Some(element) = object.remove("0")
        {
            return Some(Value::Array(vec![element]));
        }
        (!object.is_empty()).then_some(Value::Object(object))
    }
}

/// The parts of a pointer (RFC 6901).
pub(super) fn pointer_parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// A part of a pointer in snake case: `audio_stream_end` for `audioStreamEnd`.
pub(crate) fn to_snake_case(part: &str) -> String {
    let mut spelled = String::with_capacity(part.len() + 4);
    for letter in part.chars() {
        if letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled
}

impl KeyTree {
    /// The node that a pointer leads to, which is created if it is missing; `None` for an empty pointer.
    pub(super) fn node_at(&mut self, pointer: &str) -> Option<&mut KeyNode> {
        let mut parts = pointer_parts(pointer).peekable();
        let mut tree = self;
        loop {
            let node = tree.child_or_insert(&parts.next()?);
            if parts.peek().is_none() {
                return Some(node);
            }
            tree = &mut node.children;
        }
    }

    /// Adds the parts with each of them in snake case, too.
    pub(super) fn insert_spellings(&mut self, parts: &[String], slot: usize, is_raw: bool) {
        let [part, rest @ ..] = parts else { return };
        let other = Some(to_snake_case(part)).filter(|other| other != part);
        for (spelling, is_other) in [(Some(part), false), (other.as_ref(), true)] {
            let Some(spelling) = spelling else { continue };
            let node = self.child_or_insert(spelling);
            node.is_other_spelling |= is_other;
            if rest.is_empty() {
                node.raw |= is_raw;
                node.slot.get_or_insert(slot);
            } else {
                node.children.insert_spellings(rest, slot, is_raw);
            }
        }
    }

    fn child_or_insert(&mut self, key: &str) -> &mut KeyNode {
        let index = self.keys.iter().position(|(known, _)| **known == *key).unwrap_or_else(|| {
            self.keys.push((key.into(), KeyNode::default()));
            self.keys.len() - 1
        });
        &mut self.keys[index].1
    }

    pub(super) fn get(&self, key: &str) -> Option<&KeyNode> {
        self.keys.iter().find(|(known, _)| **known == *key).map(|(_, step)| step)
    }
}
