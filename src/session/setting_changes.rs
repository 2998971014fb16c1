//! Changes of settings by the client. Settings that the profile or its upstreams cannot follow are noted.

use std::time::Instant;

use super::{
    client_requests::NO_TOOLS, outbox::Observation, owners::Owners, setup::SessionSetup, tools::Tools,
    tts::voices::VoiceChoice,
};
use crate::{
    audio::output_converter::OutputFormat,
    error::{Error, ErrorKind},
    vocabulary::{ClientSettings, Eagerness, Setting, TurnEnd, TurnEndRule, VoiceSample},
};

/// Note on tools for operators.
const TOOLS_NOTE: &str = "tools: the model is prompted, not trained, to call them; each call is checked against its schema, and a wrong one is asked for once more";

impl Owners {
    /// Applies settings of the client. Settings without an effect are noted, and change nothing.
    pub(super) fn apply_settings(&mut self, now: Instant, settings: Vec<Setting>) {
        let Tools { settings: in_force, floor, .. } = &mut self.tools;
        let format = in_force.output_format();
        let is_format_set = settings.iter().any(Setting::is_output_format);
        for setting in settings {
            let note = self.setup.note_on(&setting, in_force);
            note.into_iter().for_each(|note| floor.out.observe(note));
            match self.setup.missing_effect(&setting) {
                Some(note) => floor.out.observe(Observation::NoEffect(note)),
                None => in_force.set(setting),
            }
        }
        if is_format_set {
            self.apply_output_format(format);
        }
        self.follow_settings(now);
    }

    /// Has the owners follow the settings. Those that only read them need nothing.
    fn follow_settings(&mut self, now: Instant) {
        let settings = &self.tools.settings;
        let (detection, cancels_echo) = (settings.turn_detection, settings.cancels_echo);
        self.tools.floor.out.mutes_speech_events = !settings.speech_events.unwrap_or(detection.is_automatic);
        match settings.finals_only {
            true => self.tools.floor.out.hold_transcripts(self.setup.reports_parts),
            false => self.tools.floor.out.release_transcripts(self.transcriber.queue.finals_to_come()),
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
        let choice = self.setup.choose_voice(&self.tools.settings, None, None).ok();
        (self.tools.voice, self.tools.voice_name) =
            choice.map(|choice| (choice.voice, choice.name)).unwrap_or_default();
        if let Some(assistant) = &mut self.assistant {
            // With these settings the question would be another.
            assistant.replace_early(now, &mut self.tools);
        }
        self.apply_input_settings();
        self.process_speech_events(now);
    }

    fn apply_input_settings(&mut self) {
        let Tools { settings, floor, .. } = &mut self.tools;
        let input = self.setup.input_settings(settings);
        if let Err(error) = self.intake.speech_input.apply_settings(input, &mut self.intake.speech_events) {
            let kept = &self.intake.speech_input.settings;
            settings.input_encoding = kept.encoding;
            (settings.input_rate_hz, settings.input_channels) = (kept.rate_hz, kept.channels);
            let problem = format!("audio from the client: {error}");
            floor.out.push_error(Error::new(ErrorKind::BadSetting, problem));
        }
    }

    /// Applies the format of the audio to the client. The one `before` stays in force if it is wrong.
    fn apply_output_format(&mut self, before: OutputFormat) {
        let Tools { settings, floor, .. } = &mut self.tools;
        if let Err(error) = floor.set_format(settings.output_format()) {
            let OutputFormat { encoding, rate_hz, bit_rate } = before;
            settings.output_encoding = encoding;
            (settings.output_rate_hz, settings.output_bit_rate) = (rate_hz, bit_rate);
            let problem = format!("audio to the client: {error}");
            floor.out.push_error(Error::new(ErrorKind::BadSetting, problem));
        }
    }
}

impl SessionSetup {
    /// Why a setting has no effect, for the operator; `None` if it has one, or turns off what does not exist.
    fn missing_effect(&self, setting: &Setting) -> Option<String> {
        let has_answers = self.profile.answers.is_some();
        let (what, because) = match setting {
            Setting::SpeakModel(model) => {
                let is_known = model.must_exist
                    || self.takes_voice_names
                    || self.voice_catalog.is_known_model(&model.name);
                let note = || format!("speech model {:?} is not configured; it changes nothing", model.name);
                return (!is_known).then(note);
            }
            Setting::Microphone(_) if self.profile.barge_in().is_none() => {
                return Some(
                    "microphone: it is muted while a text is spoken, as on the real server".to_owned(),
                );
            }
            Setting::Instructions(_) if !has_answers => {
                ("instructions do nothing", "its prompts are in its file")
            }
            Setting::Tools(offer) if !self.profile.calls_tools() && !offer.tools.is_empty() => {
                ("tools do nothing", NO_TOOLS)
            }
            Setting::MaxTokens(Some(_)) if !has_answers => {
                ("a bound on answers does nothing", "its model speaks in full duplex")
            }
            Setting::Temperature(Some(_)) if !has_answers => {
                ("a temperature does nothing", "it is in its file")
            }
            Setting::Temperature(Some(_)) if !self.takes_temperature => {
                ("a temperature does nothing", "its upstreams have none for single answers")
            }
            Setting::TranscribeUser(true)
                if self.profile.dialogue.is_some()
                    && !(self.can_transcribe || self.profile.transcribes_user()) =>
            {
                ("a transcript of the user is not made", "no upstream transcribes")
            }
            _ => return None,
        };
        Some(self.without_effect(what, because))
    }

