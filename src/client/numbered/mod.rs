//! Numbered input, as SGLang-Omni's protocol has it: every append carries its number and its position and is acknowledged, and
//! every second of audio that the model has answered is reported. Output names the second that it belongs to. All else is as
//! with OpenAI ([`super::realtime`]).
//!
//! Source: serve/realtime of the package sglang-omni 0.1.9. The model answers at its own pace, and playback is paced, so that output
//! belongs to the first second whose end was not reported. After the client has ended its input, the report of the last second
//! waits for the end of the answer in progress.

mod input;
mod labels;

use std::sync::Arc;

use serde_json::{Value, json};

use self::{
    input::{Input, Numbered},
    labels::{EXTRA_FIELD, InputLabels},
};
use super::{
    Abilities, Notes,
    mapped::{ClientCodec, CommandMessage, MappedCodec, RequestHandler, TurnSink},
    realtime::{AudioFormat, ExtraField, Realtime, name_message, own_verb, read_message},
};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    spelling::{
        ClientMapping,
        client::{RealtimeEvent, Verb},
        field::FieldRole,
    },
    vocabulary::{ClientEvent, ClientRequest, Frame, Message, Setting},
};

/// Codec of one connection whose client numbers its input.
#[derive(Debug)]
pub(super) struct NumberedInput {
    realtime: Realtime<InputLabels>,
    mapping: Arc<ClientMapping>,
    input: Input,
}

impl NumberedInput {
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        let mut realtime = Realtime::new(mapping.clone(), opened_unix_s);
        realtime.session_mut().input.rate_hz = mapping.audio_in.rate_hz;
        Self { realtime, mapping, input: Input::default() }
    }

    /// Checks what numbers a message, before anything of it is done.
    fn check(&mut self, command: &str, verb: Option<Verb>, text: &str) -> Result<(), Error> {
        let message = Numbered::read(command, text)?;
        self.realtime.labels_mut().event_id = message.event_id(command)?;
        self.input.check(verb, &message)
    }

    /// Changes the settings. The first ones open the input.
    fn update_session(&mut self, text: &str, handle: &mut RequestHandler<'_>) -> Result<(), Error> {
        self.realtime.update_session(&read_message(text)?)?;
        self.open()?;
        handle(ClientRequest::Configure(self.realtime.settings()));
        Ok(())
    }

    /// Opens the input. Only the granted formats are taken.
    fn open(&mut self) -> Result<(), Error> {
        let session = self.realtime.session_mut();
        for (format, rate_hz, direction) in [
            (session.input, self.mapping.audio_in.rate_hz, "input"),
            (session.output, self.mapping.audio_out.rate_hz, "output"),
        ] {
            if format != (AudioFormat { encoding: Encoding::S16le, rate_hz }) {
                let error = Error::new(ErrorKind::Invalid, "unsupported PCM format or sample rate");
                return Err(error.of_field(format!("session.audio.{direction}.format")));
            }
        }
        self.input.is_open = true;
        Ok(())
    }

    /// Acknowledges audio of this many bytes, or a picture, that the session has taken.
    fn acknowledge(&mut self, verb: Option<Verb>, bytes: usize) {
        let (event, fields) = match verb {
            Some(Verb::Audio) => (RealtimeEvent::InputAccepted, self.input.accept_audio(bytes)),
            Some(Verb::Frame) => (RealtimeEvent::PictureAccepted, self.input.accepted_picture()),
            _ => return,
        };
        self.realtime.reply(event, fields);
        if self.realtime.takes_turns() {
            self.note_answered(u64::MAX);
        }
    }

    /// Ends the client's input.
    fn end_input(&mut self) {
        let fields = self.input.end(self.realtime.labels_mut().event_id.clone());
        self.realtime.reply(RealtimeEvent::InputEnded, fields);
        self.note_answered(0);
    }

    /// Notes how much of the audio the model has answered, from the session's beginning; the reports are replies.
    fn note_answered(&mut self, samples: u64) {
        let mut reports = Vec::new();
        self.report_units(samples, &mut |message| reports.push(message));
        self.realtime.add_replies(reports);
    }

    /// Reports the seconds that the model has answered, and the end of the input after the last one.
    fn report_units(&mut self, answered_samples: u64, send: &mut dyn FnMut(Message)) {
        self.input.note_answered(answered_samples);
        let done = self.input.done_units(self.realtime.has_answer());
        for unit in self.realtime.labels_mut().unit..done {
            let fields = json!({ "unit_id": format!("unit_{unit}") });
            self.realtime.send(RealtimeEvent::UnitDone, fields, send);
            self.realtime.labels_mut().end_unit();
        }
        if let Some(drained) = self.input.drain(self.realtime.labels_mut().unit) {
            self.realtime.send(RealtimeEvent::InputDrained, drained, send);
        }
    }

    /// Capabilities that the session grants, for its own settings; `None` for protocols that grant nothing.
    fn granted(&mut self) -> Option<Value> {
        let mut granted = self.mapping.realtime.as_ref()?.capabilities.clone()?;
        granted.as_object_mut()?.remove("model");
        if !self.input.is_open {
            return Some(Value::Null);
        }
        let speaks = self.realtime.session_mut().speaks();
        granted["output_modalities"] = if speaks { json!(["audio"]) } else { json!(["text"]) };
        if self.input.sees {
            granted["input_modalities"] = json!(["audio", "image"]);
        }
        granted["rejections"] = json!([]);
        Some(granted)
    }

    fn send_session(&mut self, event: RealtimeEvent, send: &mut dyn FnMut(Message)) {
        let granted = self.granted().map(|granted| json!({ "granted": granted }).to_string());
        let more = granted.map(|json| ExtraField { key: EXTRA_FIELD, json });
        self.realtime.send_session(event, more, send);
    }
}

