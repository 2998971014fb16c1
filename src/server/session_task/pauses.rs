//! Pauses in the user's speech: passes the session's questions to the end-of-turn model and to the upstream pool.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use crate::{bridge::Input, server::turn_judge::TurnJudge, vocabulary::PauseId};

/// The questions of one session about its current pause.
pub(super) struct PauseQuestions {
    judge: Option<TurnJudge>,
    /// The question that the model works on.
    judging: Option<(PauseId, oneshot::Receiver<Option<f32>>)>,
    /// Answers that are there at once, for the bridge.
    pub(super) answers: Vec<Input<'static>>,
}

impl PauseQuestions {
    pub(super) const fn new(judge: Option<TurnJudge>) -> Self {
        Self { judge, judging: None, answers: Vec::new() }
    }

    /// Asks the model. Withdraws the question about an earlier pause.
    pub(super) fn judge(&mut self, pause: PauseId, audio: Arc<Vec<i16>>) {
        self.judging = None;
        match self.judge.as_ref().and_then(|judge| judge.ask(audio)) {
            Some(verdict) => self.judging = Some((pause, verdict)),
            None => self.answers.push(Input::TurnJudged(pause, None)),
        }
    }

    /// Withdraws the question to the model.
    pub(super) fn withdraw(&mut self) {
        self.judging = None;
    }

    #[cfg(test)]
    pub(super) const fn is_judging(&self) -> bool {
        self.judging.is_some()
    }

    /// Waits for the model's verdict.
    pub(super) fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<(PauseId, Option<f32>)> {
        let Some((pause, verdict)) = &mut self.judging else { return Poll::Pending };
        let Poll::Ready(probability) = verdict.poll_unpin(cx) else { return Poll::Pending };
        let pause = *pause;
        self.judging = None;
        Poll::Ready((pause, probability.ok().flatten()))
    }
}
