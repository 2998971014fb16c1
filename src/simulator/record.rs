//! Recorder for received input, for tests that compare samples. Unbounded, so recording is off by default.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ConnId, DuplexOpening, DuplexUnit};

/// One recorded input.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedInput {
    /// A text frame, unchanged.
    Message(ConnId, String),
    /// An HTTP request: its path and its body.
    Request(ConnId, String, Vec<u8>),
    /// A binary frame.
    Binary(ConnId),
    /// Samples of an ASR request, as decoded by the back-end, 16 kHz mono.
    AsrAudio(ConnId, Vec<f32>),
    /// Parameters of a full-duplex session.
    DuplexOpened(ConnId, DuplexOpening),
    /// One append of a full-duplex session, recorded when it is processed.
    DuplexUnit(ConnId, DuplexUnit),
    /// A client's transport ended while its session was open; a polite client causes none.
    Disconnected(ConnId),
}

/// Shared handle to the recorded inputs, in order of reception.
#[derive(Debug, Clone, Default)]
pub struct InputRecorder(Arc<Mutex<Vec<RecordedInput>>>);

impl InputRecorder {
    /// Copies everything recorded.
    pub fn all(&self) -> Vec<RecordedInput> {
        self.lock().clone()
    }

    /// Returns and removes everything recorded.
    pub fn take(&self) -> Vec<RecordedInput> {
        std::mem::take(&mut *self.lock())
    }

    /// Audio of every recorded ASR request.
    pub fn asr_audio(&self) -> Vec<Vec<f32>> {
        let audio = |input: &RecordedInput| match input {
            RecordedInput::AsrAudio(_, samples) => Some(samples.clone()),
            _ => None,
        };
        self.lock().iter().filter_map(audio).collect()
    }

    /// Every recorded full-duplex append.
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
        // A panic cannot leave the list inconsistent, because each push is complete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
