//! Requests of the client beside audio: settings, texts to speak, entries, answers, finals on request.

use std::time::Instant;

use super::{
    assistant::Assistant,
    input::speech_input::COMMIT_MIN_MS,
    outbox::{Observation, completions::COMPLETIONS_MAX, lockstep::AwaitedReply},
    owners::Owners,
};
use crate::{
    error::{Error, ErrorKind},
    vocabulary::{
        AnswerRequest, ClientEvent, ClientRequest, EndCause, Entry, EntryId, EntryPart, EntryPlace, Role,
        VideoFrame,
    },
};

/// Why a profile calls no tools.
pub(super) const NO_TOOLS: &str = "it has no [answer.tools]";

impl Owners {
    /// Handles a request to an open session that neither has audio nor changes the conversation.
    pub(super) fn handle_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        match request {
            ClientRequest::Played(turn) => self.tools.floor.confirm_played(now, turn),
            ClientRequest::PauseAudio => self.tools.floor.hold(now),
            ClientRequest::ResumeAudio => self.tools.floor.release(now),
            ClientRequest::Configure(settings) => {
                self.apply_settings(now, settings);
                self.tools.floor.out.push_client(self.tools.settings.configured());
            }
            ClientRequest::Adjust(settings) => self.apply_settings(now, settings),
            ClientRequest::AppendText(text, id) => self.append_text(text, id),
            ClientRequest::Flush(id) => self.update_tts_queue(|queue| queue.flush(id)),
            ClientRequest::SpeakAppended(id) => self.update_tts_queue(|queue| queue.enqueue(id.as_deref())),
            ClientRequest::Clear(request_id) => self.clear_texts(now, request_id),
            ClientRequest::Finalize => _ = self.finalize_transcripts(now),
            ClientRequest::Complete => self.complete(now),
            ClientRequest::Speak(request) => self.start_speech(now, *request),
            ClientRequest::CancelSpeech => self.stop_speech(now),
            ClientRequest::Commit { may_be_empty } => self.commit_audio(now, may_be_empty),
            ClientRequest::ClearAudio => self.clear_audio(now),
            ClientRequest::Answer(request) => self.request_answer(now, *request),
            // Handled by the session.
            ClientRequest::Audio(_)
            | ClientRequest::KeepAlive
            | ClientRequest::VideoFrame(_)
            | ClientRequest::AddEntry(..)
            | ClientRequest::RemoveEntry(_)
            | ClientRequest::TruncateEntry(..)
            | ClientRequest::Finish
            | ClientRequest::Close(_) => {}
        }
    }

    /// Changes the conversation. Returns true if a question that was asked early has been replaced.
    pub(super) fn change_conversation(&mut self, now: Instant, request: ClientRequest<'_>) -> bool {
        match request {
            ClientRequest::VideoFrame(frame) => self.add_picture(now, frame),
            ClientRequest::AddEntry(entry, place) => self.add_entry(now, *entry, place),
            ClientRequest::RemoveEntry(id) => {
                self.change_assistant(now, |assistant| assistant.entries.remove(id))
            }
            ClientRequest::TruncateEntry(id, heard_ms) => {
                self.change_assistant(now, |assistant| assistant.truncate(id, heard_ms))
            }
            _ => false,
        }
    }

    /// Changes what the assistant knows of the conversation, if there is one. An early question is replaced if the change
    /// affects it; returns true then.
    fn change_assistant(&mut self, now: Instant, change: impl FnOnce(&mut Assistant)) -> bool {
        let Some(assistant) = &mut self.assistant else { return false };
        change(assistant);
        assistant.replace_early(now, &mut self.tools)
    }

    /// Gives a picture to the model.
    fn add_picture(&mut self, now: Instant, picture: VideoFrame) -> bool {
        if self.assistant.is_some() {
            let id = EntryId(self.tools.segment_ids.next_id());
            let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Picture(picture.0)] };
            return self.change_assistant(now, |assistant| {
                assistant.entries.add(entry, EntryPlace::End);
            });
        }
        if !self.dialogue.as_mut().is_some_and(|dialogue| dialogue.push_video_frame(picture)) {
            self.note_no_effect("a picture does nothing", "its model sees nothing");
        }
        false
    }

    /// Adds an entry to the conversation. In full duplex, only its pictures can reach the model.
    fn add_entry(&mut self, now: Instant, entry: Entry, place: EntryPlace) -> bool {
        let calls_tools = self.setup.profile.calls_tools();
        if self.assistant.is_some() && (calls_tools || !entry.concerns_tools()) {
            let mut was_cut = false;
            let is_replaced =
                self.change_assistant(now, |assistant| was_cut = assistant.entries.add(entry, place));
            if was_cut {
                let note = "a tool's result was cut: it takes more than half of answer.history_max_chars";
                self.tools.floor.out.observe(Observation::Note(note.to_owned()));
            }
            return is_replaced;
        }
        let mut is_replaced = false;
        for part in entry.parts {
            match part {
                EntryPart::Picture(file) => is_replaced |= self.add_picture(now, VideoFrame(file)),
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
        is_replaced
    }

    /// Completes the audio so far: of the utterance in progress, or all that a client without voice activity has sent.
    fn commit_audio(&mut self, now: Instant, may_be_empty: bool) {
        let speech_input = &mut self.intake.speech_input;
        let (has_completed, missing) = match speech_input.settings.is_manual {
            true => {
                speech_input.commit_manual(&mut self.intake.speech_events);
                let missing = format!("fewer than {COMMIT_MIN_MS} ms of audio");
                (self.process_speech_events(now), missing)
            }
            false => (self.commit_segment(now), "no speech".to_owned()),
        };
        if !has_completed && !may_be_empty {
            let detail = format!("{missing} since the last commit");
            self.tools.floor.out.push_error(Error::new(ErrorKind::EmptyCommit, detail));
        }
    }

    /// Discards the audio of the utterance in progress.
    fn clear_audio(&mut self, now: Instant) {
        self.intake.speech_input.clear(&mut self.intake.speech_events);
        self.process_speech_events(now);
        if let Some(assistant) = &mut self.assistant {
            assistant.withdraw_early(now, &mut self.tools.lanes);
            assistant.release_prepared(now, &mut self.tools.lanes);
        }
        self.abandon_recording(now);
        self.tools.floor.out.push_client(ClientEvent::AudioCleared);
    }

    /// Has the model answer.
    fn request_answer(&mut self, now: Instant, request: AnswerRequest) {
        match &mut self.assistant {
            Some(assistant) => {
                assistant.request(now, request, &mut self.tools);
                self.end_request_wait(now);
            }
            None => self.note_no_effect("a request for an answer does nothing", "it takes no turns"),
        }
    }

    /// Transcribes the utterances that waited for the client's request for an answer.
    pub(super) fn end_request_wait(&mut self, now: Instant) {
        self.transcriber.end_request_wait(now, &mut self.tools);
        self.pass_on_words();
    }

    /// Ends the current utterance and makes all transcripts so far final. Reports an error and returns false if too many finals
    /// are awaited.
    fn finalize_transcripts(&mut self, now: Instant) -> bool {
        self.end_utterance(now, EndCause::Manual);
        // Counted first, because the final may be sent at once.
        self.tools.floor.out.completions.ask_final();
        let at_ms = self.intake.speech_input.listened_ms();
        let is_final_to_come = self.transcriber.finalize(now, at_ms, &mut self.tools);
        self.pass_on_words();
        let is_accepted = self.tools.floor.out.await_reply(AwaitedReply::Final).unwrap_or(is_final_to_come);
        if !is_accepted {
            self.tools.floor.out.completions.withdraw_final();
            let detail = "too many earlier requests for final transcripts wait for their answers";
            self.tools.floor.out.push_error(Error::new(ErrorKind::Invalid, detail));
        }
        is_accepted
    }

    /// Makes all transcripts so far final, speaks the appended texts, and reports the end of both.
    fn complete(&mut self, now: Instant) {
        if !self.tools.floor.out.completions.has_room() {
            let detail = format!("more than {COMPLETIONS_MAX} requests to complete wait for their answers");
            return self.tools.floor.out.push_error(Error::new(ErrorKind::Invalid, detail));
        }
        if self.finalize_transcripts(now) {
            let flushes = self.tts_queue.flush_all();
            self.tools.floor.out.completions.ask(flushes);
        }
    }

    /// Tells the operator that a request does nothing in this profile.
    fn note_no_effect(&mut self, what: &str, because: &str) {
        let note = self.setup.without_effect(what, because);
        self.tools.floor.out.observe(Observation::NoEffect(note));
    }
}
