//! Changes of settings by the client. Settings that the profile or its upstreams cannot follow are noted.

use std::time::Instant;

use super::{Session, client_requests::NO_TOOLS, outbox::Observation};
use crate::{
    audio::output_converter::OutputFormat,
    error::{Error, ErrorKind},
    session::tts::voices::VoiceChoice,
    vocabulary::{ClientEvent, ClientSettings, Eagerness, Setting, TurnEnd, TurnEndRule, VoiceSample},
};

/// Note on tools for operators.
const TOOLS_NOTE: &str = "tools: the model is prompted, not trained, to call them; each call is checked against its schema, and a wrong one is asked for once more";

impl Session {
    pub(super) fn apply_settings(&mut self, now: Instant, settings: Vec<Setting>) {
        let format = self.tools.settings.output_format();
        let is_format_set = settings.iter().any(Setting::is_output_format);
        for setting in settings {
            self.note_missing_parts(&setting);
            match self.missing_effect(&setting) {
                Some(note) => self.tools.out.observe(Observation::NoEffect(note)),
                None => self.tools.settings.set(setting),
            }
        }
        if is_format_set {
            self.apply_output_format(format);
        }
        self.follow_settings(now);
    }

    /// Has the parts of the session follow the settings. Those that only read them need nothing.
    fn follow_settings(&mut self, now: Instant) {
        let settings = &self.tools.settings;
        let (detection, cancels_echo) = (settings.turn_detection, settings.cancels_echo);
        self.tools.out.mutes_speech_events = !settings.speech_events.unwrap_or(detection.is_automatic);
        match settings.finals_only {
            true => self.tools.out.hold_transcripts(self.setup.reports_parts),
            false => self.tools.out.release_transcripts(self.transcriber.queue.finals_to_come()),
        }
        let has_answers = self.assistant.is_some();
        self.transcriber.wants_transcript = self.setup.transcribes_user(settings);
        self.transcriber.yields_to_answer = has_answers && (detection.answers || detection.client_asks);
        self.transcriber.expects_request = has_answers && detection.client_asks;
        if self.setup.profile.dialogue.is_some() {
            self.intake.speech_input.record_utterances(self.transcriber.wants_transcript);
        }
        if self.intake.speech_input.echo.is_some() != cancels_echo {
            self.intake.speech_input.cancel_echo(cancels_echo, &mut self.intake.speech_events);
            self.tools.floor.log_playback(cancels_echo);
        }
        self.tools.voice = self.choose_voice(None, None).ok().and_then(|choice| choice.voice);
        if let Some(assistant) = &mut self.assistant {
            // With these settings the question would be another.
            assistant.replace_early(now, &mut self.tools);
        }
        self.apply_input_settings();
        self.process_speech_events(now);
    }

    fn apply_input_settings(&mut self) {
        let input = self.setup.input_settings(&self.tools.settings);
        if let Err(error) = self.intake.speech_input.apply_settings(input, &mut self.intake.speech_events) {
            let kept = &self.intake.speech_input.settings;
            let settings = &mut self.tools.settings;
            settings.input_encoding = kept.encoding;
            (settings.input_rate_hz, settings.input_channels) = (kept.rate_hz, kept.channels);
            self.report_error(Error::new(ErrorKind::BadSetting, format!("audio from the client: {error}")));
        }
    }

    /// Applies the format of the audio to the client. The one `before` stays if it is wrong.
    fn apply_output_format(&mut self, before: OutputFormat) {
        if let Err(error) = self.tools.floor.set_format(self.tools.settings.output_format()) {
            let OutputFormat { encoding, rate_hz, bit_rate } = before;
            let settings = &mut self.tools.settings;
            settings.output_encoding = encoding;
            (settings.output_rate_hz, settings.output_bit_rate) = (rate_hz, bit_rate);
            // The format before is valid. The floor of a new session does not have it yet.
            let _ = self.tools.floor.set_format(before);
            self.report_error(Error::new(ErrorKind::BadSetting, format!("audio to the client: {error}")));
        }
    }

