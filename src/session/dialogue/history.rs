//! Bounded history of a conversation. It goes into the prompt of the next upstream session.

use std::collections::VecDeque;

use crate::vocabulary::Speaker;

/// Lines of a conversation, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: VecDeque<Line>,
    chars: usize,
    max_chars: usize,
    /// Number of lines so far, with those that were dropped.
    added: u64,
    /// Counts changes.
    version: u64,
}

/// Words of one utterance or turn.
#[derive(Debug)]
struct Line {
    segment_id: u32,
    speaker: Speaker,
    /// The words after the speaker's name.
    text: String,
}

/// State of a history at the moment when an upstream session got it in its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HistoryMark {
    /// Lines in the prompt.
    lines: u64,
    version: u64,
}

impl History {
    /// Keeps up to `max_chars` characters; 0 keeps nothing.
    pub(crate) const fn new(max_chars: usize) -> Self {
        Self { lines: VecDeque::new(), chars: 0, max_chars, added: 0, version: 0 }
    }

    /// Adds a line. Drops the oldest lines above the limit, and the beginning of a line that is too long by itself.
    pub(crate) fn push(&mut self, speaker: Speaker, segment_id: u32, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.max_chars == 0 {
            return;
        }
        let text_max_chars = self.max_chars.saturating_sub(prefix(speaker).len());
        let skip = text.chars().count().saturating_sub(text_max_chars);
        let line = Line { segment_id, speaker, text: text.chars().skip(skip).collect() };
        self.chars += line.chars();
        self.lines.push_back(line);
        while self.chars > self.max_chars && self.lines.len() > 1 {
            let oldest = self.lines.pop_front();
            self.chars -= oldest.map_or(0, |oldest| oldest.chars());
        }
        self.added += 1;
        self.version += 1;
    }

    /// Cuts a line of the model to what was heard of it. Removes it if nothing was heard.
    pub(crate) fn cut(&mut self, segment_id: u32, heard: &str) {
        let is_cut = |line: &Line| line.segment_id == segment_id && line.speaker == Speaker::Assistant;
        let Some(at) = self.lines.iter().rposition(is_cut) else { return };
        let line = &mut self.lines[at];
        let before = line.chars();
        // A line that was too long has only its end, and so has what was heard of it.
        let text_max_chars = self.max_chars.saturating_sub(prefix(Speaker::Assistant).len());
        let skip = heard.trim().chars().count().saturating_sub(text_max_chars);
        line.text = heard.trim().chars().skip(skip).collect();
        self.chars = self.chars - before + line.chars();
        if line.text.is_empty() {
            self.chars -= line.chars();
            self.lines.remove(at);
            self.added -= 1;
        }
        self.version += 1;
    }

    /// All lines, one per row.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| format!("{}{}", prefix(line.speaker), line.text));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Its state now. Two marks are equal if nothing was said between them.
    pub(crate) fn mark(&self) -> HistoryMark {
        HistoryMark { lines: self.lines.len() as u64, version: self.version }
    }

    /// Number of lines that an upstream session with the history of `known` knows, and number of the other lines so far.
    pub(crate) const fn known_and_missing(&self, known: HistoryMark) -> (u64, u64) {
        (known.lines, self.added.saturating_sub(known.lines))
    }
}

impl Line {
    /// Length of its row, characters.
    fn chars(&self) -> usize {
        prefix(self.speaker).len() + self.text.chars().count()
    }
}

const fn prefix(speaker: Speaker) -> &'static str {
    match speaker {
        Speaker::User => "User: ",
        Speaker::Assistant => "Assistant: ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_lines_are_dropped_beyond_the_limit() {
        let mut history = History::new(40);
        for (segment_id, text) in (0..).zip(["one", " ", "two", "three"]) {
            history.push(Speaker::User, segment_id, text);
        }
        history.push(Speaker::Assistant, 4, "four");
        assert_eq!(
            (history.text().as_str(), history.known_and_missing(history.mark())),
            ("User: two\nUser: three\nAssistant: four", (3, 1))
        );
        let mark = history.mark();
        history.push(Speaker::User, 5, &"é".repeat(100));
        assert_eq!(history.text(), format!("User: {}", "é".repeat(34)));
        assert_eq!((history.known_and_missing(mark), mark == history.mark()), ((3, 2), false));
    }

    #[test]
    fn zero_limit_keeps_nothing() {
        let mut history = History::new(0);
        history.push(Speaker::User, 0, "one");
        assert_eq!((history.text().as_str(), history.mark()), ("", HistoryMark::default()));
    }

    #[test]
    fn interrupted_turn_is_cut_to_what_was_heard() {
        let mut history = History::new(100);
        history.push(Speaker::User, 1, "hello");
        history.push(Speaker::Assistant, 1, "one two three");
        history.push(Speaker::Assistant, 2, "unheard");
        let mark = history.mark();
        history.cut(1, "one two");
        history.cut(2, "");
        history.cut(3, "never added");
        assert_eq!(history.text(), "User: hello\nAssistant: one two");
        assert_eq!(history.chars, history.text().chars().count() - 1);
        assert!(mark != history.mark());
        assert_eq!(history.known_and_missing(history.mark()), (2, 0));
    }
}
