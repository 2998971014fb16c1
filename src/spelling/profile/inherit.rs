//! Profiles that extend another one: keys that the file leaves out come from the extended profile, in every table.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::spelling::check::{Document, FileError};

/// Keys that describe the file itself.
pub(super) const OWN_KEYS: [&str; 5] = ["kind", "name", "title", "notes", "extends"];

/// Reads a file together with what it inherits from `base`, the document of the extended profile. Returns it with its
/// own document. Errors have the position in `source`.
pub(super) fn parse_extended<T: DeserializeOwned>(
    document: &Document<'_>,
    base: Option<&str>,
    is_inherited: impl Fn(&str) -> bool,
) -> Result<(T, Arc<str>), FileError> {
    let mut document = document.clone();
    if let Some(base) = base {
        let base = Document::parse(document.file, base)?.table.into_inner();
        let inherited = base
            .into_iter()
            .filter(|(key, _)| !OWN_KEYS.contains(&&**key.get_ref()) && is_inherited(key.get_ref()));
        inherit(document.table.get_mut(), inherited.collect());
    }
    let table: toml::Table = document.read()?;
    let text =
        toml::to_string(&table).map_err(|error| FileError::for_file(document.file, error.to_string()))?;
    Ok((document.read()?, text.into()))
}

/// Adds the entries of `base` that `own` lacks.
fn inherit<'d>(own: &mut DeTable<'d>, base: DeTable<'d>) {
    for (key, value) in base {
        let Some(known) = own.get_mut(&**key.get_ref()) else {
            own.insert(key, value);
            continue;
        };
        if let (DeValue::Table(known), DeValue::Table(base)) = (known.get_mut(), value.into_inner()) {
            inherit(known, base);
        }
    }
}
