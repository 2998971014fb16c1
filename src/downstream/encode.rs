//! Encodes for the client: [`ClientCommand`]s become frames, and errors get the protocol's code and message.

use super::Codec;
use crate::{
    error::Error,
    event::{ClientAudio, ClientCommand, CloseReason, Message},
    mapping::{
        client::{EventName, ReportedAs, Slot},
        template::SlotValue,
    },
};

impl Codec {
    /// Encodes a command that is sent `at_s` seconds after the session opened; `None` if the protocol has no such event.
    #[must_use]
    pub fn encode(&self, command: ClientCommand, at_s: f64) -> Option<Message> {
        let command = match command {
            ClientCommand::Audio(audio) => return Some(encode_audio(&audio)),
            ClientCommand::Error(error) => return self.encode_error(&error),
            ClientCommand::SessionClosed { reason: why, .. }
                if self.reported_as(why) != ReportedAs::SessionClosed =>
            {
                return self.encode_close_as_error(why);
            }
            other => other,
        };
        let name = event_name(&command);
        let template = self.mapping.event(name)?;
        let mut json = String::with_capacity(256);
        template.render(&mut json, |slot| self.slot_value(&command, slot, at_s));
        Some(Message::Text(json))
    }

    /// The close frame that ends the session for this reason.
    #[must_use]
    pub fn close_frame(&self, why: CloseReason) -> Message {
        match self.mapping.close(why) {
            Some(spelling) => Message::Close(spelling.code, spelling.text.clone()),
            None => Message::Close(1000, String::new()),
        }
    }

    /// The close frame after an error that ends the connection; `None` for one that does not.
    #[must_use]
    pub fn error_close_frame(&self, error: &Error) -> Option<Message> {
        let (code, text) = self.mapping.error(error.kind)?.close.as_ref()?;
        let mut reason = String::new();
        text.render_plain(&mut reason, |_| SlotValue::Str(&error.detail));
        Some(Message::Close(*code, truncate_close_reason(reason)))
    }

    fn encode_error(&self, error: &Error) -> Option<Message> {
        let spelling = self.mapping.error(error.kind)?;
        let mut message = String::new();
        match &spelling.message {
            Some(template) => template.render_plain(&mut message, |_| SlotValue::Str(&error.detail)),
            None => message.push_str(&error.detail),
        }
        self.render_error_event(&spelling.code, &message, spelling.recoverable, error.segment_id)
    }

    fn render_error_event(
        &self,
        code: &str,
        message: &str,
        recoverable: bool,
        segment_id: Option<u32>,
    ) -> Option<Message> {
        let template = self.mapping.event(EventName::Error)?;
        let mut json = String::with_capacity(256);
        template.render(&mut json, |slot| match slot {
            Slot::Code => SlotValue::Str(code),
            Slot::Message => SlotValue::Str(message),
            Slot::Recoverable => SlotValue::Bool(recoverable),
            Slot::SegmentId => segment_id.map_or(SlotValue::Null, |id| SlotValue::Int(id.into())),
            other => self.common_value(other).unwrap_or(SlotValue::Null),
        });
        Some(Message::Text(json))
    }

    fn reported_as(&self, why: CloseReason) -> ReportedAs {
        self.mapping.close(why).map_or(ReportedAs::SessionClosed, |spelling| spelling.reported_as)
    }

    /// Reports the end of a session by an error event, or not at all.
    fn encode_close_as_error(&self, why: CloseReason) -> Option<Message> {
        let spelling =
            self.mapping.close(why).filter(|spelling| spelling.reported_as == ReportedAs::Error)?;
        self.render_error_event(&spelling.reason, &spelling.text, false, None)
    }
}

fn encode_audio(audio: &ClientAudio) -> Message {
    let mut bytes = Vec::with_capacity(audio.samples.len() * audio.encoding.bytes_per_sample());
    audio.encoding.encode(&audio.samples, &mut bytes);
    Message::Binary(bytes.into())
}

