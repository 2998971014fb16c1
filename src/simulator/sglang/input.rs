//! Audio and pictures that wait for their unit, and the clock of the audio (serve/realtime/runtime.py).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{decode_base64, request::Rejected};
use crate::audio::pcm::s16le_samples;

/// Samples of a unit.
pub(super) const UNIT_SAMPLES: usize = 16_000;

/// Longest audio that the model has not taken yet (`max_input_bytes`).
pub(super) const MAX_INPUT_BYTES: usize = 60 * 2 * UNIT_SAMPLES;

/// Largest picture.
pub(super) const MAX_IMAGE_BYTES: usize = 512 << 10;

/// Units ahead of the audio for which a picture may come.
const MAX_LOOKAHEAD_UNITS: i64 = 2;

/// Largest deviation of a client's clock.
const CLOCK_TOLERANCE_MS: f64 = 1e-7;

/// Input of one session; counts are samples.
#[derive(Debug, Default)]
pub(super) struct Input {
    next_seq: i64,
    pub(super) accepted: usize,
    consumed: usize,
    discarded: usize,
    padded: usize,
    pending: Vec<i16>,
    frames: BTreeMap<u64, usize>,
    next_unit: u64,
    /// Event that ended the input.
    ended_by: Option<String>,
    was_drained: bool,
}

/// One unit for the model.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) index: u64,
    start: usize,
    /// Samples, with the padding.
    pub(super) pcm: Vec<i16>,
    real_samples: usize,
    pub(super) images: usize,
    /// No unit follows.
    pub(super) is_last: bool,
}

impl Unit {
    pub(super) fn id(&self) -> String {
        format!("unit_{}", self.index)
    }

    /// `sglang` of an event that belongs to the unit.
    pub(super) fn metadata(&self, chunk_seq: u64) -> Value {
        json!({
            "unit_id": self.id(), "chunk_seq": chunk_seq,
            "media_time": {"t_start_ms": milliseconds(self.start), "duration_ms": milliseconds(self.real_samples)},
        })
    }
}

impl Input {
    /// Decodes audio of an append, before the session's state is looked at.
    pub(super) fn decode_audio(&self, audio: &str) -> Result<Vec<u8>, Rejected> {
        if audio.len() > MAX_INPUT_BYTES.div_ceil(3) * 4 {
            return Err(Rejected::overflow("encoded audio exceeds input budget"));
        }
        decode_base64(audio).ok_or_else(|| Rejected::request("invalid base64 audio").at("audio"))
    }

    /// Decodes a picture.
    pub(super) fn decode_image(image: &str) -> Result<Vec<u8>, Rejected> {
        if image.len() > MAX_IMAGE_BYTES.div_ceil(3) * 4 {
            return Err(Rejected::overflow("encoded image exceeds input budget"));
        }
        decode_base64(image).ok_or_else(|| Rejected::request("invalid base64 image").at("image"))
    }

    pub(super) fn append(&mut self, pcm: &[u8], seq: i64, t_start_ms: Option<f64>) -> Result<(), Rejected> {
        let clock_ms = milliseconds(self.accepted);
        let buffered = self.accepted - self.consumed - self.discarded;
        if self.ended_by.is_some() {
            return Err(Rejected::state("audio input has ended"));
        } else if seq != self.next_seq {
            return Err(Rejected::state("audio seq must be contiguous"));
        } else if pcm.is_empty() || !pcm.len().is_multiple_of(2) {
            return Err(Rejected::request("audio must contain whole PCM16 samples"));
        } else if t_start_ms.is_some_and(|start| (start - clock_ms).abs() > CLOCK_TOLERANCE_MS) {
            return Err(Rejected::state("input media time must be sample-contiguous"));
        } else if 2 * buffered + pcm.len() > MAX_INPUT_BYTES {
            return Err(Rejected::overflow("input budget exhausted; retry this seq"));
        }
        self.pending.extend(s16le_samples(pcm));
        self.accepted += pcm.len() / 2;
        self.next_seq += 1;
        Ok(())
    }

