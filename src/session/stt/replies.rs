//! Replies to transcription requests: partial and final transcripts, failed requests and their repetition.

use std::time::{Duration, Instant};

use super::{
    transcriber::Transcriber,
    utterance::{Utterance, UtteranceState, length_ms},
};
use crate::error::{Error, ErrorKind};
use crate::session::{
    effects::Effects,
    growing_text::TEXT_MAX_BYTES,
    lanes::{
        LaneId, LaneSignal, Lanes, Owner,
        ask::{AskAgain, Reply},
        backoff::ConnectionFailure,
    },
    tools::Tools,
};

impl Transcriber {
    /// Handles what happened on one of the lanes.
    pub(crate) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let id = signal.id;
        let has_changed = match signal.into_reply() {
            Reply::None | Reply::Audio(_) | Reply::Call { .. } => false,
            Reply::Queued => {
                tools.floor.out.push_if_any(self.queue_notice(now, id, &tools.lanes));
                false
            }
            Reply::Text(text) => self.append_text(now, id, text, tools),
            reply => {
                self.handle_reply(now, id, reply, tools);
                true
            }
        };
        if has_changed {
            self.advance(now, tools);
        }
        Effects::ALL
    }

    /// Handles a reply after which lanes or utterances continue.
    fn handle_reply(&mut self, now: Instant, lane: LaneId, reply: Reply<'_>, tools: &mut Tools) {
        let lanes = &mut tools.lanes;
        match reply {
            Reply::QueueStuck(_) if self.is_further_lane(lane) => self.leave(now, lane, lanes),
            Reply::QueueStuck(words) => tools.floor.out.push_error(Error::new(ErrorKind::QueueStuck, words)),
            Reply::Done { text, .. } => self.complete_reply(now, lane, text, tools),
            Reply::Empty => self.complete_reply(now, lane, Some(""), tools),
            Reply::Failed(failure) => {
                if !self.fail_waiting(now, lane, &failure, lanes) {
                    self.handle_failure(now, lane, failure, lanes);
                }
                self.retire(now, lane, lanes);
            }
            Reply::None
            | Reply::Queued
            | Reply::Ready
            | Reply::Text(_)
            | Reply::Audio(_)
            | Reply::Call { .. } => {}
        }
    }

    /// Adds text to an answer. Returns true if the answer has ended by it.
    fn append_text(&mut self, now: Instant, lane: LaneId, text: &str, tools: &mut Tools) -> bool {
        let recognition = self.recognition_mut(lane);
        if let Some(interim) = recognition.and_then(|recognition| recognition.interim.as_mut()) {
            // Too long a text is cut; the final transcript decides.
            interim.text.push(text);
            return false;
        }
        // Only the oldest unreported utterance gets partials; a late one only gets its final.
        let front = self.queue.utterances.iter().position(|utterance| !utterance.released);
        let is_requested = |(_, utterance): &(usize, &mut Utterance)| utterance.is_requested_on(lane);
        let requested = self.queue.utterances.iter_mut().enumerate().find(is_requested);
        let Some((index, utterance)) = requested else { return false };
        let UtteranceState::Requested(_, audio, reply) = &mut utterance.state else { return false };
        if !reply.push(text) {
            let cause = format!("its transcript has more than {TEXT_MAX_BYTES} bytes");
            utterance.fail(ErrorKind::TranscribeFailed, &cause);
            self.retire(now, lane, &mut tools.lanes);
            return true;
        }
        // An answer starts at the first word, which the client may have got from an interim decode or a failed attempt.
        let is_long_enough = |text: &&str| text.chars().count() >= utterance.longest_partial_chars;
        if tools.settings.partials
            && (front == Some(index) || self.speech_end_wait.is_zero())
            && let Some(text) =
                reply.due_report().filter(|text| !may_have_record(text)).filter(is_long_enough)
        {
            let (text, audio_ms) = (text.to_owned(), length_ms(audio));
            tools.floor.out.measure_if_any(utterance.first_transcript.take(now, utterance.completed_at));
            tools.floor.out.push_client(utterance.partial(text, audio_ms, utterance.audio_start_ms));
        }
        false
    }

    /// Completes an answer. `text` is the whole answer if the upstream repeats it.
    fn complete_reply(&mut self, now: Instant, lane: LaneId, text: Option<&str>, tools: &mut Tools) {
        let word_time_config = self.word_time_config(&tools.settings);
        let Some(recognition) = self.recognition_mut(lane) else { return };
        tools.lanes.complete_reply(lane);
        if let Some(interim) = recognition.interim.take() {
            let text = without_record(text.unwrap_or(interim.text.as_str()));
            if !self.complete_pause(lane, text) && tools.settings.partials {
                tools.floor.out.push_if_any(self.interim_partial(text, &interim));
            }
        } else if let Some(utterance) = self.queue.requested_on(lane)
            && let UtteranceState::Requested(_, audio, reply) = &utterance.state
        {
            let text = text.filter(|text| !text.trim().is_empty()).unwrap_or(reply.as_str());
            utterance.state = utterance.settled(without_record(text).to_owned(), audio, word_time_config);
            self.lane_limit = self.parallel_max.min(self.lane_limit + 1);
        }
        // Each utterance gets a fresh upstream session (mappings/notes/minicpm-o.md#transcribing): earlier requests
        // must not influence the answer.
        self.retire(now, lane, &mut tools.lanes);
    }

    /// Fails the utterances that have waited for as long as a queue may take. Behind the oldest, each would wait as long again.
    /// Younger ones have another lane. Returns false if none has.
    fn fail_waiting(
        &mut self,
        now: Instant,
        lane: LaneId,
        failure: &ConnectionFailure,
        lanes: &Lanes,
    ) -> bool {
        let longest_wait = Duration::from_millis(lanes.times().queue_max_ms);
        failure.kind == ErrorKind::QueueTimeout
            && !self.is_further_lane(lane)
            && now
                .checked_sub(longest_wait)
                .is_some_and(|since| self.queue.fail_waiting(since, failure.kind, &failure.detail))
    }

    fn handle_failure(&mut self, now: Instant, lane: LaneId, failure: ConnectionFailure, lanes: &mut Lanes) {
        if self.recognition_mut(lane).is_some_and(|recognition| recognition.interim.take().is_some()) {
            self.fail_pause(lane);
            return;
        }
        if !failure.was_in_use() && self.recognitions.len() > 1 {
            // The other lanes serve its utterance.
            self.lane_limit = self.recognitions.len() - 1;
            return;
        }
        let attempts_max = self.rules().attempts;
        let affected =
            if failure.was_in_use() { self.queue.requested_on(lane) } else { self.queue.first_waiting() };
        let Some(utterance) = affected else {
            // The user is still speaking, so nothing is lost yet.
            self.worker_released = true;
            return;
        };
        utterance.attempts += 1;
        let audio = match &utterance.state {
            UtteranceState::Requested(_, audio, _) => Some(audio.clone()),
            _ => None,
        };
        let (is_possible, error_kind) = (audio.is_some(), ErrorKind::TranscribeFailed);
        let again = AskAgain { attempts_max, is_possible, error_kind };
        let (attempts, since) = (utterance.attempts, utterance.completed_at);
        let error = lanes.settle_failure(now, Owner::Transcriber, failure, again, attempts, since);
        match (error, audio) {
            (Some(error), _) => utterance.fail(error.kind, &error.detail),
            (None, Some(audio)) => utterance.state = UtteranceState::Waiting(audio),
            (None, None) => {}
        }
    }
}

