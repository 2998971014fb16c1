//! Marks that end sentences and clauses, in the scripts that have them.

/// True if the text ends with a full stop, a question mark or the like, quotation marks and brackets aside.
pub fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(is_closing).ends_with(|mark| is_full_stop(mark) || is_other_end(mark))
}

/// True if the text ends with a comma, a colon or the like.
pub fn ends_clause(text: &str) -> bool {
    text.trim_end_matches(is_closing)
        .ends_with([',', ';', ':', '–', '—', '，', '、', '；', '：', '،', '؛', '､'])
}

/// True for the full stops of all scripts: also of Chinese, Hindi, Urdu, Armenian and Amharic.
pub const fn is_full_stop(mark: char) -> bool {
    matches!(mark, '.' | '。' | '．' | '｡' | '।' | '۔' | '։' | '።')
}

const fn is_other_end(mark: char) -> bool {
    matches!(mark, '!' | '?' | '…' | '！' | '？' | '؟')
}

const fn is_closing(letter: char) -> bool {
    matches!(letter, '"' | '\'' | ')' | ']' | '”' | '’' | '»' | '」' | '』' | '）')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_and_clauses_end_with_marks_of_any_script() {
        for text in ["Go.", "Go?”", "go!)", "and…", "你好。", "是吗？", "नमस्ते।", "کیا؟"]
        {
            assert!(ends_sentence(text) && !ends_clause(text), "{text}");
        }
        for text in ["and,", "so;\"", "你好，", "then —"] {
            assert!(ends_clause(text) && !ends_sentence(text), "{text}");
        }
        assert!(!ends_sentence("word") && !ends_clause("word") && !ends_sentence(""));
    }
}