    /// Note on something that does nothing in this profile.
    pub(super) fn without_effect(&self, what: &str, because: &str) -> String {
        format!("{what} in profile {}: {because}", self.profile.name)
    }

    /// What a setting lacks, or how it acts, for the operator.
    fn note_on(&self, setting: &Setting, in_force: &ClientSettings) -> Option<Observation> {
        match setting {
            Setting::Language(language) => self.missing_prompt(language, in_force),
            Setting::EndThreshold(_) => self.missing_judge(TurnEnd::Semantic(Eagerness::default())),
            Setting::TurnDetection(detection) => self.missing_judge(detection.turn_end),
            Setting::Tools(offer)
                if self.profile.calls_tools() && !self.calls_natively && !offer.tools.is_empty() =>
            {
                Some(Observation::Note(TOOLS_NOTE.to_owned()))
            }
            _ => None,
        }
    }

    /// Why nothing judges pauses, although the client or the profile wants it; `None` otherwise.
    pub(super) fn missing_judge(&self, turn_end: TurnEnd) -> Option<Observation> {
        let is_wanted = matches!(turn_end, TurnEnd::Semantic(_))
            || turn_end == TurnEnd::OfProfile && self.profile.listen.turn_end == TurnEndRule::Semantic;
        if !is_wanted {
            return None;
        }
        let note = if self.profile.dialogue.is_some() {
            self.without_effect("turn detection by meaning does nothing", "its model decides when it speaks")
        } else if !self.has_turn_judge {
            "turn detection by meaning: no end-of-turn model is loaded (--turn-model), so a fixed silence ends turns".to_owned()
        } else {
            return None;
        };
        Some(Observation::NoEffect(note))
    }

    /// Note that the model will not be asked in this language; `None` if it will, or was not before.
    fn missing_prompt(&self, language: &str, in_force: &ClientSettings) -> Option<Observation> {
        let hear = &self.profile.hear;
        let is_new = in_force.language.as_deref() != Some(language);
        (is_new && hear.prompt_language(language).is_none()).then(|| {
            Observation::NoEffect(format!(
                "language {language:?}: the profile has no transcription prompt for it, so its prompt for {:?} is used",
                hear.language
            ))
        })
    }

    /// The voice for a text with this sample or name, and for the model without either.
    pub(super) fn choose_voice(
        &self,
        settings: &ClientSettings,
        sample: Option<VoiceSample>,
        name: Option<&str>,
    ) -> Result<VoiceChoice, Error> {
        let model = settings.speak_model.as_ref().map(|model| model.name.as_str());
        let choice = self.voice_catalog.choose(sample, name.or(settings.voice.as_deref()), model)?;
        Ok(VoiceChoice { note: choice.note.filter(|_| !self.takes_voice_names), ..choice })
    }
}
