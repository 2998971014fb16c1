//! A parsed TOML file. Its keys and values have their positions in the file.

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

use super::FileError;
use crate::spelling::template::Template;

/// A parsed file.
#[derive(Clone)]
pub struct Document<'s> {
    /// Path of the file.
    pub file: &'s str,
    /// Text of the file.
    pub source: &'s str,
    pub(in crate::spelling) table: Spanned<DeTable<'s>>,
}

impl<'s> Document<'s> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first error of the syntax.
    pub fn parse(file: &'s str, source: &'s str) -> Result<Self, FileError> {
        let table = DeTable::parse(source).map_err(|error| FileError::from_toml(file, source, &error))?;
        Ok(Self { file, source, table })
    }

    /// Parses the text as far as possible. Returns the remaining document and the syntax errors.
    pub fn parse_recovered(file: &'s str, source: &'s str) -> (Self, Vec<FileError>) {
        let (table, errors) = DeTable::parse_recoverable(source);
        let errors = errors.iter().map(|error| FileError::from_toml(file, source, error));
        let errors = errors.collect();
        (Self { file, source, table }, errors)
    }

    /// Reads the values.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        T::deserialize(Deserializer::from(self.table.clone()))
            .map_err(|error| FileError::from_toml(self.file, self.source, &error))
    }

    /// An error at this byte offset.
    #[must_use]
    pub fn problem(&self, offset: usize, message: impl Into<String>) -> FileError {
        FileError::at_offset(self.file, self.source, offset, message)
    }

    /// An error at a key, or at the deepest existing key along `path`.
    #[must_use]
    pub fn problem_at_key(&self, path: &[&str], message: impl Into<String>) -> FileError {
        self.problem(self.offset_of(path).unwrap_or(0), message)
    }

    /// Compiles a template of JSON.
    pub(in crate::spelling) fn template(
        &self,
        text: &Spanned<String>,
        slots: &[&str],
    ) -> Result<Template, FileError> {
        let template = Template::compile(text.get_ref(), slots);
        template.map_err(|error| self.problem(text.span().start, error.to_string()))
    }

    /// Compiles a template of plain text.
    pub(in crate::spelling) fn plain_template(
        &self,
        text: &Spanned<String>,
        slots: &[&str],
    ) -> Result<Template, FileError> {
        let template = Template::compile_plain(text.get_ref(), slots);
        template.map_err(|error| self.problem(text.span().start, error.to_string()))
    }

    /// Offset of the deepest existing key along `path`, in which the entries of a list have their index. `None` if the
    /// document has not even the first key.
    #[must_use]
    pub fn offset_of(&self, path: &[&str]) -> Option<usize> {
        let (mut table, mut offset) = (self.table.get_ref(), None);
        let mut path = path.iter();
        while let Some(key) = path.next() {
            let Some((found, mut value)) = table.get_key_value(*key) else { break };
            offset = Some(found.span().start);
            if let DeValue::Array(items) = value.get_ref() {
                let Some(item) = path.next().and_then(|at| items.get(at.parse::<usize>().ok()?)) else {
                    break;
                };
                (offset, value) = (Some(item.span().start), item);
            }
            let DeValue::Table(inner) = value.get_ref() else { break };
            table = inner;
        }
        offset
    }
}
