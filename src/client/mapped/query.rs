//! Reads the query string of a connection: the model, and settings.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{ClientCodec, IgnoredField, MappedCodec, decode::invalid_error, field_values::push_settings};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    spelling::{
        client::Framing,
        field::{FieldRole, FieldValue, ProtocolField},
    },
    suggestion::did_you_mean,
    vocabulary::{EventName, Node, Setting, SpeechModel},
};

/// Most unknown parameters of a connection that are noted, and the length to which their names are cut.
const UNKNOWN_NOTED_MAX: usize = 8;
const UNKNOWN_NAME_MAX_CHARS: usize = 64;

/// Settings from the query string of a connection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConnectQuery {
    /// The model; `None` when the query names none.
    pub model: Option<String>,
    /// Settings named in the query.
    pub settings: Vec<Setting>,
    /// Errors of invalid parameters, which the session ignores.
    pub problems: Vec<Error>,
}

impl MappedCodec {
    /// Reads the query string (percent-encoded, without `?`). Unknown parameters are ignored, as clients expect, and noted.
    pub(in crate::client) fn decode_query(
        &mut self,
        query: &str,
        protocol: &mut dyn ClientCodec,
    ) -> ConnectQuery {
        let mapping = self.mapping.clone();
        let given: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let mut reader = QueryReader { mapped: self, protocol, connect: ConnectQuery::default() };
        reader.read_defaults(&mapping.query, &given);
        reader.read_given(&mapping.query, &given);
        reader.note_unknown(given.iter().map(|(name, _)| &**name));
        let QueryReader { mut connect, .. } = reader;
        connect.settings.extend(protocol.settings());
        add_default_rates(&mapping.audio_in.rates_hz, &mapping.audio_out.rates_hz, &mut connect.settings);
        protocol.take_notes(&mut self.notes);
        connect
    }
}

/// A parameter of the query string: its name and its value.
type Parameter<'q> = (Cow<'q, str>, Cow<'q, str>);

/// Reader of one query string.
struct QueryReader<'c> {
    mapped: &'c mut MappedCodec,
    protocol: &'c mut dyn ClientCodec,
    connect: ConnectQuery,
}

