//! Texts without quotes. The TOML reader calls them invalid numbers.

use std::ops::Range;

use toml::de::DeTable;

use super::FileError;

/// A text without quotes: its key, and its bytes in the document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnquotedText<'s> {
    pub(super) key: &'s str,
    pub(super) range: Range<usize>,
}

/// Puts texts without quotes into quotes. Returns the errors of the syntax, and the text without those that it could mend.
pub fn quote_texts(file: &str, mut source: String) -> (Vec<FileError>, String) {
    let mut errors = Vec::new();
    while let Err(error) = DeTable::parse(&source) {
        errors.push(FileError::from_toml(file, &source, &error));
        let at = error.span().map_or(0, |span| span.start);
        let Some(UnquotedText { range, .. }) = UnquotedText::at(&source, at) else { break };
        let quoted = format!("{:?}", &source[range.clone()]);
        source.replace_range(range, &quoted);
    }
    (errors, source)
}

impl<'s> UnquotedText<'s> {
    /// Finds the text in the line at this offset.
    pub(super) fn at(source: &'s str, offset: usize) -> Option<Self> {
        let offset = source.floor_char_boundary(offset);
        let start = source[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let line = source[start..].lines().next()?;
        let (key, rest) = line.split_once('=')?;
        let value = rest.split(" #").next()?.trim();
        // A number that is too large is no text.
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || b"+-_".contains(&byte));
        let is_text = !is_number && !value.starts_with(['"', '\'', '[', '{']);
        let reads = |value: &str| toml::from_str::<toml::Table>(&format!("key = {value}")).is_ok();
        if key.trim_start().starts_with('[') || !is_text || reads(value) || !reads(&format!("\"{value}\"")) {
            return None;
        }
        let from = start + line.find('=')? + 1 + (rest.len() - rest.trim_start().len());
        Some(Self { key: key.trim(), range: from..from + value.len() })
    }

    /// The advice: what to write instead.
    pub(super) fn advice(&self, source: &str) -> String {
        format!("a text needs quotes: write {} = \"{}\"", self.key, &source[self.range.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_without_quotes_are_found() {
        let number = "a = 18446744073709551615\n";
        assert!(UnquotedText::at(number, 4).is_none(), "a number that is too large");
        let source = "a = 1\n listen = 0.0.0.0:8000 # all\nb = 2\n";
        let found = UnquotedText::at(source, source.find("0.0").unwrap()).unwrap();
        assert_eq!((found.key, &source[found.range.clone()]), ("listen", "0.0.0.0:8000"));
        assert_eq!(found.advice(source), "a text needs quotes: write listen = \"0.0.0.0:8000\"");
        for line in ["a = 1", "a = \"x\"", "a = ", "[a = x", "a = [0.0.0.0]", "a = x\"y", "nothing", ""] {
            assert_eq!(UnquotedText::at(line, 0), None, "{line}");
        }
    }
}
