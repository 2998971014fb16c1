//! What waits for its words, and clients that want to know when nothing does any more.

use std::time::Instant;

use super::{Asking, Hear};
use crate::session::{
    context::Host,
    stt::utterance::{State, Utterance, length_ms},
};

/// Utterances at a time above which a client's wish to have them final is not noted one by one.
const MOST_MARKS: usize = 64;

impl Hear {
    /// Audio that waits for its words, ms.
    pub(crate) fn backlog_ms(&self) -> u64 {
        let waiting = |utterance: &Utterance| match &utterance.state {
            State::Waiting(audio) | State::Asked(audio, _) => length_ms(audio),
            State::Recording | State::Settled(_) => 0,
        };
        self.utterances.iter().map(waiting).sum()
    }

    /// What came so far is to be final, and the client to know when it is: by one transcript more, were it empty.
    pub(crate) fn finalize(&mut self, now: Instant, asking: &Asking<'_>, host: &mut Host) {
        let marked = |last: &&mut Utterance| !last.finalized && !matches!(last.state, State::Recording);
        if let Some(last) = self.utterances.back_mut().filter(marked) {
            last.finalized = true;
        } else if self.utterances.len() < MOST_MARKS {
            self.utterances.push_back(Utterance::mark(host.segments.take()));
        }
        self.proceed(now, asking, host);
    }
}
