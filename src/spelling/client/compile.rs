//! Compiles the parts of a client file whose mistakes are reported by position: commands, fields, names in headers.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{
    EachElement, MCP_COMMAND, PathPattern, ProtocolCommand, ValueRule, ValueScope, Verb,
    fields::compile_fields,
    file::CommandFile,
    values::{compile_reply, find_remembered},
};
use crate::{
    spelling::{
        check::{Document, FileError},
        extract::Extractor,
        field::{FieldRole, ProtocolField},
    },
    suggestion::suggest_known,
    vocabulary::Slot,
};

/// Reports a place in messages that one command reads as a list with `items`, whose value is taken as it stands, and another
/// one in another way.
pub(super) fn check_lists(commands: &[ProtocolCommand], document: &Document<'_>) -> Vec<FileError> {
    let fields =
        || commands.iter().flat_map(|command| command.fields.iter().map(move |field| (&command.name, field)));
    let has_items = |field: &ProtocolField| field.file.items.is_some();
    let mixed = fields().filter(|(_, field)| {
        let other = |(_, other): (_, &ProtocolField)| other.slot == field.slot && !has_items(other);
        has_items(field) && fields().any(other)
    });
    let problem = |(command, field): (&String, &ProtocolField)| {
        let message =
            format!("field `{}` has `items`, and another field with the same pointer has none", field.name);
        document.problem_at_key(&["commands", command, "fields", &field.name], message)
    };
    mixed.map(problem).collect()
}

/// Finds the values of the headers in the answer to a handshake. Only a value of the whole session is known by then.
pub(super) fn compile_answer_headers(
    headers: BTreeMap<Spanned<String>, String>,
    values: &[ValueRule],
    document: &Document<'_>,
) -> Result<Vec<(String, usize)>, FileError> {
    let is_known = |rule: &&ValueRule| rule.source.scope() == Some(ValueScope::Session);
    let mut problems = Vec::new();
    let mut compiled = Vec::new();
    for (name, value) in headers {
        let at = values.iter().position(|rule| rule.name == value && is_known(&rule));
        let is_name = is_token(name.get_ref());
        let message = match at.filter(|_| is_name) {
            Some(at) => {
                compiled.push((name.get_ref().to_ascii_lowercase(), at));
                continue;
            }
            None if !is_name => "a header is letters, digits and `-` or `_`".to_owned(),
            None => {
                let known = || values.iter().filter(is_known).map(|rule| rule.name.as_str());
                let known = suggest_known(&value, known);
                format!("[values] generates or counts no `{value}` per session{known}")
            }
        };
        problems.push(document.problem(name.span().start, message));
    }
    FileError::combine(problems).map(|()| compiled)
}

/// Finds the flag that says that a client has tools of its own. Their messages are the command [`MCP_COMMAND`].
pub(super) fn compile_device_tools(
    flag: Option<Spanned<String>>,
    values: &[ValueRule],
    commands: &BTreeMap<Spanned<String>, CommandFile>,
    document: &Document<'_>,
) -> Result<Option<usize>, FileError> {
    let Some(flag) = flag else { return Ok(None) };
    let found = match commands.contains_key(MCP_COMMAND) {
        true => find_remembered(values, flag.get_ref()),
        false => Err(format!("needs a table [commands.{MCP_COMMAND}]")),
    };
    found.map(Some).map_err(|problem| document.problem(flag.span().start, problem))
}

/// Compiles the protocol's words in slots.
pub(super) fn compile_slot_words(
    words: BTreeMap<Spanned<String>, BTreeMap<String, String>>,
    document: &Document<'_>,
) -> Result<BTreeMap<Slot, BTreeMap<String, String>>, FileError> {
    let mut problems = Vec::new();
    let mut compiled = BTreeMap::new();
    for (name, words) in words {
        match Slot::ALL.into_iter().find(|slot| slot.name() == name.get_ref()) {
            Some(slot) => drop(compiled.insert(slot, words)),
            None => {
                let known = || Slot::ALL.iter().map(|slot| slot.name());
                let known = suggest_known(name.get_ref(), known);
                let message = format!("no event has a slot `{}`{known}", name.get_ref());
                problems.push(document.problem(name.span().start, message));
            }
        }
    }
    FileError::combine(problems).map(|()| compiled)
}

