//! Words in one text: separated by commas or line ends, or the keys of a JSON object, or the items of a JSON list. The object's
//! values are weights, which have no effect.

use serde_json::{Map, Value};

/// The words of a text, without empty ones.
///
/// # Errors
/// The text begins like JSON and is none, or its items are no texts.
pub(super) fn parse_word_list(text: &str) -> Result<Vec<String>, &'static str> {
    let text = text.trim();
    let words = match text.chars().next() {
        Some('{') => {
            let words: Map<String, Value> =
                serde_json::from_str(text).map_err(|_| "Input should be a JSON object of words")?;
            words.into_iter().map(|(word, _)| word).collect()
        }
        Some('[') => {
            serde_json::from_str::<Vec<String>>(text).map_err(|_| "Input should be a JSON list of words")?
        }
        _ => text.split([',', '，', '\n']).map(str::to_owned).collect(),
    };
    Ok(words.into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect())
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
            let mut words = parse_word_list(text).unwrap();
            words.sort();
            assert_eq!(words, ["voxbridge", "阿里"], "{text}");
        }
        assert_eq!(parse_word_list(" "), Ok(Vec::new()));
        for text in ["{\"a\": 1", "[1]", "[[\"a\"]]", "{\"a\"}"] {
            assert!(parse_word_list(text).is_err(), "{text}");
        }
    }
}
