//! Words of an utterance while it is still being spoken: what was said so far is asked, and told as a partial.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Asking, Hear};
use crate::{
    event::{ClientCommand, LaneCommand, Speaker},
    session::{
        context::Host,
        stt::utterance::{State, length_ms},
    },
};

/// A decode of what was said so far, while the user still speaks.
#[derive(Debug)]
pub(crate) struct Interim {
    pub(crate) text: String,
    /// Length of the audio it is about, ms.
    pub(crate) at_ms: u64,
    /// Where that begins, ms.
    pub(crate) from_ms: u64,
}

impl Hear {
    /// When a decode of what was said so far is due; the session has the audio.
    pub(crate) fn interim_is_due(&self, now: Instant) -> bool {
        self.interim_due.is_some_and(|due| due <= now)
    }

    /// Asks for the words so far, if the lane is free for it.
    pub(crate) fn ask_interim(
        &mut self,
        now: Instant,
        (audio, end_ms): (&[i16], u64),
        asking: &Asking<'_>,
        host: &mut Host,
    ) {
        self.interim_due = Some(now + asking.rules.interim.max(Duration::from_millis(100)));
        let ready = self.link.as_mut().filter(|link| link.is_ready());
        if let (Some(link), None) = (ready, &self.interim) {
            let (audio, at_ms) = (Arc::new(audio.to_vec()), length_ms(audio));
            link.ask(now, LaneCommand::Transcribe { prompt: asking.prompt(), audio }, host);
            self.interim =
                Some(Interim { text: String::new(), at_ms, from_ms: end_ms.saturating_sub(at_ms) });
        }
    }

    pub(crate) fn tell_interim(&self, text: &str, interim: &Interim, asking: &Asking<'_>, host: &mut Host) {
        let front = self.utterances.front().filter(|utterance| matches!(utterance.state, State::Recording));
        if let (Some(utterance), true, false) = (front, asking.partials, text.trim().is_empty()) {
            host.out.client(ClientCommand::TranscriptPartial {
                speaker: Speaker::User,
                text: text.trim().to_owned(),
                segment_id: utterance.segment_id,
                at_ms: interim.at_ms,
                from_ms: interim.from_ms,
            });
        }
    }
}
