//! Checks the definition of a field.

use super::{AudioFormat, FieldRole, FieldType, ProtocolField};
use crate::{audio::encoding::Encoding, suggestion::suggest_known};

impl ProtocolField {
    /// Describes a mistake in the definition; `None` for a valid field.
    pub(in crate::spelling) fn validate(&self, in_query: bool) -> Option<String> {
        let file = &self.file;
        let is_composite = matches!(file.type_name, FieldType::List | FieldType::Object);
        let problem_with = |what: &str| Some(format!("field `{}` {what}", self.name));
        if file.to.is_none() && file.because.is_none() && file.remember.is_none() && file.same_as.is_none() {
            return problem_with("has neither `to`, `remember`, `same_as` nor `because`");
        }
        if file.same_as.is_some() && (in_query || !is_rememberable(file.type_name)) {
            return problem_with("has `same_as`, which is for texts and whole numbers of commands");
        }
        if file.remember.is_some() && !is_rememberable(file.type_name) && file.unit.is_none() {
            return problem_with("has `remember`, which is for texts, whole numbers and flags");
        }
        if (file.to == Some(FieldRole::Audio)) != (file.type_name == FieldType::Base64) {
            return problem_with("must have both `to = \"audio\"` and `type = \"base64\"`, or neither");
        }
        if file.to == Some(FieldRole::SegmentsMax) && file.type_name != FieldType::Integer {
            return problem_with("has `to = \"segments_max\"`, whose type is `integer`");
        }
        if file.to == Some(FieldRole::Turn) && file.type_name != FieldType::Integer {
            return problem_with("has `to = \"turn\"`, whose type is `integer`");
        }
        if let Some(problem) = self.list_mistake(in_query) {
            return problem_with(&problem);
        }
        if file.at.is_some() && in_query {
            return problem_with("has an `at`; a query parameter is found by its name");
        }
        if file.at.as_ref().is_some_and(|at| !at.starts_with('/')) {
            return problem_with("has an `at` that is no JSON pointer; one begins with `/`");
        }
        if is_composite && !file.value_map.is_empty() {
            return problem_with("has `value_map`, which a list or an object cannot have");
        }
        let has_inner_star = |word: &&String| word.strip_suffix('*').unwrap_or(word).contains('*');
        if let Some(word) = file.value_map.keys().chain(&file.values).find(has_inner_star) {
            return problem_with(&format!("has the word `{word}`; a `*` stands at the end of a word"));
        }
        if file.type_name == FieldType::Choice && file.values.is_empty() && file.value_map.is_empty() {
            return problem_with("is a `choice` without `values` and without `value_map`");
        }
        if let Some(unit) = file.unit
            && (file.type_name != FieldType::Number || !file.to.is_some_and(|role| role.takes(unit)))
        {
            return problem_with(unit.rule());
        }
        if file.to.is_some_and(FieldRole::is_format)
            && (file.type_name != FieldType::Choice || file.value_map.is_empty())
        {
            return problem_with("names a format, and so is a `choice` with a `value_map`");
        }
        if file.default.is_some() && file.required {
            return problem_with("has a `default` and is `required`; one of the two has no meaning");
        }
        if let Some(problem) = file.default.as_ref().and_then(|text| self.read_text(text).err()) {
            return problem_with(&format!("has a `default` that it would refuse itself: {problem}"));
        }
        self.unknown_format().or_else(|| self.unknown_encoding())
    }

    /// Describes a mistake in the definition of a list, or in a field that should be one.
    fn list_mistake(&self, in_query: bool) -> Option<String> {
        let file = &self.file;
        let is_list = file.type_name == FieldType::List;
        let of_objects =
            matches!(file.to, Some(FieldRole::Tools | FieldRole::ToolResults | FieldRole::Messages));
        let of_texts = matches!(file.to, None | Some(FieldRole::HotWords));
        let is_joined = matches!(file.to, Some(FieldRole::Instructions | FieldRole::Text));
        let problem = if of_objects && (!is_list || file.items.is_none()) {
            "needs `type = \"list\"` and `items`"
        } else if !is_list && (file.items.is_some() || file.split) {
            "has `items` or `split`, which are for a `list`"
        } else if file.to == Some(FieldRole::HotWords) && !is_list {
            "needs `type = \"list\"`"
        } else if is_list && !of_objects && !of_texts && !is_joined {
            "is a `list`, which is for hot_words, tools, tool_results, messages, instructions and text"
        } else if file.split && !of_texts {
            "has `split`, which is for hot words and for lists without a role"
        } else if is_list && in_query && !of_texts {
            "is a `list` of objects, which a query parameter cannot be; one of texts can"
        } else if in_query && file.items.is_some() && !file.split {
            "has `items`; a query parameter has objects only with `split`, as JSON"
        } else {
            return file.items.as_ref().and_then(|items| items.validate(file.to));
        };
        Some(problem.to_owned())
    }

    fn unknown_format(&self) -> Option<String> {
        let formats = self.file.value_map.values().filter(|_| self.file.to.is_some_and(FieldRole::is_format));
        let takes_channels = self.file.to == Some(FieldRole::InputFormat);
        let is_valid = |format: &AudioFormat| match takes_channels {
            true => !format.encoding.is_file(),
            false => format.channels.is_none(),
        };
        let wrong =
            formats.into_iter().find(|format| !AudioFormat::parse(format).as_ref().is_some_and(is_valid))?;
        let channels =
            if takes_channels { ", and perhaps a number of channels, such as `s16le 48000 2`" } else { "" };
        let known: Vec<_> = self.known_encodings().collect();
        Some(format!(
            "field `{}` has the format `{wrong}`; a format is an encoding ({}) and a rate in Hz, such as `s16le 16000`{channels}",
            self.name,
            known.join(", ")
        ))
    }

    fn unknown_encoding(&self) -> Option<String> {
        if !matches!(self.file.to, Some(FieldRole::InputEncoding | FieldRole::OutputEncoding)) {
            return None;
        }
        let named = if self.file.value_map.is_empty() {
            self.file.values.iter().collect::<Vec<_>>()
        } else {
            self.file.value_map.values().collect()
        };
        let wrong = named.into_iter().find(|name| !self.known_encodings().any(|known| known == *name))?;
        let nearest = suggest_known(wrong, || self.known_encodings());
        Some(format!("field `{}` knows no encoding `{wrong}`{nearest}", self.name))
    }

    /// Names of the encodings that the field may have: clients send no file formats.
    fn known_encodings(&self) -> impl Iterator<Item = &'static str> {
        let to_client = matches!(self.file.to, Some(FieldRole::OutputEncoding | FieldRole::OutputFormat));
        let known = Encoding::ALL.into_iter().filter(move |(_, encoding)| to_client || !encoding.is_file());
        known.map(|(name, _)| name)
    }
}

const fn is_rememberable(type_name: FieldType) -> bool {
    matches!(type_name, FieldType::Text | FieldType::Choice | FieldType::Integer | FieldType::Flag)
}
