//! Pauses in an utterance: once in each, the end-of-turn model is asked whether the user has finished.
//!
//! The verdict decides how long the pause may last. A pending verdict is awaited up to the longest pause that any verdict could
//! allow, so that a busy machine does not cut a sentence. Without a verdict, the fixed silence of the settings ends the turn.
//! Further speech makes a verdict void.

use super::{SpeechEvent, SpeechInput};
use crate::{
    named_enum::named_enum,
    vocabulary::{EndCause, JudgedEnd, PauseId},
};

/// Silence after which the model is asked, in ms. A sound within a word lasts less. With an inference of about 0.1 s, the
/// verdict is there at [`END_AFTER_MS`].
const ASK_AFTER_MS: u32 = 110;
/// Silence that ends an utterance if the user has finished, in ms, as in the trial
/// (mappings/notes/turn-end.md#decisions).
const END_AFTER_MS: u32 = 200;
/// Audio that the model hears, in samples at 16 kHz: 8 s.
const JUDGED_SAMPLES: usize = 128_000;

named_enum! {
    /// Outcome of a question to the end-of-turn model.
    pub enum TurnDecision {
        /// The user has finished.
        Finished = "finished",
        /// The user may go on.
        Unfinished = "unfinished",
        /// The verdict lost its point before it came: the user spoke on, or the client ended the utterance, discarded it or changed
        /// the detection of turns.
        Void = "void",
        /// The verdict came after the longest pause that any verdict could allow.
        Late = "late",
        /// The model was too busy, or failed.
        Refused = "refused",
    }
}

/// How pauses are used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PauseUse {
    /// A model judges them.
    pub(crate) judged: Option<JudgedEnd>,
    /// The question to the model that answers may be asked in them.
    pub(crate) asks_early: bool,
    /// Probability from which on the end of the turn is reported as likely. Without a model, it is in each pause.
    pub(crate) likely_from: Option<f32>,
}

/// How the last pause of a turn was judged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TurnVerdict {
    /// Probability that the user has finished; `None` if no model has judged it.
    pub(crate) probability: Option<f32>,
    /// Cause of the turn's end.
    pub(crate) cause: EndCause,
}

impl PauseUse {
    /// True if pauses are used.
    const fn are_watched(self) -> bool {
        self.judged.is_some() || self.asks_early || self.likely_from.is_some()
    }
}

/// State of the current pause.
#[derive(Debug, Default)]
pub(super) struct PauseWatch {
    state: PauseState,
    verdict: TurnVerdict,
    next_id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PauseState {
    /// The user speaks, or has just stopped.
    #[default]
    None,
    /// The model is asked.
    Asked(PauseId),
    /// The verdict came, or none is expected.
    Settled,
}

impl PauseWatch {
    /// Forgets the current pause, whose utterance is over or discarded.
    pub(super) fn forget(&mut self, out: &mut Vec<SpeechEvent>) {
        self.settle(out);
        self.reset();
    }

    fn reset(&mut self) {
        self.state = PauseState::None;
        self.verdict = TurnVerdict::default();
    }

    /// Takes the verdict on the pause that ends the turn.
    pub(super) fn take_verdict(&mut self) -> TurnVerdict {
        std::mem::take(&mut self.verdict)
    }

    /// Speech goes on.
    fn resume(&mut self, out: &mut Vec<SpeechEvent>) {
        self.reset();
        out.push(SpeechEvent::Resumed);
    }

