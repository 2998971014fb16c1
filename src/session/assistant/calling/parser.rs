//! Finds calls of tools in the model's text, which comes in deltas that are cut anywhere.
//!
//! Qwen3 writes a call as `<tool_call>`, JSON, `</tool_call>`. The parser also takes what models write by mistake: spaces in a
//! tag, code fences around a call, a call without tags at the beginning of an answer or behind another call, and a missing end.
//! It holds back text that may still become a tag, so that the cuts do not change the result and nothing of a call becomes words.
//! Tags within strings of JSON belong to the call. JSON without tags that is no call is words. The text of thoughts passes, and
//! calls in it are none: another filter removes it.

use super::check::{CALLS_MAX, is_call};
use crate::vocabulary::ToolOffer;

/// Longest text that is held back, bytes: a fence, and a tag with spaces.
const HELD_MAX_BYTES: usize = 96;
/// Longest calls of an answer together, bytes: more than the longest answer.
const CALLS_MAX_BYTES: usize = 64 * 1024;
const FENCE: &str = "```";
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";

/// Parser of one answer.
#[derive(Debug, Default)]
pub(super) struct CallParser {
    begin: String,
    end: String,
    /// The tools that may be called. Without any, only tagged text is a call.
    offer: ToolOffer,
    place: Place,
    /// Text that may still become a tag.
    held: String,
    /// Words came before.
    has_words: bool,
    /// The call being read.
    call: String,
    /// The code fence before a call without tags.
    fence: String,
    /// The call is none if nothing follows its tag.
    may_be_none: bool,
    /// Complete calls, without their tags.
    pub(super) calls: Vec<String>,
    /// There are more calls, or longer ones, than are kept.
    pub(super) overflowed: bool,
}

/// Where in the answer the parser is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Words,
    Thought,
    /// Behind a call, where white space and fences mean nothing.
    Behind,
    /// In a call: in a string of its JSON, behind a backslash, and the depth of brackets if the call has no tags.
    Call {
        in_string: bool,
        is_escaped: bool,
        bare_depth: Option<u32>,
    },
}

/// How a text compares to a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    None,
    Begins,
    Whole,
}

impl CallParser {
    pub(super) fn new(begin: &str, end: &str, offer: &ToolOffer) -> Self {
        Self { begin: begin.to_owned(), end: end.to_owned(), offer: offer.clone(), ..Self::default() }
    }

