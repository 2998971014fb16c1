//! Compiles the parts of a client file whose mistakes are reported by position: commands, fields, names in headers.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{ProtocolCommand, file::CommandFile};
use crate::mapping::{
    check::FileError,
    extract::Extractor,
    field::{FieldFile, ProtocolField},
};

/// The file in which mistakes are reported.
#[derive(Clone, Copy)]
pub(super) struct SourceFile<'f> {
    pub(super) file: &'f str,
    pub(super) source: &'f str,
}

impl SourceFile<'_> {
    pub(super) fn problem(self, offset: usize, message: impl Into<String>) -> FileError {
        FileError::at_offset(self.file, self.source, offset, message)
    }
}

pub(super) fn compile_fields(
    files: BTreeMap<Spanned<String>, FieldFile>,
    extractor: &mut Extractor,
    in_query: bool,
    source_file: SourceFile<'_>,
) -> Result<Vec<ProtocolField>, FileError> {
    let mut problems = Vec::new();
    let compiled = files.into_iter().map(|(name, file)| {
        let at = name.span().start;
        let name = name.into_inner();
        let slot = extractor.add(&file.at.clone().unwrap_or_else(|| format!("/{name}")));
        let field = ProtocolField { name, slot, file };
        problems.extend(field.validate(in_query).map(|problem| source_file.problem(at, problem)));
        field
    });
    let fields = compiled.collect();
    FileError::combine(problems).map(|()| fields)
}

/// Checks that the names are tokens of HTTP headers (RFC 9110 §5.6.2).
pub(super) fn compile_subprotocols(
    names: Vec<Spanned<String>>,
    source_file: SourceFile<'_>,
) -> Result<Vec<String>, FileError> {
    let token = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    let checked = names.into_iter().map(|name| {
        let at = name.span().start;
        Some(name.into_inner()).filter(|name| !name.is_empty() && name.bytes().all(token)).ok_or_else(|| {
            source_file
                .problem(at, "a subprotocol is letters, digits and `-` or `_`, without a space or a comma")
        })
    });
    checked.collect()
}

impl CommandFile {
    pub(super) fn compile(
        self,
        name: Spanned<String>,
        command_key: &str,
        extractor: &mut Extractor,
        source_file: SourceFile<'_>,
    ) -> Result<ProtocolCommand, FileError> {
        let at = name.span().start;
        let name = name.into_inner();
        if self.present.is_none() && command_key.is_empty() {
            let message = format!("command `{name}` needs `present`, as there is no `command_key`");
            return Err(source_file.problem(at, message));
        }
        if let Some(pointer) = self.present.as_ref().filter(|pointer| !pointer.get_ref().starts_with('/')) {
            let message = "`present` is a JSON pointer, which begins with `/`";
            return Err(source_file.problem(pointer.span().start, message));
        }
        let present = self.present.map(|pointer| extractor.add(pointer.get_ref()));
        Ok(ProtocolCommand {
            name,
            verb: self.verb,
            present,
            fields: compile_fields(self.fields, extractor, false, source_file)?,
        })
    }
}
