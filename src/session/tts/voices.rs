//! Voices: chooses the client's own sample, a configured voice, or the server's own voice, and encodes the sample.
//!
//! Upstream servers accept other encodings than their documentation says (field notes §3), so encodings are tried in turn.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    error::{Error, ErrorKind},
    event::{LaneCommand, VoiceSample},
    mapping::upstream::VoiceEncoding,
};

/// The configured voices.
#[derive(Debug, Default)]
pub struct VoiceCatalog {
    voices: BTreeMap<String, VoiceSample>,
    /// Speech models that clients may name; any model if empty.
    models: Vec<String>,
}

/// Name of the voice for clients that name none.
const DEFAULT_VOICE: &str = "default";

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

    /// Encodes the voice of a command; returns the encoding used, if the command has a voice.
    pub(crate) fn encode_voice(&self, mut command: LaneCommand) -> (LaneCommand, Option<VoiceEncoding>) {
        let voice = match &mut command {
            LaneCommand::Init(voice) | LaneCommand::Speak { voice, .. } => voice.as_mut(),
            LaneCommand::InitConversation(opening) => opening.voice.as_mut(),
            LaneCommand::Append(_)
            | LaneCommand::Transcribe { .. }
            | LaneCommand::RawText(_)
            | LaneCommand::Close => None,
        };
        let Some(voice) = voice else { return (command, None) };
        let encoding = self.current();
        if encoding == VoiceEncoding::Wav {
            *voice = as_wav(voice);
        }
        (command, Some(encoding))
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

/// Converts the sample to a WAV file whose length is never a multiple of four bytes. A server that expects raw float32
/// then rejects the file instead of playing noise (field notes §3).
fn as_wav(voice: &VoiceSample) -> VoiceSample {
    let mut samples = Vec::new();
    if pcm::decode_base64_f32(voice.0.trim_matches('"'), &mut samples).is_err() {
        return voice.clone();
    }
    let mut samples: Vec<i16> = samples.into_iter().map(pcm::to_i16).collect();
    if samples.len().is_multiple_of(2) {
        samples.push(0);
    }
    let wav = wav::write_s16(&samples, SPEECH_RATE_HZ);
    VoiceSample(format!("\"{}\"", STANDARD.encode(wav)).into())
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

    #[test]
    fn wav_sample_keeps_its_audio_and_cannot_be_mistaken_for_raw_floats() {
        for samples in [vec![], vec![1i16, -2, 3], vec![i16::MIN, i16::MAX, 0, 7]] {
            let mut raw = String::from("\"");
            pcm::encode_base64_f32(&samples, &mut raw);
            raw.push('"');
            let mut encodings = VoiceEncodingChoice::new([VoiceEncoding::Wav].into());
            encodings.mark_worked(VoiceEncoding::Wav);
            let (spelled, how) = encodings.encode_voice(LaneCommand::Init(Some(VoiceSample(raw.into()))));
            let LaneCommand::Init(Some(VoiceSample(json))) = spelled else { panic!("{spelled:?}") };
            let bytes = STANDARD.decode(json.trim_matches('"')).unwrap();
            assert_eq!((how, bytes.len() % 4), (Some(VoiceEncoding::Wav), 2));
            let (read, rate_hz) = wav::read(&bytes, std::time::Duration::from_secs(1)).unwrap();
            let read: Vec<i16> = read.into_iter().map(pcm::to_i16).collect();
            assert_eq!((&read[..samples.len()], rate_hz), (samples.as_slice(), SPEECH_RATE_HZ));
        }
    }

    fn sample(name: &str) -> VoiceSample {
        VoiceSample(name.into())
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
