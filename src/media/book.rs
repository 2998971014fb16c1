//! Chapters and paragraphs of a text that is read aloud.

use crate::markdown::{self, Line, LineKind};

/// A chapter of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextChapter {
    /// Its heading, or the name of the text.
    pub title: String,
    /// Its paragraphs, with the heading as the first.
    pub paragraphs: Vec<String>,
}

/// Words that begin a heading, where it is a paragraph of its own.
const HEADING_WORDS: [&str; 6] = ["chapter", "kapitel", "chapitre", "capítulo", "capitolo", "hoofdstuk"];

/// Longest heading without a mark, characters.
const HEADING_MAX_CHARS: usize = 60;

/// A paragraph, without the marks of Markdown.
struct Paragraph {
    words: String,
    is_heading: bool,
}

/// Divides a text into chapters. A chapter begins with a Markdown heading, or with a short paragraph such as `Chapter 1`. Text
/// before the first heading is a chapter called `name`.
pub fn chapters_of(text: &str, name: &str) -> Vec<TextChapter> {
    let mut chapters: Vec<TextChapter> = Vec::new();
    // A line of asterisks is nothing to say.
    let has_words = |paragraph: &Paragraph| paragraph.words.chars().any(char::is_alphanumeric);
    for Paragraph { words, is_heading } in paragraphs_of(text).into_iter().filter(has_words) {
        let is_heading = is_heading || begins_as_heading(&words);
        let words = if is_heading { words.trim().to_owned() } else { words };
        if is_heading || chapters.is_empty() {
            let title = if is_heading { words.clone() } else { name.to_owned() };
            chapters.push(TextChapter { title, paragraphs: Vec::new() });
        }
        if let Some(chapter) = chapters.last_mut() {
            chapter.paragraphs.push(words);
        }
    }
    chapters
}

/// Paragraphs are separated by empty lines. A Markdown heading is one, whatever follows it.
fn paragraphs_of(text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut continues = false;
    for Line { kind, words } in markdown::lines(text) {
        let is_heading = kind == LineKind::Heading;
        match paragraphs.last_mut().filter(|_| continues && kind == LineKind::Text) {
            Some(paragraph) => paragraph.words += &format!("\n{words}"),
            None if kind == LineKind::Blank => {}
            None => paragraphs.push(Paragraph { words, is_heading }),
        }
        continues = kind == LineKind::Text;
    }
    paragraphs
}

/// True for a short paragraph that begins with a word such as `Chapter`.
fn begins_as_heading(paragraph: &str) -> bool {
    let first = paragraph.split_whitespace().next().unwrap_or_default().to_lowercase();
    let is_short = paragraph.chars().count() <= HEADING_MAX_CHARS && !paragraph.contains('\n');
    is_short
        && !paragraph.trim_end().ends_with([',', ';'])
        && HEADING_WORDS.contains(&first.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chapters(text: &str) -> Vec<(String, Vec<String>)> {
        chapters_of(text, "book").into_iter().map(|chapter| (chapter.title, chapter.paragraphs)).collect()
    }

    #[test]
    fn headings_begin_chapters_and_empty_lines_paragraphs() {
        let text = "By nobody.\n\n# One\nIt began.\nIt went on.\n\n* * *\n  \nIt ended.\n## Two ##\n\nChapter 3: Three\n\nChapter 4, of \
            which nothing is known,\nis a paragraph.\n";
        let owned = |title: &str, paragraphs: &[&str]| {
            (title.to_owned(), paragraphs.iter().map(|paragraph| (*paragraph).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            chapters(text),
            [
                owned("book", &["By nobody."]),
                owned("One", &["One", "It began.\nIt went on.", "It ended."]),
                owned("Two", &["Two"]),
                owned(
                    "Chapter 3: Three",
                    &["Chapter 3: Three", "Chapter 4, of which nothing is known,\nis a paragraph."]
                ),
            ]
        );
        assert_eq!(chapters(" \n\n"), []);
        assert_eq!(chapters("#no heading"), [owned("book", &["#no heading"])]);
        let marked =
            "Big **Title**\n=====\n\n- one\n- [two](http://e.com)\n\n```sh\n# no heading\n\nls\n```\n";
        assert_eq!(
            chapters(marked),
            [owned("Big Title", &["Big Title", "one.\ntwo.", "# no heading", "ls"])]
        );
    }
}