impl ClientCodec for NumberedInput {
    fn decode(
        &mut self,
        mapped: &mut MappedCodec,
        frame: Frame<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        name_message(frame, mapped.decode(frame, self, handle))
    }

    fn decode_command(
        &mut self,
        mapped: &mut MappedCodec,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let verb = message.first_verb();
        self.check(&message.command.name, verb, message.text)?;
        match own_verb(message.command) {
            Some(Verb::SessionUpdate) => self.update_session(message.text, handle),
            Some(Verb::EndInput) => {
                read_message(message.text)?;
                self.end_input();
                Ok(())
            }
            Some(verb) => self.realtime.decode_verb(verb, message.text, handle),
            None => {
                mapped.pass_command(message, handle)?;
                self.acknowledge(verb, mapped.last_audio_bytes());
                Ok(())
            }
        }
    }

    fn encode(&mut self, mapped: &mut MappedCodec, event: &ClientEvent, at_s: f64, send: &mut TurnSink<'_>) {
        match event {
            ClientEvent::SessionCreated { .. } => {
                self.send_session(RealtimeEvent::SessionCreated, &mut |message| send(message, None));
            }
            ClientEvent::Configured { .. } => {
                self.send_session(RealtimeEvent::SessionUpdated, &mut |message| send(message, None));
            }
            ClientEvent::AudioCleared => {
                // The model hears all audio, so that none is discarded.
                let fields = json!({ EXTRA_FIELD: { "discarded_ms": 0.0 } });
                self.realtime.send(RealtimeEvent::BufferCleared, fields, &mut |message| send(message, None));
            }
            ClientEvent::AudioAnswered { samples } => {
                self.report_units(*samples, &mut |message| send(message, None));
            }
            ClientEvent::AnswerEnded { .. } => {
                self.realtime.encode(mapped, event, at_s, send);
                self.report_units(0, &mut |message| send(message, None));
            }
            _ => self.realtime.encode(mapped, event, at_s, send),
        }
    }

    fn apply_parameter(
        &mut self,
        mapped: &mut MappedCodec,
        role: FieldRole,
        value: &str,
    ) -> Result<Vec<Setting>, Error> {
        self.realtime.apply_parameter(mapped, role, value)
    }

    fn settings(&self) -> Vec<Setting> {
        self.realtime.settings()
    }

    fn set_abilities(&mut self, abilities: Abilities) {
        self.realtime.set_abilities(abilities);
        // The requests of these clients would not matter.
        self.realtime.pass_all_requests();
        self.input.sees = abilities.sees && !abilities.takes_turns;
    }

    fn begin_session(&mut self, session_id: &str, model: &str, seed: u64) {
        self.realtime.begin_session(session_id, model, seed);
    }

    fn take_notes(&mut self, notes: &mut Notes) {
        self.realtime.take_notes(notes);
    }

    fn kept_bytes(&self) -> usize {
        self.realtime.kept_bytes()
    }

    fn forget(&mut self) {
        self.realtime.forget();
    }
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
        let abilities = Abilities { takes_turns: false, sees: false, transcribes: true, calls_tools: true };
        codec.set_abilities(abilities);
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
