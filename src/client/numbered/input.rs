//! Input that its client numbers: what was accepted, answered and reported of it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES},
    client::json_text::read_str,
    error::{Error, ErrorKind},
    spelling::client::Verb,
};

/// Longest `event_id`, bytes.
const EVENT_ID_MAX_BYTES: usize = 256;
/// Audio that may wait for the model (`max_input_bytes`, 60 s).
const WAITING_MAX_SAMPLES: u64 = 960_000;
/// Allowed difference between the position of an append and the audio before it, ms.
const POSITION_TOLERANCE_MS: f64 = 1e-7;
/// Seconds that a picture may lie ahead of the audio.
const PICTURE_AHEAD_UNITS: u64 = 2;
const UNIT: u64 = UNIT_SAMPLES as u64;
pub(super) const UNIT_MS: u64 = 1000 * UNIT / SPEECH_RATE_HZ as u64;

/// Input of one connection.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The model sees pictures.
    pub(super) sees: bool,
    pub(super) is_open: bool,
    next_sequence: i64,
    accepted_samples: u64,
    /// Of the accepted audio, what the model has answered.
    answered_samples: u64,
    end: Option<InputEnd>,
    /// Second that the picture of the last message belongs to.
    picture_unit: u64,
}

/// End of the client's input.
#[derive(Debug)]
struct InputEnd {
    event_id: String,
    is_drained: bool,
}

/// The parts of a message that number it.
#[derive(Deserialize)]
pub(super) struct Numbered<'m> {
    #[serde(borrow)]
    event_id: Option<&'m RawValue>,
    #[serde(borrow)]
    audio: Option<Cow<'m, str>>,
    #[serde(default)]
    sglang: Position,
}

#[derive(Deserialize, Default)]
struct Position {
    seq: Option<i64>,
    t_start_ms: Option<f64>,
    t_ms: Option<f64>,
}

impl<'m> Numbered<'m> {
    /// Reads what numbers the message of a command.
    ///
    /// # Errors
    /// The message has none of it, or a value of another type.
    pub(super) fn read(command: &str, text: &'m str) -> Result<Self, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("'{command}': {error}")))
    }

    /// The client's name for the message, which is required.
    ///
    /// # Errors
    /// It has none, or one that is too long.
    pub(super) fn event_id(&self, command: &str) -> Result<String, Error> {
        let id = self.event_id.and_then(read_str);
        let id = id.filter(|id| !id.is_empty() && id.len() <= EVENT_ID_MAX_BYTES).ok_or_else(|| {
            let detail = format!("an event_id of 1 to {EVENT_ID_MAX_BYTES} bytes is required");
            Error::new(ErrorKind::Invalid, detail).of_field(format!("{command}.event_id"))
        })?;
        Ok(id.into_owned())
    }
}

impl Input {
    /// Checks what numbers a message.
    ///
    /// # Errors
    /// It is not the next one, or the input is not open.
    pub(super) fn check(&mut self, verb: Option<Verb>, message: &Numbered<'_>) -> Result<(), Error> {
        match verb {
            Some(Verb::Audio) => self.check_append(message),
            Some(Verb::Frame) => self.check_picture(message),
            Some(Verb::EndInput | Verb::ClearAudio) => self.check_open(),
            _ => Ok(()),
        }
    }

    /// Takes audio of this many bytes. Gives what its acknowledgement says.
    pub(super) fn accept_audio(&mut self, bytes: usize) -> Value {
        let seq = self.next_sequence;
        self.next_sequence += 1;
        self.accepted_samples += bytes as u64 / 2;
        json!({ "seq": seq, "accepted_end_ms": samples_ms(self.accepted_samples) })
    }

    /// What the acknowledgement of the last picture says.
    pub(super) fn accepted_picture(&self) -> Value {
        json!({ "unit_id": format!("unit_{}", self.picture_unit) })
    }

    /// Ends the input by a message of this name. Gives what its acknowledgement says.
    pub(super) fn end(&mut self, event_id: String) -> Value {
        self.end = Some(InputEnd { event_id, is_drained: false });
        json!({ "accepted_end_ms": samples_ms(self.accepted_samples), "tail_policy": "pad" })
    }

    /// Notes how much of the audio the model has answered, from the session's beginning.
    pub(super) fn note_answered(&mut self, samples: u64) {
        self.answered_samples = self.answered_samples.max(samples);
    }

