//! Microphone audio becomes utterances: intake, voice activity, pre-roll, recording.
//!
//! Works on sample counts alone; knows no clock, no lane and no client.

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        intake::{FormatError, Intake},
        vad::{Edge, Segmenter, Sensitivity, VadConfig, VoiceActivity},
    },
    mapping::profile::{BargeIn, Listen},
};

/// Samples at 16 kHz in a millisecond.
const SAMPLES_PER_MS: u64 = SPEECH_RATE_HZ as u64 / 1000;

/// What was heard.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
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
    pub(crate) rate_hz: u32,
    pub(crate) channels: u16,
    pub(crate) sensitivity: Sensitivity,
    pub(crate) end_ms: u32,
    pub(crate) segment_max_ms: u32,
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
pub(crate) struct Ear {
    listen: Listen,
    hearing: Hearing,
    usage: Use,
    working: Option<Box<Working>>,
    muted: bool,
}

/// What listening needs.
#[derive(Debug)]
struct Working {
    intake: Intake,
    activity: VoiceActivity,
    /// Resampled audio that is no whole hop yet.
    fresh: Vec<i16>,
    /// The last of what was not recorded.
    pre_roll: PreRoll,
    recording: Option<Recording>,
    usage: Use,
    /// Resampled audio to be handed on.
    stream: Vec<i16>,
    streamed: u64,
    /// Finds who interrupts.
    watch: Option<Segmenter>,
    /// Something was speech since last asked.
    voiced: bool,
    /// Samples since the user last was silent.
    spoken: u64,
    /// Samples listened to, muted ones not among them (field notes macaw.md §1.3).
    listened: u64,
    recorded: u64,
    silent: u64,
    taken_before: u64,
    muted: u64,
}

#[derive(Debug, Default)]
struct Recording {
    audio: Vec<i16>,
    voiced: bool,
}

impl Ear {
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

    /// Whether an utterance is going on.
    pub(crate) fn in_speech(&self) -> bool {
        self.working.as_ref().is_some_and(|working| working.activity.in_speech())
    }

    /// How it listens now.
    pub(crate) const fn hearing(&self) -> &Hearing {
        &self.hearing
    }

