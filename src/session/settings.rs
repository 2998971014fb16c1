//! What the client set, and what follows from it for a question and for a text.

use std::time::{Duration, Instant};

use super::{
    Session,
    outbox::Observation,
    stt::transcriber::Asking,
    tts::{
        synthesizer::{Script, Speaking},
        text_normalization,
    },
    upstream::connection::millis,
};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    event::{Microphone, Setting, SpeakRequest, VoiceSample},
    mapping::Profile,
};

/// What a client hears that wants a text spoken by a model that only talks for itself.
const NO_CHAT: &str = "the upstream's dialect has no chat mode, and so cannot speak a given text; its model speaks for itself only";

/// What the client set.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) language: Option<String>,
    pub(super) hot_words: Vec<String>,
    pub(super) partials: bool,
    pub(super) speak_model: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) microphone: Microphone,
    pub(super) rollover_events: bool,
    /// Encoding and rate of what the client hears.
    pub(super) output: (Encoding, u32),
    /// Silence after an utterance that the client is told of.
    pub(super) utterance_gap: Option<Duration>,
}

impl Session {
    pub(super) fn configure(&mut self, now: Instant, settings: Vec<Setting>) {
        let mut hearing = self.ear.hearing().clone();
        for setting in settings {
            match setting {
                Setting::Language(language) => self.settings.language = Some(language),
                Setting::HotWords(words) => self.settings.hot_words = words,
                Setting::Partials(on) => self.settings.partials = on,
                Setting::SpeakModel(model) => self.settings.speak_model = Some(model),
                Setting::SpeakModelIfKnown(model) if self.setup.voices.knows(&model) => {
                    self.settings.speak_model = Some(model);
                }
                Setting::SpeakModelIfKnown(model) => {
                    let note = format!("speech model {model:?} is not configured; it changes nothing");
                    self.host.out.observe(Observation::NoEffect(note));
                }
                Setting::Voice(voice) => self.settings.voice = Some(voice),
                Setting::VadSensitivity(sensitivity) => hearing.sensitivity = sensitivity,
                Setting::EndSilence(silence) => hearing.end_ms = whole_u32(millis(silence)),
                Setting::SegmentMax(max) => {
                    hearing.segment_max_ms = whole_u32(millis(max).min(self.setup.audio_max_ms));
                }
                Setting::InputEncoding(encoding) => hearing.encoding = encoding,
                Setting::InputRate(rate_hz) => hearing.rate_hz = rate_hz,
                Setting::InputChannels(channels) => hearing.channels = channels,
                Setting::Microphone(microphone) if self.setup.profile.talk.is_some() => {
                    self.settings.microphone = microphone;
                }
                Setting::Microphone(_) => {
                    let note = "microphone: it is muted while a text is spoken, as on the real server";
                    self.host.out.observe(Observation::NoEffect(note.to_owned()));
                }
                Setting::RolloverEvents(on) => self.settings.rollover_events = on,
                Setting::SpeechEvents(on) => self.host.out.no_speech_events = !on,
                Setting::UtteranceGap(gap) => self.settings.utterance_gap = Some(gap),
                Setting::OutputEncoding(encoding) => self.set_output((encoding, self.settings.output.1)),
                Setting::OutputRate(rate_hz) => self.set_output((self.settings.output.0, rate_hz)),
            }
        }
        let voice = self.chosen_voice();
        if let Some(converse) = &mut self.converse {
            converse.set_voice(voice);
        }
        if let Err(error) = self.ear.set(hearing, &mut self.heard) {
            self.refuse(Error::new(ErrorKind::BadSetting, format!("audio from the client: {error}")));
        }
        self.tell_heard(now);
    }

    fn set_output(&mut self, (encoding, rate_hz): (Encoding, u32)) {
        match self.host.mouth.set_format(encoding, rate_hz) {
            Ok(()) => self.settings.output = (encoding, rate_hz),
            Err(error) => {
                self.refuse(Error::new(ErrorKind::BadSetting, format!("audio to the client: {error}")));
            }
        }
    }

    /// The voice the settings name, for what the model says by itself.
    pub(super) fn chosen_voice(&self) -> Option<VoiceSample> {
        let (voice, model) = (self.settings.voice.as_deref(), self.settings.speak_model.as_deref());
        self.setup.voices.choose(None, voice, model).ok().and_then(|choice| choice.voice)
    }

    pub(super) fn start_speaking(&mut self, now: Instant, request: SpeakRequest) {
        if !self.setup.chat {
            return self.refuse(Error::new(ErrorKind::SpeakFailed, NO_CHAT));
        }
        let rules = &self.setup.profile.speak;
        let language = request.language.as_deref().or(self.settings.language.as_deref()).unwrap_or("en");
        let text = text_normalization::speakable(&request.text, rules.symbols(language));
        let choice = self.setup.voices.choose(
            request.reference,
            request.voice.as_deref().or(self.settings.voice.as_deref()),
            self.settings.speak_model.as_deref(),
        );
        let voice = match choice {
            Err(error) => return self.refuse(error),
            Ok(_) if text.is_empty() => {
                return self.refuse(Error::new(ErrorKind::SpeakFailed, "Text must not be empty"));
            }
            Ok(choice) => {
                if let Some(note) = choice.note {
                    self.host.out.observe(Observation::NoEffect(note));
                }
                choice.voice
            }
        };
        let request_id = request.request_id.unwrap_or_else(|| format!("tts_{:08x}", self.host.rng.u32(..)));
        let script = Script {
            request_id,
            parts: text_normalization::parts(&text, rules.part_max_chars).into(),
            text: request.text,
            instruction: request.instruction,
            voice,
        };
        self.interrupt_model(now);
        self.speak.start(now, script, &speaking(&self.setup.profile), &mut self.host);
    }
}

pub(super) fn asking<'s>(profile: &'s Profile, settings: &'s Settings) -> Asking<'s> {
    Asking {
        rules: &profile.hear,
        wanted: profile.talk.as_ref().is_none_or(|talk| talk.converse.transcribe_user),
        language: settings.language.as_deref().unwrap_or(&profile.hear.language),
        hot_words: &settings.hot_words,
        partials: settings.partials,
    }
}

pub(super) fn speaking(profile: &Profile) -> Speaking<'_> {
    Speaking { rules: &profile.speak }
}

pub(super) fn whole_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
