//! Lists of texts: an array of texts, or of objects that have one, or such a list as JSON in a string.

use serde_json::Value;

use super::{ProtocolField, display_node};
use crate::mapping::extract::Node;

/// Longest item of a list of texts: longer than any name or phrase.
pub(super) const ITEM_MAX_CHARS: usize = 256;

impl ProtocolField {
    /// True for a query parameter that is repeated for each item of its list.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.file.type_name == super::FieldType::TextList && !self.file.json_text
    }

    pub(super) fn parse_text_list(&self, node: &Node<'_>) -> Result<Vec<String>, String> {
        let from_text;
        let node = match node.as_str().filter(|_| self.file.json_text) {
            Some(text) => {
                from_text = self.list_in_json(text)?;
                &from_text
            }
            None => node,
        };
        let Node::List(items) = node else {
            return Err(format!("Input should be a valid list, got {}", display_node(node)));
        };
        if let Some(max) = self.file.max.filter(|max| items.len() as f64 > *max) {
            return Err(format!("List should have at most {max} items, got {}", items.len()));
        }
        let texts = items.iter().map(|item| match item.as_str() {
            None => Err(format!("Input should be a valid string, got {}", display_node(item))),
            Some(text) if text.chars().count() > ITEM_MAX_CHARS => Err(format!(
                "String should have at most {ITEM_MAX_CHARS} characters, got {}",
                display_node(item)
            )),
            Some(text) => Ok(text.to_owned()),
        });
        texts.collect()
    }

    /// The list in a JSON text: its texts, or the keys of an object.
    fn list_in_json(&self, text: &str) -> Result<Node<'static>, String> {
        let refused =
            || format!("Input should be a list in JSON, got {}", display_node(&Node::Str(text.into())));
        let texts = match serde_json::from_str(text).map_err(|_| refused())? {
            Value::Array(items) => items.into_iter().map(|item| self.item_of_json(item)).collect(),
            Value::Object(members) => members.into_iter().map(|(key, _)| Node::Str(key.into())).collect(),
            _ => return Err(refused()),
        };
        Ok(Node::List(texts))
    }

    fn item_of_json(&self, mut value: Value) -> Node<'static> {
        let inner = self.file.item.as_ref().filter(|_| value.is_object());
        if let Some(pointer) = inner {
            value = value.pointer_mut(pointer).map(Value::take).unwrap_or_default();
        }
        match value {
            Value::String(text) => Node::Str(text.into()),
            Value::Bool(flag) => Node::Bool(flag),
            Value::Number(number) => Node::Float(number.as_f64().unwrap_or_default()),
            Value::Array(_) => Node::List(Vec::new()),
            Value::Object(_) => Node::Object,
            Value::Null => Node::Null,
        }
    }
}
