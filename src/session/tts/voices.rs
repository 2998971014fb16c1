//! Voices: chooses the client's own sample, a configured voice, or the server's own voice, and the encoding of the sample.
//!
//! Upstream servers accept other encodings than their documentation says (mappings/notes/minicpm-o.md#voices), so
//! encodings are tried in turn.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    error::{Error, ErrorKind},
    vocabulary::{LaneRequest, VoiceEncoding, VoiceSample},
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
        let voice =
            sample.or_else(|| found.or(model_voice).or_else(|| self.voices.get(DEFAULT_VOICE)).cloned());
        Ok(VoiceChoice { voice, note })
    }
}

/// Encoding of voice samples for a session's upstream: tries each candidate and keeps the first that works.
#[derive(Debug)]
pub(crate) struct VoiceEncodingChoice {
    candidates: Arc<[VoiceEncoding]>,
    index: usize,
    worked: bool,
    failures: u32,
}

impl VoiceEncodingChoice {
    /// Creates a choice of these candidates; raw float32 if there are none.
    pub(crate) const fn new(candidates: Arc<[VoiceEncoding]>) -> Self {
        Self { candidates, index: 0, worked: false, failures: 0 }
    }

    fn current(&self) -> VoiceEncoding {
        self.candidates.get(self.index).copied().unwrap_or(VoiceEncoding::F32le)
    }

    /// Sets the encoding of a command's voice; returns it, if the command has a voice.
    pub(crate) fn encode_voice(&self, mut command: LaneRequest) -> (LaneRequest, Option<VoiceEncoding>) {
        let encoding = self.current();
        let encoded = command.voice_mut().map(|voice| voice.encoding = encoding);
        (command, encoded.map(|()| encoding))
    }

    /// Records that an upstream accepted this encoding.
    pub(crate) fn mark_worked(&mut self, encoding: VoiceEncoding) {
        self.index =
            self.candidates.iter().position(|candidate| *candidate == encoding).unwrap_or(self.index);
        (self.worked, self.failures) = (true, 0);
    }

    /// Records that an initialisation failed. An encoding that worked before is given up after two failures, because
    /// initialisation can fail for other reasons.
    pub(crate) fn mark_failed(&mut self, encoding: VoiceEncoding) {
        if encoding != self.current() {
            return;
        }
        self.failures += 1;
        if !self.worked || self.failures > 1 {
            self.index = (self.index + 1) % self.candidates.len().max(1);
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_encoding_is_replaced_and_working_encoding_is_kept() {
        use VoiceEncoding::{F32le, Wav};
        let mut encodings = VoiceEncodingChoice::new([F32le, Wav].into());
        let tried = |encodings: &VoiceEncodingChoice| encodings.current();
        assert_eq!(tried(&encodings), F32le);
        encodings.mark_failed(F32le);
        encodings.mark_failed(F32le);
        assert_eq!(tried(&encodings), Wav, "the second failure came from a lane opened earlier");
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), F32le, "the first candidate follows the last");
        encodings.mark_worked(Wav);
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), Wav, "one failure does not discard a working encoding");
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), F32le);
        let mut only = VoiceEncodingChoice::new([F32le].into());
        only.mark_failed(F32le);
        assert_eq!(tried(&only), F32le);
    }

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
        let error = book.choose(None, None, Some("nope")).unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::UnknownVoice, "'nope'"));
    }

    #[test]
    fn empty_catalog_uses_server_voice_for_any_name() {
        let choice = VoiceCatalog::default().choose(None, None, Some("kokoro-v1")).unwrap();
        assert_eq!(choice, VoiceChoice { voice: None, note: None });
    }
}