    /// Listens in another way from now on.
    ///
    /// # Errors
    /// [`FormatError`] for a rate or channel count that cannot be taken in; the old way stays.
    pub(crate) fn set(&mut self, hearing: Hearing, out: &mut Vec<Heard>) -> Result<(), FormatError> {
        let format_changed =
            (hearing.rate_hz, hearing.channels) != (self.hearing.rate_hz, self.hearing.channels);
        let intake = Intake::new(hearing.rate_hz, hearing.channels)?;
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
            None => bytes / (2 * usize::from(self.hearing.channels.max(1))),
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
    pub(crate) fn hear(&mut self, bytes: &[u8], out: &mut Vec<Heard>) {
        self.muted = false;
        let Some(working) = self.working() else { return };
        let before = working.fresh.len();
        working.intake.push(bytes, &mut working.fresh);
        working.hand_on(before);
        working.listen(out);
    }

    /// Takes a frame in and discards it; what was heard before is heard out first.
    pub(crate) fn mute(&mut self, bytes: &[u8], out: &mut Vec<Heard>) {
        let newly = !std::mem::replace(&mut self.muted, true);
        let Some(working) = self.working() else { return };
        if newly {
            working.flush(out);
        }
        working.intake.skip(bytes);
    }

    /// Ends the piece being recorded; the utterance goes on. Nothing happens when none is.
    pub(crate) fn commit(&mut self, out: &mut Vec<Heard>) {
        if let Some(working) = self.working.as_mut().filter(|working| working.recording.is_some()) {
            working.finish_all(false, out);
            // Its last hops may have ended the utterance.
            if working.activity.in_speech() {
                working.recording = Some(Recording::default());
            }
        }
    }

    /// Ends the utterance being recorded: no more of it comes. Nothing happens when none is.
    pub(crate) fn end(&mut self, out: &mut Vec<Heard>) {
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

    fn working(&mut self) -> Option<&mut Working> {
        if self.working.is_none() {
            // The format was checked when it was set, so this cannot fail.
            let intake = Intake::new(self.hearing.rate_hz, self.hearing.channels).ok()?;
            self.working = Some(Box::new(Working {
                intake,
                activity: VoiceActivity::new(config(&self.listen, &self.hearing)),
                fresh: Vec::new(),
                pre_roll: PreRoll::new(u64::from(self.listen.pre_roll_ms) * SAMPLES_PER_MS),
                recording: None,
                usage: self.usage,
                stream: Vec::new(),
                streamed: 0,
                watch: None,
                voiced: false,
                spoken: 0,
                listened: 0,
                recorded: 0,
                silent: 0,
                taken_before: 0,
                muted: 0,
            }));
        }
        self.working.as_deref_mut()
    }
}

impl Working {
    /// Judges every whole hop.
    fn listen(&mut self, out: &mut Vec<Heard>) {
        let hop_samples = self.activity.hop_samples();
        let fresh = std::mem::take(&mut self.fresh);
        let (hops, rest) = fresh.split_at(fresh.len() / hop_samples * hop_samples);
        for hop in hops.chunks_exact(hop_samples) {
            self.hop(hop, out);
        }
        let rest_len = rest.len();
        let whole = hops.len();
        self.fresh = fresh;
        self.fresh.copy_within(whole.., 0);
        self.fresh.truncate(rest_len);
    }

    fn hop(&mut self, hop: &[i16], out: &mut Vec<Heard>) {
        self.listened += hop.len() as u64;
        let result = self.activity.hop(hop);
        self.voiced |= result.speech;
        let silent = !result.speech && !self.activity.in_speech();
        self.spoken = if silent { 0 } else { self.spoken + hop.len() as u64 };
        if self.watch.as_mut().and_then(|watch| watch.push(result.speech)) == Some(Edge::Start) {
            out.push(Heard::Interrupted);
        }
        match &mut self.recording {
            Some(recording) => {
                recording.voiced |= result.speech;
                if self.usage.record {
                    recording.audio.extend_from_slice(hop);
                } else {
                    self.silent += hop.len() as u64;
                }
            }
            None if self.usage.record => self.silent += self.pre_roll.push(hop),
            None => self.silent += hop.len() as u64,
        }
        match result.edge {
            None => {}
            Some(Edge::Start) => {
                let (audio, older) = self.pre_roll.take();
                self.silent += older;
                self.recording = Some(Recording { audio, voiced: true });
                out.push(Heard::Started { at_ms: self.at_ms() });
            }
            Some(Edge::End | Edge::Limit) => self.finish(true, out),
        }
    }

    fn finish(&mut self, last: bool, out: &mut Vec<Heard>) {
        let Some(recording) = self.recording.take() else { return };
        self.recorded += recording.audio.len() as u64;
        out.push(Heard::Piece(Piece {
            audio: recording.audio,
            voiced: recording.voiced,
            last,
            at_ms: self.at_ms(),
        }));
    }

    /// Ends the piece being recorded with all that has come, to the last sample.
    fn finish_all(&mut self, last: bool, out: &mut Vec<Heard>) {
        self.flush(out);
        let Some(recording) = &mut self.recording else { return };
        // What is left is less than a hop: too little to judge, and part of what was said.
        if self.usage.record {
            recording.audio.extend_from_slice(&self.fresh);
        } else {
            self.silent += self.fresh.len() as u64;
        }
        self.listened += self.fresh.len() as u64;
        self.fresh.clear();
        self.finish(last, out);
    }

    /// Gets out what the resampler still holds.
    fn flush(&mut self, out: &mut Vec<Heard>) {
        let before = self.fresh.len();
        self.intake.flush(&mut self.fresh);
        self.hand_on(before);
        self.listen(out);
    }

    /// Hands on what is newer than the first `before` samples.
    fn hand_on(&mut self, before: usize) {
        if self.usage.stream {
            self.stream.extend_from_slice(&self.fresh[before..]);
            self.streamed += (self.fresh.len() - before) as u64;
        }
    }

    const fn at_ms(&self) -> u64 {
        self.listened / SAMPLES_PER_MS
    }
}

/// The utterance's limit falls at the end of a hop, which is shorter than this, ms.
const HOP_MAX_MS: u32 = 20;

/// The detector's settings. The utterance's limit counts its pre-roll and the last hop, so that no question exceeds it.
fn config(listen: &Listen, hearing: &Hearing) -> VadConfig {
    let preset = match hearing.sensitivity {
        Sensitivity::High => listen.sensitivity.high,
        Sensitivity::Normal => listen.sensitivity.normal,
        Sensitivity::Low => listen.sensitivity.low,
    };
    VadConfig {
        threshold: preset.threshold,
        gate_dbfs: preset.gate_dbfs,
        start_ms: listen.start_ms,
        end_ms: hearing.end_ms,
        max_ms: hearing
            .segment_max_ms
            .saturating_sub(listen.pre_roll_ms.saturating_add(HOP_MAX_MS))
            .max(listen.start_ms),
    }
}

/// The newest samples, up to a number.
#[derive(Debug)]
struct PreRoll {
    samples: Vec<i16>,
    keep: usize,
}

impl PreRoll {
    const fn new(keep: u64) -> Self {
        Self { samples: Vec::new(), keep: keep as usize }
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    /// Adds samples and says how many older ones fell out. They go in batches, so that a hop costs no move of the whole.
    fn push(&mut self, hop: &[i16]) -> u64 {
        let mut fallen = 0;
        if self.samples.len() + hop.len() > 2 * self.keep.max(hop.len()) {
            fallen = self.samples.len() - self.keep.min(self.samples.len());
            self.samples.drain(..fallen);
        }
        self.samples.extend_from_slice(hop);
        fallen as u64
    }

    /// The newest, at most as many as are to be kept, and how many were older.
    fn take(&mut self) -> (Vec<i16>, u64) {
        let older = self.samples.len().saturating_sub(self.keep);
        let audio = self.samples.split_off(older);
        self.samples.clear();
        (audio, older as u64)
    }
}
