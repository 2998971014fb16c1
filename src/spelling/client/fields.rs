//! Compiles the fields of a message.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{ValueRule, values::find_remembered};
use crate::spelling::{
    check::{Document, FileError},
    extract::Extractor,
    field::{FieldFile, ProtocolField},
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
        let pointer = file.at.clone().unwrap_or_else(|| format!("/{name}"));
        let slot = match file.items {
            Some(_) => extractor.add_raw(&pointer),
            None => extractor.add(&pointer),
        };
        let items = file.items.as_ref().map(|items| items.compile(extractor.takes_snake_case()));
        let mut unknown = Vec::new();
        let mut find = |value: &Option<String>| {
            let found = find_remembered(values, value.as_ref()?);
            found.map_err(|problem| unknown.push(problem)).ok()
        };
        let (remember, same_as) = (find(&file.remember), find(&file.same_as));
        let field = ProtocolField { name, slot, remember, same_as, items: items.unwrap_or_default(), file };
        let is_pointer = field.name.starts_with('/').then(|| pointer_as_name(&field));
        let found = unknown.into_iter().chain(is_pointer).chain(field.validate(in_query));
        problems.extend(found.map(|problem| document.problem(at, problem)));
        field
    });
    let fields = compiled.collect();
    FileError::combine(problems).map(|()| fields)
}

/// The error for a field whose name is a JSON pointer: it would look for a member of that name.
fn pointer_as_name(field: &ProtocolField) -> String {
    let pointer = &field.name;
    let last = pointer.rsplit('/').find(|part| !part.is_empty() && part.parse::<usize>().is_err());
    let name = last.unwrap_or("value");
    format!("a field's name has no `/` in front: write `{name} = {{ at = \"{pointer}\", … }}`")
}
