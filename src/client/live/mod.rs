//! Codec of OpenAI's Live protocol (GPT-Live): a conversation without turns, whose nearest match is a duplex profile.
//!
//! Sources: the types of openai-python 3.57 (`openai/types/live`), and Microsoft's "GPT-Live event API reference". The session begins
//! with `session.start`, or with the request for a call by WebRTC; audio flows both ways without acknowledgement; words come as
//! fragments without an end ([`words`]). [`config`] is what the client sets. The audio of a mapping file's `append` command is read
//! by the general decoder.

mod config;
mod words;

use serde_json::{Map, Value, json, value::RawValue};

use self::{
    config::LiveConfig,
    words::{Fragment, Words},
};
use super::{
    Abilities, IgnoredField, Notes,
    json_text::read_str,
    mapped::{ClientCodec, CommandMessage, MappedCodec, RequestHandler, TurnSink},
    realtime::{error_type, name_message, read_message},
};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    spelling::{ClientMapping, client::Verb, field::FieldRole},
    vocabulary::{ClientEvent, ClientRequest, CloseReason, Frame, Message, Setting, Speaker},
};

/// OpenAI's sessions end after an hour.
const SESSION_MAX_S: f64 = 3600.0;
/// Interval of reports of usage: OpenAI's is about a minute.
const USAGE_INTERVAL_MS: u64 = 60_000;
/// Longest name of a message that is echoed, bytes.
const ID_MAX_BYTES: usize = 512;

/// Checks the configuration of a session by WebRTC that does not exist yet.
#[cfg(feature = "io")]
pub(crate) fn check_live_session(session: &str) -> Result<(), Error> {
    Live { is_call: true, ..Live::new(0.0) }.start_call(session).map(drop)
}

/// Codec of one connection.
#[derive(Debug, Default)]
pub(super) struct Live {
    seed: u32,
    count: u32,
    session_id: String,
    opened_unix_s: f64,
    /// `None` before `session.start`.
    config: Option<LiveConfig>,
    /// The session is a call: its audio is binary, in the format of the call.
    is_call: bool,
    /// The user's words are transcribed.
    transcribes: bool,
    /// The model takes no texts.
    is_full_duplex: bool,
    /// Positions since the connection opened, ms: of `session.started`, of now, and of the next report of usage.
    started_ms: Option<u64>,
    now_ms: u64,
    next_usage_ms: u64,
    /// The client's name for the message that is being answered.
    client_event_id: Option<String>,
    /// The microphone is muted: silence stands for its audio.
    is_muted: bool,
    /// Buffer for that silence.
    silence: Vec<u8>,
    /// The client knows that its texts reach no model.
    has_noted_texts: bool,
    /// Words of the user and of the model.
    words: [Words; 2],
    notes: Notes,
}

impl ClientCodec for Live {
    fn decode(
        &mut self,
        mapped: &mut MappedCodec,
        frame: Frame<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let decoded = match self.is_muted {
            true => self.decode_muted(mapped, frame, handle),
            false => mapped.decode(frame, self, handle),
        };
        name_message(frame, decoded)
    }

    fn decode_command(
        &mut self,
        mapped: &mut MappedCodec,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        match message.first_verb() {
            Some(verb) if verb.is_live() => {
                self.decode_verb(verb, &message.command.name, message.text, handle)
            }
            _ => mapped.pass_command(message, handle),
        }
    }

    /// Of audio, only a call's is encoded here; the mapping file has an event for the audio of a WebSocket.
    fn encode(&mut self, mapped: &mut MappedCodec, event: &ClientEvent, at_s: f64, send: &mut TurnSink<'_>) {
        let turn = event.turn();
        let send: &mut dyn FnMut(Message) = &mut |message| send(message, turn);
        match event {
            ClientEvent::Audio(_) if !self.is_call => mapped.events.encode(event, at_s, send),
            _ => self.encode_event(&mapped.mapping, event, at_s, send),
        }
    }

