//! One utterance from its first sound to its words.

use std::{sync::Arc, time::Instant};

use crate::session::{context::Host, measurement::Figure};
use crate::{
    audio::SPEECH_RATE_HZ,
    error::Error,
    event::{ClientCommand, Speaker},
};

/// A stretch of speech: a whole utterance, or a piece of one that was committed.
#[derive(Debug)]
pub(crate) struct Utterance {
    pub(crate) segment_id: u32,
    /// It begins an utterance: where, ms, and whether the client knows.
    pub(crate) opens: Option<u64>,
    pub(crate) opening_told: bool,
    /// It ends an utterance: where, ms.
    pub(crate) closes: Option<u64>,
    /// Where its audio begins, ms.
    pub(crate) from_ms: u64,
    /// The client had what came so far made final, and is to know when it is.
    pub(crate) finalized: bool,
    /// When its audio was complete.
    pub(crate) complete_at: Option<Instant>,
    /// Its end was told before its words were known.
    pub(crate) released: bool,
    pub(crate) attempts: u32,
    /// The question, and the language it is asked in.
    pub(crate) prompt: String,
    pub(crate) language: String,
    pub(crate) state: State,
    pub(crate) timing: Timing,
}

/// Whether it was measured how long its first words took.
#[derive(Debug, Default)]
pub(crate) struct Timing(bool);

impl Timing {
    /// Words are told; those from before the utterance's end do not count.
    pub(crate) fn told(&mut self, now: Instant, complete_at: Option<Instant>, host: &mut Host) {
        if let Some(at) = complete_at.filter(|_| !std::mem::replace(&mut self.0, true)) {
            host.out.measured(Figure::FirstTranscript { after: now - at });
        }
    }
}

#[derive(Debug)]
pub(crate) enum State {
    /// The user still speaks.
    Recording,
    /// To be asked.
    Waiting(Arc<Vec<i16>>),
    /// Asked; what the model said so far.
    Asked(Arc<Vec<i16>>, String),
    /// Settled, with what the client is to be told.
    Settled(Option<Result<Words, Error>>),
}

#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) text: String,
    pub(crate) duration_ms: u64,
    pub(crate) language: String,
}

impl Utterance {
    pub(crate) const fn open(segment_id: u32, opens: Option<u64>) -> Self {
        Self {
            segment_id,
            opens,
            opening_told: false,
            closes: None,
            from_ms: 0,
            finalized: false,
            complete_at: None,
            released: false,
            attempts: 0,
            prompt: String::new(),
            language: String::new(),
            state: State::Recording,
            timing: Timing(false),
        }
    }

    /// Nothing to ask; only to be told that all before it is final.
    pub(crate) fn mark(segment_id: u32) -> Self {
        Self { finalized: true, state: State::Settled(None), ..Self::open(segment_id, None) }
    }

    pub(crate) const fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked(..))
    }

    /// Tells the words of a settled utterance and its end; whether it is settled.
    pub(crate) fn settle(&mut self, now: Instant, host: &mut Host) -> bool {
        let State::Settled(told) = &mut self.state else { return false };
        let told = told.take();
        let failed = matches!(told, Some(Err(_)) | None);
        match told {
            Some(Ok(words)) => {
                host.memory.said(Speaker::User, &words.text);
                self.timing.told(now, self.complete_at, host);
                self.tell(words.text, words.duration_ms, Some(words.language), host);
            }
            Some(Err(error)) => host.out.error(error),
            None => {}
        }
        // Who asked for it waits for it.
        if failed && self.finalized {
            self.tell(String::new(), 0, None, host);
        }
        if let (Some(at_ms), false) = (self.closes, self.released) {
            host.out.client(ClientCommand::SpeechEnded { at_ms });
        }
        true
    }

    fn tell(&self, text: String, duration_ms: u64, language: Option<String>, host: &mut Host) {
        host.out.client(ClientCommand::TranscriptFinal {
            speaker: Speaker::User,
            text,
            segment_id: self.segment_id,
            duration_ms,
            from_ms: self.from_ms,
            ended: self.closes.is_some() && !self.finalized,
            finalized: self.finalized,
            language,
        });
    }
}

/// Length of audio, ms.
pub(crate) fn length_ms(audio: &[i16]) -> u64 {
    audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ)
}
