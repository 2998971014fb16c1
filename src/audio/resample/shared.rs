//! What each stream keeps for itself, and the engines that all streams of a thread share.
//!
//! An engine's tables and buffers take up to half a megabyte, and are out of the cache by the time it is a stream's turn
//! again: with one for each of 600 sessions a second of audio cost three times as much as with one for all (field notes
//! libraries.md). What a chunk becomes depends on it and the one before it only, so a stream keeps that one, and an engine
//! nothing. Every push begins anew with it: what comes out depends on nobody else.

use std::cell::RefCell;

use super::engine::{OverlapSave, Sinc, overlap_save_chunk};

/// Engines on a thread: for so many pairs of rates at a time. Beyond that the one that was not used for longest goes.
const MAX_ENGINES: usize = 16;

/// Chunks that are taken at a time at most.
const MAX_CHUNKS_AT_ONCE: usize = 64;

thread_local! {
    static ENGINES: RefCell<SharedEngines> = const { RefCell::new(SharedEngines { engines: Vec::new(), input: Vec::new(), output: Vec::new() }) };
}

/// What streams share.
struct SharedEngines {
    /// By their rates; the one that was used last comes last.
    engines: Vec<((u32, u32), OverlapSave)>,
    input: Vec<f32>,
    output: Vec<f32>,
}

/// One stretch of audio on its way from one rate to another.
#[derive(Debug)]
pub(super) struct ResampleStream {
    rates: (u32, u32),
    /// Samples of a chunk.
    chunk_samples: usize,
    /// Samples of the filter's delay still to be dropped; known with the first chunk.
    delay_left: Option<usize>,
    /// The chunk before, where there is one, and what is no whole chunk yet.
    tail: Vec<f32>,
    has_previous_chunk: bool,
    /// The sinc remembers more than a chunk.
    sinc: Option<Box<Sinc>>,
}

impl ResampleStream {
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Self {
        let (chunk_samples, sinc) = match overlap_save_chunk(from_hz, to_hz) {
            Some(chunk) => (chunk, None),
            None => {
                let sinc = Sinc::new(from_hz, to_hz);
                (sinc.chunk(), Some(Box::new(sinc)))
            }
        };
        Self {
            rates: (from_hz, to_hz),
            chunk_samples,
            delay_left: None,
            tail: Vec::new(),
            has_previous_chunk: false,
            sinc,
        }
    }

    /// Takes samples in and appends to `sink` what is ready.
    pub(super) fn push(&mut self, samples: &[f32], sink: &mut Vec<f32>) {
        for part in samples.chunks(MAX_CHUNKS_AT_ONCE * self.chunk_samples) {
            self.process(part.iter().copied().map(sanitize), part.len(), sink);
        }
    }

    /// Completes the chunk with zeros and appends what it becomes.
    pub(super) fn pad_chunk(&mut self, sink: &mut Vec<f32>) {
        let missing = self.chunk_samples - self.incomplete_len();
        self.process(std::iter::repeat_n(0.0, missing), missing, sink);
    }

    /// Forgets what has not come out: another stretch begins.
    pub(super) fn reset(&mut self) {
        (self.tail, self.has_previous_chunk, self.delay_left) = (Vec::new(), false, None);
        if let Some(sinc) = &mut self.sinc {
            sinc.reset();
        }
    }

    /// Samples that are no whole chunk yet.
    const fn incomplete_len(&self) -> usize {
        if self.has_previous_chunk { self.tail.len() - self.chunk_samples } else { self.tail.len() }
    }

    fn process(&mut self, samples: impl Iterator<Item = f32>, len: usize, sink: &mut Vec<f32>) {
        if self.incomplete_len() + len < self.chunk_samples {
            return self.tail.extend(samples);
        }
        ENGINES.with_borrow_mut(|shared| {
            shared.input.clear();
            if !self.has_previous_chunk {
                shared.input.resize(self.chunk_samples, 0.0);
            }
            shared.input.extend_from_slice(&self.tail);
            shared.input.extend(samples);
            shared.output.clear();
            let whole_len = shared.input.len() / self.chunk_samples * self.chunk_samples;
            let delay = match &mut self.sinc {
                Some(sinc) => {
                    // It remembers the chunk before.
                    for chunk in shared.input[self.chunk_samples..whole_len].chunks_exact(self.chunk_samples)
                    {
                        shared.output.extend_from_slice(sinc.process(chunk));
                    }
                    sinc.delay()
                }
                None => shared.overlap_save(self.rates, self.chunk_samples, whole_len),
            };
            let delay_left = self.delay_left.get_or_insert(delay);
            let dropped = shared.output.len().min(*delay_left);
            *delay_left -= dropped;
            sink.extend_from_slice(&shared.output[dropped..]);
            self.tail.clear();
            self.tail.extend_from_slice(&shared.input[whole_len - self.chunk_samples..]);
            self.has_previous_chunk = true;
        });
    }
}

impl SharedEngines {
    /// Appends to the output what so much of the input becomes; gives the filter's delay.
    fn overlap_save(&mut self, rates: (u32, u32), chunk_samples: usize, whole_len: usize) -> usize {
        let engines = &mut self.engines;
        match engines.iter().position(|(known, _)| *known == rates) {
            Some(at) => engines[at..].rotate_left(1),
            None => {
                if engines.len() == MAX_ENGINES {
                    engines.remove(0);
                }
                engines.push((rates, OverlapSave::new(rates.0, rates.1, chunk_samples)));
            }
        }
        let Some((_, engine)) = engines.last_mut() else { return 0 };
        engine.process(&self.input[..whole_len], &mut self.output);
        engine.delay()
    }
}

/// Louder samples than this are clipped: far above full scale, where everything is clipped in the end, and far below
/// what makes an FFT overflow.
const MAX_AMPLITUDE: f32 = 8.0;

/// What a filter can take: infinities and NaN, which a float WAV file and a model may contain, would spoil a whole chunk.
const fn sanitize(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-MAX_AMPLITUDE, MAX_AMPLITUDE) }
}

impl std::fmt::Debug for Sinc {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sinc")
    }
}
