//! Markdown as a person would read it aloud: the words of headings, lists, quotes, tables, code and links, without their marks.
//!
//! Texts of language models are Markdown, other texts are not, and nothing says which. So only marks that hardly occur in plain
//! text count, and no word is lost: `2 * 3`, `a_b_c`, `# 5` and `> 90 %` stay as they are. This is not a parser of CommonMark. It
//! needs no more than a line of a text, so that it works on texts that come in pieces.
//!
//! [`inline`] reads the marks inside a line.

mod inline;
#[cfg(test)]
mod tests;

use self::inline::{spoken_words, starts_as_url};

/// Least marks of a fence or of a rule.
const FENCE_MIN: usize = 3;
/// Longest heading above a line of dashes, characters.
const UNDERLINED_MAX_CHARS: usize = 60;
/// From here on, characters are Chinese, Japanese or Korean.
const EAST_ASIAN_FROM: char = '\u{2E80}';

/// Kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Heading,
    Text,
    /// It separates paragraphs.
    Blank,
}

/// A line of a text, without its marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: LineKind,
    pub(crate) words: String,
}

/// A text without its marks, line by line. Headings, items and rows end with a full stop, so that a pause follows.
pub(crate) fn without_marks(text: &str) -> String {
    let lines = lines(text).into_iter().map(|line| match line.kind {
        LineKind::Heading => with_stop(line.words),
        LineKind::Text | LineKind::Blank => line.words,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines of a text.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let text = without_comments(text);
    let is_alone = text.trim().lines().count() <= 1;
    let mut reader = Reader { lines: Vec::new(), fence: None, in_table: false, is_alone };
    let mut source = text.lines().peekable();
    while let Some(line) = source.next() {
        reader.read(line, source.peek().copied().unwrap_or_default());
    }
    reader.lines
}

/// Reads lines, one after the other.
struct Reader {
    lines: Vec<Line>,
    /// Mark and length of the fence around the code that is being read.
    fence: Option<(char, usize)>,
    in_table: bool,
    /// The text has one line.
    is_alone: bool,
}

impl Reader {
    fn read(&mut self, line: &str, next: &str) {
        if let Some((mark, length)) = self.fence {
            if closes_fence(line, mark, length) {
                self.fence = None;
                return self.push(LineKind::Blank, String::new());
            }
            let kind = if line.trim().is_empty() { LineKind::Blank } else { LineKind::Text };
            return self.push(kind, line.to_owned());
        }
        let line = without_quote_marks(line);
        let words = line.trim();
        if let Some(fence) = opened_fence(words) {
            self.fence = Some(fence);
            return self.push(LineKind::Blank, String::new());
        }
        let is_separator = is_table_separator(words);
        self.in_table = is_separator || (self.in_table || is_table_separator(next)) && words.contains('|');
        if words.is_empty() || is_separator || is_link_definition(words) {
            return self.push(LineKind::Blank, String::new());
        }
        if is_rule(words) {
            self.end_underlined_heading(words);
            return self.push(LineKind::Blank, String::new());
        }
        if self.in_table || is_row(words) {
            return self.push(LineKind::Text, spoken_row(words));
        }
        if let Some(heading) = heading(words, self.is_alone) {
            return self.push(LineKind::Heading, spoken_words(heading));
        }
        match item(words) {
            Some((number, item)) => {
                let item = with_stop(spoken_words(without_box(item)));
                self.push(LineKind::Text, number.map_or(item.clone(), |number| format!("{number}, {item}")));
            }
            None => self.push(LineKind::Text, spoken_words(without_footnote_label(line))),
        }
    }

    fn push(&mut self, kind: LineKind, words: String) {
        self.lines.push(Line { kind, words });
    }

    /// Makes the line above a line of `=` or `-` a heading, if it looks like one.
    fn end_underlined_heading(&mut self, rule: &str) {
        let is_first = self.lines.len() < 2 || self.lines[self.lines.len() - 2].kind == LineKind::Blank;
        let Some(above) = self.lines.last_mut().filter(|above| is_first && above.kind == LineKind::Text)
        else {
            return;
        };
        let is_short = above.words.chars().count() <= UNDERLINED_MAX_CHARS;
        let ends_sentence =
            above.words.trim_end().ends_with(['.', '!', '?', ',', ';', ':', '。', '！', '？']);
        let is_line_of = |mark: char| rule.chars().all(|letter| letter == mark);
        if is_line_of('=') || is_line_of('-') && is_short && !ends_sentence {
            above.kind = LineKind::Heading;
        }
    }
}

/// Removes comments of HTML.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        let Some((_, after)) = after.split_once("-->") else { break };
        kept += before;
        rest = after;
    }
    kept + rest
}