    /// Expects no verdict on the current pause any more.
    fn settle(&mut self, out: &mut Vec<SpeechEvent>) {
        if matches!(self.state, PauseState::Asked(_)) {
            self.state = PauseState::Settled;
            out.push(SpeechEvent::Decided(TurnDecision::Void));
        }
    }
}

impl SpeechInput {
    /// Notices the begin and the end of a pause, after a hop.
    pub(super) fn track_pause(&mut self, out: &mut Vec<SpeechEvent>) {
        let PauseUse { judged, asks_early, likely_from } = self.settings.pauses;
        if self.pause_watch.state == PauseState::None && !self.settings.pauses.are_watched() {
            return;
        }
        match (self.pause_watch.state, self.voice_activity.segmenter.pause_ms()) {
            (PauseState::None, Some(ms)) if ms >= ASK_AFTER_MS as f32 => {
                let Some(recording) = &self.recording else { return };
                let pause = PauseId(self.pause_watch.next_id);
                self.pause_watch.next_id += 1;
                let kept = if asks_early { usize::MAX } else { JUDGED_SAMPLES };
                let from = recording.audio.len().saturating_sub(kept);
                let audio = recording.audio[from..].to_vec().into();
                self.pause_watch.state = PauseState::Settled;
                if let Some(rule) = judged {
                    self.pause_watch.state = PauseState::Asked(pause);
                    self.voice_activity.segmenter.extend_pause(rule.wait_max_ms);
                }
                out.push(SpeechEvent::Paused { pause, audio, is_judged: judged.is_some() });
                if judged.is_none() && likely_from.is_some() {
                    out.push(SpeechEvent::EndLikely(None));
                }
            }
            (PauseState::Asked(_), Some(0.0)) => {
                out.push(SpeechEvent::Decided(TurnDecision::Void));
                self.pause_watch.resume(out);
            }
            (PauseState::Settled, Some(0.0)) => self.pause_watch.resume(out),
            (PauseState::Asked(_), None) => {
                self.pause_watch.state = PauseState::None;
                out.push(SpeechEvent::Decided(TurnDecision::Late));
            }
            (PauseState::Settled, None) => self.pause_watch.state = PauseState::None,
            _ => {}
        }
    }

    /// Takes the verdict on a pause: the probability that the user has finished, or `None` if there is none. One on an earlier
    /// pause changes nothing.
    pub(crate) fn judge_pause(
        &mut self,
        pause: PauseId,
        probability: Option<f32>,
        out: &mut Vec<SpeechEvent>,
    ) {
        let PauseUse { judged, likely_from, .. } = self.settings.pauses;
        let Some(rule) = judged else { return };
        if self.pause_watch.state != PauseState::Asked(pause) {
            return;
        }
        self.pause_watch.state = PauseState::Settled;
        let fixed_ms = self.settings.end_silence_ms;
        let (decision, end_ms) = match probability {
            None => (TurnDecision::Refused, fixed_ms),
            Some(it) if it >= rule.threshold => (TurnDecision::Finished, END_AFTER_MS.min(fixed_ms)),
            Some(it) => (TurnDecision::Unfinished, rule.wait_ms(it).max(fixed_ms)),
        };
        let cause = if decision == TurnDecision::Finished { EndCause::Model } else { EndCause::Timeout };
        self.pause_watch.verdict = TurnVerdict { probability, cause };
        out.push(SpeechEvent::Decided(decision));
        if self.voice_activity.segmenter.set_pause_end(end_ms).is_some() {
            self.finish_segment(true, out);
            self.pause_watch.state = PauseState::None;
        } else if let Some((probability, from)) = probability.zip(likely_from)
            && probability >= from.min(rule.threshold)
        {
            out.push(SpeechEvent::EndLikely(Some(probability)));
        }
    }

    /// Ends the current pause by the settings, whatever a verdict under earlier ones was.
    pub(super) fn apply_settings_to_pause(&mut self, out: &mut Vec<SpeechEvent>) {
        self.voice_activity.segmenter.clear_pause_end();
        self.pause_watch.settle(out);
    }

    /// Smallest number of hops until a pause can begin.
    pub(super) fn min_hops_to_pause(&self) -> Option<u32> {
        self.settings
            .pauses
            .are_watched()
            .then(|| self.voice_activity.segmenter.min_hops_to_pause(ASK_AFTER_MS))
            .flatten()
    }
}
