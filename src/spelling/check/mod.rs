//! Errors in TOML files, with file, line, column and the nearest valid spelling.

pub mod all_errors;
mod document;
mod plain_message;
mod renamed_keys;
mod unquoted;
pub(super) mod values;

use std::{fmt, path::Path, time::Duration};

use serde::{Deserialize as _, Deserializer, de::Error as _};

pub use self::{document::Document, unquoted::quote_texts};

/// One error in a TOML file, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// Path of the file.
    pub file: String,
    /// Line, counted from 1; 0 for an error without a position.
    pub line: usize,
    /// Column, counted from 1, in characters.
    pub column: usize,
    /// Description, with the nearest valid spelling if there is one.
    pub message: String,
    /// Further errors.
    pub others: Vec<Self>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message)?,
        }
        self.others.iter().try_for_each(|other| write!(f, "\n{other}"))
    }
}

impl std::error::Error for FileError {}

impl FileError {
    /// An error at a byte offset in `source`.
    #[must_use]
    pub fn at_offset(file: &str, source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = &source[..source.floor_char_boundary(offset)];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            message: message.into(),
            others: Vec::new(),
        }
    }

    /// Combines errors into one; `Ok` if there are none.
    ///
    /// # Errors
    /// The first error, with the others attached.
    pub fn combine(problems: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut problems = problems.into_iter();
        let Some(mut first) = problems.next() else { return Ok(()) };
        first.others.extend(problems);
        Err(first)
    }

    /// This error and its attached ones as a flat list.
    #[must_use]
    pub fn flatten(mut self) -> Vec<Self> {
        let others = std::mem::take(&mut self.others);
        [self].into_iter().chain(others.into_iter().flat_map(Self::flatten)).collect()
    }

    /// Byte offset of the error in `source`.
    fn offset(&self, source: &str) -> usize {
        let before =
            source.split_inclusive('\n').take(self.line.saturating_sub(1)).map(str::len).sum::<usize>();
        let line = source.get(before..).unwrap_or_default();
        before + line.chars().take(self.column.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
    }

    /// An error of the file as a whole.
    #[must_use]
    pub fn for_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, message: message.into(), others: Vec::new() }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The system's error, or the position of the first byte that is no UTF-8.
    pub fn read_text(file: &str, path: &Path) -> Result<String, Self> {
        let bytes = std::fs::read(path).map_err(|error| Self::for_file(file, error.to_string()))?;
        String::from_utf8(bytes).map_err(|error| {
            let (valid, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let valid = String::from_utf8_lossy(valid);
            Self::at_offset(file, &valid, valid.len(), "this byte is no UTF-8; save the file as UTF-8")
        })
    }

    /// Converts an error of the TOML reader, adding the nearest valid key.
    #[must_use]
    pub fn from_toml(file: &str, source: &str, error: &toml::de::Error) -> Self {
        let message = plain_message::plain_message(error.message());
        // Only errors of the syntax; a key file must not show its values otherwise.
        let is_syntax = message == error.message() && !message.starts_with("duplicate key");
        match error.span() {
            Some(span) if is_syntax => {
                let unquoted = unquoted::UnquotedText::at(source, span.start);
                let offset = unquoted.as_ref().map_or(span.start, |text| text.range.start);
                let message = unquoted.map_or(message, |text| text.advice(source));
                Self::at_offset(file, source, offset, message)
            }
            Some(span) => Self::at_offset(file, source, span.start, message),
            None => Self::for_file(file, message),
        }
    }
}

/// Parses a TOML document.
///
/// # Errors
/// The first error, with its position.
pub fn parse_toml<T: serde::de::DeserializeOwned>(file: &str, source: &str) -> Result<T, FileError> {
    toml::from_str(source).map_err(|error| FileError::from_toml(file, source, &error))
}

/// Collects the values that compiled, by name, and pushes the errors of the others to `problems`.
pub(super) fn collect_compiled<K: Ord, T>(
    read: impl Iterator<Item = (K, Result<T, FileError>)>,
    problems: &mut Vec<FileError>,
) -> std::collections::BTreeMap<K, T> {
    let mut taken = |(key, read): (K, Result<T, FileError>)| {
        let read = read.map_err(|problem| problems.push(problem)).ok()?;
        Some((key, read))
    };
    read.filter_map(&mut taken).collect()
}