    fn apply_parameter(
        &mut self,
        mapped: &mut MappedCodec,
        role: FieldRole,
        value: &str,
    ) -> Result<Vec<Setting>, Error> {
        match role {
            FieldRole::Session if self.is_call => return self.start_call(value),
            FieldRole::Transport => (self.is_call, mapped.is_call) = (true, true),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn set_abilities(&mut self, abilities: Abilities) {
        (self.is_full_duplex, self.transcribes) = (!abilities.takes_turns, abilities.transcribes);
    }

    fn begin_session(&mut self, session_id: &str, _model: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        self.seed = fastrand::Rng::with_seed(seed).u32(..);
    }

    fn take_notes(&mut self, notes: &mut Notes) {
        notes.append(&mut self.notes);
    }
}

impl Live {
    pub(super) fn new(opened_unix_s: f64) -> Self {
        Self { opened_unix_s, transcribes: true, next_usage_ms: USAGE_INTERVAL_MS, ..Self::default() }
    }

    /// Reads a frame while the microphone is muted. Silence stands for the client's audio, so that the user's transcripts keep
    /// their times.
    fn decode_muted(
        &mut self,
        mapped: &mut MappedCodec,
        frame: Frame<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let silent_byte = match self.config.as_ref().map_or(Encoding::S16le, |config| config.encoding) {
            Encoding::Mulaw => 0xff,
            Encoding::Alaw => 0xd5,
            _ => 0,
        };
        let mut silence = std::mem::take(&mut self.silence);
        let decoded = mapped.decode(frame, self, &mut |request| match request {
            ClientRequest::Audio(audio) => {
                silence.clear();
                silence.resize(audio.len(), silent_byte);
                handle(ClientRequest::Audio(&silence));
            }
            request => handle(request),
        });
        self.silence = silence;
        decoded
    }

    /// Reads a message.
    fn decode_verb(
        &mut self,
        verb: Verb,
        name: &str,
        text: &str,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let message = read_message(text)?;
        let event_id = message.get("event_id").and_then(read_str).filter(|id| id.len() <= ID_MAX_BYTES);
        let event_id = event_id.map(std::borrow::Cow::into_owned);
        let session = || {
            let missing = || Error::new(ErrorKind::Invalid, "Missing required parameter: 'session'.");
            message.given("session").ok_or_else(missing)
        };
        let Some(config) = &mut self.config else {
            if verb != Verb::LiveStart {
                let detail = format!("'{name}' before 'session.start'");
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
            handle(ClientRequest::Configure(self.start(session()?)?));
            self.client_event_id = event_id;
            return Ok(());
        };
        // The past tense of a command answers it.
        let (reply, fields) = match verb {
            Verb::LiveStart => {
                return Err(Error::new(ErrorKind::Invalid, "the session has started already"));
            }
            Verb::LiveMute | Verb::LiveUnmute => {
                self.is_muted = verb == Verb::LiveMute;
                (format!("{name}d"), json!({}))
            }
            Verb::LiveAppend => {
                config.check_append(&message)?;
                self.note_text(name);
                let at_ms = self.position_ms();
                (format!("{name}ed"), json!({ "start_ms": at_ms, "end_ms": at_ms }))
            }
            Verb::LiveUpdate => {
                config.update(session()?)?;
                handle(ClientRequest::KeepAlive);
                (format!("{name}d"), json!({ "session": self.session_json() }))
            }
            Verb::LiveDelegate => return Err(config.backend_error(name)),
            _ => return Ok(()),
        };
        self.client_event_id = event_id;
        let reply = self.message(&reply, fields);
        self.notes.replies.push(reply);
        Ok(())
    }

    /// Begins the session of a call with this configuration.
    fn start_call(&mut self, session: &str) -> Result<Vec<Setting>, Error> {
        let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
        self.start(serde_json::from_str(session).map_err(malformed)?)
    }

    /// Reads the first configuration: formats, instructions and voice.
    fn start(&mut self, session: &RawValue) -> Result<Vec<Setting>, Error> {
        let (config, settings) = LiveConfig::read(session, self.is_call)?;
        for field in &config.without_effect {
            self.notes.ignored.push(IgnoredField {
                command: "session.start".to_owned(),
                field: (*field).to_owned(),
                because: "MiniCPM-o has nothing like it".to_owned(),
                is_needed: false,
            });
        }
        self.config = Some(config);
        Ok(settings)
    }

    /// Notes a text for the model: for operators each time, for the client once.
    fn note_text(&mut self, command: &str) {
        self.notes.ignored.push(IgnoredField {
            command: command.to_owned(),
            field: "content".to_owned(),
            because: "MiniCPM-o takes no text while it converses".to_owned(),
            is_needed: false,
        });
        if !std::mem::replace(&mut self.has_noted_texts, true) {
            let message = "Appended texts have no effect: MiniCPM-o takes no text while it converses.";
            let info = self.info("context_without_effect", message);
            self.notes.replies.push(info);
        }
    }

    /// Encodes an event that is sent `at_s` seconds after the connection opened.
    fn encode_event(
        &mut self,
        mapping: &ClientMapping,
        event: &ClientEvent,
        at_s: f64,
        send: &mut dyn FnMut(Message),
    ) {
        self.now_ms = (at_s * 1000.0) as u64;
        match event {
            ClientEvent::Audio(audio) => send(Message::Binary(audio.bytes.clone())),
            // A call discards what was not played.
            ClientEvent::SpeakingEnded { cancelled: true, .. } if self.is_call => {
                send(Message::Binary(bytes::Bytes::new()));
            }
            ClientEvent::Configured { .. } => self.report_start(send),
            ClientEvent::SessionCreated { .. } if self.is_call => self.report_start(send),
            ClientEvent::TranscriptPartial { speaker, text, segment_id, audio_ms, start_ms } => {
                self.send_words(*speaker, text, *segment_id, *start_ms, *audio_ms, send);
            }
            ClientEvent::TranscriptFinal { speaker, text, segment_id, duration_ms, start_ms, .. } => {
                self.send_words(*speaker, text, *segment_id, *start_ms, *duration_ms, send);
            }
            ClientEvent::ConversationPaused => send(self.message("session.paused", json!({}))),
            ClientEvent::ConversationResumed => send(self.message("session.resumed", json!({}))),
            ClientEvent::Error(Error { kind: ErrorKind::TranscribeFailed, detail, .. }) => {
                let info = self.info("input_transcript_failed", detail);
                send(info);
            }
            ClientEvent::Error(error) => self.send_error(mapping, error, send),
            ClientEvent::SessionClosed { reason, .. } => {
                let reason = match reason {
                    CloseReason::ClientClose | CloseReason::ClientCancel => "close_requested",
                    CloseReason::Idle | CloseReason::TimeLimit => "expired",
                    CloseReason::Shutdown | CloseReason::Operator => "remote_hangup",
                    CloseReason::Upstream => "connection_lost",
                };
                let fields =
                    json!({ "reason": reason, "session": self.session_json(), "usage": self.usage() });
                send(self.message("session.closed", fields));
            }
            _ => {}
        }
        if self.position_ms() >= self.next_usage_ms && !matches!(event, ClientEvent::SessionClosed { .. }) {
            self.next_usage_ms += USAGE_INTERVAL_MS;
            let usage = self.usage();
            send(self.message("session.usage.updated", json!({ "usage": usage })));
        }
    }

    /// Reports the start of the session, and what of it has no effect.
    fn report_start(&mut self, send: &mut dyn FnMut(Message)) {
        if self.started_ms.is_some() {
            return;
        }
        let Some(config) = &self.config else { return };
        let mut fields = config.without_effect.clone();
        fields.extend(Some("instructions").filter(|_| self.is_full_duplex && config.has_instructions));
        self.started_ms = Some(self.now_ms);
        let session = self.session_json();
        send(self.message("session.started", json!({ "session": session })));
        if !fields.is_empty() {
            let message = format!("These settings have no effect with MiniCPM-o: {}.", fields.join(", "));
            send(self.info("settings_without_effect", &message));
        }
        if !self.transcribes {
            let message = "The user's words are not transcribed: no upstream transcribes.";
            send(self.info("input_transcripts_unavailable", message));
        }
    }

    /// Sends the words that are new in an utterance or turn. `start_ms` is a position in the client's audio, and 0 for the model.
    /// `audio_ms` is the length of the words' audio so far.
    fn send_words(
        &mut self,
        speaker: Speaker,
        text: &str,
        segment_id: u32,
        start_ms: u64,
        audio_ms: u64,
        send: &mut dyn FnMut(Message),
    ) {
        let now_ms = self.position_ms();
        let (words, name) = match speaker {
            Speaker::User => (&mut self.words[0], "session.input_transcript.delta"),
            Speaker::Assistant => (&mut self.words[1], "session.output_transcript.delta"),
        };
        let start_ms = match speaker {
            Speaker::User => start_ms,
            // The final transcript of a turn comes when it has been played: perhaps behind the first words of the next one.
            Speaker::Assistant if words.is_earlier(segment_id) => return,
            // A turn begins with its first words.
            Speaker::Assistant => words.start_ms(segment_id).unwrap_or(now_ms),
        };
        let new = words.take_new(segment_id, text, start_ms, start_ms + audio_ms);
        let Some(Fragment { text, span_ms: (start_ms, end_ms) }) = new else { return };
        send(self.message(name, json!({ "delta": text, "start_ms": start_ms, "end_ms": end_ms })));
    }

    fn send_error(&mut self, mapping: &ClientMapping, error: &Error, send: &mut dyn FnMut(Message)) {
        let Some(spelling) = mapping.error(error.kind) else { return };
        let mut fields = json!({
            "type": error_type(error.kind), "code": spelling.code, "message": spelling.message(&error.detail),
        });
        for (key, value) in [("param", &error.param), ("client_event_id", &error.request_id)] {
            if let Some(value) = value {
                fields[key] = value.as_str().into();
            }
        }
        send(self.message("error", json!({ "error": fields })));
    }

    /// A notice.
    fn info(&mut self, code: &str, message: &str) -> Message {
        self.event("info", json!({ "code": code, "message": message }))
    }

    /// An event that answers the client's message, if one is being answered.
    fn message(&mut self, name: &str, mut fields: Value) -> Message {
        if let Some(id) = self.client_event_id.take() {
            fields["client_event_id"] = id.into();
        }
        self.event(name, fields)
    }

    fn event(&mut self, name: &str, mut fields: Value) -> Message {
        self.count = self.count.wrapping_add(1);
        fields["type"] = name.into();
        fields["event_id"] = format!("event_{:08x}{:08x}", self.seed, self.count).into();
        Message::Text(fields.to_string())
    }

    /// Position in the session, ms.
    fn position_ms(&self) -> u64 {
        self.started_ms.map_or(0, |started_ms| self.now_ms.saturating_sub(started_ms))
    }

    /// Length of the session in whole seconds, which OpenAI charges.
    fn usage(&self) -> Value {
        json!({ "seconds": self.position_ms().div_ceil(1000) })
    }

    /// The session, as the client gets it.
    fn session_json(&self) -> Value {
        let mut session: Map<String, Value> =
            self.config.as_ref().map(LiveConfig::fields).unwrap_or_default();
        // The session of a call has the call's id.
        if !self.is_call || !session.contains_key("id") {
            session.insert("id".to_owned(), self.session_id.as_str().into());
        }
        session.insert("status".to_owned(), "active".into());
        session.insert("expires_at".to_owned(), ((self.opened_unix_s + SESSION_MAX_S) as u64).into());
        session.entry("model").or_insert_with(|| "gpt-live-1".into());
        Value::Object(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_transcript_behind_the_next_turn_repeats_no_words() {
        let (mut live, mut deltas) = (Live::new(0.0), Vec::new());
        for (segment_id, text) in
            [(1, "one"), (1, "one two"), (2, "three"), (1, "one two"), (2, "three four")]
        {
            live.send_words(Speaker::Assistant, text, segment_id, 0, 1, &mut |message| {
                let Message::Text(text) = message else { return };
                deltas.push(
                    serde_json::from_str::<Value>(&text).unwrap()["delta"].as_str().unwrap().to_owned(),
                );
            });
        }
        assert_eq!(deltas, ["one", " two", " three", " four"]);
    }
}