    /// Confirms a change of settings.
    pub(super) fn report_settings(&mut self) {
        let ClientSettings { hot_words, end_threshold, end_likely_threshold, end_wait_max_ms, .. } =
            &self.tools.settings;
        let configured = ClientEvent::Configured {
            hot_words: hot_words.clone(),
            end_threshold: *end_threshold,
            end_likely_threshold: *end_likely_threshold,
            end_wait_max_ms: *end_wait_max_ms,
        };
        self.tools.out.push_client(configured);
    }

    /// Why a setting has no effect, for the operator; `None` if it has one, or turns off what does not exist.
    fn missing_effect(&self, setting: &Setting) -> Option<String> {
        let has_answers = self.assistant.is_some();
        let (what, because) = match setting {
            Setting::SpeakModel(model) => {
                let is_known = model.must_exist || self.setup.voice_catalog.is_known_model(&model.name);
                let note = || format!("speech model {:?} is not configured; it changes nothing", model.name);
                return (!is_known).then(note);
            }
            Setting::Microphone(_) if self.setup.profile.barge_in().is_none() => {
                return Some(
                    "microphone: it is muted while a text is spoken, as on the real server".to_owned(),
                );
            }
            Setting::Instructions(_) if !has_answers => {
                ("instructions do nothing", "its prompts are in its file")
            }
            Setting::Tools(offer) if !self.setup.profile.calls_tools() && !offer.tools.is_empty() => {
                ("tools do nothing", NO_TOOLS)
            }
            Setting::MaxTokens(Some(_)) if !has_answers => {
                ("a bound on answers does nothing", "its model speaks in full duplex")
            }
            Setting::Temperature(Some(_)) if !has_answers => {
                ("a temperature does nothing", "it is in its file")
            }
            Setting::Temperature(Some(_)) if !self.setup.takes_temperature => {
                ("a temperature does nothing", "its upstreams have none for single answers")
            }
            Setting::TranscribeUser(true)
                if self.setup.profile.dialogue.is_some()
                    && !(self.setup.can_transcribe || self.setup.profile.transcribes_user()) =>
            {
                ("a transcript of the user is not made", "no upstream transcribes")
            }
            _ => return None,
        };
        Some(self.without_effect(what, because))
    }

    /// Tells the operator what a setting lacks, or how it acts.
    fn note_missing_parts(&mut self, setting: &Setting) {
        match setting {
            Setting::Language(language) => self.note_missing_prompt(language),
            Setting::EndThreshold(_) => self.note_missing_judge(TurnEnd::Semantic(Eagerness::default())),
            Setting::TurnDetection(detection) => self.note_missing_judge(detection.turn_end),
            Setting::Tools(offer) if self.setup.profile.calls_tools() && !offer.tools.is_empty() => {
                self.tools.out.observe(Observation::Note(TOOLS_NOTE.to_owned()));
            }
            _ => {}
        }
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

    /// Tells the operator that the model will not be asked in this language.
    fn note_missing_prompt(&mut self, language: &str) {
        let hear = &self.setup.profile.hear;
        let known = self.tools.settings.language.as_deref();
        if known != Some(language) && hear.prompt_language(language).is_none() {
            let note = format!(
                "language {language:?}: the profile has no transcription prompt for it, so its prompt for {:?} is used",
                hear.language
            );
            self.tools.out.observe(Observation::NoEffect(note));
        }
    }

    /// The voice for a text with this sample or name, and for the model without either.
    pub(super) fn choose_voice(
        &self,
        sample: Option<VoiceSample>,
        name: Option<&str>,
    ) -> Result<VoiceChoice, Error> {
        let ClientSettings { voice, speak_model, .. } = &self.tools.settings;
        let model = speak_model.as_ref().map(|model| model.name.as_str());
        self.setup.voice_catalog.choose(sample, name.or(voice.as_deref()), model)
    }
}
