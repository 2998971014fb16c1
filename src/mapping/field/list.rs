//! Lists of texts.

use super::{ProtocolField, display_node};
use crate::mapping::extract::Node;

/// Longest item of a list of texts: longer than any name or phrase.
pub(super) const ITEM_MAX_CHARS: usize = 256;

impl ProtocolField {
    pub(super) fn parse_text_list(&self, node: &Node<'_>) -> Result<Vec<String>, String> {
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
}
