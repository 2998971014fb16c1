//! Requests of the client beside audio, settings and texts to speak: entries, answers, finals on request, reports of silence.

use std::{sync::Arc, time::Instant};

use super::{
    Session,
    assistant::{Assistant, entries::Entries},
    effects::Effects,
    input::speech_input::{COMMIT_MIN_MS, SpeechEvent},
    outbox::{Observation, completions::COMPLETIONS_MAX, lockstep::AwaitedReply},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    error::{Error, ErrorKind},
    vocabulary::{
        AnswerRequest, ClientEvent, EndCause, Entry, EntryId, EntryPart, EntryPlace, Role, VideoFrame,
    },
};

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
                self.transcriber.end_request_wait(now, &mut self.tools);
                self.pass_on_words();
            }
            None => self.note_no_effect("a request for an answer does nothing", "it takes no turns"),
        }
    }

    /// Changes the entries of the conversation that the assistant knows.
    pub(super) fn change_entries(&mut self, now: Instant, change: impl FnOnce(&mut Entries)) {
        self.change_conversation(now, |assistant| change(&mut assistant.entries));
    }

    /// Changes the conversation that the assistant knows, if there is one. An early question is replaced if the change affects
    /// it.
    pub(super) fn change_conversation(&mut self, now: Instant, change: impl FnOnce(&mut Assistant)) {
        if let Some(assistant) = &mut self.assistant {
            change(assistant);
            if assistant.replace_early(now, &mut self.tools) {
                self.follow(now, Effects::ALL);
            }
        }
    }

    pub(super) fn note_no_effect(&mut self, what: &str, because: &str) {
        let note = self.without_effect(what, because);
        self.tools.out.observe(Observation::NoEffect(note));
    }

    /// Note on something that does nothing in this profile.
    pub(super) fn without_effect(&self, what: &str, because: &str) -> String {
        format!("{what} in profile {}: {because}", self.setup.profile.name)
    }

    /// Passes an utterance on to the assistant once its audio is complete.
    pub(super) fn handle_committed(&mut self, now: Instant, segment_id: u32, audio: Arc<Vec<i16>>) {
        let audio_ms = audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let is_transcribed = self.transcriber.wants_transcript && !audio.is_empty();
        self.tools.out.push_client(ClientEvent::AudioCommitted {
            segment_id,
            audio_ms,
            is_transcribed,
            silence_ms: None,
        });
        let Some(assistant) = &mut self.assistant else { return };
        let id = EntryId(segment_id);
        let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Audio(audio)] };
        assistant.entries.add(entry, EntryPlace::End);
        if self.tools.settings.turn_detection.answers {
            assistant.request(now, AnswerRequest::default(), &mut self.tools);
        } else {
            self.withdraw_early(now);
        }
    }

    /// Ends the current utterance and makes all transcripts so far final. Reports an error and returns false if too many finals
    /// are awaited.
    pub(super) fn finalize_transcripts(&mut self, now: Instant) -> bool {
        self.intake.speech_input.end_utterance(EndCause::Manual, &mut self.intake.speech_events);
        self.process_speech_events(now);
        // Counted first, because the final may be sent at once.
        self.tools.out.completions.ask_final();
        let is_final_to_come = self.transcriber.finalize(now, &mut self.tools);
        self.pass_on_words();
        let is_accepted = self.tools.out.await_reply(AwaitedReply::Final).unwrap_or(is_final_to_come);
        if !is_accepted {
            self.tools.out.completions.withdraw_final();
            let detail = "too many earlier requests for final transcripts wait for their answers";
            self.report_error(Error::new(ErrorKind::Invalid, detail));
        }
        is_accepted
    }

    /// Makes all transcripts so far final, speaks the appended texts, and reports the end of both.
    pub(super) fn complete(&mut self, now: Instant) {
        self.activity.idle_since = now;
        if !self.tools.out.completions.has_room() {
            let detail = format!("more than {COMPLETIONS_MAX} requests to complete wait for their answers");
            return self.report_error(Error::new(ErrorKind::Invalid, detail));
        }
        if self.finalize_transcripts(now) {
            let flushes = self.tts_queue.flush_all();
            self.tools.out.completions.ask(flushes);
        }
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
        let gap = self.tools.settings.utterance_gap_ms.map(u64::from);
        if let (Some(gap), Some(last_ms)) = (gap, self.intake.last_utterance_end_ms)
            && self.intake.speech_input.listened_ms() >= last_ms + gap
            && self.transcriber.queue.is_settled()
        {
            self.intake.last_utterance_end_ms = None;
            self.tools.out.push_client(ClientEvent::UtteranceGap { last_ms });
        }
    }
}
