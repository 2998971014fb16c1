//! Numbered input, as SGLang-Omni's protocol has it: every append carries its number and its position and is acknowledged, and
//! every second of audio that the model has answered is reported. Output names the second that it belongs to.
//!
//! Source: serve/realtime of the package sglang-omni 0.1.9. The model answers at its own pace, and playback is paced, so that output
//! belongs to the first second whose end was not reported. After the client has ended its input, the report of the last second
//! waits for the end of the answer in progress.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{Realtime, format::AudioFormat};
use crate::{
    audio::{SPEECH_RATE_HZ, encoding::Encoding, units::UNIT_SAMPLES},
    error::{Error, ErrorKind},
    spelling::client::{RealtimeEvent, Verb},
    vocabulary::Message,
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
const UNIT_MS: u64 = 1000 * UNIT / SPEECH_RATE_HZ as u64;

/// Input of one connection.
#[derive(Debug, Default)]
pub(super) struct NumberedInput {
    /// The model sees pictures.
    pub(super) sees: bool,
    is_open: bool,
    next_sequence: i64,
    accepted_samples: u64,
    /// Of the accepted audio, what the model has answered.
    answered_samples: u64,
    reported_units: u64,
    /// Events so far of the unit that was not reported.
    unit_events: u64,
    end: Option<InputEnd>,
    /// The client's name for its last message.
    pub(super) event_id: String,
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
struct Numbered<'m> {
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

impl NumberedInput {
    /// Position of an event in the input, as JSON.
    pub(super) fn label(&mut self) -> String {
        let (unit, event) = (self.reported_units, self.unit_events);
        self.unit_events += 1;
        format!(
            r#"{{"unit_id":"unit_{unit}","chunk_seq":{event},"media_time":{{"t_start_ms":{}.0,"duration_ms":{UNIT_MS}.0}}}}"#,
            unit * UNIT_MS
        )
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
    fn done_units(&self, answers: bool) -> u64 {
        let whole = self.answered_samples.min(self.accepted_samples) / UNIT;
        match &self.end {
            None => whole,
            Some(_) if self.answered_samples >= self.accepted_samples && !answers => self.units(),
            Some(_) => whole.min(self.units().saturating_sub(1)),
        }
    }

    /// Contents of the event that ends the input, once every unit is reported.
    fn drain(&mut self) -> Option<Value> {
        let (accepted, units) = (self.accepted_samples, self.units());
        let is_over = self.reported_units == units && self.answered_samples >= accepted;
        let end = self.end.as_mut().filter(|end| is_over && !end.is_drained)?;
        end.is_drained = true;
        Some(json!({
            "accepted_end_ms": samples_ms(accepted), "consumed_ms": samples_ms(accepted), "discarded_ms": 0.0,
            "padding_ms": samples_ms(units * UNIT - accepted), "client_event_id": end.event_id,
        }))
    }
}

impl Realtime {
    /// Checks what numbers a message, before anything of it is done.
    pub(in crate::client) fn check_numbered(
        &mut self,
        command: &str,
        verb: Option<Verb>,
        text: &str,
    ) -> Result<(), Error> {
        let Some(input) = &mut self.events.numbered else { return Ok(()) };
        let message: Numbered<'_> = serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("'{command}': {error}")))?;
        let id = message.event_id.and_then(crate::client::json_text::read_str);
        let id = id.filter(|id| !id.is_empty() && id.len() <= EVENT_ID_MAX_BYTES).ok_or_else(|| {
            let detail = format!("an event_id of 1 to {EVENT_ID_MAX_BYTES} bytes is required");
            Error::new(ErrorKind::Invalid, detail).of_field(format!("{command}.event_id"))
        })?;
        input.event_id = id.into_owned();
        match verb {
            Some(Verb::Audio) => input.check_append(&message),
            Some(Verb::Frame) => input.check_picture(&message),
            Some(Verb::EndInput | Verb::ClearAudio) => input.check_open(),
            _ => Ok(()),
        }
    }

    /// Acknowledges audio of this many bytes, or a picture, that the session has taken.
    pub(in crate::client) fn acknowledge(&mut self, verb: Verb, bytes: usize) {
        let Some(input) = &mut self.events.numbered else { return };
        let (event, fields) = match verb {
            Verb::Audio => {
                let seq = input.next_sequence;
                input.next_sequence += 1;
                input.accepted_samples += bytes as u64 / 2;
                let end_ms = samples_ms(input.accepted_samples);
                (RealtimeEvent::InputAccepted, json!({ "seq": seq, "accepted_end_ms": end_ms }))
            }
            Verb::Frame => {
                let unit_id = format!("unit_{}", input.picture_unit);
                (RealtimeEvent::PictureAccepted, json!({ "unit_id": unit_id }))
            }
            _ => return,
        };
        self.reply(event, fields);
        if self.takes_turns {
            self.note_answered(u64::MAX);
        }
    }

    /// Ends the client's input.
    pub(super) fn end_input(&mut self) {
        let Some(input) = &mut self.events.numbered else { return };
        input.end = Some(InputEnd { event_id: input.event_id.clone(), is_drained: false });
        let end_ms = samples_ms(input.accepted_samples);
        self.reply(RealtimeEvent::InputEnded, json!({ "accepted_end_ms": end_ms, "tail_policy": "pad" }));
        self.note_answered(0);
    }

    /// Notes how much of the audio the model has answered, from the session's beginning; the reports are replies.
    fn note_answered(&mut self, samples: u64) {
        let mut replies = std::mem::take(&mut self.replies);
        self.report_units(samples, &mut |message| replies.push(message));
        self.replies = replies;
    }

    /// Reports the seconds that the model has answered, and the end of the input after the last one.
    pub(super) fn report_units(&mut self, answered_samples: u64, send: &mut dyn FnMut(Message)) {
        let has_answer = !self.responses.is_empty();
        let Some(input) = &mut self.events.numbered else { return };
        input.answered_samples = input.answered_samples.max(answered_samples);
        for unit in input.reported_units..input.done_units(has_answer) {
            self.send(RealtimeEvent::UnitDone, json!({ "unit_id": format!("unit_{unit}") }), send);
            if let Some(input) = &mut self.events.numbered {
                (input.reported_units, input.unit_events) = (unit + 1, 0);
            }
        }
        if let Some(drained) = self.events.numbered.as_mut().and_then(NumberedInput::drain) {
            self.send(RealtimeEvent::InputDrained, drained, send);
        }
    }

    /// Opens the input with the first settings. Only the granted formats are taken.
    pub(super) fn open_input(&mut self) -> Result<(), Error> {
        let (from_client, to_client) = (self.session.input, self.session.output);
        let Some(input) = &mut self.events.numbered else { return Ok(()) };
        let mapping = &self.events.mapping;
        for (format, rate_hz, direction) in [
            (from_client, mapping.audio_in.rate_hz, "input"),
            (to_client, mapping.audio_out.rate_hz, "output"),
        ] {
            if format != (AudioFormat { encoding: Encoding::S16le, rate_hz }) {
                let error = Error::new(ErrorKind::Invalid, "unsupported PCM format or sample rate");
                return Err(error.of_field(format!("session.audio.{direction}.format")));
            }
        }
        input.is_open = true;
        Ok(())
    }

    /// Capabilities that the session grants, for its own settings; `None` for protocols that grant nothing.
    pub(super) fn granted(&self) -> Option<Value> {
        let input = self.events.numbered.as_ref()?;
        let mut granted = self.events.mapping.realtime.as_ref()?.capabilities.clone()?;
        granted.as_object_mut()?.remove("model");
        if !input.is_open {
            return Some(Value::Null);
        }
        granted["output_modalities"] = if self.session.speaks() { json!(["audio"]) } else { json!(["text"]) };
        if input.sees {
            granted["input_modalities"] = json!(["audio", "image"]);
        }
        granted["rejections"] = json!([]);
        Some(granted)
    }
}

fn samples_ms(samples: u64) -> f64 {
    samples as f64 * 1000.0 / f64::from(SPEECH_RATE_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Codec,
        spelling::Library,
        vocabulary::{ClientEvent, Frame},
    };

    fn codec() -> Codec {
        let mut codec = Codec::new(Library::embedded().unwrap().client("sglang-omni").unwrap(), 0.0);
        codec.set_full_duplex(false);
        codec
    }

    /// Sends a message; gives the codec's own answers, or the error.
    fn send(codec: &mut Codec, message: &Value) -> Result<Vec<Value>, ErrorKind> {
        codec.decode(Frame::Text(&message.to_string()), |_| ()).map_err(|error| error.kind)?;
        Ok(codec.take_replies().iter().map(json).collect())
    }

    fn json(message: &Message) -> Value {
        let Message::Text(text) = message else { panic!("{message:?}") };
        serde_json::from_str(text).unwrap()
    }

    fn append(seq: i64, samples: usize) -> Value {
        let audio = "AAAA".repeat(2 * samples / 3) + ["", "AA==", "AAA="][2 * samples % 3];
        json!({"type": "input_audio_buffer.append", "event_id": "a", "audio": audio, "sglang": {"seq": seq}})
    }

    fn answered(codec: &mut Codec, samples: u64) -> Vec<Value> {
        let mut events = Vec::new();
        let command = ClientEvent::AudioAnswered { samples };
        codec.encode(&command, 0.0, |message, _| events.push(json(&message)));
        events
    }

    fn opened() -> Codec {
        let mut codec = codec();
        let update = json!({"type": "session.update", "event_id": "u", "session": {}});
        assert_eq!(send(&mut codec, &update), Ok(vec![]));
        codec
    }

    #[test]
    fn appends_are_acknowledged_and_gaps_change_nothing() {
        let mut codec = codec();
        assert_eq!(send(&mut codec, &append(0, 1)), Err(ErrorKind::NotReady), "before the session is open");
        let mut codec = opened();
        assert_eq!(send(&mut codec, &append(1, 1)), Err(ErrorKind::NotReady));
        for (seq, end_ms) in [(0, 80.0), (1, 160.0)] {
            let accepted = send(&mut codec, &append(seq, 1280)).unwrap();
            assert_eq!((&accepted[0]["seq"], &accepted[0]["accepted_end_ms"]), (&json!(seq), &json!(end_ms)));
            assert_eq!(accepted[0]["client_event_id"], "a");
        }
        let mut late = append(2, 1280);
        late["sglang"]["t_start_ms"] = 80.0.into();
        assert_eq!(send(&mut codec, &late), Err(ErrorKind::NotReady));
        late["sglang"]["t_start_ms"] = 160.0.into();
        late["event_id"] = Value::Null;
        assert_eq!(send(&mut codec, &late), Err(ErrorKind::Invalid), "without an event_id");
        late["event_id"] = "late".into();
        assert_eq!(send(&mut codec, &late).unwrap()[0]["seq"], 2);
    }

    #[test]
    fn audio_without_samples_is_an_error_whatever_its_padding() {
        let mut codec = opened();
        for audio in
            ["", "=", "==", "===", "====", "========", "A", "A=", "A===", "AA==", "AAAA", "AAAA=", "AAAA===="]
        {
            let mut message = append(0, 1);
            message["audio"] = audio.into();
            assert_eq!(send(&mut codec, &message), Err(ErrorKind::Invalid), "{audio}");
        }
        assert_eq!(send(&mut codec, &append(0, 1)).unwrap()[0]["seq"], 0, "the number is still free");
    }

    #[test]
    fn input_is_drained_after_every_unit_is_reported() {
        let mut codec = opened();
        send(&mut codec, &append(0, 40_000)).unwrap();
        let units = answered(&mut codec, 32_000);
        assert_eq!(units.iter().map(|unit| &unit["unit_id"]).collect::<Vec<_>>(), ["unit_0", "unit_1"]);
        let end = json!({"type": "sglang.input_audio.end", "event_id": "end"});
        let ended = send(&mut codec, &end).unwrap();
        assert_eq!((ended.len(), &ended[0]["accepted_end_ms"]), (1, &json!(2500.0)));
        assert_eq!(send(&mut codec, &append(1, 1)), Err(ErrorKind::NotReady), "the input has ended");
        let drained = answered(&mut codec, 40_000);
        assert_eq!((drained.len(), &drained[0]["unit_id"]), (2, &json!("unit_2")));
        assert_eq!((&drained[1]["consumed_ms"], &drained[1]["padding_ms"]), (&json!(2500.0), &json!(500.0)));
        assert_eq!(drained[1]["client_event_id"], "end");
        assert!(answered(&mut codec, 48_000).is_empty());
    }

    #[test]
    fn audio_that_waits_for_the_model_has_a_bound() {
        let mut codec = opened();
        for seq in 0..60 {
            send(&mut codec, &append(seq, 16_000)).unwrap();
        }
        assert_eq!(send(&mut codec, &append(60, 1)), Err(ErrorKind::TooMuch));
        answered(&mut codec, 16_000);
        assert_eq!(send(&mut codec, &append(60, 1)).unwrap()[0]["seq"], 60);
    }
}
