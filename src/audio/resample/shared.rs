//! State of each resampled stream, and the engines that all streams of a thread share.
//!
//! An engine's tables and buffers take up to half a megabyte and leave the cache before a stream's next turn.
//! With one engine for each of 600 sessions, a second of audio cost three times as much as with a shared one
//! (field notes libraries.md).
//!
//! The output of a chunk depends only on that chunk and its predecessor. A stream therefore keeps the previous
//! chunk and passes it in again with each push. Engines keep no state, so streams cannot affect each other.

use std::cell::RefCell;

use super::engine::{OverlapSave, Sinc, overlap_save_chunk};

/// Engines per thread, one for each pair of rates. Beyond that, the least recently used one is dropped.
const MAX_ENGINES: usize = 16;

/// Most chunks processed at a time.
const MAX_CHUNKS_AT_ONCE: usize = 64;

thread_local! {
    static ENGINES: RefCell<SharedEngines> = const { RefCell::new(SharedEngines { engines: Vec::new(), input: Vec::new(), output: Vec::new() }) };
}

/// Engines and buffers shared by the streams of a thread.
struct SharedEngines {
    /// Engines by rates; the most recently used one stands last.
    engines: Vec<((u32, u32), OverlapSave)>,
    input: Vec<f32>,
    output: Vec<f32>,
}

/// Resampling state of one stretch of audio.
#[derive(Debug)]
pub(super) struct ResampleStream {
    rates: (u32, u32),
    /// Samples per chunk.
    chunk_samples: usize,
    /// Samples of the filter's delay still to be dropped; known after the first chunk.
    delay_left: Option<usize>,
    /// The previous chunk, if there is one, followed by samples that are no whole chunk yet.
    tail: Vec<f32>,
    has_previous_chunk: bool,
    /// Windowed-sinc filter for odd rates. It is not shared, because it remembers more than one chunk.
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

    /// Takes samples in and appends the output that is ready to `sink`.
    pub(super) fn push(&mut self, samples: &[f32], sink: &mut Vec<f32>) {
        for part in samples.chunks(MAX_CHUNKS_AT_ONCE * self.chunk_samples) {
            self.process(part.iter().copied().map(sanitize), part.len(), sink);
        }
    }

    /// Completes the chunk with zeros and appends its output to `sink`.
    pub(super) fn pad_chunk(&mut self, sink: &mut Vec<f32>) {
        let missing = self.chunk_samples - self.incomplete_len();
        self.process(std::iter::repeat_n(0.0, missing), missing, sink);
    }

    /// Discards pending samples and resets for the next stretch.
    pub(super) fn reset(&mut self) {
        (self.tail, self.has_previous_chunk, self.delay_left) = (Vec::new(), false, None);
        if let Some(sinc) = &mut self.sinc {
            sinc.reset();
        }
    }

    /// Number of samples that are no whole chunk yet.
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
                    // The sinc filter remembers the previous chunk itself.
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
    /// Converts the first `whole_len` input samples, appends them to the output and returns the filter's
    /// delay.
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

/// Louder samples are clipped to this amplitude. It is far above full scale, where the output is clipped anyway,
/// and far below an FFT overflow.
const MAX_AMPLITUDE: f32 = 8.0;

/// Replaces NaN and infinities, which a float WAV file and a model may contain. A single one would spoil a whole
/// chunk.
const fn sanitize(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-MAX_AMPLITUDE, MAX_AMPLITUDE) }
}

impl std::fmt::Debug for Sinc {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sinc")
    }
}
