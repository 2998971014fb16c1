//! Compiles the parts of a client file whose mistakes are reported by position: commands, fields, names in headers.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{
    ProtocolCommand, ValueRule, Verb,
    file::CommandFile,
    values::{compile_reply, find_remembered},
};
use crate::mapping::{
    check::{Document, FileError},
    extract::Extractor,
    field::{FieldFile, FieldRole, ProtocolField},
};

pub(super) fn compile_fields(
    files: BTreeMap<Spanned<String>, FieldFile>,
    extractor: &mut Extractor,
    values: &[ValueRule],
    in_query: bool,
    document: &Document<'_>,
) -> Result<Vec<ProtocolField>, FileError> {
    let mut problems = Vec::new();
    let compiled = files.into_iter().map(|(name, file)| {
        let at = name.span().start;
        let name = name.into_inner();
        let slot = extractor.add(&file.at.clone().unwrap_or_else(|| format!("/{name}")));
        let remembered = file.remember.as_ref().map(|value| find_remembered(values, value));
        let (remember, unknown) = match remembered {
            Some(Ok(value)) => (Some(value), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let field = ProtocolField { name, slot, remember, file };
        let found = unknown.into_iter().chain(field.validate(in_query));
        problems.extend(found.map(|problem| document.problem(at, problem)));
        field
    });
    let fields = compiled.collect();
    FileError::combine(problems).map(|()| fields)
}

/// Checks that the names are tokens of HTTP headers (RFC 9110 §5.6.2).
pub(super) fn compile_subprotocols(
    names: Vec<Spanned<String>>,
    document: &Document<'_>,
) -> Result<Vec<String>, FileError> {
    let token = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    let checked = names.into_iter().map(|name| {
        let at = name.span().start;
        Some(name.into_inner()).filter(|name| !name.is_empty() && name.bytes().all(token)).ok_or_else(|| {
            document
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
        (extractor, values): (&mut Extractor, &[ValueRule]),
        document: &Document<'_>,
    ) -> Result<ProtocolCommand, FileError> {
        let at = name.span().start;
        let name = name.into_inner();
        if self.present.is_none() && self.empty.is_none() && command_key.is_empty() {
            let message =
                format!("command `{name}` needs `present` or `empty`, as there is no `command_key`");
            return Err(document.problem(at, message));
        }
        if let Some(pointer) = self.present.as_ref().filter(|pointer| !pointer.get_ref().starts_with('/')) {
            let message = "`present` is a JSON pointer, which begins with `/`";
            return Err(document.problem(pointer.span().start, message));
        }
        let verb_at = self.verb.span().start;
        let verbs = self.verb.into_inner();
        if verbs.is_empty() {
            return Err(document.problem(verb_at, "a command needs a verb; `keep_alive` changes least"));
        }
        let verbs = verbs.compile(extractor, values).map_err(|problem| document.problem(verb_at, problem))?;
        let present = self.present.map(|pointer| extractor.add(pointer.get_ref()));
        let fields = compile_fields(self.fields, extractor, values, false, document)?;
        let slot_of = |role| fields.iter().find(|field| field.file.to == Some(role)).map(|field| field.slot);
        let audio = slot_of(FieldRole::Audio);
        for (verb, role, has_field) in [
            (Verb::Audio, "audio", audio.is_some()),
            (Verb::Played, "turn", slot_of(FieldRole::Turn).is_some()),
            (Verb::Speak, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::AppendText, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::StreamText, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::Ask, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::Tell, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::Frame, "image", slot_of(FieldRole::Image).is_some()),
        ] {
            if verbs.iter().any(|it| it.verb == verb) && !has_field {
                let message = format!("command `{name}` needs a field with `to = \"{role}\"`");
                return Err(document.problem(verb_at, message));
            }
        }
        let reply = self.reply.map_or(Ok(Vec::new()), |reply| compile_reply(&reply, values, document))?;
        Ok(ProtocolCommand { name, verbs, present, empty: self.empty, audio, fields, reply })
    }
}
