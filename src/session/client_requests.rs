//! What clients ask for beside audio and settings: texts one after the other, finals now, to know when nobody speaks.

use std::time::Instant;

use super::{
    Phase, Session,
    input::speech_input::SpeechEvent,
    outbox::lockstep::Owed,
    settings::asking,
    tts::queue::{Texts, Waiting},
    upstream::connection::millis,
};
use crate::{
    error::{Error, ErrorKind},
    event::{ClientCommand, SpeakRequest},
};

impl Session {
    pub(super) fn gather(&mut self, now: Instant, act: impl FnOnce(&mut Texts) -> Result<(), String>) {
        self.idle_since = now;
        if let Err(problem) = act(&mut self.texts) {
            self.refuse(Error::new(ErrorKind::SpeakFailed, problem));
        }
    }

    /// Speaks what waits, one text after the other.
    pub(super) fn speak_on(&mut self, now: Instant) {
        while self.phase != Phase::Over && !self.floor_taken() {
            match self.texts.next() {
                None => return,
                Some(Waiting::Text(text)) => {
                    self.start_speaking(now, SpeakRequest { text, ..SpeakRequest::default() });
                }
                Some(Waiting::Flushed(sequence)) => self.host.out.client(ClientCommand::Flushed { sequence }),
            }
        }
    }

    /// What came so far is final, whatever the user does.
    pub(super) fn finalize(&mut self, now: Instant) {
        self.ear.end(&mut self.heard);
        self.tell_heard(now);
        let asking = asking(&self.setup.profile, &self.settings);
        self.hear.finalize(now, &asking, &mut self.host);
        self.host.out.owe(Owed::All);
    }

    /// Where silence began that the client may have to be told of.
    pub(super) fn note_gap(&mut self, heard: &SpeechEvent) {
        match heard {
            SpeechEvent::Started { .. } => self.gap_from_ms = None,
            SpeechEvent::Piece(piece) if piece.last && piece.voiced => {
                self.gap_from_ms = Some(piece.at_ms.saturating_sub(self.ear.hearing().end_ms.into()));
            }
            SpeechEvent::Piece(_) | SpeechEvent::Interrupted => {}
        }
    }

    /// Tells the client that nothing was said for as long as it asked, after the words before it.
    pub(super) fn tell_gap(&mut self) {
        let gap = self.settings.utterance_gap.map(millis);
        if let (Some(gap), Some(last_ms)) = (gap, self.gap_from_ms)
            && self.ear.at_ms() >= last_ms + gap
            && self.hear.is_settled()
        {
            self.gap_from_ms = None;
            self.host.out.client(ClientCommand::UtteranceGap { last_ms });
        }
    }
}