impl QueryReader<'_> {
    /// Reads the defaults of the parameters that are not given, and reports those that must be.
    fn read_defaults(&mut self, fields: &[ProtocolField], given: &[Parameter<'_>]) {
        for field in fields.iter().filter(|field| given.iter().all(|(name, _)| *name != *field.name)) {
            if let Some(text) = &field.file.default {
                self.read(field, std::iter::once(text.as_str()));
            } else if field.file.required
                && !field.names_model()
                && let Err(problem) = field.read(None)
            {
                // A missing model has an error of its own.
                self.connect.problems.push(invalid_error("connect", [(field, problem)]));
            }
        }
    }

    fn read_given(&mut self, fields: &[ProtocolField], given: &[Parameter<'_>]) {
        for (at, (name, value)) in given.iter().enumerate() {
            let Some(field) = fields.iter().find(|field| field.name == *name) else { continue };
            if !field.is_repeated() {
                self.read(field, std::iter::once(&**value));
            } else if given[..at].iter().all(|(before, _)| before != name) {
                // A list is spelled by repeating the parameter.
                let all = given.iter().filter(|(other, _)| other == name);
                self.read(field, all.map(|(_, value)| &**value));
            }
        }
    }

    /// Notes the parameters that the protocol does not have. One that is probably misspelt is also reported to clients whose
    /// protocol has warnings.
    fn note_unknown<'q>(&mut self, given: impl Iterator<Item = &'q str>) {
        let mapping = self.mapped.mapping.clone();
        let known = || mapping.query.iter().map(|field| field.name.as_str());
        let names: BTreeSet<&str> = given.filter(|name| known().all(|known| known != *name)).collect();
        for name in names.into_iter().take(UNKNOWN_NOTED_MAX) {
            let name: String = name.chars().take(UNKNOWN_NAME_MAX_CHARS).collect();
            let hint = did_you_mean(&name, known());
            let because = format!("unknown parameter of the URL{hint}");
            let warning = Error::new(ErrorKind::UnknownField, format!("{name}: {because}"));
            let has_warnings = !mapping.event(EventName::Warning).is_empty();
            let is_fatal = || mapping.error(warning.kind).is_some_and(|spelling| spelling.close.is_some());
            if has_warnings && !hint.is_empty() && !is_fatal() {
                self.connect.problems.push(Error { param: Some(name.clone()), ..warning });
            }
            let is_needed = !hint.is_empty();
            self.mapped.notes.ignored.push(IgnoredField {
                command: "connect".to_owned(),
                field: name,
                because,
                is_needed,
            });
        }
    }

    /// Reads a query parameter; only a list has several values.
    fn read<'v>(&mut self, field: &ProtocolField, values: impl Iterator<Item = &'v str>) {
        // A model's name is only matched and echoed, so that a long one is cut rather than rejected.
        let max = field.file.max.filter(|_| field.names_model());
        let cut = |value: &'v str| max.map_or(value, |max| first_chars(value, max as usize));
        let mut nodes = values.map(|value| Node::Str(Cow::Borrowed(cut(value))));
        let node = if field.is_repeated() { Some(Node::List(nodes.collect())) } else { nodes.next() };
        let read = match field.read(node.as_ref()) {
            Ok(read) => read,
            Err(problem) => {
                return self.connect.problems.push(invalid_error("connect", [(field, problem)]));
            }
        };
        if let (Some(at), Some(value)) = (field.remember, &read) {
            self.mapped.events.slots.values.remember(at, value);
        }
        let value = self.mapped.keep_effective(field, "connect", read);
        if let (Some(role), Some(value)) = (field.file.to, value) {
            let applied = self.apply(role, value);
            self.connect.problems.extend(applied.err());
        }
    }

    /// Applies a parameter with an effect.
    fn apply(&mut self, role: FieldRole, value: FieldValue) -> Result<(), Error> {
        match (role, value) {
            (FieldRole::Model, FieldValue::Text(model)) => self.connect.model = Some(model),
            (FieldRole::ModelAndVoice, FieldValue::Text(model)) => {
                self.connect.settings.push(Setting::SpeakModel(SpeechModel::if_known(model.clone())));
                self.connect.model = Some(model);
            }
            (
                FieldRole::Shape | FieldRole::Session | FieldRole::Transport | FieldRole::Intent,
                FieldValue::Text(value),
            ) => {
                let settings = self.protocol.apply_parameter(self.mapped, role, &value)?;
                self.connect.settings.extend(settings);
            }
            (FieldRole::AnswerWords, FieldValue::Flag(on)) => self.mapped.events.answers.sends_spoken = on,
            (FieldRole::Framing, FieldValue::Text(name)) => {
                self.mapped.set_framing(Framing::from_name(&name).unwrap_or_default());
            }
            (role, value) => {
                let before = self.connect.settings.len();
                push_settings([(role, value)], &mut self.connect.settings)?;
                self.connect.settings[before..].iter().for_each(|setting| self.mapped.note_setting(setting));
            }
        }
        Ok(())
    }
}

