//! Text of a peer, made safe to print and to log: one line, without control characters, of bounded length.

use std::fmt::{self, Write};

/// Longest printed text, in characters.
const PRINTED_MAX_CHARS: usize = 300;
/// Longest id, reason or message of a peer that is kept, in bytes.
const KEPT_MAX_BYTES: usize = 1024;

/// A text in safe form: control characters are escaped as in Rust (`\n`, `\u{1b}`), and a text of more than
/// 300 characters ends in an ellipsis.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PrintableWriter::new(f, PRINTED_MAX_CHARS).write_str(self.0)
    }
}

/// Writes text in safe form.
pub(crate) struct PrintableWriter<W> {
    out: W,
    chars_left: usize,
    is_full: bool,
}

impl<W: Write> PrintableWriter<W> {
    /// A writer of at most `max_chars` characters.
    pub(crate) const fn new(out: W, max_chars: usize) -> Self {
        Self { out, chars_left: max_chars, is_full: false }
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if self.chars_left == 0 {
                let was_full = std::mem::replace(&mut self.is_full, true);
                return if was_full { Ok(()) } else { self.out.write_char('…') };
            }
            self.chars_left -= 1;
            if is_printable(letter) {
                self.out.write_char(letter)?;
            } else {
                write!(self.out, "{}", letter.escape_default())?;
            }
        }
        Ok(())
    }
}

/// False for control characters, line separators and marks that change the direction of writing.
fn is_printable(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text as the content or the quoted value of an attribute of HTML or SVG. Control characters, which XML does not have, become
/// spaces.
pub(crate) fn escape_markup(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The beginning of a peer's text, for ids and reasons that are kept: at most 1024 bytes.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEPT_MAX_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_printable_line_of_bounded_length() {
        for (text, safe) in [
            ("plain ü 日本", "plain ü 日本"),
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{1b}[31mred\u{7}", r"\u{1b}[31mred\u{7}"),
            ("\u{202e}txt.exe\u{2028}", r"\u{202e}txt.exe\u{2028}"),
        ] {
            assert_eq!(Printable(text).to_string(), safe);
        }
        let long = "é".repeat(KEPT_MAX_BYTES);
        let safe = Printable(&long).to_string();
        assert!(safe.chars().count() == PRINTED_MAX_CHARS + 1 && safe.ends_with('…'));
        assert!(shortened(&long).len() == KEPT_MAX_BYTES && shortened("short") == "short");
    }
}
