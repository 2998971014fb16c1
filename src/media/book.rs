//! Chapters and paragraphs of a text that is read aloud.

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

/// Divides a text into chapters. A chapter begins with a Markdown heading, or with a short paragraph such as `Chapter 1`. Text
/// before the first heading is a chapter called `name`.
pub fn chapters_of(text: &str, name: &str) -> Vec<TextChapter> {
    let mut chapters: Vec<TextChapter> = Vec::new();
    // A line of asterisks is nothing to say.
    let has_words = |paragraph: &String| paragraph.chars().any(char::is_alphanumeric);
    for paragraph in paragraphs_of(text).into_iter().filter(has_words) {
        let heading = heading_of(&paragraph);
        if heading.is_some() || chapters.is_empty() {
            let title = heading.unwrap_or(name).to_owned();
            chapters.push(TextChapter { title, paragraphs: Vec::new() });
        }
        if let Some(chapter) = chapters.last_mut() {
            chapter.paragraphs.push(heading.map_or(paragraph.clone(), str::to_owned));
        }
    }
    chapters
}

/// Paragraphs are separated by empty lines. A Markdown heading is one, whatever follows it.
fn paragraphs_of(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let is_heading = markdown_heading(line).is_some();
        match paragraphs.last_mut().filter(|_| continues && !is_heading) {
            Some(paragraph) if !line.trim().is_empty() => *paragraph += &format!("\n{line}"),
            _ if !line.trim().is_empty() => paragraphs.push(line.to_owned()),
            _ => {}
        }
        continues = !line.trim().is_empty() && !is_heading;
    }
    paragraphs
}

fn heading_of(paragraph: &str) -> Option<&str> {
    let is_marked_by_word = || {
        let first = paragraph.split_whitespace().next().unwrap_or_default().to_lowercase();
        let is_short = paragraph.chars().count() <= HEADING_MAX_CHARS && !paragraph.contains('\n');
        is_short
            && !paragraph.trim_end().ends_with([',', ';'])
            && HEADING_WORDS.contains(&first.trim_end_matches(':'))
    };
    markdown_heading(paragraph).or_else(|| is_marked_by_word().then(|| paragraph.trim()))
}

fn markdown_heading(line: &str) -> Option<&str> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    Some(title.trim().trim_end_matches('#').trim_end()).filter(|title| !title.is_empty())
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
            (title.to_owned(), paragraphs.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
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
    }
}
