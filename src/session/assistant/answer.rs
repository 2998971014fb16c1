//! The answer in progress: from its request to the last sample that the client plays.

use std::time::Instant;

use super::entries::Entries;
use crate::session::{
    dialogue::turn::{AssistantTurn, TranscriptOptions},
    floor::{Floor, SpeechSource},
    growing_text::is_report_due,
    lanes::{LaneId, backoff::ConnectionFailure},
    outbox::{Actions, Observation},
    output_filter::OutputFilter,
    tools::Tools,
};
use crate::{
    error::{Error, ErrorKind},
    event::{AnswerRequest, Entry, EntryId, EntryPart, EntryPlace, Role},
};

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request: AnswerRequest,
    turn: AssistantTurn,
    filter: OutputFilter,
    pub(super) lane: Option<LaneId>,
    /// When it was first requested.
    pub(super) requested_at: Option<Instant>,
    pub(super) attempts: u32,
    /// Nothing more of it will be made.
    is_made: bool,
}

impl Answer {
    /// Begins an answer, and tells the client.
    pub(super) fn begin(request: AnswerRequest, tools: &mut Tools) -> Self {
        Self {
            turn: AssistantTurn::start(request.by_client, tools),
            request,
            filter: OutputFilter::default(),
            lane: None,
            requested_at: None,
            attempts: 0,
            is_made: false,
        }
    }

    pub(super) const fn is_made(&self) -> bool {
        self.is_made
    }

    /// True once it was made, and played.
    pub(super) fn is_over(&self, floor: &Floor) -> bool {
        self.is_made && !floor.is_busy_with(SpeechSource::Model)
    }

    /// Adds text of the model.
    pub(super) fn push_text(&mut self, delta: &str, partials: bool, out: &mut Actions) {
        let before = self.turn.text.len();
        self.turn.push_text(&mut self.filter, delta);
        let has_news = !self.turn.text[before..].trim().is_empty();
        if partials && has_news && is_report_due(self.turn.text.len(), &mut self.turn.reported_bytes) {
            self.turn.report_partial(out);
        }
    }

    /// Adds audio of the model.
    pub(super) fn push_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        speaks: bool,
        floor: &mut Floor,
        out: &mut Actions,
    ) {
        if samples.is_empty() || !self.request.speaks.unwrap_or(speaks) {
            return;
        }
        self.turn.push_audio(now, samples, floor, out);
    }

    /// All of it was made. `text` and `audio` are all of it if the upstream did not stream.
    pub(super) fn complete(
        &mut self,
        now: Instant,
        (text, audio): (Option<&str>, &[f32]),
        (partials, speaks): (bool, bool),
        tools: &mut Tools,
    ) {
        let Tools { lanes, floor, out, .. } = tools;
        if let Some(text) = text.filter(|_| self.turn.text.is_empty()) {
            self.push_text(text, partials, out);
        }
        if self.turn.audio_samples == 0 {
            self.push_audio(now, audio, speaks, floor, out);
        }
        self.filter.finish(&mut self.turn.text);
        let is_silent = self.turn.audio_samples == 0 && !self.turn.text.trim().is_empty();
        if is_silent && self.request.speaks.unwrap_or(speaks) {
            // The back-end hides its speech errors (field notes minicpm-o.md §2).
            let note = "the upstream answered without audio, although audio was asked for";
            out.observe(Observation::NoEffect(note.to_owned()));
        }
        self.turn.report_complete(transcript_options(partials), floor, out);
        if let Some(id) = self.lane.take() {
            lanes.complete_reply(id);
            lanes.retire(now, id, out);
        }
        self.end(now, floor, out);
    }

    /// Nothing more of it will be made. Audio that the model has made is still played.
    fn end(&mut self, now: Instant, floor: &mut Floor, out: &mut Actions) {
        self.is_made = true;
        if let Some(turn) = self.turn.playing {
            floor.finish(now, turn, out);
        }
    }

    /// Adds the answer, which was played, to the conversation.
    pub(super) fn finish(self, entries: &mut Entries, out: &mut Actions) {
        self.turn.report_end(false, out);
        let text = self.turn.text.trim().to_owned();
        self.remember(text, self.turn.audio_ms(), entries);
    }

    /// Ends the answer at once. Only what was heard becomes part of the conversation.
    pub(super) fn interrupt(self, now: Instant, partials: bool, entries: &mut Entries, tools: &mut Tools) {
        let Tools { lanes, floor, out, .. } = tools;
        if !self.is_made {
            self.turn.report_cut(transcript_options(partials), floor, out);
        }
        let (heard, heard_ms) = match floor.heard_turns(now).pop() {
            Some((_, heard, heard_ms)) => (heard, heard_ms),
            None if self.turn.playing.is_some() => (self.turn.text.trim().to_owned(), self.turn.audio_ms()),
            None => (String::new(), 0),
        };
        if let Some(id) = self.lane {
            lanes.retire(now, id, out);
        }
        floor.cancel(now, SpeechSource::Model, out);
        self.turn.report_end(true, out);
        self.remember(heard, heard_ms, entries);
    }

    /// Adds these words to the conversation, with the length of their audio.
    fn remember(&self, text: String, audio_ms: u64, entries: &mut Entries) {
        if self.request.is_remembered && !text.is_empty() {
            let id = EntryId(self.turn.segment_id);
            let entry = Entry { id, role: Role::Assistant, parts: vec![EntryPart::Text(text)] };
            entries.add(entry, EntryPlace::End);
            entries.set_audio_length(id, audio_ms);
        }
        entries.drop_shown_pictures();
    }

    /// Repeats the request, or gives up.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        failure: ConnectionFailure,
        may_ask_again: bool,
        floor: &mut Floor,
        out: &mut Actions,
    ) {
        let is_unheard = self.turn.text.is_empty() && self.turn.playing.is_none();
        if may_ask_again && is_unheard {
            self.filter.clear();
            return out.observe(Observation::AskedAgain(failure.detail));
        }
        let waited = self.requested_at.map(|at| now - at);
        let (kind, detail) = failure.after_attempts(ErrorKind::AnswerFailed, self.attempts, waited);
        let error = Error { segment_id: Some(self.turn.segment_id), ..Error::new(kind, detail) };
        out.push_error(error);
        if let Some(turn) = self.turn.playing {
            floor.truncate(turn);
        }
        self.end(now, floor, out);
    }
}

/// Answers always have transcripts.
const fn transcript_options(partials: bool) -> TranscriptOptions {
    TranscriptOptions { transcripts: true, partials }
}
