//! Lists: of texts, of objects, or of words in one text.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{FieldRole, ListItem, ProtocolField, display_node};
use crate::vocabulary::Node;

/// Longest item of a list of texts: longer than any name or phrase.
pub(super) const ITEM_MAX_CHARS: usize = 256;

impl ProtocolField {
    pub(super) fn parse_list(&self, node: &Node<'_>) -> Result<Arc<[ListItem]>, String> {
        let text_of_words = match node {
            _ if !self.file.split => None,
            Node::Str(text) => Some(text.as_ref().to_owned()),
            // Only a text is read, so that another value is an item or a mistake.
            Node::Raw(json) => serde_json::from_str(json).ok(),
            _ => None,
        };
        if let Some(text) = text_of_words {
            return self.split_text(text.trim());
        }
        match node {
            Node::Raw(json) => self.read_items(json),
            Node::List(items) => self.read_texts(items),
            other => Err(format!("Input should be a valid list, got {}", display_node(other))),
        }
    }

    /// The words of a text, without empty ones: between commas or line ends, the keys of a JSON object, whose values are weights
    /// without effect, or the items of a JSON list.
    fn split_text(&self, text: &str) -> Result<Arc<[ListItem]>, String> {
        let words: Vec<String> = match text.chars().next() {
            Some('[') if self.file.items.is_some() => return self.read_items(text),
            Some('[') => serde_json::from_str(text).map_err(|_| "Input should be a JSON list of words")?,
            Some('{') => {
                let words: Map<String, Value> =
                    serde_json::from_str(text).map_err(|_| "Input should be a JSON object of words")?;
                words.into_iter().map(|(word, _)| word).collect()
            }
            _ => text.split([',', '，', '\n']).map(str::to_owned).collect(),
        };
        let words = words.iter().map(|word| word.trim()).filter(|word| !word.is_empty());
        self.read_texts(&words.map(|word| Node::Str(word.into())).collect::<Vec<_>>())
    }

    fn read_texts(&self, items: &[Node<'_>]) -> Result<Arc<[ListItem]>, String> {
        if let Some(max) = self.file.max.filter(|max| items.len() as f64 > *max) {
            return Err(format!("List should have at most {max} items, got {}", items.len()));
        }
        let texts = items.iter().map(|item| match item.as_str() {
            None => Err(format!("Input should be a valid string, got {}", display_node(item))),
            Some(text) => check_length(text).map(|()| ListItem::of_text(text)),
        });
        texts.collect()
    }

    /// The items of JSON. Those of a list of texts have one.
    fn read_items(&self, json: &str) -> Result<Arc<[ListItem]>, String> {
        let items = self.items.read(json, self.file.max)?;
        if self.file.to.is_none_or(|role| role == FieldRole::HotWords) {
            for (at, item) in items.iter().enumerate() {
                let in_item = |problem: String| format!("item {}: {problem}", at + 1);
                if item.texts.is_empty() {
                    return Err(in_item("Input should be a valid string, or an object with one".to_owned()));
                }
                item.texts.iter().try_for_each(|text| check_length(text)).map_err(in_item)?;
            }
        }
        Ok(items)
    }
}

fn check_length(text: &str) -> Result<(), String> {
    if text.chars().count() <= ITEM_MAX_CHARS {
        return Ok(());
    }
    let shown = display_node(&Node::Str(text.into()));
    Err(format!("String should have at most {ITEM_MAX_CHARS} characters, got {shown}"))
}
