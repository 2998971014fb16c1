//! Requests of the client beside audio: settings, texts to speak, entries, answers, finals on request, reports of silence.

use std::{sync::Arc, time::Instant};

use super::{
    Session, SessionPhase,
    assistant::entries::Entries,
    dialogue::DialogueSettings,
    effects::Effects,
    floor::{Claim, Permission},
    input::speech_input::{COMMIT_MIN_MS, SpeechEvent},
    millis,
    outbox::{Observation, lockstep::AwaitedReply},
    settings::EndSettings,
    tools::Tools,
    tts::{
        queue::{TtsQueue, TtsQueueItem},
        synthesizer::SpeechJob,
        text_normalization,
    },
};
use crate::{
    audio::{SPEECH_RATE_HZ, encoding::Encoding},
    error::{Error, ErrorKind},
    event::{
        AnswerRequest, ClientCommand, Eagerness, EndCause, Entry, EntryId, EntryPart, EntryPlace, Role,
        Setting, SpeakRequest, TurnEnd, VideoFrame, VoiceSample,
    },
    mapping::profile::TurnEndRule,
};

/// Error text for a client that sends a text to an upstream without chat turns.
const NO_SPEAKER: &str = "the upstreams have no chat mode for it, and so cannot speak a given text; their models speak for themselves only";

/// Why a profile calls no tools.
pub(super) const NO_TOOLS: &str = "it has no [answer.tools]";

impl Session {
    /// Completes the audio so far: of the utterance in progress, or all that a client without voice activity has sent.
    pub(super) fn commit_audio(&mut self, now: Instant, may_be_empty: bool) {
        let speech_input = &mut self.intake.speech_input;
        let missing = match speech_input.settings.is_manual {
            true => {
                speech_input.commit_manual(&mut self.intake.speech_events);
                format!("fewer than {COMMIT_MIN_MS} ms of audio")
            }
            false => {
                speech_input.commit_segment(&mut self.intake.speech_events);
                "no speech".to_owned()
            }
        };
        let is_empty = !self.process_speech_events(now);
        if is_empty && !may_be_empty {
            let detail = format!("{missing} since the last commit");
            self.report_error(Error::new(ErrorKind::EmptyCommit, detail));
        }
    }

