//! Codec of OpenAI's Live protocol (GPT-Live): a conversation without turns, whose nearest match is a duplex profile.
//!
//! Source: the types of openai-python 3.54 (`openai/types/live`) and field notes openai-realtime.md §8. The session begins
//! with `session.start`; audio flows both ways without acknowledgement; words come as deltas without an end. The audio of a
//! mapping file's `append` command is read by the general decoder.

use serde_json::{Map, Value, json};

use super::{
    IgnoredField,
    json_text::{Fields, read_str},
    realtime::error_type,
};
use crate::{
    audio::encoding::Encoding,
    error::{Error, ErrorKind},
    event::{ClientCommand, ClientEvent, CloseReason, Message, Setting, Speaker},
    mapping::{ClientMapping, client::Verb},
};

/// OpenAI's sessions end after an hour.
const SESSION_MAX_S: f64 = 3600.0;
/// Longest `session` of `session.start`, bytes: more than the model's context.
const SESSION_MAX_BYTES: usize = 64 * 1024;
/// Longest `audio` in it, bytes.
const AUDIO_MAX_BYTES: usize = 1024;
/// Longest name of a message that is echoed, bytes.
const ID_MAX_BYTES: usize = 512;

/// State of one connection.
#[derive(Debug)]
pub(super) struct Live {
    seed: u32,
    count: u32,
    session_id: String,
    opened_unix_s: f64,
    /// `session` of `session.start` as JSON; `None` before it.
    session: Option<Box<str>>,
    /// The client's name for the message that is being answered.
    client_event_id: Option<String>,
    /// The microphone is muted: its audio is dropped.
    pub(super) is_muted: bool,
    /// Words so far of the newest transcript of the user and of the model: its number and text.
    words: [(u32, String); 2],
    /// Answers to the client's own messages, for the caller to take.
    pub(super) replies: Vec<Message>,
    /// Fields without effect, for the caller to take.
    pub(super) ignored: Vec<IgnoredField>,
}

impl Live {
    pub(super) const fn new(opened_unix_s: f64) -> Self {
        Self {
            seed: 0,
            count: 0,
            session_id: String::new(),
            opened_unix_s,
            session: None,
            client_event_id: None,
            is_muted: false,
            words: [(u32::MAX, String::new()), (u32::MAX, String::new())],
            replies: Vec::new(),
            ignored: Vec::new(),
        }
    }

    pub(super) fn set_session(&mut self, session_id: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        self.seed = fastrand::Rng::with_seed(seed).u32(..);
    }

