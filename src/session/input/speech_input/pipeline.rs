//! What listening needs once there is something to listen to: hop by hop, voice activity, pre-roll, recording.

use super::{SpeechEvent, Hearing, Piece, SAMPLES_PER_MS, Use};
use crate::{
    audio::{
        input_converter::Intake,
        vad::{Edge, Segmenter, Sensitivity, VadConfig, VoiceActivity},
    },
    mapping::profile::Listen,
};

/// What listening needs.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) intake: Intake,
    pub(crate) activity: VoiceActivity,
    /// Resampled audio that is no whole hop yet.
    pub(crate) fresh: Vec<i16>,
    /// The last of what was not recorded.
    pub(crate) pre_roll: PreRoll,
    pub(crate) recording: Option<Recording>,
    pub(crate) usage: Use,
    /// Resampled audio to be handed on.
    pub(crate) stream: Vec<i16>,
    pub(crate) streamed: u64,
    /// Finds who interrupts.
    pub(crate) watch: Option<Segmenter>,
    /// Something was speech since last asked.
    pub(crate) voiced: bool,
    /// Samples since the user last was silent.
    pub(crate) spoken: u64,
    /// Samples listened to, muted ones not among them (field notes macaw.md §1.3).
    pub(crate) listened: u64,
    pub(crate) recorded: u64,
    pub(crate) silent: u64,
    pub(crate) taken_before: u64,
    pub(crate) muted: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) audio: Vec<i16>,
    pub(crate) voiced: bool,
}

impl Pipeline {
    pub(crate) fn new(intake: Intake, rules: &Listen, hearing: &Hearing, usage: Use) -> Self {
        Self {
            intake,
            activity: VoiceActivity::new(config(rules, hearing)),
            fresh: Vec::new(),
            pre_roll: PreRoll::new(u64::from(rules.pre_roll_ms) * SAMPLES_PER_MS),
            recording: None,
            usage,
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
        }
    }

    /// Judges every whole hop.
    pub(crate) fn listen(&mut self, out: &mut Vec<SpeechEvent>) {
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

    fn hop(&mut self, hop: &[i16], out: &mut Vec<SpeechEvent>) {
        self.listened += hop.len() as u64;
        let result = self.activity.hop(hop);
        self.voiced |= result.speech;
        let silent = !result.speech && !self.activity.in_speech();
        self.spoken = if silent { 0 } else { self.spoken + hop.len() as u64 };
        if self.watch.as_mut().and_then(|watch| watch.push(result.speech)) == Some(Edge::Start) {
            out.push(SpeechEvent::Interrupted);
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
                out.push(SpeechEvent::Started { at_ms: self.at_ms() });
            }
            Some(Edge::End | Edge::Limit) => self.finish(true, out),
        }
    }

    fn finish(&mut self, last: bool, out: &mut Vec<SpeechEvent>) {
        let Some(recording) = self.recording.take() else { return };
        self.recorded += recording.audio.len() as u64;
        out.push(SpeechEvent::Piece(Piece {
            audio: recording.audio,
            voiced: recording.voiced,
            last,
            at_ms: self.at_ms(),
        }));
    }

    /// Ends the piece being recorded with all that has come, to the last sample.
    pub(crate) fn finish_all(&mut self, last: bool, out: &mut Vec<SpeechEvent>) {
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
    pub(crate) fn flush(&mut self, out: &mut Vec<SpeechEvent>) {
        let before = self.fresh.len();
        self.intake.flush(&mut self.fresh);
        self.hand_on(before);
        self.listen(out);
    }

    /// Hands on what is newer than the first `before` samples.
    pub(crate) fn hand_on(&mut self, before: usize) {
        if self.usage.stream {
            self.stream.extend_from_slice(&self.fresh[before..]);
            self.streamed += (self.fresh.len() - before) as u64;
        }
    }

    /// Samples at 16 kHz without which nothing can be found out.
    pub(crate) fn undecided(&self) -> u64 {
        let edge = self.activity.hops_to_edge();
        let hops = self.watch.map_or(edge, |watch| watch.hops_to_edge().min(edge));
        (u64::from(hops) * self.activity.hop_samples() as u64).saturating_sub(self.fresh.len() as u64)
    }

    pub(crate) const fn at_ms(&self) -> u64 {
        self.listened / SAMPLES_PER_MS
    }
}

/// The utterance's limit falls at the end of a hop, which is shorter than this, ms.
const HOP_MAX_MS: u32 = 20;

/// The detector's settings. The utterance's limit counts its pre-roll and the last hop, so that no question exceeds it.
pub(crate) fn config(listen: &Listen, hearing: &Hearing) -> VadConfig {
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
pub(crate) struct PreRoll {
    samples: Vec<i16>,
    keep: usize,
}

impl PreRoll {
    const fn new(keep: u64) -> Self {
        Self { samples: Vec::new(), keep: keep as usize }
    }

    pub(crate) fn len(&self) -> usize {
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
