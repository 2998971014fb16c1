//! What the simulator received, kept for tests that compare sample by sample. Unbounded, so only on request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ConnId, DuplexOpening, DuplexUnit};

/// One thing that was received.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedInput {
    /// A text frame, as it came.
    Message(ConnId, String),
    /// A binary frame.
    Binary(ConnId),
    /// The samples of an ASR request as the back-end decoded them, 16 kHz mono.
    AsrAudio(ConnId, Vec<f32>),
    /// What a full-duplex session was opened with.
    DuplexOpened(ConnId, DuplexOpening),
    /// One append of a full-duplex session, when its turn came.
    DuplexUnit(ConnId, DuplexUnit),
    /// The end of a client's transport while its session was open; a polite client has none.
    Disconnected(ConnId),
}

/// A shared handle on what was received, in the order of reception.
#[derive(Debug, Clone, Default)]
pub struct InputRecorder(Arc<Mutex<Vec<RecordedInput>>>);

impl InputRecorder {
    /// Everything so far.
    #[must_use]
    pub fn all(&self) -> Vec<RecordedInput> {
        self.lock().clone()
    }

    /// Everything so far, which is then forgotten.
    #[must_use]
    pub fn take(&self) -> Vec<RecordedInput> {
        std::mem::take(&mut *self.lock())
    }

    /// The audio of every ASR request so far.
    #[must_use]
    pub fn asr_audio(&self) -> Vec<Vec<f32>> {
        let audio = |input: &RecordedInput| match input {
            RecordedInput::AsrAudio(_, samples) => Some(samples.clone()),
            _ => None,
        };
        self.lock().iter().filter_map(audio).collect()
    }

    /// Every append of every full-duplex session so far.
    #[must_use]
    pub fn duplex_units(&self) -> Vec<(ConnId, DuplexUnit)> {
        let unit = |input: &RecordedInput| match input {
            RecordedInput::DuplexUnit(conn, unit) => Some((*conn, unit.clone())),
            _ => None,
        };
        self.lock().iter().filter_map(unit).collect()
    }

    pub(super) fn push(&self, input: RecordedInput) {
        self.lock().push(input);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedInput>> {
        // A list is whole between two pushes, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
