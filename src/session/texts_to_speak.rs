//! Texts that the client has spoken: at once, or queued by fragments and flushes.

use std::time::Instant;

use super::{
    floor::{Claim, Permission},
    outbox::Observation,
    owners::Owners,
    tts::{
        queue::{QueuedText, TtsQueue, TtsQueueItem},
        synthesizer::SpeechJob,
        text_normalization,
    },
};
use crate::{
    error::{Error, ErrorKind},
    vocabulary::{ClientEvent, SpeakRequest},
};

/// Error text for a client that sends a text to an upstream without chat turns.
const NO_SPEAKER: &str = "the upstreams have no chat mode for it, and so cannot speak a given text; their models speak for themselves only";

impl Owners {
    /// Adds a fragment to the text with this id.
    pub(super) fn append_text(&mut self, text: String, id: Option<String>) {
        let settings = &self.tools.settings;
        let (voice, language) = (settings.voice.clone(), settings.language.clone());
        self.update_tts_queue(|queue| queue.append(QueuedText { text, id, voice, language }));
    }

    /// Stops and discards the texts with this id, or all speech without an id.
    pub(super) fn clear_texts(&mut self, now: Instant, request_id: Option<String>) {
        let sequence = self.tts_queue.clear(request_id.as_deref());
        match &request_id {
            None => {
                self.tools.floor.out.completions.end_flushes(self.tts_queue.flushes());
                self.stop_speech(now);
            }
            Some(id) if self.tools.floor.is_speaking(id) => {
                self.synthesizer.cancel(now, &mut self.tools);
            }
            Some(_) => {}
        }
        self.tools.floor.out.push_client(ClientEvent::Cleared { sequence, request_id });
    }

    /// Changes the queue of texts. Reports to the client that it takes no more.
    pub(super) fn update_tts_queue(&mut self, act: impl FnOnce(&mut TtsQueue) -> Result<(), String>) {
        if let Err(problem) = act(&mut self.tts_queue) {
            self.tools.floor.out.push_error(Error::new(ErrorKind::SpeakFailed, problem));
        }
    }

    /// Speaks the next queued texts, once the current one has ended, up to one that has audio.
    ///
    /// # Errors
    /// One of them cannot be spoken. The next ones are still queued.
    pub(super) fn speak_next_queued(&mut self, now: Instant) -> Result<(), Error> {
        while self.tools.floor.may_speak(Claim::QueuedText) == Permission::Now {
            match self.tts_queue.pop() {
                None => break,
                Some(TtsQueueItem::Text(QueuedText { text, id: request_id, voice, language })) => {
                    let request =
                        SpeakRequest { text, request_id, voice, language, ..SpeakRequest::default() };
                    // Nothing is said of an emoji, or of an empty line between sentences.
                    let text = self.normalized_text(&request);
                    if !text.is_empty() {
                        self.speak(now, request, &text)?;
                    }
                }
                Some(TtsQueueItem::Flushed(sequence, request_id)) => {
                    self.tools.floor.out.push_client(ClientEvent::Flushed { sequence, request_id });
                }
            }
        }
        Ok(())
    }

    /// Speaks a text now.
    pub(super) fn start_speech(&mut self, now: Instant, request: SpeakRequest) {
        let text = self.normalized_text(&request);
        if let Err(error) = self.speak(now, request, &text) {
            self.tools.floor.out.push_error(error);
        }
    }

    /// The words of a text that the model can say; empty if it has none.
    fn normalized_text(&self, request: &SpeakRequest) -> String {
        let usual = self.tools.settings.language.as_deref();
        let language = request.language.as_deref().or(usual).unwrap_or("en");
        let symbols = self.setup.profile.speak.symbols(language);
        text_normalization::normalize_text(&request.text, symbols)
    }

    /// Speaks a text whose normalised words are `text`. Without words it begins and ends, and has no audio.
    ///
    /// # Errors
    /// No upstream speaks, there is no such voice, or the protocol has no blank texts.
    fn speak(&mut self, now: Instant, request: SpeakRequest, text: &str) -> Result<(), Error> {
        let job = self.prepare_speech(request, text)?;
        if let Some(assistant) = &mut self.assistant {
            assistant.cut(now, &mut self.tools);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.interrupt(now, &mut self.tools);
        }
        self.synthesizer.start_job(now, job, &mut self.tools);
        Ok(())
    }

    /// Prepares a text whose normalised words are `text`.
    fn prepare_speech(&mut self, request: SpeakRequest, text: &str) -> Result<SpeechJob, Error> {
        let named = |error: Error| Error { request_id: request.request_id.clone(), ..error };
        if !self.setup.can_speak {
            return Err(named(Error::new(ErrorKind::SpeakFailed, NO_SPEAKER)));
        }
        let choice =
            self.setup.choose_voice(&self.tools.settings, request.reference, request.voice.as_deref());
        let choice = choice.map_err(named)?;
        if self.setup.rejects_blank_texts && request.text.trim().is_empty() {
            return Err(named(Error::new(ErrorKind::BlankText, "Text must not be empty")));
        }
        if let Some(note) = choice.note {
            self.tools.floor.out.observe(Observation::NoEffect(note));
        }
        let rng = self.tools.lanes.rng();
        Ok(SpeechJob {
            request_id: request.request_id.unwrap_or_else(|| format!("tts_{:08x}", rng.u32(..))),
            parts: text_normalization::split_parts(text, self.setup.profile.speak.part_max_chars)
                .into_iter()
                // A part of dots has no audio.
                .filter(|part| part.contains(char::is_alphanumeric))
                .collect(),
            text: request.text,
            instruction: request.instruction,
            voice: choice.voice,
            voice_name: choice.name,
        })
    }
}
