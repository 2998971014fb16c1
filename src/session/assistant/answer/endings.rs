//! How an answer ends: made to its end, at a limit, interrupted, or failed.

use std::time::Instant;

use super::Answer;
use crate::{
    error::{Error, ErrorKind},
    session::{
        assistant::{calling::Calling, entries::Entries},
        floor::{Floor, SpeechSource},
        lanes::{ask::AskAgain, backoff::ConnectionFailure},
        outbox::Observation,
        tools::Tools,
    },
    vocabulary::{ClientEvent, Entry, EntryId, EntryPart, EntryPlace, Role},
};

impl Answer {
    /// The model will not be asked again. Its words may still be spoken.
    pub(in crate::session::assistant) fn complete(&mut self, now: Instant, tools: &mut Tools) {
        self.is_answered = true;
        match &mut self.spoken {
            Some(spoken) => {
                self.filter.finish(&mut spoken.waiting);
                spoken.finish();
                tools.lanes.finish(now, &mut self.ask);
            }
            None => {
                self.filter.finish(&mut self.turn.text);
                self.complete_turn(now, tools);
            }
        }
    }

    /// Ends the answer if some of its audio had to be dropped: the client gets neither audio nor words after that.
    pub(in crate::session::assistant) fn end_if_broken_off(&mut self, now: Instant, tools: &mut Tools) {
        let held_back = self.calling.as_ref().map_or(0, Calling::lost_samples);
        if self.turn.dropped_samples + held_back == 0 || self.is_made {
            return;
        }
        self.turn.audio_samples += held_back;
        self.turn.dropped_samples += held_back;
        self.cut_unmade_words();
        self.stop_making(now, tools);
        self.turn.report_cut(tools);
        if let Some(turn) = self.turn.playing {
            tools.floor.truncate(turn);
        }
        self.end(now, &mut tools.floor);
    }

    /// Ends an answer whose model goes on without an end: it is incomplete, with what came of it.
    pub(in crate::session::assistant) fn end_at_limit(&mut self, now: Instant, tools: &mut Tools) {
        self.stop_making(now, tools);
        if self.spoken.is_none() {
            self.filter.finish(&mut self.turn.text);
        }
        self.turn.hit_limit = true;
        self.turn.report_complete(tools);
        self.end(now, &mut tools.floor);
    }

    /// All of it was made: reports it, and leaves the lane.
    pub(super) fn complete_turn(&mut self, now: Instant, tools: &mut Tools) {
        let is_silent = self.turn.audio_samples == 0 && !self.turn.text.trim().is_empty();
        if is_silent && self.speaks {
            // The back-end hides its speech errors (mappings/notes/minicpm-o.md#chat).
            let note = "the upstream answered without audio, although audio was asked for";
            tools.floor.out.observe(Observation::NoEffect(note.to_owned()));
        }
        self.turn.usage = self.take_usage();
        self.turn.report_complete(tools);
        tools.lanes.finish(now, &mut self.ask);
        self.end(now, &mut tools.floor);
    }

    /// Nothing more of it will be made. Audio that the model has made is still played.
    fn end(&mut self, now: Instant, floor: &mut Floor) {
        self.is_answered = true;
        self.is_made = true;
        if let Some(turn) = self.turn.playing {
            floor.finish(now, turn);
        }
    }

    /// Adds the answer, which was played, to the conversation. Returns its end, unless the floor reports it.
    pub(in crate::session::assistant) fn finish(self, entries: &mut Entries) -> Option<ClientEvent> {
        let (text, kept_ms) = self.turn.kept_words();
        self.remember(text.to_owned(), kept_ms, true, entries);
        self.turn.end(false)
    }

    /// Ends the answer at once. Only what was heard becomes part of the conversation. Written words count as read once they are
    /// sent.
    pub(in crate::session::assistant) fn interrupt(
        mut self,
        now: Instant,
        entries: &mut Entries,
        tools: &mut Tools,
    ) {
        let is_written = !self.speaks;
        if !self.is_made {
            self.cut_unmade_words();
            self.turn.usage = self.take_usage();
            if is_written {
                self.turn.text.truncate(self.turn.reported_bytes);
                self.turn.report_complete(tools);
            } else {
                self.turn.report_cut(tools);
            }
        }
        let Tools { lanes, floor, .. } = tools;
        let heard = floor.heard_turns(now).pop().filter(|_| !is_written);
        let (heard, heard_ms, is_whole) = match heard {
            Some((_, heard, heard_ms)) => (heard, heard_ms, false),
            None if is_written || self.turn.playing.is_some() => {
                let (text, kept_ms) = self.turn.kept_words();
                (text.to_owned(), kept_ms, true)
            }
            None => (String::new(), 0, false),
        };
        lanes.leave(now, &mut self.ask);
        if let Some(spoken) = &mut self.spoken {
            spoken.stop(now, lanes);
        }
        floor.cancel(now, SpeechSource::Model);
        floor.out.push_if_any(self.turn.end(true));
        self.remember(heard, heard_ms, is_whole, entries);
    }