const fn event_name(command: &ClientCommand) -> EventName {
    match command {
        ClientCommand::SessionCreated { .. } => EventName::SessionCreated,
        ClientCommand::SpeechStarted { .. } => EventName::SpeechStarted,
        ClientCommand::SpeechEnded { .. } => EventName::SpeechEnded,
        ClientCommand::TranscriptPartial { .. } => EventName::TranscriptPartial,
        ClientCommand::TranscriptFinal { .. } => EventName::TranscriptFinal,
        ClientCommand::UtteranceGap { .. } => EventName::UtteranceGap,
        ClientCommand::SpeakingStarted { .. } => EventName::SpeakingStarted,
        ClientCommand::SpeakingEnded { .. } => EventName::SpeakingEnded,
        ClientCommand::Flushed { .. } => EventName::Flushed,
        ClientCommand::Cleared { .. } => EventName::Cleared,
        ClientCommand::Configured => EventName::Configured,
        ClientCommand::RateLimited { .. } => EventName::RateLimited,
        ClientCommand::FramesDropped { .. } => EventName::FramesDropped,
        ClientCommand::RolledOver { .. } => EventName::RolledOver,
        ClientCommand::SessionClosed { .. } => EventName::SessionClosed,
        // Audio and errors are handled before this call.
        ClientCommand::Audio(_) | ClientCommand::Error(_) => EventName::Error,
    }
}

/// RFC 6455 §5.5: a close frame's body is at most 125 bytes, two of them the code.
pub(super) fn truncate_close_reason(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(123));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, mapping::Library};

    fn codec() -> Codec {
        Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 1_234_567_890.0)
    }

    fn encoded_text(command: ClientCommand) -> String {
        match codec().encode(command, 0.1234) {
            Some(Message::Text(json)) => json,
            other => panic!("not a text frame: {other:?}"),
        }
    }

    #[test]
    fn events_carry_published_and_actual_fields() {
        let json = encoded_text(ClientCommand::SpeechStarted { at_ms: 920 });
        assert_eq!(json, r#"{"type":"vad.speech_start","timestamp_ms":920,"timestamp":1234567890.123}"#);
        let json = encoded_text(ClientCommand::TranscriptFinal {
            speaker: crate::event::Speaker::User,
            text: "hello \"you\"".into(),
            segment_id: 3,
            duration_ms: 3420,
            start_ms: 0,
            utterance_ended: true,
            finalized: false,
            language: Some("en".into()),
        });
        assert!(
            json.starts_with(r#"{"type":"transcript.final","text":"hello \"you\"","segment_id":3,"#),
            "{json}"
        );
        assert!(
            json.contains(r#""start_ms":0,"end_ms":3420,"#) && json.contains(r#""duration":3.42,"#),
            "{json}"
        );
    }

    #[test]
    fn errors_use_the_protocols_code_message_and_close() {
        let mut error = Error::new(ErrorKind::UnknownModel, "nope");
        assert_eq!(
            codec().error_close_frame(&error),
            Some(Message::Close(1008, "Model not found: nope".into())),
            "golden c03b"
        );
        error.kind = ErrorKind::TranscribeFailed;
        error.segment_id = Some(2);
        assert_eq!(codec().error_close_frame(&error), None);
        let json = encoded_text(ClientCommand::Error(error));
        assert_eq!(
            json,
            r#"{"type":"error","code":"worker_crash","message":"nope","recoverable":true,"resume_segment_id":2}"#
        );
    }

    #[test]
    fn long_close_reason_is_truncated() {
        assert_eq!(truncate_close_reason("é".repeat(100)).len(), 122);
    }

    #[test]
    fn every_error_kind_has_a_code() {
        for kind in ErrorKind::SESSION_KINDS {
            let json = encoded_text(ClientCommand::Error(Error::new(kind, "detail")));
            let code = serde_json::from_str::<serde_json::Value>(&json).unwrap()["code"].clone();
            assert!(code.as_str().is_some_and(|code| !code.is_empty()), "{kind:?}");
        }
    }
}