/// Longest time in any file: one day. That exceeds any session, and adding it to a clock cannot overflow.
pub(crate) const MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// Reads a time in milliseconds, for `deserialize_with`.
pub(super) fn deserialize_ms<'de, D: Deserializer<'de>, N: TryFrom<u64>>(from: D) -> Result<N, D::Error> {
    let ms = u64::deserialize(from)?;
    let bounded = N::try_from(ms).ok().filter(|_| ms <= MAX_MS);
    bounded.ok_or_else(|| D::Error::custom(format!("{ms} ms is too long; the maximum is {MAX_MS} (one day)")))
}

/// Reads a time in milliseconds as a duration, for `deserialize_with`.
pub(super) fn deserialize_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    deserialize_ms(from).map(Duration::from_millis)
}

/// Reads a number of attempts, at least one, for `deserialize_with`.
pub(super) fn deserialize_attempts<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    u32::deserialize(from).map(|attempts| attempts.max(1))
}

/// Reads a number from 0 to 1, for `deserialize_with`.
pub(super) fn deserialize_fraction<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    let number = f32::deserialize(from)?;
    let share = Some(number).filter(|number| (0.0..=1.0).contains(number));
    share.ok_or_else(|| D::Error::custom(format!("{number} must be from 0 to 1")))
}

/// Reads a finite level in dB, for `deserialize_with`.
pub(super) fn deserialize_level<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    let number = f32::deserialize(from)?;
    let level = Some(number).filter(|number| number.is_finite());
    level.ok_or_else(|| D::Error::custom(format!("{number} must be a finite level in dB")))
}

/// Reads a rate of 0 or more, for `deserialize_with`.
pub(super) fn deserialize_rate<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    let rate = Some(number).filter(|number| number.is_finite() && *number >= 0.0);
    rate.ok_or_else(|| D::Error::custom(format!("{number} must be 0 or more; 0 means never")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code, reason = "only the field's name matters")]
        listen: Option<String>,
    }

    #[test]
    fn unknown_key_is_reported_with_position_and_hint() {
        let problem = parse_toml::<Sample>("x.toml", "\nlisten = \"a\"\n  lisen = \"b\"\n").unwrap_err();
        assert_eq!((problem.line, problem.column), (3, 3));
        assert!(problem.to_string().starts_with("x.toml:3:3: unknown key `lisen`"), "{problem}");
        assert!(problem.message.ends_with("did you mean `listen`?"), "{problem}");
    }

    #[test]
    fn byte_that_is_no_utf8_is_reported_with_its_position() {
        let path = std::env::temp_dir().join(format!("voxbridge-utf8-{}.toml", std::process::id()));
        for (bytes, line, column) in [(&b"# a\n# \xc3\xa4\xe4\n"[..], 2, 4), (b"\xff\xfea\0", 1, 1)] {
            std::fs::write(&path, bytes).unwrap();
            let problem = FileError::read_text("x.toml", &path).unwrap_err();
            assert_eq!((problem.line, problem.column), (line, column), "{problem}");
            assert!(problem.message.contains("save the file as UTF-8"), "{problem}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn out_of_range_numbers_are_rejected_with_their_position() {
        let profile = include_str!("../../../mappings/profile/speech.toml");
        let client = include_str!("../../../mappings/client/macaw.toml");
        let upstream = include_str!("../../../mappings/upstream/minicpm-o.toml");
        for (source, key, value) in [
            (profile, "pre_roll_ms", "86400001"),
            (profile, "stall_ms", "4294967295"),
            (profile, "speech_end_wait_ms", "9223372036854775807"),
            (profile, "backlog_max_ms", "9223372036854775807"),
            (profile, "retry_total_ms", "9223372036854775807"),
            (profile, "answer_max_ms", "86400001"),
            (client, "idle_ms", "9223372036854775807"),
            (client, "max_ahead_ms", "86400001"),
            (client, "rate_limit", "inf"),
            (client, "rate_limit", "-0.5"),
            (upstream, "audio_max_ms", "9223372036854775807"),
        ] {
            let at = source.lines().position(|line| line.starts_with(key)).unwrap();
            let lines = source.lines().enumerate();
            let lines =
                lines.map(|(line, text)| if line == at { format!("{key} = {value}") } else { text.into() });
            let source = lines.collect::<Vec<String>>().join("\n");
            let problem = crate::spelling::Library::default().add("f", &source).unwrap_err();
            assert_eq!((problem.line, problem.column), (at + 1, key.len() + 4), "{problem}");
        }
        for (old, new) in [("threshold = 0.55", "threshold = nan"), ("gate_dbfs = -65", "gate_dbfs = -inf")] {
            let problem =
                crate::spelling::Library::default().add("f", &profile.replace(old, new)).unwrap_err();
            assert!(problem.line > 0, "{problem}");
        }
    }
}