    fn check_append(&self, message: &Numbered<'_>) -> Result<(), Error> {
        let invalid = |detail: &str| Err(Error::new(ErrorKind::Invalid, detail.to_owned()).of_field("audio"));
        self.check_open()?;
        let Some(seq) = message.sglang.seq else {
            let error = Error::new(ErrorKind::Invalid, "Field required");
            return Err(error.of_field("input_audio_buffer.append.sglang.seq"));
        };
        if seq != self.next_sequence {
            let detail = format!("audio seq must be contiguous: {} is next, not {seq}", self.next_sequence);
            return Err(Error::new(ErrorKind::NotReady, detail));
        }
        let position = samples_ms(self.accepted_samples);
        if message.sglang.t_start_ms.is_some_and(|at| (at - position).abs() > POSITION_TOLERANCE_MS) {
            let detail = format!("input media time must be sample-contiguous: {position} ms is next");
            return Err(Error::new(ErrorKind::NotReady, detail));
        }
        let base64 = message.audio.as_deref().unwrap_or_default();
        let letters = base64.trim_end_matches('=').len();
        let bytes = letters / 4 * 3 + letters % 4 * 3 / 4;
        if bytes == 0 || !bytes.is_multiple_of(2) {
            return invalid("audio must contain whole PCM16 samples");
        }
        let waiting = self.accepted_samples - self.answered_samples.min(self.accepted_samples);
        if waiting + bytes as u64 / 2 > WAITING_MAX_SAMPLES {
            return Err(Error::new(ErrorKind::TooMuch, "input budget exhausted; retry this seq"));
        }
        Ok(())
    }

    fn check_picture(&mut self, message: &Numbered<'_>) -> Result<(), Error> {
        self.check_open()?;
        let Some(at_ms) = message.sglang.t_ms.filter(|at_ms| *at_ms >= 0.0) else {
            let error = Error::new(ErrorKind::Invalid, "Field required");
            return Err(error.of_field("sglang.input_image.append.sglang.t_ms"));
        };
        self.picture_unit = at_ms as u64 / UNIT_MS;
        let units = self.accepted_samples / UNIT;
        if !self.sees {
            Err(Error::new(ErrorKind::NoCounterpart, "image input is not granted"))
        } else if self.picture_unit < units {
            Err(Error::new(ErrorKind::NotReady, "frame unit already cut"))
        } else if self.picture_unit > units + PICTURE_AHEAD_UNITS {
            Err(Error::new(ErrorKind::TooMuch, "frame exceeds lookahead budget"))
        } else {
            Ok(())
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        match (&self.end, self.is_open) {
            (Some(_), _) => Err(Error::new(ErrorKind::NotReady, "audio input has ended")),
            (None, false) => Err(Error::new(ErrorKind::NotReady, "session is not OPEN")),
            (None, true) => Ok(()),
        }
    }

    /// Units of the accepted audio, the last one filled up.
    const fn units(&self) -> u64 {
        self.accepted_samples.div_ceil(UNIT)
    }

    /// Units that may be reported as done. The last one of an ended input waits until no answer is in progress.
    pub(super) fn done_units(&self, answers: bool) -> u64 {
        let whole = self.answered_samples.min(self.accepted_samples) / UNIT;
        match &self.end {
            None => whole,
            Some(_) if self.answered_samples >= self.accepted_samples && !answers => self.units(),
            Some(_) => whole.min(self.units().saturating_sub(1)),
        }
    }

    /// Contents of the event that ends the input, once every unit is reported.
    pub(super) fn drain(&mut self, reported_units: u64) -> Option<Value> {
        let (accepted, units) = (self.accepted_samples, self.units());
        let is_over = reported_units == units && self.answered_samples >= accepted;
        let end = self.end.as_mut().filter(|end| is_over && !end.is_drained)?;
        end.is_drained = true;
        Some(json!({
            "accepted_end_ms": samples_ms(accepted), "consumed_ms": samples_ms(accepted), "discarded_ms": 0.0,
            "padding_ms": samples_ms(units * UNIT - accepted), "client_event_id": end.event_id,
        }))
    }
}

fn samples_ms(samples: u64) -> f64 {
    samples as f64 * 1000.0 / f64::from(SPEECH_RATE_HZ)
}
