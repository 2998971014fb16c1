//! Utterances that are not reported completely, in the order of speech.
//!
//! Bounds the audio that waits, and reports to the client. [`super::transcriber`] has the upstream transcribe them.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    cut_sentence::CutSentence,
    utterance::{SpeechStart, UserWords, Utterance, UtteranceState, length_ms},
};
use crate::{
    error::ErrorKind,
    session::{
        lanes::LaneId,
        timers::Timer,
        tools::{SegmentIds, Tools},
    },
    vocabulary::ClientEvent,
};

/// Most utterances that wait at a time while further finality requests still get a marker of their own.
const MAX_FINALITY_MARKERS: usize = 64;

/// Share of the bound on waiting audio, in percent, that a client may send at once: OpenAI's largest append, 245 s, fits twice 120 s
/// and a half.
const BURST_PERCENT: u64 = 250;

/// Treatment of waiting audio above the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Excess {
    /// The oldest fails.
    #[default]
    Fails,
    /// The oldest fails once it has waited as long as the bound: audio sent at once may be transcribed soon.
    FailsLate,
    /// None occurs, because back-pressure stops the client.
    Waits,
}

/// Queue of utterances, oldest first.
#[derive(Debug, Default)]
pub(crate) struct UtteranceQueue {
    pub(super) utterances: VecDeque<Utterance>,
    excess: Excess,
    /// Audio dropped because too much waited, ms.
    pub(crate) dropped_ms: u64,
    /// The user's words that were reported and that the session has not taken.
    pub(crate) words: Vec<UserWords>,
    cut_sentence: CutSentence,
}

impl UtteranceQueue {
    pub(super) fn new(excess: Excess) -> Self {
        Self { excess, ..Self::default() }
    }

    /// Bounds the audio that waits for the upstream: drops the oldest utterance, whose transcript then fails.
    pub(super) fn drop_excess(&mut self, now: Instant, backlog_max_ms: u64) {
        let late_ms = match self.excess {
            Excess::Fails => 0,
            Excess::FailsLate => backlog_max_ms,
            Excess::Waits => return,
        };
        let waiting = |utterance: &Utterance| match &utterance.state {
            UtteranceState::Waiting(audio) => length_ms(audio),
            _ => 0,
        };
        let mut total: u64 = self.utterances.iter().map(waiting).sum();
        for utterance in &mut self.utterances {
            if total <= backlog_max_ms {
                break;
            }
            let has_waited =
                |at: Instant| now.saturating_duration_since(at) >= Duration::from_millis(late_ms);
            let is_late = utterance.completed_at.is_none_or(has_waited);
            if !is_late && total <= backlog_max_ms * BURST_PERCENT / 100 {
                break;
            }
            if let UtteranceState::Waiting(audio) = &utterance.state {
                let dropped_ms = length_ms(audio);
                total -= dropped_ms;
                self.dropped_ms += dropped_ms;
                let cause = format!("more than {} s of speech waits for transcripts", backlog_max_ms / 1000);
                utterance.fail(ErrorKind::TranscribeFailed, &cause);
            }
        }
    }

    /// Gives up transcripts that have waited since this instant or earlier. Returns false if there are none.
    pub(super) fn fail_waiting(&mut self, since: Instant, kind: ErrorKind, cause: &str) -> bool {
        let is_old = |it: &&mut Utterance| it.is_waiting() && it.completed_at.is_some_and(|at| at <= since);
        let mut has_failed = false;
        for utterance in self.utterances.iter_mut().filter(is_old) {
            utterance.fail(kind, cause);
            has_failed = true;
        }
        has_failed
    }

    /// Audio that waits for its transcript, ms.
    pub(crate) fn backlog_ms(&self) -> u64 {
        let waiting = |utterance: &Utterance| match &utterance.state {
            UtteranceState::Waiting(audio) | UtteranceState::Requested(_, audio, _) => length_ms(audio),
            UtteranceState::Recording | UtteranceState::Settled(_) => 0,
        };
        self.utterances.iter().map(waiting).sum()
    }

    /// The utterance whose audio was sent on this lane.
    pub(super) fn requested_on(&mut self, lane: LaneId) -> Option<&mut Utterance> {
        self.utterances.iter_mut().find(|utterance| utterance.is_requested_on(lane))
    }

    /// The oldest utterance whose audio waits for a lane.
    pub(super) fn first_waiting(&mut self) -> Option<&mut Utterance> {
        self.utterances.iter_mut().find(|utterance| utterance.is_waiting())
    }

