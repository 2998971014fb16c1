//! Bounded history of a conversation. It goes into the prompt of the next upstream session.

use std::collections::VecDeque;

use crate::event::Speaker;

/// Lines of a conversation, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    lines: VecDeque<String>,
    chars: usize,
    max_chars: usize,
    version: u64,
}

impl History {
    /// Keeps up to `max_chars` characters; 0 keeps nothing.
    pub(crate) const fn new(max_chars: usize) -> Self {
        Self { lines: VecDeque::new(), chars: 0, max_chars, version: 0 }
    }

    /// Adds a line. Drops the oldest lines above the limit, and the beginning of a line that is too long by itself.
    pub(crate) fn push(&mut self, speaker: Speaker, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.max_chars == 0 {
            return;
        }
        let prefix = match speaker {
            Speaker::User => "User: ",
            Speaker::Assistant => "Assistant: ",
        };
        let text_max_chars = self.max_chars.saturating_sub(prefix.len());
        let skip = text.chars().count().saturating_sub(text_max_chars);
        let line: String = prefix.chars().chain(text.chars().skip(skip)).collect();
        self.chars += line.chars().count();
        self.lines.push_back(line);
        while self.chars > self.max_chars && self.lines.len() > 1 {
            let oldest = self.lines.pop_front();
            self.chars -= oldest.map_or(0, |oldest| oldest.chars().count());
        }
        self.version += 1;
    }

    /// All lines, one per row.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Changes with every new line.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_lines_are_dropped_beyond_the_limit() {
        let mut history = History::new(40);
        for text in ["one", " ", "two", "three"] {
            history.push(Speaker::User, text);
        }
        history.push(Speaker::Assistant, "four");
        assert_eq!(
            (history.text().as_str(), history.version()),
            ("User: two\nUser: three\nAssistant: four", 4)
        );
        history.push(Speaker::User, &"é".repeat(100));
        assert_eq!(history.text(), format!("User: {}", "é".repeat(34)));
    }

    #[test]
    fn zero_limit_keeps_nothing() {
        let mut history = History::new(0);
        history.push(Speaker::User, "one");
        assert_eq!((history.text().as_str(), history.version()), ("", 0));
    }
}
