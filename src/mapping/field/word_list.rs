//! Words in one text: separated by commas or line ends, or the keys of a JSON object, or the items of a JSON list. The object's
//! values are weights, which have no effect.

use serde_json::{Map, Value};

/// The words of a text, without empty ones. An object in a JSON list has its word at the pointer `item`.
///
/// # Errors
/// The text begins like JSON and is none, or its items are no texts.
pub(super) fn parse_word_list(text: &str, item: Option<&str>) -> Result<Vec<String>, &'static str> {
    let text = text.trim();
    let words: Vec<String> = match text.chars().next() {
        Some('{') => {
            let words: Map<String, Value> =
                serde_json::from_str(text).map_err(|_| "Input should be a JSON object of words")?;
            words.into_iter().map(|(word, _)| word).collect()
        }
        Some('[') => {
            let items = serde_json::from_str::<Vec<Value>>(text).ok();
            let words = items.and_then(|items| items.into_iter().map(|value| word_of(value, item)).collect());
            words.ok_or("Input should be a JSON list of words")?
        }
        _ => text.split([',', '，', '\n']).map(str::to_owned).collect(),
    };
    Ok(words.into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect())
}

/// The word of an item of a JSON list: a text, or an object with one.
fn word_of(mut value: Value, item: Option<&str>) -> Option<String> {
    if value.is_object() {
        value = value.pointer_mut(item?)?.take();
    }
    match value {
        Value::String(word) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_each_spelling() {
        for text in [
            "阿里, voxbridge",
            "阿里，voxbridge,,",
            "{\"阿里\": 20, \"voxbridge\": 30}",
            " [\"阿里\", \"voxbridge \"]",
            "阿里\nvoxbridge\n",
        ] {
            let mut words = parse_word_list(text, None).unwrap();
            words.sort();
            assert_eq!(words, ["voxbridge", "阿里"], "{text}");
        }
        assert_eq!(parse_word_list(" ", None), Ok(Vec::new()));
        let objects = r#"["a", {"word": {"text": "b"}}]"#;
        assert_eq!(parse_word_list(objects, Some("/word/text")), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(parse_word_list(objects, Some("/word")).is_err() && parse_word_list(objects, None).is_err());
        for text in ["{\"a\": 1", "[1]", "[[\"a\"]]", "{\"a\"}"] {
            assert!(parse_word_list(text, None).is_err(), "{text}");
        }
    }
}