/// Compiles the paths that have parameters.
pub(super) fn compile_patterns(
    paths: &[String],
    document: &Document<'_>,
) -> Result<Vec<PathPattern>, FileError> {
    let compiled = paths.iter().filter_map(|path| PathPattern::compile(path).transpose());
    compiled.map(|pattern| pattern.map_err(|problem| document.problem_at_key(&["paths"], problem))).collect()
}

/// Checks that the names are tokens of HTTP headers (RFC 9110 §5.6.2).
pub(super) fn compile_subprotocols(
    names: Vec<Spanned<String>>,
    document: &Document<'_>,
) -> Result<Vec<String>, FileError> {
    let checked = names.into_iter().map(|name| {
        let at = name.span().start;
        Some(name.into_inner()).filter(|name| is_token(name)).ok_or_else(|| {
            document
                .problem(at, "a subprotocol is letters, digits and `-` or `_`, without a space or a comma")
        })
    });
    checked.collect()
}

/// Checks the names of headers with keys, and puts them into lower case.
pub(super) fn compile_key_headers(
    names: Vec<Spanned<String>>,
    document: &Document<'_>,
) -> Result<Vec<String>, FileError> {
    let checked = names.into_iter().map(|name| {
        let at = name.span().start;
        let name = name.into_inner().to_ascii_lowercase();
        let is_header = is_token(&name) && name != "authorization";
        is_header.then_some(name).ok_or_else(|| {
            let message =
                "a header is letters, digits and `-` or `_`; `Authorization` counts in every protocol";
            document.problem(at, message)
        })
    });
    checked.collect()
}

/// True for a token of HTTP headers (RFC 9110 §5.6.2).
fn is_token(name: &str) -> bool {
    let is_allowed = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    !name.is_empty() && name.bytes().all(is_allowed)
}

impl CommandFile {
    pub(super) fn compile(
        self,
        name: Spanned<String>,
        command_key: &str,
        extractor: &mut Extractor,
        values: &[ValueRule],
        document: &Document<'_>,
    ) -> Result<ProtocolCommand, FileError> {
        let at = name.span().start;
        let name = name.into_inner();
        if self.present.is_none() && self.exactly.is_none() && command_key.is_empty() {
            let message =
                format!("command `{name}` needs `present` or `exactly`, as there is no `command_key`");
            return Err(document.problem(at, message));
        }
        if let Some(message) =
            self.exactly.as_ref().filter(|_| self.present.is_some() || !self.fields.is_empty())
        {
            let problem = "a command that is one exact message has no fields, and no `present`";
            return Err(document.problem(message.span().start, problem));
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
        let has = |role| slot_of(role).is_some();
        let has_words = has(FieldRole::Text) || has(FieldRole::Messages);
        let has_results = has(FieldRole::ToolResults) || (has(FieldRole::CallId) && has(FieldRole::Output));
        for (verb, role, has_field) in [
            (Verb::Audio, "audio", audio.is_some()),
            (Verb::Played, "turn", slot_of(FieldRole::Turn).is_some()),
            (Verb::Speak, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::AppendText, "text", slot_of(FieldRole::Text).is_some()),
            (Verb::Ask, "text", has_words),
            (Verb::Tell, "text", has_words),
            (Verb::ToolResult, "tool_results", has_results),
            (Verb::Frame, "image", slot_of(FieldRole::Image).is_some()),
        ] {
            if verbs.iter().any(|rule| rule.verb == verb) && !has_field {
                let message = format!("command `{name}` needs a field with `to = \"{role}\"`");
                return Err(document.problem(verb_at, message));
            }
        }
        let has_own_rate = audio.is_some() && has(FieldRole::InputRateHz);
        let exactly = self.exactly.map(Spanned::into_inner);
        let each = self
            .each
            .map(|list| EachElement { second: extractor.add(&format!("{}/1", list.0)), list: list.0 });
        let reply = self.reply.map_or(Ok(Vec::new()), |reply| compile_reply(&reply, values, document))?;
        Ok(ProtocolCommand { name, verbs, present, exactly, each, audio, has_own_rate, fields, reply })
    }
}
