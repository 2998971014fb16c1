//! Finds what is new in the model's words while they come, and cuts it into sentences.

/// Marks that end a sentence in any place.
const ENDS: &str = "。！？；…\n";
/// Marks that end a sentence if no letter or digit follows, and that do not follow a digit at the end of the words so far.
const ENDS_BEFORE_SPACE: &str = ".!?;";

/// The words of the current turn or answer.
#[derive(Debug, Default)]
pub(super) struct Sentences {
    segment_id: Option<u32>,
    /// Bytes of the turn's words that were given out.
    given: usize,
}

impl Sentences {
    /// The next sentence of a turn's words so far. After the last words, what is left is one, too.
    ///
    /// The last words of an interrupted turn are those that were heard. They are fewer, and nothing of them is new.
    pub(super) fn next<'t>(&mut self, segment_id: u32, text: &'t str, is_final: bool) -> Option<&'t str> {
        loop {
            let rest = self.rest(segment_id, text)?;
            let length = sentence_length(rest).or_else(|| is_final.then_some(rest.len()))?;
            self.given += length;
            let sentence = rest[..length].trim();
            if !sentence.is_empty() {
                return Some(sentence);
            }
        }
    }

    /// All that is new in a turn's words so far.
    pub(super) fn take_rest<'t>(&mut self, segment_id: u32, text: &'t str) -> Option<&'t str> {
        let rest = self.rest(segment_id, text)?;
        self.given = text.len();
        Some(rest)
    }

    fn rest<'t>(&mut self, segment_id: u32, text: &'t str) -> Option<&'t str> {
        if self.segment_id.is_none_or(|last| last < segment_id) {
            (self.segment_id, self.given) = (Some(segment_id), 0);
        }
        // The final words of an earlier turn come when it has been played.
        let is_current = self.segment_id == Some(segment_id);
        text.get(self.given..).filter(|rest| is_current && !rest.is_empty())
    }
}

/// Length of the first sentence, with its closing marks; `None` if it is incomplete.
fn sentence_length(text: &str) -> Option<usize> {
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        let follows = text[end..].chars().next();
        let is_end = ENDS.contains(letter)
            || ENDS_BEFORE_SPACE.contains(letter)
                && follows.map_or(!before.is_ascii_digit(), char::is_whitespace);
        let goes_on = |next: char| {
            ENDS.contains(next) || ENDS_BEFORE_SPACE.contains(next) || "\"'”’」』)）".contains(next)
        };
        if is_end && !follows.is_some_and(goes_on) {
            return Some(end);
        }
        before = match (ENDS_BEFORE_SPACE.contains(before) || ENDS.contains(before), letter) {
            // A closing mark behind the end of a sentence.
            (true, '"' | '\'' | '”' | '’' | '」' | '』' | ')' | '）') => return Some(end),
            _ => letter,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(partials: &[&str], last: &str) -> Vec<String> {
        let mut sentences = Sentences::default();
        let mut found = Vec::new();
        let texts = partials.iter().map(|text| (*text, false)).chain([(last, true)]);
        for (text, is_final) in texts {
            while let Some(sentence) = sentences.next(1, text, is_final) {
                found.push(sentence.to_owned());
            }
        }
        found
    }

    #[test]
    fn sentences_come_as_soon_as_they_are_complete() {
        let partials = ["你好！", "你好！今天天气很好。明天", "你好！今天天气很好。明天呢"];
        assert_eq!(cut(&partials, "你好！今天天气很好。明天呢"), ["你好！", "今天天气很好。", "明天呢"]);
        let partials = ["It is 3.", "It is 3.14 here", "It is 3.14 here. And"];
        assert_eq!(cut(&partials, "It is 3.14 here. And so on"), ["It is 3.14 here.", "And so on"]);
        assert_eq!(
            cut(&["He said: \"Yes!\" Then"], "He said: \"Yes!\" Then he left..."),
            ["He said: \"Yes!\"", "Then he left..."]
        );
    }

    #[test]
    fn interrupted_turn_repeats_nothing() {
        assert_eq!(cut(&["One. Two. Thr"], "One."), ["One.", "Two."]);
        assert_eq!(cut(&["一。二。"], "一"), ["一。", "二。"]);
        assert_eq!(cut(&[], ""), Vec::<String>::new());
    }

    #[test]
    fn new_words_are_given_once() {
        let mut words = Sentences::default();
        let texts =
            [(1, "Hi"), (1, "Hi there."), (1, "Hi there."), (2, "So"), (1, "Hi there. Late"), (2, "S")];
        let new = texts.map(|(turn, text)| words.take_rest(turn, text));
        assert_eq!(new, [Some("Hi"), Some(" there."), None, Some("So"), None, None]);
    }

    #[test]
    fn words_of_an_earlier_turn_behind_the_next_one_are_not_repeated() {
        let mut sentences = Sentences::default();
        assert_eq!(sentences.next(1, "One.", false), Some("One."));
        assert_eq!(sentences.next(2, "Two.", false), Some("Two."));
        assert_eq!(sentences.next(1, "One.", true), None);
        assert_eq!(sentences.next(2, "Two. More", true), Some("More"));
    }
}
