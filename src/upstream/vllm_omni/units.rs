//! Units of the user's audio: how they are cut and sent, and what answers them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{UNIT_MS, VllmOmni, message};
use crate::{
    audio::SPEECH_RATE_HZ,
    upstream::behaviour::EventSink,
    vocabulary::{LaneEvent, MessageMeta, RefusedPart, Sound, UnitInput},
};

/// Silence before a session's first unit. As long as some audio waits for the rest of its unit, the server adds no silence of
/// its own while the model speaks (`_real_input_waiting` in session/runner.py).
pub(super) const LEAD_SAMPLES: usize = SPEECH_RATE_HZ as usize / 50;

/// Time after which the unit in flight ends while the model says nothing in the middle of its answer.
const QUIET_UNIT: Duration = Duration::from_secs(1);

/// Time without output after which an answer no longer excuses missing answers to units.
const ANSWER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Ends a unit, and adds nothing to the answer.
pub(super) const UNIT_END: LaneEvent<'static> = LaneEvent::Done { text: None, audio: Sound::NONE };

/// Unit that the server has not answered.
#[derive(Debug)]
pub(super) struct PendingUnit {
    pub(super) id: Box<str>,
    pub(super) sent_at: Instant,
    /// It was sent in pieces.
    pub(super) is_split: bool,
    /// It was sent before the transport broke, so that the server may not know it.
    pub(super) is_doubtful: bool,
}

impl PendingUnit {
    /// The part of it that an error refuses: an error that names no message means the last one.
    pub(super) fn refused_part(&self, input_id: Option<&str>) -> Option<RefusedPart> {
        match (self.is_split, input_id) {
            (false, None) => Some(RefusedPart::Whole),
            (false, Some(id)) => (*self.id == *id).then_some(RefusedPart::Whole),
            (true, id) => (id? == format!("{}.0", self.id)).then_some(RefusedPart::Piece),
        }
    }
}

impl VllmOmni {
    /// Counts the unit in flight as answered, by this event.
    pub(super) fn answer_unit(
        &mut self,
        event: LaneEvent<'_>,
        response_id: Option<&str>,
        emit: &mut EventSink<'_>,
    ) {
        if let Some(unit) = self.unit.take() {
            self.outbox.note_accepted();
            self.input_format.note_accepted();
            emit(event, MessageMeta { input_id: Some(&unit.id), response_id, ..MessageMeta::default() });
        }
    }

    /// The unit with the silence before a session's first one.
    pub(super) fn with_lead(&mut self, unit: &UnitInput) -> UnitInput {
        let lead = if std::mem::replace(&mut self.has_appended, true) { 0 } else { LEAD_SAMPLES };
        let audio = Arc::new([&vec![0; lead][..], &unit.audio].concat());
        UnitInput { audio, force_listen: false, ..unit.clone() }
    }

    /// Cuts a unit into pieces that the model takes at once, with their ids. The picture goes with the first.
    pub(super) fn split_unit(
        &mut self,
        unit: &UnitInput,
        encode: impl Fn(UnitInput) -> String,
    ) -> Vec<(Box<str>, String)> {
        if let Some(appends) = self.input_format.appends(unit, self.unit_ms()) {
            return appends.into_iter().map(|(id, append)| (id, message(&append))).collect();
        }
        let piece = (u64::from(SPEECH_RATE_HZ) * u64::from(self.unit_ms()) / 1000).max(1) as usize;
        // Models with shorter units take no longer append.
        let longest = if self.unit_ms() < UNIT_MS { piece } else { piece + LEAD_SAMPLES };
        let appends: Vec<(Box<str>, String)> = if unit.audio.len() <= longest {
            vec![(unit.input_id.clone(), encode(unit.clone()))]
        } else {
            let pieces = unit.audio.chunks(piece).enumerate().map(|(at, audio)| UnitInput {
                audio: Arc::new(audio.to_vec()),
                input_id: format!("{}.{at}", unit.input_id).into(),
                force_listen: false,
                frame: unit.frame.clone().filter(|_| at == 0),
            });
            pieces.map(|piece| (piece.input_id.clone(), encode(piece))).collect()
        };
        self.input_format.note_sent(unit.clone(), appends.len());
        appends
    }

    /// Sends the unit in flight again if this error names the rate that the model takes. True if that is all it means.
    pub(super) fn handle_rate_refusal(&mut self, now: Instant, words: &str) -> bool {
        let Some(refused) = self.input_format.take_refusal(words) else { return false };
        let Some(unit) = refused else { return true };
        // Every append so far is refused.
        self.outbox.note_accepted();
        for (id, append) in self.input_format.appends(&unit, self.unit_ms()).unwrap_or_default() {
            if let Some(text) = self.outbox.admit(id, message(&append), self.link.is_up()) {
                self.send(now, text);
            }
        }
        if let Some(unit) = &mut self.unit {
            (unit.sent_at, unit.is_split) = (now, true);
        }
        true
    }

    /// When the unit in flight ends without an answer: the model does not answer every unit while it speaks, and cannot answer
    /// one that was lost.
    pub(super) fn quiet_unit_ends_at(&self) -> Option<Instant> {
        let unit = self.unit.as_ref().filter(|_| self.outbox.is_empty())?;
        let ends_at = unit.sent_at + QUIET_UNIT;
        let speaks = self
            .answer
            .as_ref()
            .is_some_and(|answer| !answer.is_complete && ends_at < answer.last_output_at + ANSWER_PAUSE_MAX);
        (speaks || unit.is_doubtful).then_some(ends_at)
    }
}