    /// Memory of the calls, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.call.len() + self.calls.iter().map(String::len).sum::<usize>()
    }

    /// True from the first tag of a call on, until words follow it. JSON without tags may still be words.
    pub(super) const fn is_in_call(&self) -> bool {
        matches!(self.place, Place::Call { bare_depth: None, .. } | Place::Behind)
    }

    /// Ends the answer. A call without its end counts as complete, and so does most of a tag as an empty call: an answer may
    /// end in "<" or "<to".
    pub(super) fn finish(&mut self, out: &mut String) {
        if let Place::Call { in_string, .. } = self.place {
            // Held text within a call is a tag that was cut. A string that was never closed hides a whole one.
            if let Some(end) = self.call.find(&self.end).filter(|_| in_string) {
                self.call.truncate(end);
            }
            return self.end_call(out);
        }
        let held = std::mem::take(&mut self.held);
        let tag = behind_fence(&held);
        match fit(tag, &self.begin) {
            Fit::Begins if is_most_of(tag, &self.begin) => self.end_call(out),
            _ => self.add_words(&held, out),
        }
    }

    /// Takes a letter of the model's text. Appends the words to `out`.
    pub(super) fn push_char(&mut self, letter: char, out: &mut String) {
        if let Place::Call { .. } = self.place {
            return self.push_to_call(letter, out);
        }
        if self.place == Place::Behind && self.held.is_empty() && letter.is_whitespace() {
            return;
        }
        let may_be_bare = self.may_be_bare();
        if letter == '{' && may_be_bare && is_bare_start(behind_fence(&self.held)) {
            return self.begin_bare_call();
        }
        let is_mark = matches!(letter, '<' | '`') || letter == '[' && may_be_bare;
        if self.held.is_empty() && !is_mark {
            return self.add_words(letter.encode_utf8(&mut [0; 4]), out);
        }
        self.held.push(letter);
        self.decide(letter, out);
    }

    /// True where JSON without tags may be a call.
    fn may_be_bare(&self) -> bool {
        let is_at_start = self.place == Place::Words && !self.has_words;
        (is_at_start || self.place == Place::Behind) && self.offer.allows_calls()
    }

    /// Decides about the held text, whose last letter is new.
    fn decide(&mut self, last: char, out: &mut String) {
        let tag = behind_fence(&self.held);
        let fits = [&*self.begin, &*self.end, THINK, THINK_END].map(|known| fit(tag, known));
        let is_in_thought = self.place == Place::Thought;
        match fits {
            [.., Fit::Whole] | [_, _, Fit::Whole, _] => {
                self.place = if fits[3] == Fit::Whole { Place::Words } else { Place::Thought };
                out.push_str(&std::mem::take(&mut self.held));
            }
            [Fit::Whole, ..] if !is_in_thought => self.begin_call(),
            [_, Fit::Whole, ..] if !is_in_thought => {
                self.held.clear();
                self.place = Place::Behind;
            }
            _ if self.held.len() >= HELD_MAX_BYTES => self.release(last, out),
            _ if fits.contains(&Fit::Begins) || self.may_be_bare() && is_bare_start(tag) => {}
            _ => self.release(last, out),
        }
    }

    /// Releases held text that is no tag. Its last letter may begin another.
    fn release(&mut self, last: char, out: &mut String) {
        let mut words = std::mem::take(&mut self.held);
        if words.len() > last.len_utf8() && matches!(last, '<' | '`') {
            words.truncate(words.len() - last.len_utf8());
            self.held.push(last);
        }
        self.add_words(&words, out);
    }

    fn add_words(&mut self, mut words: &str, out: &mut String) {
        if self.place == Place::Behind {
            words = behind_closing_fence(words);
            if words.is_empty() {
                return;
            }
            self.place = Place::Words;
            out.push_str(if self.has_words { "\n" } else { "" });
        }
        self.has_words |= self.place == Place::Words && words.contains(|it: char| !it.is_whitespace());
        out.push_str(words);
    }

    fn begin_call(&mut self) {
        self.held.clear();
        self.place = Place::Call { in_string: false, is_escaped: false, bare_depth: None };
    }

    /// Begins a call with the brace of an object, or with the object of a list whose bracket is held.
    fn begin_bare_call(&mut self) {
        let start = behind_fence(&self.held);
        self.call = format!("{start}{{");
        let depth = if start.is_empty() { 1 } else { 2 };
        self.held.truncate(self.held.len() - start.len());
        let fence = std::mem::take(&mut self.held);
        self.fence = match self.place {
            Place::Behind if self.has_words => format!("\n{}", behind_closing_fence(&fence)),
            Place::Behind => behind_closing_fence(&fence).to_owned(),
            _ => fence,
        };
        self.place = Place::Call { in_string: false, is_escaped: false, bare_depth: Some(depth) };
    }

    fn push_to_call(&mut self, letter: char, out: &mut String) {
        let Place::Call { in_string, is_escaped, bare_depth } = &mut self.place else { return };
        if !*in_string && (letter == '<' || !self.held.is_empty()) {
            return self.push_to_tag(letter, out);
        }
        match letter {
            _ if *is_escaped => *is_escaped = false,
            '\\' if *in_string => *is_escaped = true,
            '"' => *in_string = !*in_string,
            '{' | '[' if !*in_string => *bare_depth = bare_depth.map(|depth| depth + 1),
            '}' | ']' if !*in_string => *bare_depth = bare_depth.map(|depth| depth.saturating_sub(1)),
            _ => {}
        }
        let is_over = *bare_depth == Some(0);
        self.add_to_call(letter.encode_utf8(&mut [0; 4]));
        if is_over {
            self.end_call(out);
        }
    }

    /// Takes a letter of what may be a tag within a call, outside of its strings.
    fn push_to_tag(&mut self, letter: char, out: &mut String) {
        self.held.push(letter);
        match (fit(&self.held, &self.begin), fit(&self.held, &self.end)) {
            (_, Fit::Whole) => self.end_call(out),
            (Fit::Whole, _) => {
                // The next call ends this one, or the tag was meant to close it: PyTorch suppresses the slash in a spoken answer.
                if !self.call.trim().is_empty() {
                    self.end_call(out);
                    self.may_be_none = true;
                }
                self.begin_call();
            }
            (Fit::None, Fit::None) => {
                let mut text = std::mem::take(&mut self.held);
                if letter == '<' {
                    // It may begin another tag.
                    text.pop();
                    self.held.push(letter);
                }
                self.add_to_call(&text);
            }
            _ => {}
        }
    }

    fn add_to_call(&mut self, text: &str) {
        match self.kept_bytes() + text.len() <= CALLS_MAX_BYTES {
            true => self.call.push_str(text),
            false => self.overflowed = true,
        }
    }

    fn end_call(&mut self, out: &mut String) {
        self.held.clear();
        let is_bare = matches!(self.place, Place::Call { bare_depth: Some(_), .. });
        let (fence, call) = (std::mem::take(&mut self.fence), std::mem::take(&mut self.call));
        // JSON that was never closed may hide tags in a string.
        let has_tag = call.contains(&self.begin) || call.contains(&self.end);
        if is_bare && !has_tag && !is_call(&call, &self.offer) {
            self.place = Place::Words;
            return self.add_words(&(fence + &call), out);
        }
        self.place = Place::Behind;
        if std::mem::take(&mut self.may_be_none) && call.trim().is_empty() {
            return;
        }
        match self.calls.len() < CALLS_MAX {
            true => self.calls.push(call),
            false => self.overflowed = true,
        }
    }
}

