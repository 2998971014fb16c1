//! Which voice speaks: the client's own sample, a configured voice by name, or the server's own.

use std::collections::BTreeMap;

use crate::{
    error::{Error, ErrorKind},
    event::VoiceSample,
};

/// The configured voices.
#[derive(Debug, Default)]
pub struct VoiceBook {
    voices: BTreeMap<String, VoiceSample>,
    /// Speech models clients may name; any when empty.
    models: Vec<String>,
}

/// The name of the voice that speaks when none is named.
const DEFAULT: &str = "default";

/// A choice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The sample, or the server's own voice.
    pub(crate) voice: Option<VoiceSample>,
    /// What the operator should know.
    pub(crate) note: Option<String>,
}

impl VoiceBook {
    /// Voices by name, and the speech models clients may name (any when empty).
    #[must_use]
    pub const fn new(voices: BTreeMap<String, VoiceSample>, models: Vec<String>) -> Self {
        Self { voices, models }
    }

    /// The voices, and the speech models clients may name.
    #[must_use]
    pub const fn parts(&self) -> (&BTreeMap<String, VoiceSample>, &Vec<String>) {
        (&self.voices, &self.models)
    }

    /// Whether clients may name this speech model.
    pub(crate) fn knows(&self, model: &str) -> bool {
        let listed = self.models.is_empty() || self.models.iter().any(|name| name == model);
        listed || self.voices.contains_key(model)
    }

    /// Chooses. A voice nobody configured is the default voice: clients name voices of other engines.
    pub(crate) fn choose(
        &self,
        sample: Option<VoiceSample>,
        voice: Option<&str>,
        model: Option<&str>,
    ) -> Result<Choice, Error> {
        let model_voice = model.and_then(|model| self.voices.get(model));
        if let Some(model) = model.filter(|model| !self.knows(model)) {
            return Err(Error::new(ErrorKind::UnknownVoice, format!("'{model}'")));
        }
        let named = voice.filter(|voice| *voice != DEFAULT);
        let found = named.and_then(|voice| self.voices.get(voice));
        let note = named
            .filter(|_| found.is_none() && sample.is_none())
            .map(|voice| format!("voice {voice:?} is not configured; the default voice speaks"));
        let voice = sample.or_else(|| found.or(model_voice).or_else(|| self.voices.get(DEFAULT)).cloned());
        Ok(Choice { voice, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> VoiceSample {
        VoiceSample(name.into())
    }

    #[test]
    fn the_closest_wish_wins() {
        let voices = [("anna", "A"), ("default", "D"), ("kokoro-v1", "K")];
        let voices = voices.map(|(name, voice)| (name.to_owned(), sample(voice))).into();
        let book = VoiceBook::new(voices, vec!["other".into()]);
        let chosen = |own: Option<&str>, voice, model| book.choose(own.map(sample), voice, model).unwrap();
        assert_eq!(chosen(Some("own"), Some("anna"), None).voice, Some(sample("own")));
        assert_eq!(chosen(None, Some("anna"), Some("kokoro-v1")).voice, Some(sample("A")));
        assert_eq!(chosen(None, Some("default"), Some("kokoro-v1")).voice, Some(sample("K")));
        assert_eq!(chosen(None, None, Some("other")).voice, Some(sample("D")));
        assert!(chosen(None, Some("af_heart"), None).note.is_some());
        let error = book.choose(None, None, Some("nope")).unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::UnknownVoice, "'nope'"));
    }

    #[test]
    fn nothing_configured_means_the_servers_own_voice_for_any_name() {
        let choice = VoiceBook::default().choose(None, None, Some("kokoro-v1")).unwrap();
        assert_eq!(choice, Choice { voice: None, note: None });
    }
}
