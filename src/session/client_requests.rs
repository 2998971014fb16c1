//! Client requests beside audio and settings: queued texts, finals on request, and reports of silence.

use std::{sync::Arc, time::Instant};

use super::{
    Session, SessionPhase,
    assistant::entries::Entries,
    floor::{Claim, Permission},
    input::speech_input::{COMMIT_MIN_MS, SpeechEvent},
    millis,
    outbox::{Observation, lockstep::AwaitedReply},
    tools::Tools,
    tts::queue::{TtsQueue, TtsQueueItem},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    error::{Error, ErrorKind},
    event::{
        AnswerRequest, ClientCommand, Entry, EntryId, EntryPart, EntryPlace, Role, SpeakRequest, VideoFrame,
    },
};

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
    pub(super) fn add_picture(&mut self, picture: VideoFrame) {
        if self.assistant.is_some() {
            let id = EntryId(self.tools.segment_ids.next_id());
            let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Picture(picture.0)] };
            return self.with_entries(|entries| entries.add(entry, EntryPlace::End));
        }
        if !self.dialogue.as_mut().is_some_and(|dialogue| dialogue.push_video_frame(picture)) {
            self.note_no_effect("a picture does nothing", "its model sees nothing");
        }
    }

    /// Adds an entry to the conversation. In full duplex, only its pictures can reach the model.
    pub(super) fn add_entry(&mut self, entry: Entry, place: EntryPlace) {
        if self.assistant.is_some() {
            return self.with_entries(|entries| entries.add(entry, place));
        }
        for part in entry.parts {
            match part {
                EntryPart::Picture(file) => self.add_picture(VideoFrame(file)),
                EntryPart::Text(_) | EntryPart::Audio(_) => {
                    self.note_no_effect(
                        "an added message does nothing",
                        "its model hears only the microphone",
                    );
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

    /// Changes the conversation that the assistant knows, if there is one.
    pub(super) fn with_entries(&mut self, change: impl FnOnce(&mut Entries)) {
        if let Some(assistant) = &mut self.assistant {
            change(&mut assistant.entries);
        }
    }

    pub(super) fn set_instructions(&mut self, text: String) {
        match &mut self.assistant {
            Some(assistant) => assistant.settings.instructions = Some(text),
            None => self.note_no_effect("instructions do nothing", "its prompts are in its file"),
        }
    }

    pub(super) fn note_no_effect(&mut self, what: &str, because: &str) {
        let note = format!("{what} in profile {}: {because}", self.setup.profile.name);
        self.tools.out.observe(Observation::NoEffect(note));
    }

    /// Passes an utterance on to the assistant once its audio is complete.
    pub(super) fn handle_committed(&mut self, now: Instant, segment_id: u32, audio: Arc<Vec<i16>>) {
        let audio_ms = audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let is_transcribed = self.transcriber.wants_transcript;
        self.tools.out.push_client(ClientCommand::AudioCommitted { segment_id, audio_ms, is_transcribed });
        let Some(assistant) = &mut self.assistant else { return };
        let id = EntryId(segment_id);
        let entry = Entry { id, role: Role::User, parts: vec![EntryPart::Audio(audio)] };
        assistant.entries.add(entry, EntryPlace::End);
        let detection = assistant.settings.detection;
        if detection.is_automatic && detection.answers {
            assistant.request(now, AnswerRequest::default(), &mut self.tools);
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
                Some(TtsQueueItem::Text(text)) => {
                    self.start_speech(now, SpeakRequest { text, ..SpeakRequest::default() });
                }
                Some(TtsQueueItem::Flushed(sequence)) => {
                    self.tools.out.push_client(ClientCommand::Flushed { sequence });
                }
            }
        }
    }

    /// Ends the current utterance and makes all transcripts so far final.
    pub(super) fn finalize_transcripts(&mut self, now: Instant) {
        self.intake.speech_input.end_utterance(&mut self.intake.speech_events);
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
                self.intake.last_utterance_end_ms = Some(
                    segment.end_ms.saturating_sub(self.intake.speech_input.settings.end_silence_ms.into()),
                );
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
}