    /// Adds these words to the conversation, with the length of their audio; and the calls, if the client got them.
    fn remember(&self, text: String, audio_ms: u64, has_calls: bool, entries: &mut Entries) {
        let calls = self.turn.calls.iter().filter(|_| has_calls);
        let has_calls = calls.clone().next().is_some();
        self.forget_said_words(entries);
        if self.request.is_remembered {
            if !text.is_empty() {
                let id = EntryId(self.turn.segment_id);
                let entry = Entry { id, role: Role::Assistant, parts: vec![EntryPart::Text(text)] };
                entries.add(entry, EntryPlace::End);
                entries.set_audio_length(id, audio_ms);
                if let Some(played_ms) = self.played_max_ms {
                    entries.truncate(id, played_ms);
                }
            }
            for (number, call) in calls {
                let parts = vec![EntryPart::Call(call.clone())];
                let entry = Entry { id: EntryId(*number), role: Role::Assistant, parts };
                entries.add(entry, EntryPlace::End);
            }
        }
        // The answer to a call's result still sees what the question was about.
        if !has_calls {
            entries.drop_shown_pictures();
        }
    }

    /// Repeats the request, or gives up.
    pub(in crate::session::assistant) fn fail(
        &mut self,
        now: Instant,
        failure: ConnectionFailure,
        attempts_max: u32,
        tools: &mut Tools,
    ) {
        // The words before a mistake stay. Those of the second question are withheld until all of it is answered.
        let is_second = self.calling.as_ref().is_some_and(|calling| calling.had_words);
        let is_unheard = self.length() == self.server_calls.start;
        let again = AskAgain {
            attempts_max,
            is_possible: is_second || is_unheard,
            error_kind: ErrorKind::AnswerFailed,
        };
        if let Some(error) = tools.lanes.fail(now, &mut self.ask, failure, again) {
            return self.give_up(now, error, tools);
        }
        self.filter.clear();
        self.turn.calls.clear();
        self.usage.discard_request();
        if let Some(calling) = &mut self.calling {
            calling.reset();
        }
        if let Some(spoken) = self.spoken.as_mut().filter(|_| !is_second) {
            spoken.stop(now, &mut tools.lanes);
        }
    }

    /// Ends the answer with this error. Audio that the model has made is still played.
    pub(super) fn give_up(&mut self, now: Instant, error: Error, tools: &mut Tools) {
        tools.floor.out.push_error(Error { segment_id: Some(self.turn.segment_id), ..error });
        self.end_failed(now, tools);
    }

    /// Cuts the words whose audio was not made, because no more will be made. Some servers send the words first.
    fn cut_unmade_words(&mut self) {
        match &self.spoken {
            Some(spoken) => spoken.cut_words(&mut self.turn),
            None if self.speaks => self.turn.cut_unmade_words(),
            None => {}
        }
    }

    /// Leaves the upstreams of the answer. It calls no tools, and keeps its usage so far.
    fn stop_making(&mut self, now: Instant, tools: &mut Tools) {
        tools.lanes.leave(now, &mut self.ask);
        if let Some(spoken) = &mut self.spoken {
            spoken.cut_words(&mut self.turn);
            spoken.stop(now, &mut tools.lanes);
        }
        self.turn.calls.clear();
        self.turn.usage = self.take_usage();
    }

    /// Ends the answer after its error. Audio that the model has made is still played.
    pub(super) fn end_failed(&mut self, now: Instant, tools: &mut Tools) {
        self.cut_unmade_words();
        self.stop_making(now, tools);
        let Tools { floor, .. } = tools;
        // Reports of a long answer come at intervals, so some of its words may not have been reported.
        if self.turn.reported_bytes > 0 && self.turn.text.len() > self.turn.reported_bytes {
            floor.out.push_client(self.turn.partial());
        }
        if let Some(turn) = self.turn.playing {
            floor.truncate(turn);
        }
        self.end(now, floor);
    }
}