    /// Gives a picture to the model.
    pub(super) fn add_picture(&mut self, now: Instant, picture: VideoFrame) {
        if self.assistant.is_some() {
            let id = EntryId(self.tools.segment_ids.next_id());
            let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Picture(picture.0)] };
            return self.change_entries(now, |entries| {
                entries.add(entry, EntryPlace::End);
            });
        }
        if !self.dialogue.as_mut().is_some_and(|dialogue| dialogue.push_video_frame(picture)) {
            self.note_no_effect("a picture does nothing", "its model sees nothing");
        }
    }

    /// Adds an entry to the conversation. In full duplex, only its pictures can reach the model.
    pub(super) fn add_entry(&mut self, now: Instant, entry: Entry, place: EntryPlace) {
        let calls_tools = self.setup.profile.calls_tools();
        if self.assistant.is_some() && (calls_tools || !entry.concerns_tools()) {
            let mut was_cut = false;
            self.change_entries(now, |entries| was_cut = entries.add(entry, place));
            if was_cut {
                let note = "a tool's result was cut: it takes more than half of answer.history_max_chars";
                self.tools.out.observe(Observation::Note(note.to_owned()));
            }
            return;
        }
        for part in entry.parts {
            match part {
                EntryPart::Picture(file) => self.add_picture(now, VideoFrame(file)),
                EntryPart::Text(_) | EntryPart::Audio(_) => {
                    self.note_no_effect(
                        "an added message does nothing",
                        "its model hears only the microphone",
                    );
                }
                EntryPart::Call(_) | EntryPart::Result(_) => {
                    self.note_no_effect("a call of a tool, or its result, does nothing", NO_TOOLS);
                }
            }
        }
    }

    /// Has the model answer.
    pub(super) fn request_answer(&mut self, now: Instant, request: AnswerRequest) {
        self.activity.idle_since = now;
        match &mut self.assistant {
            Some(assistant) => {
                assistant.request(now, request, &mut self.tools);
                let Tools { lanes, timers, out, .. } = &mut self.tools;
                self.transcriber.end_request_wait(now, lanes, timers, out);
                self.pass_on_words();
            }
            None => self.note_no_effect("a request for an answer does nothing", "it takes no turns"),
        }
    }

    /// Changes the conversation that the assistant knows, if there is one. An early question would be another now.
    pub(super) fn change_entries(&mut self, now: Instant, change: impl FnOnce(&mut Entries)) {
        if let Some(assistant) = &mut self.assistant {
            change(&mut assistant.entries);
            if assistant.replace_early(now, &mut self.tools) {
                self.follow(now, Effects::ALL);
            }
        }
    }

    pub(super) fn note_no_effect(&mut self, what: &str, because: &str) {
        let note = format!("{what} in profile {}: {because}", self.setup.profile.name);
        self.tools.out.observe(Observation::NoEffect(note));
    }

    /// Passes an utterance on to the assistant once its audio is complete.
    pub(super) fn handle_committed(&mut self, now: Instant, segment_id: u32, audio: Arc<Vec<i16>>) {
        let audio_ms = audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let is_transcribed = self.transcriber.wants_transcript && !audio.is_empty();
        self.tools.out.push_client(ClientCommand::AudioCommitted { segment_id, audio_ms, is_transcribed });
        let Some(assistant) = &mut self.assistant else { return };
        let id = EntryId(segment_id);
        let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Audio(audio)] };
        assistant.entries.add(entry, EntryPlace::End);
        let detection = assistant.settings.detection;
        if detection.answers {
            assistant.request(now, AnswerRequest::default(), &mut self.tools);
        } else {
            self.withdraw_early(now);
        }
    }

    pub(super) fn update_tts_queue(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut TtsQueue) -> Result<(), String>,
    ) {
        self.activity.idle_since = now;
        if let Err(problem) = act(&mut self.tts_queue) {
            self.report_error(Error::new(ErrorKind::SpeakFailed, problem));
        }
    }

    /// Speaks the next queued text, once the current one has ended.
    pub(super) fn speak_next_queued(&mut self, now: Instant) {
        while self.phase != SessionPhase::Ended
            && self.tools.floor.may_speak(Claim::QueuedText) == Permission::Now
        {
            match self.tts_queue.pop() {
                None => return,
                Some(TtsQueueItem::Text(text, request_id)) => {
                    self.start_speech(now, SpeakRequest { text, request_id, ..SpeakRequest::default() });
                }
                Some(TtsQueueItem::Flushed(sequence, request_id)) => {
                    self.tools.out.push_client(ClientCommand::Flushed { sequence, request_id });
                }
            }
        }
    }

    /// Ends the current utterance and makes all transcripts so far final.
    pub(super) fn finalize_transcripts(&mut self, now: Instant) {
        self.intake.speech_input.end_utterance(EndCause::Manual, &mut self.intake.speech_events);
        self.process_speech_events(now);
        self.transcriber.finalize(now, &mut self.tools);
        self.pass_on_words();
        self.tools.out.await_reply(AwaitedReply::Final);
    }

    /// Tracks the end of the last utterance, for the report of silence.
    pub(super) fn track_utterance_end(&mut self, event: &SpeechEvent) {
        match event {
            SpeechEvent::Started { .. } => self.intake.last_utterance_end_ms = None,
            SpeechEvent::Segment(segment) if segment.ends_utterance && segment.has_speech => {
                let settings = &self.intake.speech_input.settings;
                // A pause that is judged has no fixed length.
                let end_ms = match settings.pauses.judged {
                    Some(_) => segment.speech_ms.1,
                    None => segment.end_ms.saturating_sub(settings.end_silence_ms.into()),
                };
                self.intake.last_utterance_end_ms = Some(end_ms);
            }
            _ => {}
        }
    }

    /// Reports silence of the length that the client asked for, after the transcripts before it.
    pub(super) fn report_utterance_gap(&mut self) {
        let gap = self.settings.utterance_gap.map(millis);
        if let (Some(gap), Some(last_ms)) = (gap, self.intake.last_utterance_end_ms)
            && self.intake.speech_input.listened_ms() >= last_ms + gap
            && self.transcriber.queue.is_settled()
        {
            self.intake.last_utterance_end_ms = None;
            self.tools.out.push_client(ClientCommand::UtteranceGap { last_ms });
        }
    }

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
                Setting::EndSilence(silence) => input.end_silence_ms = saturating_u32(millis(silence)),
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
                Setting::RolloverEvents(on) => self.settings.rollover_events = on,
                Setting::SpeechEvents(on) => self.tools.out.mutes_speech_events = !on,
                Setting::FinalsOnly(on) => self.tools.out.set_finals_only(on, self.setup.reports_parts),
                Setting::UtteranceGap(gap) => self.settings.utterance_gap = Some(gap),
                Setting::OutputEncoding(encoding) => {
                    self.set_output_format((encoding, self.settings.output_format.1));
                }
                Setting::OutputRate(rate_hz) => {
                    self.set_output_format((self.settings.output_format.0, rate_hz));
                }
            }
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
        let EndSettings { threshold, likely_threshold, wait_max_ms } = self.settings.end;
        self.tools.out.push_client(ClientCommand::Configured {
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
        if !self.setup.can_speak {
            return self.report_error(named(Error::new(ErrorKind::SpeakFailed, NO_SPEAKER)));
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
        if let Some(assistant) = &mut self.assistant {
            assistant.cut(now, &mut self.tools);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.interrupt(now, &mut self.tools.floor, &mut self.tools.out);
        }
        self.synthesizer.start_job(now, job, &mut self.tools);
    }
}

pub(super) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
