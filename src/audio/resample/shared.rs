//! The engines of all streams on a thread, and what each stream keeps for itself.
//!
//! An FFT resampler's tables and buffers take a tenth of a megabyte, and are out of the cache by the time it is a stream's
//! turn again: with one for each of 600 sessions a second of audio cost three times as much as with one for all (field
//! notes libraries.md). What a chunk becomes depends on it and the one before it only (overlap-add), so an engine that
//! worked for another stream in between is given that one first. Which engine does the work changes not a bit.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::engine::{Engine, fft_chunk};

/// Engines on a thread: for so many pairs of rates at a time. Beyond that the one that was not used for longest goes.
const ENGINES_MAX: usize = 16;

thread_local! {
    /// The one that was used last comes last.
    static ENGINES: RefCell<Vec<Shared>> = const { RefCell::new(Vec::new()) };
}

/// Numbers stretches: no two are the same to an engine.
static STRETCHES: AtomicU64 = AtomicU64::new(1);

struct Shared {
    rates: (u32, u32),
    engine: Engine,
    /// The stretch whose last chunk it has.
    stretch: u64,
}

/// One stretch of audio on its way from one rate to another.
#[derive(Debug)]
pub(super) struct Stream {
    rates: (u32, u32),
    /// What is no whole chunk yet.
    filled: Vec<f32>,
    /// Samples of a chunk, where that is known.
    chunk: usize,
    /// Samples of the filter's delay still to be dropped; known with the first chunk.
    trim: Option<usize>,
    state: State,
}

enum State {
    /// The chunk before, and what it is known by.
    Shared { stretch: u64, last: Vec<f32> },
    /// The sinc remembers more than that.
    Own(Box<Engine>),
}

impl Stream {
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Self {
        let (chunk, state) = match fft_chunk(from_hz, to_hz) {
            Some(chunk) => {
                (chunk, State::Shared { stretch: STRETCHES.fetch_add(1, Relaxed), last: Vec::new() })
            }
            None => {
                let engine = Engine::new(from_hz, to_hz);
                (engine.chunk(), State::Own(Box::new(engine)))
            }
        };
        Self { rates: (from_hz, to_hz), filled: Vec::new(), chunk, trim: None, state }
    }

    /// Takes samples in and appends to `sink` what is ready.
    pub(super) fn push(&mut self, samples: &[f32], sink: &mut Vec<f32>) {
        let mut rest = samples;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(self.chunk - self.filled.len()));
            rest = tail;
            self.filled.extend(head.iter().copied().map(tamed));
            if self.filled.len() == self.chunk {
                self.process(sink);
            }
        }
    }

    /// Forgets what has not come out: another stretch begins.
    pub(super) fn reset(&mut self) {
        self.filled = Vec::new();
        self.trim = None;
        match &mut self.state {
            State::Shared { stretch, last } => {
                (*stretch, *last) = (STRETCHES.fetch_add(1, Relaxed), Vec::new());
            }
            State::Own(engine) => engine.reset(),
        }
    }

    /// Completes the chunk with zeros and appends what it becomes.
    pub(super) fn pad(&mut self, sink: &mut Vec<f32>) {
        self.filled.resize(self.chunk, 0.0);
        self.process(sink);
    }

    fn process(&mut self, sink: &mut Vec<f32>) {
        let (filled, trim) = (&mut self.filled, &mut self.trim);
        let mut finish = |engine: &mut Engine| {
            let trim = trim.get_or_insert_with(|| engine.delay());
            let ready = engine.process(filled);
            let dropped = ready.len().min(*trim);
            *trim -= dropped;
            sink.extend_from_slice(&ready[dropped..]);
        };
        match &mut self.state {
            State::Own(engine) => finish(engine),
            State::Shared { stretch, last } => {
                with_engine(self.rates, |shared| {
                    if std::mem::replace(&mut shared.stretch, *stretch) != *stretch {
                        shared.engine.reset();
                        if !last.is_empty() {
                            shared.engine.process(last);
                        }
                    }
                    finish(&mut shared.engine);
                });
                std::mem::swap(last, filled);
            }
        }
        filled.clear();
    }
}

fn with_engine(rates: (u32, u32), act: impl FnOnce(&mut Shared)) {
    ENGINES.with_borrow_mut(|engines| {
        match engines.iter().position(|shared| shared.rates == rates) {
            Some(at) => engines[at..].rotate_left(1),
            None => {
                if engines.len() == ENGINES_MAX {
                    engines.remove(0);
                }
                engines.push(Shared { rates, engine: Engine::new(rates.0, rates.1), stretch: 0 });
            }
        }
        if let Some(shared) = engines.last_mut() {
            act(shared);
        }
    });
}

/// Louder samples than this are clipped: far above full scale, where everything is clipped in the end, and far below
/// what makes an FFT overflow.
const LOUDEST: f32 = 8.0;

/// What a filter can take: rubato's FFT panics on infinities and NaN, which a float WAV file and a model may contain.
const fn tamed(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-LOUDEST, LOUDEST) }
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared { stretch, .. } => {
                formatter.debug_struct("Shared").field("stretch", stretch).finish_non_exhaustive()
            }
            Self::Own(_) => formatter.write_str("Own"),
        }
    }
}
