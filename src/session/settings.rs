//! Settings of the client, and the requests that follow from them.

use std::time::{Duration, Instant};

use super::{
    Session,
    dialogue::DialogueSettings,
    millis,
    outbox::Observation,
    tts::{synthesizer::SpeechJob, text_normalization},
};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    event::{MicrophoneMode, Setting, SpeakRequest, VoiceSample},
};

/// Error text for a client that sends a text to an upstream without chat turns.
const NO_CHAT_MODE: &str = "the upstream's dialect has no chat mode, and so cannot speak a given text; its model speaks for itself only";

/// Settings of the client.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) language: Option<String>,
    pub(super) tts_model: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) microphone: MicrophoneMode,
    pub(super) rollover_events: bool,
    /// Encoding and sample rate of audio to the client.
    pub(super) output_format: (Encoding, u32),
    /// Silence after an utterance that the client wants reported.
    pub(super) utterance_gap: Option<Duration>,
}

impl Session {
    pub(super) fn apply_settings(&mut self, now: Instant, settings: Vec<Setting>) {
        let mut input = self.intake.speech_input.settings.clone();
        for setting in settings {
            match setting {
                Setting::Language(language) => {
                    self.note_missing_prompt(&language);
                    self.transcriber.options.language.clone_from(&language);
                    self.settings.language = Some(language);
                }
                Setting::HotWords(words) => self.transcriber.options.hot_words = words,
                Setting::TranscriptionPrompt(words) => self.transcriber.options.user_prompt = words,
                Setting::Translation(on) => self.transcriber.options.translates = on,
                Setting::Partials(on) => self.transcriber.options.partials = on,
                Setting::WordTimes(on) => {
                    self.transcriber.options.word_times = on && self.setup.estimates_word_times();
                }
                Setting::SpeakModel(model) => self.settings.tts_model = Some(model),
                Setting::SpeakModelIfKnown(model) if self.setup.voice_catalog.is_known_model(&model) => {
                    self.settings.tts_model = Some(model);
                }
                Setting::SpeakModelIfKnown(model) => {
                    let note = format!("speech model {model:?} is not configured; it changes nothing");
                    self.tools.out.observe(Observation::NoEffect(note));
                }
                Setting::Voice(voice) => self.settings.voice = Some(voice),
                Setting::VadSensitivity(sensitivity) => input.sensitivity = sensitivity,
                Setting::EndSilence(silence) => input.end_silence_ms = saturating_u32(millis(silence)),
                Setting::SegmentMax(max) => {
                    input.segment_max_ms = saturating_u32(millis(max).min(self.setup.audio_max_ms));
                }
                Setting::InputEncoding(encoding) => input.encoding = encoding,
                Setting::InputRate(rate_hz) => input.rate_hz = rate_hz,
                Setting::InputChannels(channels) => input.channels = channels,
                Setting::Instructions(text) => self.set_instructions(text),
                Setting::TurnDetection(detection) => {
                    input.is_manual = !detection.is_automatic;
                    self.tools.out.mutes_speech_events = !detection.is_automatic;
                    if let Some(assistant) = &mut self.assistant {
                        assistant.settings.detection = detection;
                        self.transcriber.yields_to_answer = detection.answers || detection.client_asks;
                        self.transcriber.expects_request = detection.client_asks;
                    }
                }
                Setting::SpokenAnswers(on) => {
                    if let Some(assistant) = &mut self.assistant {
                        assistant.settings.speaks = on;
                    }
                }
                Setting::TranscribeUser(on) if self.setup.profile.answers.is_some() => {
                    self.transcriber.wants_transcript = on;
                }
                Setting::TranscribeUser(on) => {
                    if on && !self.setup.profile.transcribes_user() {
                        let because = "set transcribe_user = true in its [converse]";
                        self.note_no_effect("a transcript of the user is not made", because);
                    }
                }
                Setting::Microphone(microphone) if self.setup.profile.barge_in().is_some() => {
                    self.settings.microphone = microphone;
                }
                Setting::Microphone(_) => {
                    let note = "microphone: it is muted while a text is spoken, as on the real server";
                    self.tools.out.observe(Observation::NoEffect(note.to_owned()));
                }
                Setting::RolloverEvents(on) => self.settings.rollover_events = on,
                Setting::SpeechEvents(on) => self.tools.out.mutes_speech_events = !on,
                Setting::UtteranceGap(gap) => self.settings.utterance_gap = Some(gap),
                Setting::OutputEncoding(encoding) => {
                    self.set_output_format((encoding, self.settings.output_format.1));
                }
                Setting::OutputRate(rate_hz) => {
                    self.set_output_format((self.settings.output_format.0, rate_hz));
                }
            }
        }
        let voice = self.configured_voice();
        let partials = self.transcriber.options.partials;
        if let Some(assistant) = &mut self.assistant {
            assistant.settings.voice = voice;
            assistant.settings.partials = partials;
        }
        let settings = self.dialogue_settings();
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.settings = settings;
        }
        if let Err(error) = self.intake.speech_input.apply_settings(input, &mut self.intake.speech_events) {
            self.report_error(Error::new(ErrorKind::BadSetting, format!("audio from the client: {error}")));
        }
        self.process_speech_events(now);
    }

    /// Tells the operator that the model will not be asked in this language.
    fn note_missing_prompt(&mut self, language: &str) {
        let hear = &self.setup.profile.hear;
        if self.settings.language.as_deref() != Some(language) && hear.prompt_language(language).is_none() {
            let note = format!(
                "language {language:?}: the profile has no transcription prompt for it, so its prompt for {:?} is used",
                hear.language
            );
            self.tools.out.observe(Observation::NoEffect(note));
        }
    }

    fn set_output_format(&mut self, (encoding, rate_hz): (Encoding, u32)) {
        match self.tools.floor.set_format(encoding, rate_hz) {
            Ok(()) => self.settings.output_format = (encoding, rate_hz),
            Err(error) => {
                self.report_error(Error::new(ErrorKind::BadSetting, format!("audio to the client: {error}")));
            }
        }
    }

    /// Settings that concern a conversation.
    pub(super) fn dialogue_settings(&self) -> DialogueSettings {
        DialogueSettings {
            voice: self.configured_voice(),
            partials: self.transcriber.options.partials,
            rollover_events: self.settings.rollover_events,
        }
    }

    /// Voice of the model's own turns, by the settings.
    pub(super) fn configured_voice(&self) -> Option<VoiceSample> {
        let (voice, model) = (self.settings.voice.as_deref(), self.settings.tts_model.as_deref());
        self.setup.voice_catalog.choose(None, voice, model).ok().and_then(|choice| choice.voice)
    }

    pub(super) fn start_speech(&mut self, now: Instant, request: SpeakRequest) {
        let named = |error: Error| Error { request_id: request.request_id.clone(), ..error };
        if !self.setup.has_chat {
            return self.report_error(named(Error::new(ErrorKind::SpeakFailed, NO_CHAT_MODE)));
        }
        let rules = &self.setup.profile.speak;
        let language = request.language.as_deref().or(self.settings.language.as_deref()).unwrap_or("en");
        let text = text_normalization::normalize_text(&request.text, rules.symbols(language));
        let choice = self.setup.voice_catalog.choose(
            request.reference,
            request.voice.as_deref().or(self.settings.voice.as_deref()),
            self.settings.tts_model.as_deref(),
        );
        let voice = match choice {
            Err(error) => return self.report_error(named(error)),
            Ok(_) if text.is_empty() => {
                return self
                    .report_error(named(Error::new(ErrorKind::SpeakFailed, "Text must not be empty")));
            }
            Ok(choice) => {
                if let Some(note) = choice.note {
                    self.tools.out.observe(Observation::NoEffect(note));
                }
                choice.voice
            }
        };
        let request_id =
            request.request_id.unwrap_or_else(|| format!("tts_{:08x}", self.tools.lanes.rng().u32(..)));
        let job = SpeechJob {
            request_id,
            parts: text_normalization::split_parts(&text, rules.part_max_chars),
            text: request.text,
            instruction: request.instruction,
            voice,
        };
        self.interrupt_model(now);
        self.synthesizer.start_job(now, job, &mut self.tools);
    }
}

pub(super) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