/// Start of a record in a transcript.
const RECORD_MARK: &str = "||";

/// A transcript without the record that MiniCPM-o sometimes adds to it, as in its training: `||{"wer": 0.0}`, usually on a
/// line of its own (mappings/notes/sglang-omni.md#http). Two bars without such an object are part of the transcript.
fn without_record(text: &str) -> &str {
    let is_record = |(at, _): &(usize, &str)| {
        let mut letters = text[at + RECORD_MARK.len()..].chars().filter(|letter| !letter.is_whitespace());
        letters.next() == Some('{') && matches!(letters.next(), Some('"' | '}'))
    };
    let start = text.match_indices(RECORD_MARK).find(is_record).map_or(text.len(), |(at, _)| at);
    text[..start].trim()
}

/// True if a growing transcript has such a record, or perhaps the beginning of one.
fn may_have_record(text: &str) -> bool {
    let is_undecided = |(at, _): (usize, &str)| {
        let rest = text[at + RECORD_MARK.len()..].trim();
        rest.is_empty() || rest == "{"
    };
    text.ends_with('|')
        || text.rmatch_indices(RECORD_MARK).next().is_some_and(is_undecided)
        || without_record(text).len() < text.trim().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_removed_wherever_a_transcript_is_split() {
        let words = "Go forward ten meters.";
        for record in ["", "\n||{\"wer\": 0.0}", "||{}", " ||{\"a\": \"b || c\"}\n"] {
            let whole = format!("{words}{record}");
            assert_eq!(without_record(&whole), words);
            for at in 0..=whole.len() {
                let start = &whole[..at];
                assert!(may_have_record(start) || words.starts_with(start.trim()), "{start:?}");
            }
        }
        assert_eq!(without_record("||{}"), "");
    }

    #[test]
    fn bars_without_a_record_are_words() {
        for words in ["a || b", "||", "if (a || b) { c }", "x ||| y", "|| {b", "true || 3 {", "a ||\n b | c"]
        {
            assert_eq!(without_record(words), words);
            assert_eq!(without_record(&format!("{words}\n||{{\"wer\": 0.0}}")), words);
            assert!(!may_have_record(&format!("{words} or not")), "{words}");
        }
    }
}
