//! `require` of a rule of `[[receive]]`: what a session's first answer must say, so that its lane can use the session.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    spelling::{
        extract::{ExtractedValues, Extractor},
        field::display_node,
    },
    vocabulary::{Mode, Node},
};

/// A requirement as written in the file. A value that is missing in the message counts as not granted, and a missing list lacks
/// everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequirementFile {
    at: String,
    equals: Option<Value>,
    at_least: Option<i64>,
    has: Option<String>,
    lacks: Option<String>,
    mode: Option<Mode>,
    because: String,
}

/// A compiled requirement.
#[derive(Debug)]
pub(crate) struct Requirement {
    slot: usize,
    file: RequirementFile,
}

impl RequirementFile {
    pub(super) fn compile(self, extractor: &mut Extractor) -> Requirement {
        Requirement { slot: extractor.add(&self.at), file: self }
    }
}

impl Requirement {
    /// The value that the message has instead, in words; `None` if it meets the requirement.
    pub(crate) fn problem(&self, found: &ExtractedValues<'_>, mode: Option<Mode>) -> Option<String> {
        let RequirementFile { at, equals, at_least, has, lacks, mode: only, because } = &self.file;
        let node = found.get(self.slot).filter(|node| !matches!(node, Node::Null | Node::Object));
        let lists = |word: &String| match node {
            Some(Node::List(items)) => items.iter().any(|item| item.as_str() == Some(word.as_str())),
            _ => false,
        };
        let is_at_least = |least| node.and_then(Node::as_f64).is_some_and(|number| number >= least as f64);
        let is_met = equals.as_ref().is_none_or(|value| node.is_some_and(|node| equal(node, value)))
            && at_least.is_none_or(is_at_least)
            && has.as_ref().is_none_or(lists)
            && !lacks.as_ref().is_some_and(lists);
        if is_met || (only.is_some() && *only != mode) {
            return None;
        }
        let value = match node {
            Some(Node::List(items)) => items.iter().filter_map(Node::as_str).collect::<Vec<_>>().join(", "),
            Some(node) => display_node(node),
            None => "not named".to_owned(),
        };
        let name = at.rsplit_once("/granted/").or_else(|| at.rsplit_once('/')).map_or("", |(_, name)| name);
        Some(format!("{because}: {} is {value}", name.replace('/', ".")))
    }
}

fn equal(node: &Node<'_>, value: &Value) -> bool {
    match (node, value) {
        (Node::Bool(found), Value::Bool(value)) => found == value,
        (Node::Str(found), Value::String(value)) => found == value,
        (_, Value::Number(value)) => node.as_f64() == value.as_f64(),
        _ => false,
    }
}
