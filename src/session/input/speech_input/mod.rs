//! Microphone audio becomes utterances: intake, voice activity, pre-roll, recording.
//!
//! Works on sample counts alone; knows no clock, no lane and no client. Here is what a session asks of its ear; [`working`]
//! is how it listens.

mod pipeline;

use std::time::Duration;

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        encoding::Encoding,
        input_converter::{FormatError, Intake},
        vad::{Segmenter, Sensitivity, VadConfig},
    },
    mapping::profile::{BargeIn, Listen},
};
use pipeline::{Recording, Pipeline, config};

/// Samples at 16 kHz in a millisecond.
const SAMPLES_PER_MS: u64 = SPEECH_RATE_HZ as u64 / 1000;

/// What was heard.
#[derive(Debug, PartialEq)]
pub(crate) enum SpeechEvent {
    /// An utterance began.
    Started {
        /// Audio listened to so far, ms.
        at_ms: u64,
    },
    /// A piece of an utterance is complete.
    Piece(Piece),
    /// Somebody speaks who is [watched](Ear::watch) for.
    Interrupted,
}

/// A stretch of speech to be transcribed.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    /// int16 mono 16 kHz.
    pub(crate) audio: Vec<i16>,
    /// Something in it was speech.
    pub(crate) voiced: bool,
    /// It ends the utterance; a piece that was committed does not.
    pub(crate) last: bool,
    /// Audio listened to so far, ms.
    pub(crate) at_ms: u64,
}

/// How a session listens; the profile's values until the client changes them.
#[derive(Debug, Clone)]
pub(crate) struct Hearing {
    pub(crate) encoding: Encoding,
    pub(crate) rate_hz: u32,
    pub(crate) channels: u16,
    pub(crate) sensitivity: Sensitivity,
    pub(crate) end_ms: u32,
    pub(crate) segment_max_ms: u32,
}

impl Hearing {
    /// How the client's audio is written.
    const fn format(&self) -> (Encoding, u32, u16) {
        (self.encoding, self.rate_hz, self.channels)
    }
}

/// Where every sample went, at 16 kHz but for the two that never got there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Sample groups taken in, at the client's rate.
    pub taken: u64,
    /// Sample groups muted, at the client's rate.
    pub muted: u64,
    /// Samples that became part of an utterance.
    pub recorded: u64,
    /// Samples outside any utterance.
    pub silent: u64,
    /// Samples not decided about yet.
    pub pending: u64,
    /// Samples handed on to a conversation.
    pub streamed: u64,
}

/// What is done with what is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    /// Utterances are recorded.
    pub(crate) record: bool,
    /// Everything is handed on.
    pub(crate) stream: bool,
}

/// One session's ear. Holds nothing to speak of until audio arrives.
#[derive(Debug)]
pub(crate) struct SpeechInput {
    listen: Listen,
    hearing: Hearing,
    usage: Use,
    working: Option<Box<Pipeline>>,
    muted: bool,
}

impl SpeechInput {
    pub(crate) const fn new(listen: Listen, hearing: Hearing, usage: Use) -> Self {
        Self { listen, hearing, usage, working: None, muted: false }
    }

    /// Watches for somebody who speaks for `start_ms` from now on, or no longer. A voice that has not paused for
    /// `hold_max_ms` is no longer believed: it has to pause first (field notes §7.19).
    pub(crate) fn watch(&mut self, rules: Option<&BargeIn>) {
        let Some(working) = &mut self.working else { return };
        match rules {
            None => working.watch = None,
            Some(rules) if working.watch.is_none() => {
                let (start_ms, end_ms) = (rules.start_ms, rules.start_ms);
                let config = VadConfig { start_ms, end_ms, max_ms: u32::MAX, ..VadConfig::default() };
                let mut watch = Segmenter::new(config, working.activity.hop_samples());
                if working.spoken / SAMPLES_PER_MS >= rules.hold_max_ms {
                    watch.begin();
                }
                working.watch = Some(watch);
            }
            Some(_) => {}
        }
    }

    /// What is to be handed on, to be taken away.
    pub(crate) fn stream(&mut self) -> Option<&mut Vec<i16>> {
        self.working.as_mut().map(|working| &mut working.stream).filter(|stream| !stream.is_empty())
    }

    /// Whether something was speech since last asked.
    pub(crate) fn take_voiced(&mut self) -> bool {
        self.working.as_mut().is_some_and(|working| std::mem::take(&mut working.voiced))
    }

    /// For how long the user has been speaking.
    pub(crate) fn spoken(&self) -> Duration {
        let samples = self.working.as_ref().map_or(0, |working| working.spoken);
        Duration::from_micros(samples * 1000 / SAMPLES_PER_MS)
    }

    /// Whether an utterance is going on.
    pub(crate) fn in_speech(&self) -> bool {
        self.working.as_ref().is_some_and(|working| working.activity.in_speech())
    }

