//! The parts of a client protocol's file whose mistakes have a place: commands, fields, names in headers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::IntoDeserializer as _};
use toml::Spanned;

use super::{Command, file::CommandFile};
use crate::{
    error::ErrorKind,
    mapping::{
        check::Problem,
        extract::Shape,
        field::{Field, FieldFile},
    },
};

/// A key of `[errors]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorName {
    /// A kind.
    Kind(ErrorKind),
    /// `other`: every kind without an entry.
    Other,
}

impl<'de> Deserialize<'de> for ErrorName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == "other" {
            return Ok(Self::Other);
        }
        ErrorKind::deserialize(name.into_deserializer()).map(Self::Kind)
    }
}

/// Where mistakes are.
#[derive(Clone, Copy)]
pub(super) struct Place<'f> {
    pub(super) file: &'f str,
    pub(super) source: &'f str,
}

impl Place<'_> {
    pub(super) fn problem(self, offset: usize, message: impl Into<String>) -> Problem {
        Problem::at(self.file, self.source, offset, message)
    }
}

pub(super) fn fields(
    files: BTreeMap<Spanned<String>, FieldFile>,
    shape: &mut Shape,
    in_query: bool,
    place: Place<'_>,
) -> Result<Vec<Field>, Problem> {
    let mut problems = Vec::new();
    let compiled = files.into_iter().map(|(name, file)| {
        let at = name.span().start;
        let name = name.into_inner();
        let slot = shape.add(&file.at.clone().unwrap_or_else(|| format!("/{name}")));
        let field = Field { name, slot, file };
        problems.extend(field.mistake(in_query).map(|mistake| place.problem(at, mistake)));
        field
    });
    let fields = compiled.collect();
    Problem::of(problems).map(|()| fields)
}

/// Names that may stand in an HTTP header (RFC 9110 §5.6.2).
pub(super) fn subprotocols(names: Vec<Spanned<String>>, place: Place<'_>) -> Result<Vec<String>, Problem> {
    let token = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    let checked = names.into_iter().map(|name| {
        let at = name.span().start;
        Some(name.into_inner()).filter(|name| !name.is_empty() && name.bytes().all(token)).ok_or_else(|| {
            place.problem(at, "a subprotocol is letters, digits and `-` or `_`, without a space or a comma")
        })
    });
    checked.collect()
}

impl CommandFile {
    pub(super) fn compile(
        self,
        name: Spanned<String>,
        command_key: &str,
        shape: &mut Shape,
        place: Place<'_>,
    ) -> Result<Command, Problem> {
        let at = name.span().start;
        let name = name.into_inner();
        if self.present.is_none() && command_key.is_empty() {
            let message = format!("command `{name}` needs `present`, as there is no `command_key`");
            return Err(place.problem(at, message));
        }
        if let Some(pointer) = self.present.as_ref().filter(|pointer| !pointer.get_ref().starts_with('/')) {
            let message = "`present` is a JSON pointer, which begins with `/`";
            return Err(place.problem(pointer.span().start, message));
        }
        let present = self.present.map(|pointer| shape.add(pointer.get_ref()));
        Ok(Command { name, verb: self.verb, present, fields: fields(self.fields, shape, false, place)? })
    }
}
