//! What is wrong with a field before any client sends it.

use super::{Field, Target, TypeName};
use crate::{
    audio::encoding::Encoding,
    mapping::check::{did_you_mean, listed},
};

impl Field {
    /// What is wrong with the field itself, whatever a client sends.
    pub(in crate::mapping) fn mistake(&self, in_query: bool) -> Option<String> {
        let file = &self.file;
        let lists = matches!(file.of, TypeName::TextList | TypeName::Object);
        let said = |what: &str| Some(format!("field `{}` {what}", self.name));
        if file.to.is_none() && file.because.is_none() {
            return said("has neither `to` nor `because`");
        }
        if file.at.as_ref().is_some_and(|at| !at.starts_with('/')) {
            return said("has an `at` that is no JSON pointer; one begins with `/`");
        }
        if lists && !file.means.is_empty() {
            return said("has `means`, which a list or an object cannot have");
        }
        if file.of == TypeName::Choice && file.values.is_empty() && file.means.is_empty() {
            return said("is a `choice` without `values` and without `means`");
        }
        if file.default.is_some() && !in_query {
            return said(
                "has a `default`, which is for query parameters; a command without it changes nothing",
            );
        }
        if let Some(problem) = file.default.as_ref().and_then(|text| self.read_text(text).err()) {
            return said(&format!("has a `default` that it would refuse itself: {problem}"));
        }
        self.unknown_encoding()
    }

    fn unknown_encoding(&self) -> Option<String> {
        if !matches!(self.file.to, Some(Target::InputEncoding | Target::OutputEncoding)) {
            return None;
        }
        let known = || Encoding::ALL.into_iter().map(|(name, _)| name);
        let named = if self.file.means.is_empty() {
            self.file.values.iter().collect::<Vec<_>>()
        } else {
            self.file.means.values().collect()
        };
        let wrong = named.into_iter().find(|name| Encoding::named(name).is_none())?;
        let (name, hint) = (&self.name, did_you_mean(wrong, known()));
        Some(format!("field `{name}` knows no encoding `{wrong}`{hint}; there is {}", listed(known())))
    }
}