/// Ends words with a full stop, unless they end with punctuation.
fn with_stop(mut words: String) -> String {
    words.truncate(words.trim_end().len());
    match words.chars().next_back() {
        Some(last) if last.is_alphanumeric() && last >= EAST_ASIAN_FROM => words.push('。'),
        Some(last) if last.is_alphanumeric() || matches!(last, ')' | ']' | '"' | '\'' | '%') => {
            words.push('.');
        }
        _ => {}
    }
    words
}

/// Mark and length of the fence that a line opens.
fn opened_fence(words: &str) -> Option<(char, usize)> {
    let mark = words.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
    let info = words.trim_start_matches(mark);
    let length = words.len() - info.len();
    // Backticks that are closed in the line are code inside it.
    (length >= FENCE_MIN && !(mark == '`' && info.contains('`'))).then_some((mark, length))
}

fn closes_fence(line: &str, mark: char, length: usize) -> bool {
    let line = line.trim();
    line.len() >= length && line.chars().all(|letter| letter == mark)
}

/// Removes the marks of quotes. A number after one is compared, not quoted.
fn without_quote_marks(line: &str) -> &str {
    let mut rest = line;
    while let Some(quoted) = rest.trim_start().strip_prefix('>') {
        let quoted = quoted.trim_start();
        if quoted.starts_with(|letter: char| letter == '=' || letter.is_ascii_digit()) {
            break;
        }
        rest = quoted;
    }
    rest
}

/// True for a line such as `---`, `* * *` or `===`.
fn is_rule(words: &str) -> bool {
    let mut marks = words.chars().filter(|letter| !letter.is_whitespace());
    let Some(first) = marks.next().filter(|mark| "-*_=".contains(*mark)) else { return false };
    let count = 1 + marks.clone().count();
    count >= FENCE_MIN && marks.all(|mark| mark == first)
}

/// The words of a heading with `#`. A number after a single one is not a heading.
fn heading(words: &str, is_alone: bool) -> Option<&str> {
    let rest = words.trim_start_matches('#');
    let level = words.len() - rest.len();
    let title = rest.strip_prefix([' ', '\t']).filter(|_| (1..=6).contains(&level))?.trim();
    let title = match title.trim_end_matches('#') {
        trimmed if trimmed.len() < title.len() && trimmed.ends_with(' ') => trimmed.trim_end(),
        _ => title,
    };
    let is_number = level == 1
        && title.starts_with(|letter: char| letter.is_ascii_digit())
        && (is_alone || !title.contains(char::is_alphabetic));
    (!title.is_empty() && !is_number).then_some(title)
}

/// The words of a list's item, with its number.
fn item(words: &str) -> Option<(Option<&str>, &str)> {
    let has_space = |rest: &&str| rest.starts_with([' ', '\t']);
    if let Some(rest) = words.strip_prefix(['-', '*', '+', '•']).filter(has_space) {
        return Some((None, rest.trim_start()));
    }
    let digits = words.len() - words.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let rest = words[digits..].strip_prefix(['.', ')']).filter(has_space)?;
    (1..=3).contains(&digits).then(|| (Some(&words[..digits]), rest.trim_start()))
}

/// Removes the box of a task.
fn without_box(item: &str) -> &str {
    ["[ ] ", "[x] ", "[X] "].iter().find_map(|mark| item.strip_prefix(mark)).unwrap_or(item)
}

/// True for the line below a table's head, such as `|---|:-:|`.
fn is_table_separator(line: &str) -> bool {
    let line = without_quote_marks(line).trim();
    let is_rule = |cell: &str| {
        let dashes = cell.trim().trim_matches(':');
        !dashes.is_empty() && dashes.chars().all(|letter| letter == '-')
    };
    line.contains('|') && line.trim_matches('|').split('|').all(is_rule)
}

/// True for a row between bars.
fn is_row(words: &str) -> bool {
    words.len() > 2 && words.starts_with('|') && words.ends_with('|')
}

/// The cells of a row, as a list.
fn spoken_row(words: &str) -> String {
    let escaped = words.replace("\\|", "\u{1}");
    let cells = escaped.split('|').map(|cell| spoken_words(&cell.replace('\u{1}', "|")).trim().to_owned());
    with_stop(cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", "))
}

/// True for the address of a link that is named elsewhere, such as `[1]: https://example.com`.
fn is_link_definition(words: &str) -> bool {
    let label = words.strip_prefix('[').filter(|rest| !rest.starts_with('^'));
    let Some((_, address)) = label.and_then(|rest| rest.split_once("]:")) else { return false };
    let address = address.trim_start().trim_start_matches('<');
    starts_as_url(address) || address.starts_with(['/', '#']) && address.len() > 1
}

/// Removes the label of a footnote's text.
fn without_footnote_label(line: &str) -> &str {
    let label = line.trim_start().strip_prefix("[^").and_then(|rest| rest.split_once("]:"));
    label.filter(|(label, _)| !label.contains(char::is_whitespace)).map_or(line, |(_, text)| text)
}