    /// Reads a message.
    pub(super) fn decode(
        &mut self,
        verb: Verb,
        name: &str,
        text: &str,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
        let message: Fields<'_> = serde_json::from_str(text).map_err(malformed)?;
        let event_id = message.get("event_id").and_then(read_str).filter(|id| id.len() <= ID_MAX_BYTES);
        self.client_event_id = event_id.map(Into::into);
        match verb {
            Verb::LiveStart => return self.start(&message, handle),
            _ if self.session.is_none() => {
                let detail = format!("'{name}' before 'session.start'");
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
            Verb::LiveMute | Verb::LiveUnmute => {
                self.is_muted = verb == Verb::LiveMute;
                let reply = if self.is_muted { "muted" } else { "unmuted" };
                let reply = self.message(&format!("session.input_audio.{reply}"), json!({}));
                self.replies.push(reply);
            }
            Verb::LiveAppend => {
                self.ignored.push(IgnoredField {
                    command: name.to_owned(),
                    field: "content".to_owned(),
                    because: "MiniCPM-o takes no text while it converses".to_owned(),
                    is_needed: false,
                });
                let reply = self.message(&format!("{name}ed"), json!({ "start_ms": 0, "end_ms": 0 }));
                self.replies.push(reply);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads `session.start`: formats, instructions and voice.
    fn start(&mut self, message: &Fields<'_>, handle: &mut impl FnMut(ClientEvent<'_>)) -> Result<(), Error> {
        let invalid = |detail: &str| Err(Error::new(ErrorKind::Invalid, detail));
        if self.session.is_some() {
            return invalid("the session has started already");
        }
        let given = message.given("session");
        let Some((json, session)) = given.and_then(|session| Some((session.get(), Fields::read(session)?)))
        else {
            return invalid("Missing required parameter: 'session'.");
        };
        let audio = session.given("audio").map_or("null", |audio| audio.get());
        if json.len() > SESSION_MAX_BYTES || audio.len() > AUDIO_MAX_BYTES {
            return invalid("'session' is longer than 65536 bytes, or 'session.audio' than 1024 bytes");
        }
        let audio: Value = serde_json::from_str(audio).unwrap_or_default();
        let format = &audio["format"];
        let (encoding, rate_hz) = match (format["type"].as_str(), format["rate"].as_u64()) {
            (None, None) => (Encoding::S16le, 24_000),
            (Some("audio/pcm"), Some(rate @ (16_000 | 24_000))) => (Encoding::S16le, rate as u32),
            (Some("audio/pcmu"), _) => (Encoding::Mulaw, 8000),
            (Some("audio/pcma"), _) => (Encoding::Alaw, 8000),
            _ => {
                return invalid(
                    "Invalid value for 'session.audio.format': expected audio/pcm at 16000 or 24000 Hz, audio/pcmu or audio/pcma.",
                );
            }
        };
        let mut settings = vec![
            Setting::InputEncoding(encoding),
            Setting::InputRate(rate_hz),
            Setting::OutputEncoding(encoding),
            Setting::OutputRate(rate_hz),
        ];
        let voice = &audio["output"]["voice"];
        let voice = voice.as_str().or_else(|| voice["id"].as_str());
        settings.extend(voice.map(|voice| Setting::SpeakModelIfKnown(voice.to_owned())));
        if let Some(instructions) = session.get("instructions").and_then(read_str) {
            settings.push(Setting::Instructions(instructions.into_owned()));
        }
        for field in ["delegation", "input", "store", "triggers", "client"] {
            if session.given(field).is_some() {
                self.ignored.push(IgnoredField {
                    command: "session.start".to_owned(),
                    field: field.to_owned(),
                    because: "MiniCPM-o has nothing like it".to_owned(),
                    is_needed: false,
                });
            }
        }
        self.session = Some(json.into());
        handle(ClientEvent::Configure(settings));
        Ok(())
    }

    /// Encodes a command other than audio, which has an event of its own in the mapping file.
    pub(super) fn encode(
        &mut self,
        mapping: &ClientMapping,
        command: &ClientCommand,
        send: &mut impl FnMut(Message),
    ) {
        match command {
            ClientCommand::Configured { .. } => {
                let session = self.session_json();
                send(self.message("session.started", json!({ "session": session })));
            }
            ClientCommand::TranscriptPartial { speaker, text, segment_id, audio_ms, start_ms } => {
                let end_ms = start_ms + audio_ms;
                self.send_words(*speaker, text, *segment_id, (*start_ms, end_ms), send);
            }
            ClientCommand::TranscriptFinal { speaker, text, segment_id, duration_ms, start_ms, .. } => {
                let end_ms = start_ms + duration_ms;
                self.send_words(*speaker, text, *segment_id, (*start_ms, end_ms), send);
            }
            ClientCommand::Error(error) => self.send_error(mapping, error, send),
            ClientCommand::SessionClosed { reason, total_ms, .. } => {
                let reason = match reason {
                    CloseReason::ClientClose | CloseReason::ClientCancel => "close_requested",
                    CloseReason::Idle | CloseReason::TimeLimit => "expired",
                    CloseReason::Shutdown | CloseReason::Operator => "remote_hangup",
                    CloseReason::Upstream => "connection_lost",
                };
                let (session, seconds) = (self.session_json(), *total_ms as f64 / 1000.0);
                let fields = json!({ "reason": reason, "session": session, "usage": { "seconds": seconds } });
                send(self.message("session.closed", fields));
            }
            _ => {}
        }
    }

    /// Sends the words that are new since the last message about this utterance or turn.
    fn send_words(
        &mut self,
        speaker: Speaker,
        text: &str,
        segment_id: u32,
        (start_ms, end_ms): (u64, u64),
        send: &mut impl FnMut(Message),
    ) {
        let (at, name) = match speaker {
            Speaker::User => (0, "session.input_transcript.delta"),
            Speaker::Assistant => (1, "session.output_transcript.delta"),
        };
        // The final transcript of a turn comes when it has been played: perhaps behind the first words of the next one.
        let is_earlier_turn = at == 1 && self.words[1].0 != u32::MAX && segment_id < self.words[1].0;
        if is_earlier_turn {
            return;
        }
        if self.words[at].0 != segment_id {
            self.words[at] = (segment_id, String::new());
        }
        // The end of an interrupted turn repeats what was heard of it, which is shorter.
        let new_words = text.strip_prefix(self.words[at].1.as_str()).unwrap_or_default();
        if new_words.is_empty() {
            return;
        }
        let fields = json!({ "delta": new_words, "start_ms": start_ms, "end_ms": end_ms });
        self.words[at].1.push_str(new_words);
        send(self.message(name, fields));
    }

    fn send_error(&mut self, mapping: &ClientMapping, error: &Error, send: &mut impl FnMut(Message)) {
        let Some(spelling) = mapping.error(error.kind) else { return };
        let fields = json!({ "error": {
            "type": error_type(error.kind), "code": spelling.code, "message": spelling.message(&error.detail), "param": null,
            "client_event_id": self.client_event_id,
        } });
        send(self.message("error", fields));
    }

    fn message(&mut self, name: &str, mut fields: Value) -> Message {
        self.count = self.count.wrapping_add(1);
        fields["type"] = name.into();
        fields["event_id"] = format!("event_{:08x}{:08x}", self.seed, self.count).into();
        if let Some(id) = self.client_event_id.take() {
            fields["client_event_id"] = id.into();
        }
        Message::Text(fields.to_string())
    }

    /// The session, as the client gets it.
    fn session_json(&self) -> Value {
        let session = self.session.as_deref().and_then(|json| serde_json::from_str(json).ok());
        let mut session: Map<String, Value> = session.unwrap_or_default();
        session.insert("id".to_owned(), self.session_id.as_str().into());
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
            live.send_words(Speaker::Assistant, text, segment_id, (0, 1), &mut |message| {
                let Message::Text(text) = message else { return };
                deltas.push(
                    serde_json::from_str::<Value>(&text).unwrap()["delta"].as_str().unwrap().to_owned(),
                );
            });
        }
        assert_eq!(deltas, ["one", " two", "three", " four"]);
    }
}