    /// True while the user speaks.
    pub(super) fn is_recording(&self) -> bool {
        self.utterances.iter().any(|utterance| matches!(utterance.state, UtteranceState::Recording))
    }

    /// Number of utterances whose audio waits for a lane.
    pub(super) fn waiting_count(&self) -> usize {
        self.utterances.iter().filter(|utterance| utterance.is_waiting()).count()
    }

    /// True if the client waits for no transcript and for no end of speech.
    pub(crate) fn is_settled(&self) -> bool {
        self.utterances.is_empty()
    }

    /// Final transcripts that the client asked for and that are not reported yet.
    pub(crate) fn finals_to_come(&self) -> usize {
        self.utterances.iter().filter(|utterance| utterance.finalized).count()
    }

    /// Makes the audio so far final. The client gets one more final transcript, which may be empty. Returns false, and does
    /// nothing, if too many wait.
    pub(super) fn finalize(&mut self, at_ms: u64, segment_ids: &mut SegmentIds) -> bool {
        let can_be_finalized =
            |last: &&mut Utterance| !last.finalized && !matches!(last.state, UtteranceState::Recording);
        if let Some(last) = self.utterances.back_mut().filter(can_be_finalized) {
            last.finalized = true;
        } else if self.utterances.len() < MAX_FINALITY_MARKERS {
            self.utterances.push_back(Utterance::finality_marker(segment_ids.next_id(), at_ms));
        } else {
            return false;
        }
        true
    }

    /// Drops the unfinished utterance, whose speech ends at `at_ms`.
    pub(super) fn abandon_recording(&mut self, now: Instant, at_ms: u64) {
        if let Some(utterance) = self
            .utterances
            .back_mut()
            .filter(|utterance| matches!(utterance.state, UtteranceState::Recording))
        {
            utterance.state = UtteranceState::Settled(None);
            utterance.speech_end_ms = Some(at_ms);
            utterance.completed_at = Some(now);
        }
    }

    /// Gives up the transcripts of complete utterances with an error.
    pub(super) fn fail_unanswered(&mut self) {
        for utterance in &mut self.utterances {
            if matches!(utterance.state, UtteranceState::Waiting(_) | UtteranceState::Requested(..)) {
                utterance.fail(ErrorKind::TranscribeFailed, "the session ended before its transcript");
            }
        }
    }

    /// Gives up all transcripts. Speech that has not ended ends at `at_ms`.
    pub(super) fn settle_all(&mut self, at_ms: u64) {
        for utterance in &mut self.utterances {
            if !matches!(utterance.state, UtteranceState::Settled(_)) {
                utterance.state = UtteranceState::Settled(None);
            }
        }
        if let Some(utterance) = self.utterances.back_mut() {
            utterance.speech_end_ms = utterance.speech_end_ms.or(Some(at_ms));
        }
    }

    /// Reports what is due to the client, in the order of speech.
    /// An utterance waits for its transcript for `max_wait` at most; [`Duration::MAX`] is for ever.
    pub(super) fn report_progress(
        &mut self,
        now: Instant,
        max_wait: Duration,
        Tools { timers, floor, .. }: &mut Tools,
    ) {
        let mut index = 0;
        while let Some(utterance) = self.utterances.get_mut(index) {
            if let (Some(SpeechStart { at_ms, from_ms }), false) =
                (utterance.speech_start, utterance.start_reported)
            {
                utterance.start_reported = true;
                let segment_id = utterance.segment_id;
                floor.out.push_client(ClientEvent::SpeechStarted { at_ms, from_ms, segment_id });
            }
            if let UtteranceState::Settled(Some(Ok(transcript))) = &mut utterance.state {
                let (from_ms, to_ms) = utterance.speech_ms;
                self.cut_sentence.join(transcript, from_ms..to_ms, utterance.is_cut_in_speech);
            }
            if utterance.report_if_settled(now, &mut self.words, &mut floor.out) {
                self.utterances.remove(index);
                continue;
            }
            if !utterance.released {
                let release_at = utterance.completed_at.and_then(|at| at.checked_add(max_wait));
                if release_at.is_none_or(|at| at > now) {
                    return timers.set_or_clear(Timer::SpeechEnd, release_at);
                }
                utterance.released = true;
                if let Some(at_ms) = utterance.speech_end_ms {
                    let segment_id = utterance.segment_id;
                    floor.out.push_client(ClientEvent::SpeechEnded { at_ms, segment_id });
                }
            }
            index += 1;
        }
        timers.clear(&[Timer::SpeechEnd]);
    }
}
