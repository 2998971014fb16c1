//! Changes of settings by the client.

use std::time::Instant;

use super::{Session, dialogue::DialogueSettings, millis, outbox::Observation, settings::EndSettings};
use crate::{
    audio::output_converter::OutputFormat,
    error::{Error, ErrorKind},
    vocabulary::{ClientEvent, Eagerness, Setting, TurnEnd, TurnEndRule, VoiceSample},
};

impl Session {
    pub(super) fn apply_settings(&mut self, now: Instant, settings: Vec<Setting>) {
        let mut input = self.intake.speech_input.settings.clone();
        let mut output = None;
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
                Setting::EstimatedWordTimes(on) => {
                    self.transcriber.options.word_times = on && self.setup.has_word_times;
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
                Setting::EndSilence(silence) => {
                    self.settings.end.silence_ms = Some(saturating_u32(millis(silence)));
                }
                Setting::EndThreshold(share) => {
                    self.settings.end.threshold = Some(share);
                    self.note_missing_judge(TurnEnd::Semantic(Eagerness::default()));
                }
                Setting::EndLikelyThreshold(share) => self.settings.end.likely_threshold = Some(share),
                Setting::EndWaitMax(wait) => {
                    self.settings.end.wait_max_ms = Some(saturating_u32(millis(wait)));
                }
                Setting::SegmentMax(max) => {
                    input.segment_max_ms = saturating_u32(millis(max).min(self.setup.audio_max_ms));
                }
                Setting::InputEncoding(encoding) => input.encoding = encoding,
                Setting::InputRate(rate_hz) => input.rate_hz = rate_hz,
                Setting::InputChannels(channels) => input.channels = channels,
                Setting::Instructions(text) => self.set_instructions(text),
                Setting::TurnDetection(detection) => {
                    input.is_manual = !detection.is_automatic;
                    input.pauses = self.setup.pause_use(detection.turn_end);
                    self.note_missing_judge(detection.turn_end);
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
                Setting::Tools(offer) => self.set_tools(offer),
                Setting::AnswerMaxTokens(max) => self.set_max_tokens(max),
                Setting::Temperature(temperature) => self.set_temperature(temperature),
                Setting::TranscribeUser(on) => self.transcribe_user(on),
                Setting::Microphone(microphone) if self.setup.profile.barge_in().is_some() => {
                    self.settings.microphone = microphone;
                }
                Setting::Microphone(_) => {
                    let note = "microphone: it is muted while a text is spoken, as on the real server";
                    self.tools.out.observe(Observation::NoEffect(note.to_owned()));
                }
                Setting::EchoCancellation(on) => self.cancel_echo(on),
                Setting::IdlePause(pause) => self.settings.idle_pause = Some(pause),
                Setting::RolloverEvents(on) => self.settings.rollover_events = on,
                Setting::SpeechEvents(on) => self.tools.out.mutes_speech_events = !on,
                Setting::FinalsOnly(true) => self.tools.out.hold_transcripts(self.setup.reports_parts),
                Setting::FinalsOnly(false) => {
                    self.tools.out.release_transcripts(self.transcriber.queue.finals_to_come());
                }
                Setting::UtteranceGap(gap) => self.settings.utterance_gap = Some(gap),
                Setting::OutputEncoding(encoding) => {
                    output.get_or_insert(self.settings.output_format).encoding = encoding;
                }
                Setting::OutputRate(rate_hz) => {
                    output.get_or_insert(self.settings.output_format).rate_hz = rate_hz;
                }
                Setting::OutputBitRate(bit_rate) => {
                    output.get_or_insert(self.settings.output_format).bit_rate = Some(bit_rate);
                }
            }
        }
        if let Some(format) = output {
            self.set_output_format(format);
        }
        self.settings.end.apply(&mut input, &self.setup);
        let voice = self.configured_voice();
        let partials = self.transcriber.options.partials;
        if let Some(assistant) = &mut self.assistant {
            assistant.settings.voice = voice;
            assistant.settings.partials = partials;
            assistant.settings.language.clone_from(&self.settings.language);
            // With these settings the question would be another.
            assistant.replace_early(now, &mut self.tools);
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

    /// Confirms a change of settings.
    pub(super) fn report_settings(&mut self) {
        let EndSettings { threshold, likely_threshold, wait_max_ms, .. } = self.settings.end;
        self.tools.out.push_client(ClientEvent::Configured {
            hot_words: self.transcriber.options.hot_words.clone(),
            end_threshold: threshold,
            end_likely_threshold: likely_threshold,
            end_wait_max_ms: wait_max_ms,
        });
    }

    /// Tells the operator that nothing judges pauses as the client or the profile wants, and why.
    pub(super) fn note_missing_judge(&mut self, turn_end: TurnEnd) {
        let is_wanted = matches!(turn_end, TurnEnd::Semantic(_))
            || turn_end == TurnEnd::OfProfile && self.setup.profile.listen.turn_end == TurnEndRule::Semantic;
        if !is_wanted {
            return;
        }
        if self.setup.profile.dialogue.is_some() {
            self.note_no_effect("turn detection by meaning does nothing", "its model decides when it speaks");
        } else if !self.setup.has_turn_judge {
            let note = "turn detection by meaning: no end-of-turn model is loaded (--turn-model), so a fixed silence ends turns";
            self.tools.out.observe(Observation::NoEffect(note.to_owned()));
        }
    }

    /// Turns the cancellation of echo on or off.
    fn cancel_echo(&mut self, on: bool) {
        if self.intake.speech_input.echo.is_some() != on {
            self.intake.speech_input.cancel_echo(on, &mut self.intake.speech_events);
            self.tools.floor.log_playback(on);
        }
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

    fn set_output_format(&mut self, format: OutputFormat) {
        match self.tools.floor.set_format(format) {
            Ok(()) => self.settings.output_format = format,
            Err(error) => {
                // The format before is valid. The floor of a new session does not have it yet.
                let _ = self.tools.floor.set_format(self.settings.output_format);
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
            idle_pause: self.settings.idle_pause,
        }
    }

    /// Voice of the model's own turns, by the settings.
    pub(super) fn configured_voice(&self) -> Option<VoiceSample> {
        let (voice, model) = (self.settings.voice.as_deref(), self.settings.tts_model.as_deref());
        self.setup.voice_catalog.choose(None, voice, model).ok().and_then(|choice| choice.voice)
    }
}

pub(super) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
