//! Voices: chooses the client's own sample, a configured voice, or the server's own voice.

use std::collections::BTreeMap;

use crate::{
    error::{Error, ErrorKind},
    vocabulary::VoiceSample,
};

/// The configured voices.
#[derive(Debug, Default)]
pub struct VoiceCatalog {
    voices: BTreeMap<String, VoiceSample>,
    /// Speech models that clients may name; any model if empty.
    models: Vec<String>,
}

/// Name of the voice for clients that name none.
pub const DEFAULT_VOICE: &str = "default";

/// Result of choosing a voice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VoiceChoice {
    /// The voice sample; `None` for the server's own voice.
    pub(crate) voice: Option<VoiceSample>,
    /// The name that was asked for, for an upstream with voices of its own.
    pub(crate) name: Option<String>,
    /// Note for the operator, if the named voice is unknown.
    pub(crate) note: Option<String>,
}

impl VoiceCatalog {
    /// Creates a catalog of voices by name and of speech models that clients may name (any if empty).
    #[must_use]
    pub const fn new(voices: BTreeMap<String, VoiceSample>, models: Vec<String>) -> Self {
        Self { voices, models }
    }

    /// The voices, and the speech models that clients may name.
    #[must_use]
    pub const fn voices_and_models(&self) -> (&BTreeMap<String, VoiceSample>, &Vec<String>) {
        (&self.voices, &self.models)
    }

    /// The voice for clients that name none.
    #[must_use]
    pub fn default_voice(&self) -> Option<&VoiceSample> {
        self.voices.get(DEFAULT_VOICE)
    }

    /// True if clients may name this speech model.
    pub(crate) fn is_known_model(&self, model: &str) -> bool {
        let is_listed = self.models.is_empty() || self.models.iter().any(|name| name == model);
        is_listed || self.voices.contains_key(model)
    }

    /// Chooses a voice. Unknown names get the default voice, because clients name voices of other engines.
    pub(crate) fn choose(
        &self,
        sample: Option<VoiceSample>,
        voice: Option<&str>,
        model: Option<&str>,
    ) -> Result<VoiceChoice, Error> {
        let model_voice = model.and_then(|model| self.voices.get(model));
        if let Some(model) = model.filter(|model| !self.is_known_model(model)) {
            return Err(Error::new(ErrorKind::UnknownVoice, format!("'{model}'")));
        }
        let named = voice.filter(|voice| *voice != DEFAULT_VOICE);
        let found = named.and_then(|voice| self.voices.get(voice));
        let note = named
            .filter(|_| found.is_none() && sample.is_none())
            .map(|voice| format!("voice {voice:?} is not configured; the default voice speaks"));
        let name = named.filter(|_| sample.is_none()).map(str::to_owned);
        let voice =
            sample.or_else(|| found.or(model_voice).or_else(|| self.voices.get(DEFAULT_VOICE)).cloned());
        Ok(VoiceChoice { voice, name, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> VoiceSample {
        VoiceSample::new(name.encode_utf16().map(|unit| unit as i16).collect::<Vec<_>>())
    }

    #[test]
    fn most_specific_voice_setting_wins() {
        let voices = [("anna", "A"), ("default", "D"), ("kokoro-v1", "K")];
        let voices = voices.map(|(name, voice)| (name.to_owned(), sample(voice))).into();
        let book = VoiceCatalog::new(voices, vec!["other".into()]);
        let chosen = |own: Option<&str>, voice, model| book.choose(own.map(sample), voice, model).unwrap();
        assert_eq!(chosen(Some("own"), Some("anna"), None).voice, Some(sample("own")));
        assert_eq!(chosen(None, Some("anna"), Some("kokoro-v1")).voice, Some(sample("A")));
        assert_eq!(chosen(None, Some("default"), Some("kokoro-v1")).voice, Some(sample("K")));
        assert_eq!(chosen(None, None, Some("other")).voice, Some(sample("D")));
        assert!(chosen(None, Some("af_heart"), None).note.is_some());
        let name = |own: Option<&str>, voice| chosen(own, Some(voice), None).name;
        assert_eq!(name(None, "af_heart").as_deref(), Some("af_heart"));
        assert_eq!((name(None, "default"), name(Some("own"), "anna")), (None, None));
        let error = book.choose(None, None, Some("nope")).unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::UnknownVoice, "'nope'"));
    }

    #[test]
    fn empty_catalog_uses_server_voice_for_any_name() {
        let choice = VoiceCatalog::default().choose(None, None, Some("kokoro-v1")).unwrap();
        assert_eq!(choice, VoiceChoice { voice: None, name: None, note: None });
    }
}