/// Compares a text to a tag. Case and spaces in the text do not count.
fn fit(text: &str, tag: &str) -> Fit {
    let mut letters = text.chars().filter(|letter| *letter != ' ').peekable();
    if letters.peek().is_none() {
        return if text.is_empty() { Fit::Begins } else { Fit::None };
    }
    let mut expected = tag.chars();
    for letter in letters {
        match expected.next() {
            Some(known) if known.eq_ignore_ascii_case(&letter) => {}
            _ => return Fit::None,
        }
    }
    if expected.next().is_none() { Fit::Whole } else { Fit::Begins }
}

/// True if the beginning of a tag is longer than the missing rest.
fn is_most_of(beginning: &str, tag: &str) -> bool {
    beginning.chars().filter(|letter| *letter != ' ').count() * 2 > tag.chars().count()
}

/// The text behind a code fence and its language, or the text itself if it begins with no fence. Empty while it is all fence.
fn behind_fence(text: &str) -> &str {
    let Some(behind) = text.strip_prefix(FENCE) else {
        return if FENCE.starts_with(text) { "" } else { text };
    };
    let is_language = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    behind.trim_start_matches(is_language).trim_start()
}

/// The text behind a fence that closes, which is no words behind a call, or the text itself.
fn behind_closing_fence(text: &str) -> &str {
    let behind =
        text.strip_prefix(FENCE).filter(|rest| !rest.starts_with(|it: char| it.is_ascii_alphanumeric()));
    behind.map_or(text, str::trim_start)
}

/// True if an object after this text may be a call without tags: there is nothing, or the bracket of a list.
fn is_bare_start(text: &str) -> bool {
    text.is_empty() || text.strip_prefix('[').is_some_and(|rest| rest.trim_start().is_empty())
}

#[cfg(test)]
mod tests;
