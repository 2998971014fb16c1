//! What was said in a conversation, bounded, newest last: what the next upstream session is told.

use std::collections::VecDeque;

use crate::event::Speaker;

/// What was said.
#[derive(Debug)]
pub(crate) struct Memory {
    lines: VecDeque<String>,
    chars: usize,
    max_chars: usize,
    version: u64,
}

impl Memory {
    /// Remembers up to `max_chars` characters; with zero, nothing.
    pub(crate) const fn new(max_chars: usize) -> Self {
        Self { lines: VecDeque::new(), chars: 0, max_chars, version: 0 }
    }

    /// Somebody said something. The oldest is forgotten when there is too much; of what alone is too much, its beginning.
    pub(crate) fn said(&mut self, speaker: Speaker, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.max_chars == 0 {
            return;
        }
        let head = match speaker {
            Speaker::User => "User: ",
            Speaker::Assistant => "Assistant: ",
        };
        let room = self.max_chars.saturating_sub(head.len());
        let skip = text.chars().count().saturating_sub(room);
        let line: String = head.chars().chain(text.chars().skip(skip)).collect();
        self.chars += line.chars().count();
        self.lines.push_back(line);
        while self.chars > self.max_chars && self.lines.len() > 1 {
            let oldest = self.lines.pop_front();
            self.chars -= oldest.map_or(0, |oldest| oldest.chars().count());
        }
        self.version += 1;
    }

    /// Everything, a line each.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Another number whenever something was added.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stays() {
        let mut memory = Memory::new(40);
        for text in ["one", " ", "two", "three"] {
            memory.said(Speaker::User, text);
        }
        memory.said(Speaker::Assistant, "four");
        assert_eq!(
            (memory.text().as_str(), memory.version()),
            ("User: two\nUser: three\nAssistant: four", 4)
        );
        memory.said(Speaker::User, &"é".repeat(100));
        assert_eq!(memory.text(), format!("User: {}", "é".repeat(34)));
    }

    #[test]
    fn who_remembers_nothing_remembers_nothing() {
        let mut memory = Memory::new(0);
        memory.said(Speaker::User, "one");
        assert_eq!((memory.text().as_str(), memory.version()), ("", 0));
    }
}