    /// How much more audio there must be before anything can be found out by it.
    pub(crate) fn undecided(&self) -> Duration {
        let samples = self.working.as_ref().map_or(0, |working| working.undecided());
        Duration::from_micros(samples * 1000 / SAMPLES_PER_MS)
    }

    /// How it listens now.
    pub(crate) const fn hearing(&self) -> &Hearing {
        &self.hearing
    }

    /// Listens in another way from now on.
    ///
    /// # Errors
    /// [`FormatError`] for a rate or channel count that cannot be taken in; the old way stays.
    pub(crate) fn set(&mut self, hearing: Hearing, out: &mut Vec<SpeechEvent>) -> Result<(), FormatError> {
        let format_changed = hearing.format() != self.hearing.format();
        let (encoding, rate_hz, channels) = hearing.format();
        let intake = Intake::of(encoding, rate_hz, channels)?;
        let config = config(&self.listen, &hearing);
        self.hearing = hearing;
        if let Some(working) = &mut self.working {
            working.activity.set_config(config);
            if format_changed {
                working.flush(out);
                working.taken_before += working.intake.input_samples();
                working.muted += working.intake.skipped_samples();
                working.intake = intake;
            }
        }
        Ok(())
    }

    /// Sample groups that a frame of audio completes.
    pub(crate) fn groups(&self, bytes: usize) -> u64 {
        let groups = match &self.working {
            Some(working) => working.intake.groups(bytes),
            None => bytes / (self.hearing.encoding.bytes() * usize::from(self.hearing.channels.max(1))),
        };
        groups as u64
    }

    /// Drops a frame as if it had never been sent, but for the alignment of the bytes after it.
    pub(crate) fn discard(&mut self, bytes: &[u8]) {
        if let Some(working) = self.working() {
            working.intake.discard(bytes);
        }
    }

    /// Takes a frame in.
    pub(crate) fn hear(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) {
        self.muted = false;
        let Some(working) = self.working() else { return };
        let before = working.fresh.len();
        working.intake.push(bytes, &mut working.fresh);
        working.hand_on(before);
        working.listen(out);
    }

    /// Takes a frame in and discards it; what was heard before is heard out first.
    pub(crate) fn mute(&mut self, bytes: &[u8], out: &mut Vec<SpeechEvent>) {
        let newly = !std::mem::replace(&mut self.muted, true);
        let Some(working) = self.working() else { return };
        if newly {
            working.flush(out);
        }
        working.intake.skip(bytes);
    }

    /// Ends the piece being recorded; the utterance goes on. Nothing happens when none is.
    pub(crate) fn commit(&mut self, out: &mut Vec<SpeechEvent>) {
        if let Some(working) = self.working.as_mut().filter(|working| working.recording.is_some()) {
            working.finish_all(false, out);
            // Its last hops may have ended the utterance.
            if working.activity.in_speech() {
                working.recording = Some(Recording::default());
            }
        }
    }

    /// Ends the utterance being recorded: no more of it comes. Nothing happens when none is.
    pub(crate) fn end(&mut self, out: &mut Vec<SpeechEvent>) {
        if let Some(working) = self.working.as_mut().filter(|working| working.recording.is_some()) {
            working.finish_all(true, out);
            working.activity.reset();
        }
    }

    /// Audio listened to so far, ms.
    pub(crate) fn at_ms(&self) -> u64 {
        self.working.as_ref().map_or(0, |working| working.at_ms())
    }

    /// The audio recorded of the utterance so far.
    pub(crate) fn so_far(&self) -> Option<&[i16]> {
        self.working.as_ref()?.recording.as_ref().map(|recording| recording.audio.as_slice())
    }

    /// Drops what is being recorded; the session is over.
    pub(crate) fn stop(&mut self) {
        if let Some(working) = &mut self.working {
            working.silent += working.recording.take().map_or(0, |recording| recording.audio.len() as u64);
        }
    }

    /// Where every sample went.
    pub(crate) fn account(&self) -> Account {
        self.working.as_ref().map_or_else(Account::default, |working| Account {
            taken: working.taken_before + working.intake.input_samples(),
            muted: working.muted + working.intake.skipped_samples(),
            recorded: working.recorded,
            silent: working.silent,
            pending: (working.fresh.len() + working.pre_roll.len()) as u64
                + working.recording.as_ref().map_or(0, |recording| recording.audio.len() as u64),
            streamed: working.streamed,
        })
    }

    fn working(&mut self) -> Option<&mut Pipeline> {
        if self.working.is_none() {
            // The format was checked when it was set, so this cannot fail.
            let (encoding, rate_hz, channels) = self.hearing.format();
            let intake = Intake::of(encoding, rate_hz, channels).ok()?;
            self.working = Some(Box::new(Pipeline::new(intake, &self.listen, &self.hearing, self.usage)));
        }
        self.working.as_deref_mut()
    }
}