    /// Adds a picture; returns the unit to which it belongs.
    pub(super) fn append_image(
        &mut self,
        image: Vec<u8>,
        t_ms: f64,
        per_unit_max: usize,
    ) -> Result<u64, Rejected> {
        let pending_start_ms = milliseconds(self.accepted - self.pending.len());
        let offset = ((t_ms - pending_start_ms) / 1000.0).floor() as i64;
        let pending_units = self.pending.len().div_ceil(UNIT_SAMPLES) as i64;
        let unit = self.next_unit.saturating_add_signed(offset);
        let in_unit = self.frames.get(&unit).copied().unwrap_or_default();
        if self.ended_by.is_some() {
            Err(Rejected::state("input has ended"))
        } else if image.len() > MAX_IMAGE_BYTES {
            Err(Rejected::overflow("image exceeds input budget").at("image"))
        } else if !image.starts_with(b"\xff\xd8") && !image.starts_with(b"\x89PNG") {
            Err(Rejected::request("image must be JPEG or PNG").at("image"))
        } else if offset < 0 {
            Err(Rejected::state("frame unit already cut"))
        } else if in_unit >= per_unit_max {
            Err(Rejected::overflow("unit frame count exceeds limit"))
        } else if offset > pending_units + MAX_LOOKAHEAD_UNITS {
            Err(Rejected::overflow("frame exceeds lookahead budget"))
        } else {
            self.frames.insert(unit, in_unit + 1);
            Ok(unit)
        }
    }

    /// Discards what waits; returns the number of samples.
    pub(super) fn clear(&mut self) -> usize {
        let cleared = self.pending.len();
        self.pending.clear();
        self.frames.clear();
        self.discarded += cleared;
        cleared
    }

    pub(super) fn end(&mut self, event_id: &str) -> Result<(), Rejected> {
        if self.ended_by.is_some() {
            return Err(Rejected::state("audio input already ended"));
        }
        self.ended_by = Some(event_id.to_owned());
        Ok(())
    }

    /// Takes the next unit out: a whole one, or at the end of the input the padded rest.
    pub(super) fn cut_unit(&mut self) -> Option<Unit> {
        let has_ended = self.ended_by.is_some();
        if (self.pending.len() < UNIT_SAMPLES && !has_ended) || self.was_drained {
            return None;
        }
        let start = self.accepted - self.pending.len();
        let real_samples = self.pending.len().min(UNIT_SAMPLES);
        let mut pcm: Vec<i16> = self.pending.drain(..real_samples).collect();
        if real_samples > 0 {
            self.padded += UNIT_SAMPLES - real_samples;
            pcm.resize(UNIT_SAMPLES, 0);
        }
        let index = self.next_unit;
        self.next_unit += 1;
        let is_last = has_ended && self.pending.is_empty();
        self.was_drained = is_last;
        let images = self.frames.remove(&index).unwrap_or_default();
        Some(Unit { index, start, pcm, real_samples, images, is_last })
    }

    /// Counts a unit as taken by the model; returns the event that ended the input, after the last unit.
    pub(super) fn consume(&mut self, unit: &Unit) -> Option<String> {
        self.consumed += unit.real_samples;
        self.ended_by.clone().filter(|_| unit.is_last)
    }

    /// Members of `sglang.input_audio.drained`.
    pub(super) fn drained(&self, event_id: &str) -> [(&'static str, Value); 5] {
        [
            ("accepted_end_ms", milliseconds(self.accepted).into()),
            ("consumed_ms", milliseconds(self.consumed).into()),
            ("discarded_ms", milliseconds(self.discarded).into()),
            ("padding_ms", milliseconds(self.padded).into()),
            ("client_event_id", event_id.into()),
        ]
    }
}

pub(super) fn milliseconds(samples: usize) -> f64 {
    samples as f64 * 1000.0 / UNIT_SAMPLES as f64
}
