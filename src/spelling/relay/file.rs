//! Mapping file of a relay's client protocol, and its compilation.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use super::{
    super::{
        check::{Document, FileError},
        error_spelling::RelayErrorSpelling,
        extract::Extractor,
    },
    RelayCommand, RelayEndSpelling, RelayEvent, RelayModeQuery, RelayProtocol, RelayVerb,
    field::RelayFieldFile,
};
use crate::{
    error::ErrorKind,
    spelling::{
        check::values::{JsonPointer, default_family, deserialize_paths},
        tested_with::TestedClient,
    },
    vocabulary::relay::RelayEndReason,
};

/// File as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::spelling) struct RelayProtocolFile {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    pub(in crate::spelling) name: String,
    pub(in crate::spelling) title: String,
    #[serde(default = "default_family")]
    pub(in crate::spelling) family: String,
    #[serde(default)]
    pub(in crate::spelling) notes: Vec<String>,
    #[serde(deserialize_with = "deserialize_paths")]
    pub(in crate::spelling) paths: Vec<String>,
    pub(in crate::spelling) command_key: JsonPointer,
    pub(in crate::spelling) message_max_bytes: usize,
    #[serde(default)]
    pub(in crate::spelling) never_sent: BTreeMap<String, String>,
    #[serde(default)]
    pub(in crate::spelling) tested_with: Vec<TestedClient>,
    dialect: String,
    mode: RelayModeQuery,
    #[serde(default)]
    append_before_open: bool,
    #[serde(default)]
    prompt_extra_chars: u64,
    default_prompt: Option<String>,
    commands: BTreeMap<String, RelayCommandFile>,
    events: BTreeMap<RelayEvent, Spanned<String>>,
    errors: BTreeMap<ErrorKind, RelayErrorSpelling>,
    closes: BTreeMap<RelayEndReason, RelayEndSpelling>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayCommandFile {
    verb: RelayVerb,
    #[serde(default)]
    fields: BTreeMap<String, RelayFieldFile>,
}

impl RelayProtocolFile {
    pub(in crate::spelling) fn compile(self, document: &Document<'_>) -> Result<RelayProtocol, FileError> {
        let mut extractor = Extractor::default();
        extractor.add(&self.command_key);
        let commands: Vec<RelayCommand> =
            self.commands.into_iter().map(|(name, command)| command.compile(name, &mut extractor)).collect();
        let events =
            self.events.iter().map(|(name, text)| Ok((*name, document.template(text, name.slots())?)));
        let events = events.collect::<Result<_, FileError>>()?;
        let client = RelayProtocol {
            dialect: self.dialect,
            mode: self.mode,
            commands,
            append_before_open: self.append_before_open,
            prompt_extra_chars: self.prompt_extra_chars,
            default_prompt: self.default_prompt,
            extractor,
            events,
            errors: self.errors,
            closes: self.closes,
        };
        client.check_complete(document.file)?;
        Ok(client)
    }
}

impl RelayProtocol {
    /// Checks what the types cannot express.
    fn check_complete(&self, file: &str) -> Result<(), FileError> {
        let file_error = |message: String| Err(FileError::for_file(file, message));
        if let Some(kind) = ErrorKind::RELAY_KINDS.iter().find(|kind| !self.errors.contains_key(kind)) {
            return file_error(format!("[errors] has no entry for `{}`; every kind needs one", kind.name()));
        }
        let mut needed = RelayEndReason::ALL.iter().filter(|name| name.fallback().is_none());
        if let Some(name) = needed.find(|name| !self.closes.contains_key(name)) {
            return file_error(format!("[closes] has no entry for `{}`", name.name()));
        }
        let has = |verb: &&RelayVerb| self.commands.iter().any(|command| command.verb == **verb);
        if let Some(verb) = RelayVerb::ALL.iter().find(|verb| !has(verb)) {
            return file_error(format!("no message under [commands] has the verb `{}`", verb.name()));
        }
        let needed = [RelayEvent::Granted, RelayEvent::Opened, RelayEvent::Listening, RelayEvent::Ended];
        if let Some(name) = needed.iter().find(|name| self.event(**name).is_none()) {
            return file_error(format!("[events] has no entry for `{}`", name.name()));
        }
        if !self.has_combined_output()
            && (self.event(RelayEvent::Text).is_none() || self.event(RelayEvent::Speech).is_none())
        {
            return file_error("[events] has neither `output` nor both of `text` and `speech`".to_owned());
        }
        for field in self.commands.iter().flat_map(|command| &command.fields) {
            if field.to.is_none() && field.because.is_none() && !field.checked {
                return file_error(format!("field `{}` has neither `to` nor `because`", field.name));
            }
        }
        Ok(())
    }
}

impl RelayCommandFile {
    fn compile(self, name: String, extractor: &mut Extractor) -> RelayCommand {
        let fields = self.fields.into_iter().map(|(name, field)| field.compile(name, extractor)).collect();
        RelayCommand { name, verb: self.verb, fields }
    }
}
