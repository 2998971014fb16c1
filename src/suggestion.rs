//! Suggestions for misspelt names: the nearest known name, or the list of all.

/// Returns `, did you mean …?` with the nearest known word, or an empty string if none is near.
pub(crate) fn did_you_mean<'k>(wrong: &str, known: impl Iterator<Item = &'k str>) -> String {
    nearest(wrong, known).map_or_else(String::new, |word| format!(", did you mean `{word}`?"))
}

/// The known word that is most like the wrong one, if one is near.
pub(crate) fn nearest<'k>(wrong: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // Minimum Damerau-Levenshtein similarity: `langage` finds `language`, `colour` finds nothing.
    const NEAR: f64 = 0.6;
    // The comparison takes the product of both lengths. Words whose lengths differ much are never near.
    let wrong_length = wrong.chars().count() as f64;
    let has_near_length = |word: &&str| {
        let length = word.chars().count() as f64;
        length.min(wrong_length) >= NEAR * length.max(wrong_length)
    };
    known
        .filter(has_near_length)
        .map(|word| (strsim::normalized_damerau_levenshtein(wrong, word), word))
        .filter(|(likeness, _)| *likeness >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// Returns `, did you mean …? Known are …`, or `; known are …` if no known word is near.
pub(crate) fn suggest_known<'k, I: Iterator<Item = &'k str>>(wrong: &str, known: impl Fn() -> I) -> String {
    let (hint, list) = (did_you_mean(wrong, known()), quoted_list(known()));
    if hint.is_empty() { format!("; known are {list}") } else { format!("{hint} Known are {list}") }
}

/// Joins names like "`a`, `b` and `c`".
pub(crate) fn quoted_list<'k>(words: impl Iterator<Item = &'k str>) -> String {
    let quoted: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, most)) => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_with_commas_and_and() {
        assert_eq!(quoted_list(["a", "b", "c"].into_iter()), "`a`, `b` and `c`");
        assert_eq!(quoted_list([].into_iter()), "nothing");
        assert_eq!(did_you_mean("colour", ["listen"].into_iter()), "");
        assert_eq!(did_you_mean("lis", ["liste"].into_iter()), ", did you mean `liste`?");
        assert_eq!(did_you_mean(&"listen".repeat(1 << 20), ["listen"].into_iter()), "");
    }
}
