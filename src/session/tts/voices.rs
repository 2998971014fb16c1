//! Which voice speaks: the client's own sample, a configured voice by name, or the server's own; and how a sample is
//! written for an upstream whose servers do not agree with their document (field notes §3).

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

/// How this session's upstream takes voice samples: tried in order, and kept once it worked.
#[derive(Debug)]
pub(crate) struct Encodings {
    known: Arc<[VoiceEncoding]>,
    at: usize,
    worked: bool,
    failures: u32,
}

impl Encodings {
    /// Tries these in turn; raw samples where there are none.
    pub(crate) const fn new(known: Arc<[VoiceEncoding]>) -> Self {
        Self { known, at: 0, worked: false, failures: 0 }
    }

    fn current(&self) -> VoiceEncoding {
        self.known.get(self.at).copied().unwrap_or(VoiceEncoding::F32le)
    }

    /// The command as the upstream is to get it, and how its voice is written, if it has one.
    pub(crate) fn spell(&self, mut command: LaneCommand) -> (LaneCommand, Option<VoiceEncoding>) {
        let voice = match &mut command {
            LaneCommand::Init(voice) | LaneCommand::Speak { voice, .. } => voice.as_mut(),
            LaneCommand::Converse(opening) => opening.voice.as_mut(),
            LaneCommand::Append(_)
            | LaneCommand::Transcribe { .. }
            | LaneCommand::Spelled(_)
            | LaneCommand::Close => None,
        };
        let Some(voice) = voice else { return (command, None) };
        let encoding = self.current();
        if encoding == VoiceEncoding::Wav {
            *voice = as_wav(voice);
        }
        (command, Some(encoding))
    }

    /// An upstream took it.
    pub(crate) fn worked(&mut self, encoding: VoiceEncoding) {
        self.at = self.known.iter().position(|known| *known == encoding).unwrap_or(self.at);
        (self.worked, self.failures) = (true, 0);
    }

    /// An initialisation with it failed. What has worked before is given up only when it fails twice: other things fail too.
    pub(crate) fn failed(&mut self, encoding: VoiceEncoding) {
        if encoding != self.current() {
            return;
        }
        self.failures += 1;
        if !self.worked || self.failures > 1 {
            self.at = (self.at + 1) % self.known.len().max(1);
            self.failures = 0;
        }
    }
}

/// The sample as a WAV file. Its length is never a multiple of four bytes: a server that takes raw float32 then refuses
/// it, instead of hearing noise in it (field notes §3).
fn as_wav(voice: &VoiceSample) -> VoiceSample {
    let mut samples = Vec::new();
    if pcm::pull_base64_f32(voice.0.trim_matches('"'), &mut samples).is_err() {
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
    fn what_fails_is_tried_otherwise_and_what_worked_is_kept() {
        use VoiceEncoding::{F32le, Wav};
        let mut encodings = Encodings::new([F32le, Wav].into());
        let tried = |encodings: &Encodings| encodings.current();
        assert_eq!(tried(&encodings), F32le);
        encodings.failed(F32le);
        encodings.failed(F32le);
        assert_eq!(tried(&encodings), Wav, "the second failure was of a lane opened before");
        encodings.failed(Wav);
        assert_eq!(tried(&encodings), F32le, "round again");
        encodings.worked(Wav);
        encodings.failed(Wav);
        assert_eq!(tried(&encodings), Wav, "other things fail too");
        encodings.failed(Wav);
        assert_eq!(tried(&encodings), F32le);
        let mut only = Encodings::new([F32le].into());
        only.failed(F32le);
        assert_eq!(tried(&only), F32le);
    }

    #[test]
    fn a_wav_file_holds_the_same_samples_and_is_never_taken_for_raw_ones() {
        for samples in [vec![], vec![1i16, -2, 3], vec![i16::MIN, i16::MAX, 0, 7]] {
            let mut raw = String::from("\"");
            pcm::push_base64_f32(&samples, &mut raw);
            raw.push('"');
            let mut encodings = Encodings::new([VoiceEncoding::Wav].into());
            encodings.worked(VoiceEncoding::Wav);
            let (spelled, how) = encodings.spell(LaneCommand::Init(Some(VoiceSample(raw.into()))));
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