/// The beginning of a text, of this many characters.
fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Adds the default rates of encodings that the client names without a rate.
fn add_default_rates(
    input_rates: &BTreeMap<Encoding, u32>,
    output_rates: &BTreeMap<Encoding, u32>,
    settings: &mut Vec<Setting>,
) {
    let (mut input, mut output) = (None, None);
    for setting in settings.iter() {
        match setting {
            Setting::InputEncoding(encoding) if input.is_none() => input = input_rates.get(encoding).copied(),
            Setting::OutputEncoding(encoding) if output.is_none() => {
                output = output_rates.get(encoding).copied();
            }
            _ => {}
        }
    }
    if input.is_none() && output.is_none() {
        return;
    }
    // In front, so that the client's own settings win.
    settings
        .splice(..0, input.map(Setting::InputRateHz).into_iter().chain(output.map(Setting::OutputRateHz)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Codec, error::ErrorKind, spelling::Library};

    #[test]
    fn missing_parameter_is_an_error_if_the_file_requires_it() {
        let source = include_str!("../../../mappings/client/vosk.toml");
        let own = source.replace(
            "[query]\n",
            "[query]\nmust = { type = \"text\", required = true, because = \"a test\" }\n",
        );
        let mut library = Library::embedded().unwrap();
        library.add("vosk.toml", &own).unwrap();
        let problems =
            |query: &str| Codec::new(library.client("vosk").unwrap(), 0.0).decode_query(query).problems;
        assert_eq!(problems("must=1"), []);
        let [problem] = &problems("")[..] else { panic!() };
        assert_eq!((problem.kind, problem.param.as_deref()), (ErrorKind::Invalid, Some("must")));
    }

    #[test]
    fn format_may_name_the_channels() {
        let source = include_str!("../../../mappings/client/vosk.toml");
        let own = source.replace(
            "[query]\n",
            "[query]\nformat = { to = \"input_format\", type = \"choice\", value_map = { stereo = \"s16le 48000 2\", mono = \"s16le 16000\" } }\n",
        );
        let mut library = Library::embedded().unwrap();
        library.add("vosk.toml", &own).unwrap();
        let settings =
            |query: &str| Codec::new(library.client("vosk").unwrap(), 0.0).decode_query(query).settings;
        let encoding = Setting::InputEncoding(Encoding::S16le);
        // In front stands the default of another parameter.
        let stereo = [encoding.clone(), Setting::InputRateHz(48_000), Setting::InputChannels(2)];
        assert!(settings("format=stereo").ends_with(&stereo));
        assert!(settings("format=mono").ends_with(&[encoding, Setting::InputRateHz(16_000)]));
    }

    #[test]
    fn unknown_parameters_are_noted_with_the_nearest_name() {
        let library = Library::embedded().unwrap();
        let noted = |client: &str, query: &str| {
            let mut codec = Codec::new(library.client(client).unwrap(), 0.0);
            let problems = codec.decode_query(query).problems;
            (codec.take_ignored_fields(), problems)
        };
        let (ignored, problems) = noted("plivo", "langauge=zh&vad_sensitivity=low&utm=1&utm=2");
        let words: Vec<_> = ignored.iter().map(|it| (&*it.field, &*it.because, it.is_needed)).collect();
        let (unknown, near) = ("unknown parameter of the URL", ", did you mean `language`?");
        assert_eq!(words, [("langauge", &*format!("{unknown}{near}"), true), ("utm", unknown, false)]);
        assert!(problems.is_empty(), "the protocol has no warnings: {problems:?}");

        let (_, problems) = noted("assemblyai", "sample_rate=16000&format_turn=true&other=1");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].param.as_deref(), Some("format_turn"));
        assert!(problems[0].to_string().contains("did you mean `format_turns`?"), "{problems:?}");

        let many: String = (0..100).map(|n| format!("{}{n}&", "x".repeat(200))).collect();
        let (ignored, _) = noted("plivo", &many);
        assert!(ignored.len() <= 8 && ignored.iter().all(|it| it.field.len() == 64), "{ignored:?}");
    }

    #[test]
    fn query_parameters_are_bounded() {
        let long = "a".repeat(257);
        let connect = Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 0.0)
            .decode_query(&format!("model={long}&language={long}"));
        assert_eq!(connect.model.as_deref(), Some(&long[1..]), "any model will do, so this one is cut");
        assert!(connect.settings.is_empty() && connect.problems.len() == 1, "{connect:?}");
    }
}
