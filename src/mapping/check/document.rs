//! A parsed TOML file. Its keys and values have their positions in the file.

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

use super::FileError;

/// A parsed file.
#[derive(Clone)]
pub struct Document<'s> {
    /// Path of the file.
    pub file: &'s str,
    /// Text of the file.
    pub source: &'s str,
    pub(in crate::mapping) table: Spanned<DeTable<'s>>,
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

    /// Reads the values.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        T::deserialize(Deserializer::from(self.table.clone()))
            .map_err(|error| FileError::from_toml(self.file, self.source, &error))
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
