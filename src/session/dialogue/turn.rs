//! One turn of the model: what it has said so far, under which ids, and what of it was heard.

use std::{collections::VecDeque, time::Duration};

use super::turns::Telling;
use crate::session::{context::Host, upstream::output_filter::Words};
use crate::{
    audio::MODEL_RATE_HZ,
    event::{ClientCommand, Speaker},
};

/// Ids of one turn that are remembered: what comes late is a unit late at most.
const IDS_MAX: usize = 4;
/// Most text of one turn that is kept; the model would need an hour for it.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// A turn going on.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) request_id: String,
    pub(super) segment_id: u32,
    pub(super) text: String,
    /// Samples of its audio.
    pub(super) samples: u64,
    /// The mouth has begun it.
    pub(super) begun: bool,
    pub(super) ids: VecDeque<Box<str>>,
}

impl Turn {
    /// A turn that begins.
    pub(super) fn begin(host: &mut Host) -> Self {
        Self {
            request_id: format!("turn_{:08x}", host.rng.u32(..)),
            segment_id: host.segments.take(),
            text: String::new(),
            samples: 0,
            begun: false,
            ids: VecDeque::new(),
        }
    }

    /// It is known by this id too: C++ has one a unit.
    pub(super) fn is_called(&mut self, id: Option<&str>) {
        let Some(id) = id.filter(|id| self.ids.back().is_none_or(|last| **last != **id)) else { return };
        if self.ids.len() == IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(id.into());
    }

    /// Takes what the words became.
    pub(super) fn says(&mut self, words: &mut Words, delta: &str) {
        if self.text.len() < TEXT_MAX_BYTES {
            words.push(delta, &mut self.text);
        }
    }

    pub(super) fn audio_ms(&self) -> u64 {
        self.samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// What of its text was heard, about, when that much of its audio was not: the model's next session is not told that
    /// it said what nobody heard.
    pub(super) fn heard(&self, unheard: Duration) -> &str {
        let all = Duration::from_millis(self.audio_ms());
        let share = 1.0 - unheard.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
        let chars = self.text.chars().count() as f64 * share.clamp(0.0, 1.0);
        let end = self.text.char_indices().nth(chars as usize).map_or(self.text.len(), |(at, _)| at);
        // Text leads audio; the word at hand was heard.
        let end = self.text[end..].find(char::is_whitespace).map_or(self.text.len(), |at| end + at);
        self.text[..end].trim()
    }

    /// What was said, for the client; and what of it was heard, for the next upstream session.
    pub(super) fn tell(&self, heard: &str, telling: Telling, host: &mut Host) {
        host.memory.said(Speaker::Assistant, heard);
        let text = self.text.trim();
        if telling.transcripts && !text.is_empty() {
            host.out.client(ClientCommand::TranscriptFinal {
                speaker: Speaker::Assistant,
                text: text.to_owned(),
                segment_id: self.segment_id,
                duration_ms: self.audio_ms(),
                from_ms: 0,
                ended: true,
                finalized: false,
                language: None,
            });
        }
    }
}
