//! Format of the audio that the model takes. The server resamples int16 to 16 kHz and passes float32 on as it is
//! (protocol/realtime/audio.py), so that a model of another rate takes only float32 at its own rate.
//!
//! The plug-in of such a model, PersonaPlex, names its rate nowhere but in the refusal of an append. So the first unit is sent
//! at 16 kHz, and again in the format that its refusal names. Each append names its format then.

use serde_json::{Value, json};

use crate::{audio::pcm, upstream::input_rate::InputRate, vocabulary::UnitInput};

/// Words of a refusal before the rate, in Hz.
const RATE_WORDS: &str = "sample_rate_hz must be ";

/// Format of the appends of one session.
#[derive(Debug, Default)]
pub(super) struct InputFormat {
    /// Converter to the model's rate; `None` for the dialect's own format.
    own: Option<InputRate>,
    /// The last unit that was sent in the dialect's own format, with its lead.
    sent: Option<UnitInput>,
    /// Appends in that format that the server has neither taken nor refused.
    unanswered: usize,
}

impl InputFormat {
    /// Notes a unit that was sent in this number of appends.
    pub(super) fn note_sent(&mut self, unit: UnitInput, appends: usize) {
        self.sent = Some(unit);
        self.unanswered += appends;
    }

    /// The server has taken the unit.
    pub(super) fn note_accepted(&mut self) {
        (self.sent, self.unanswered) = (None, 0);
    }

    /// Reads an error. `None` if it is no refusal of the rate, otherwise the unit to send again, if it is not sent again yet.
    pub(super) fn take_refusal(&mut self, words: &str) -> Option<Option<UnitInput>> {
        let rate_hz = named_rate(words)?;
        self.unanswered = self.unanswered.checked_sub(1)?;
        let Some(unit) = self.sent.take() else { return Some(None) };
        self.own = Some(InputRate::with_lead_in(rate_hz)?);
        Some(Some(unit))
    }

    /// The appends of a unit, each of `unit_ms`, for a model with a rate of its own. The picture goes with the first.
    pub(super) fn appends(&mut self, unit: &UnitInput, unit_ms: u32) -> Option<Vec<(Box<str>, Value)>> {
        let own = self.own.as_mut()?;
        let (rate_hz, converted) = (own.rate_hz, own.convert::<f32>(&unit.audio));
        let piece = (u64::from(rate_hz) * u64::from(unit_ms) / 1000).max(1) as usize;
        let pieces = converted.chunks(piece).enumerate();
        Some(pieces.map(|(at, audio)| append(format!("{}.{at}", unit.input_id), audio, rate_hz)).collect())
    }
}

/// An append and its id.
fn append(id: String, samples: &[f32], rate_hz: u32) -> (Box<str>, Value) {
    let mut audio = String::new();
    pcm::encode_base64_samples(samples, &mut audio);
    let message = json!({
        "type": "input_audio_buffer.append", "event_id": id, "audio": audio, "format": "pcm_f32le",
        "sample_rate_hz": rate_hz,
    });
    (id.into(), message)
}

/// The rate that a refusal names, in Hz.
fn named_rate(words: &str) -> Option<u32> {
    let (_, rate) = words.split_once(RATE_WORDS)?;
    rate.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}
