//! Finality: a client can ask for the final transcript of all audio so far.

use std::time::Instant;

use super::{TranscribeOptions, Transcriber};
use crate::session::{
    stt::utterance::{Utterance, UtteranceState, length_ms},
    upstream::LaneContext,
};

/// Most utterances that wait at a time while further finality requests still get a marker of their own.
const MAX_FINALITY_MARKERS: usize = 64;

impl Transcriber {
    /// Audio that waits for its transcript, ms.
    pub(crate) fn backlog_ms(&self) -> u64 {
        let waiting = |utterance: &Utterance| match &utterance.state {
            UtteranceState::Waiting(audio) | UtteranceState::Requested(audio, _) => length_ms(audio),
            UtteranceState::Recording | UtteranceState::Settled(_) => 0,
        };
        self.utterances.iter().map(waiting).sum()
    }

    /// Makes the audio so far final. The client gets one more final transcript, which may be empty.
    pub(crate) fn finalize(
        &mut self,
        now: Instant,
        options: &TranscribeOptions<'_>,
        context: &mut LaneContext,
    ) {
        let can_be_finalized =
            |last: &&mut Utterance| !last.finalized && !matches!(last.state, UtteranceState::Recording);
        if let Some(last) = self.utterances.back_mut().filter(can_be_finalized) {
            last.finalized = true;
        } else if self.utterances.len() < MAX_FINALITY_MARKERS {
            self.utterances.push_back(Utterance::finality_marker(context.segment_ids.next_id()));
        }
        self.advance(now, options, context);
    }
}
