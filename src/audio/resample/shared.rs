//! State of each resampled stream, and the engines that all streams of a thread share.
//!
//! An engine's tables and buffers take up to half a megabyte and leave the cache before a stream's next turn.
//! With one engine for each of 600 sessions, a second of audio cost three times as much as with a shared one
//! (mappings/notes/libraries.md#resampling).
//!
//! The output of a chunk depends only on that chunk and its predecessor. A stream therefore keeps the previous
//! chunk and passes it in again with each push. Engines keep no state, so streams cannot affect each other.

use std::cell::RefCell;

use super::OutputSample;
use super::engine::{OverlapSave, Sinc, overlap_save_chunk};

/// Engines per thread, one for each pair of rates. Beyond that, the least recently used one is dropped.
const MAX_ENGINES: usize = 16;

thread_local! {
    static ENGINES: RefCell<SharedEngines> = const { RefCell::new(SharedEngines { engines: Vec::new(), input: Vec::new() }) };
}

/// Rates of the input and the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    from_hz: u32,
    to_hz: u32,
}

/// Engines and input buffer shared by the streams of a thread.
struct SharedEngines {
    /// Engines by rates; the most recently used one stands last.
    engines: Vec<(Rates, OverlapSave)>,
    /// As long as the longest input so far.
    input: Vec<f32>,
}

/// Resampling state of one stretch of audio.
#[derive(Debug)]
pub(super) struct ResampleStream {
    rates: Rates,
    /// Samples per chunk.
    chunk_samples: usize,
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
        let rates = Rates { from_hz, to_hz };
        Self { rates, chunk_samples, tail: Vec::new(), has_previous_chunk: false, sinc }
    }

    /// The filter's delay in output samples: the first ones are only the filter's beginning.
    pub(super) fn delay(&self) -> usize {
        let Rates { from_hz, to_hz } = self.rates;
        match &self.sinc {
            Some(sinc) => sinc.delay(),
            None => self.chunk_samples * to_hz as usize / from_hz as usize / 2,
        }
    }

    /// Takes in `len` samples, which `read` writes, and appends the output that is ready to `sink`.
    pub(super) fn push<S: OutputSample>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [f32]),
        sink: &mut Vec<S>,
    ) {
        if self.tail.capacity() == 0 {
            self.tail.reserve_exact(2 * self.chunk_samples);
        }
        if self.incomplete_len() + len < self.chunk_samples {
            let before = self.tail.len();
            self.tail.resize(before + len, 0.0);
            return read(&mut self.tail[before..]);
        }
        ENGINES.with_borrow_mut(|shared| {
            let past = if self.has_previous_chunk { 0 } else { self.chunk_samples };
            let before = past + self.tail.len();
            let whole_len = (before + len) / self.chunk_samples * self.chunk_samples;
            if shared.input.len() < before + len {
                shared.input.resize(before + len, 0.0);
            }
            shared.input[..past].fill(0.0);
            shared.input[past..before].copy_from_slice(&self.tail);
            read(&mut shared.input[before..before + len]);
            match &mut self.sinc {
                Some(sinc) => {
                    // The sinc filter remembers the previous chunk itself.
                    for chunk in shared.input[self.chunk_samples..whole_len].chunks_exact(self.chunk_samples)
                    {
                        sink.extend(sinc.process(chunk).iter().copied().map(S::from_f32));
                    }
                }
                None => shared.overlap_save(self.rates, self.chunk_samples, whole_len, sink),
            }
            self.tail.clear();
            self.tail.extend_from_slice(&shared.input[whole_len - self.chunk_samples..before + len]);
            self.has_previous_chunk = true;
        });
    }

    /// Completes the chunk with zeros and appends its output to `sink`.
    pub(super) fn pad_chunk<S: OutputSample>(&mut self, sink: &mut Vec<S>) {
        let missing = self.chunk_samples - self.incomplete_len();
        self.push(missing, |samples| samples.fill(0.0), sink);
    }

    /// Output samples that become ready with `len` more input samples.
    pub(super) fn ready_len(&self, len: u64) -> u64 {
        let Rates { from_hz, to_hz } = self.rates;
        let chunk = self.chunk_samples as u64;
        (self.incomplete_len() as u64 + len) / chunk * chunk * u64::from(to_hz) / u64::from(from_hz)
    }

    /// Goes on `len` input samples later, as if these had been zeros. Returns the number of output samples left out. Not for
    /// the windowed sinc, which remembers more.
    pub(super) fn skip(&mut self, len: u64) -> u64 {
        let skipped = self.ready_len(len);
        let incomplete = (self.incomplete_len() as u64 + len) % self.chunk_samples as u64;
        self.tail.clear();
        self.tail.resize(self.chunk_samples + incomplete as usize, 0.0);
        self.has_previous_chunk = true;
        skipped
    }

    /// Input samples after a [`skip`](Self::skip) whose output misses its past: two chunks, because the filter is as long as one.
    pub(super) const fn blurred_len(&self) -> usize {
        2 * self.chunk_samples
    }

    /// True for overlap-save, whose chunks depend on the one before only.
    pub(super) const fn is_overlap_save(&self) -> bool {
        self.sinc.is_none()
    }

    /// Discards pending samples and resets for the next stretch.
    pub(super) fn reset(&mut self) {
        (self.tail, self.has_previous_chunk) = (Vec::new(), false);
        if let Some(sinc) = &mut self.sinc {
            sinc.reset();
        }
    }

    /// Number of samples that are no whole chunk yet.
    const fn incomplete_len(&self) -> usize {
        if self.has_previous_chunk { self.tail.len() - self.chunk_samples } else { self.tail.len() }
    }
}

impl SharedEngines {
    /// Converts the first `whole_len` input samples and appends them to `sink`.
    fn overlap_save<S: OutputSample>(
        &mut self,
        rates: Rates,
        chunk_samples: usize,
        whole_len: usize,
        sink: &mut Vec<S>,
    ) {
        let engines = &mut self.engines;
        match engines.iter().position(|(known, _)| *known == rates) {
            Some(at) => engines[at..].rotate_left(1),
            None => {
                if engines.len() == MAX_ENGINES {
                    engines.remove(0);
                }
                engines.push((rates, OverlapSave::new(rates.from_hz, rates.to_hz, chunk_samples)));
            }
        }
        if let Some((_, engine)) = engines.last_mut() {
            engine.process(&self.input[..whole_len], sink);
        }
    }
}

impl std::fmt::Debug for Sinc {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sinc")
    }
}
