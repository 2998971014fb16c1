//! What goes to the client: [`ClientCommand`]s become frames, errors get the protocol's own code and words.

use super::Codec;
use crate::{
    error::Error,
    event::{ClientCommand, CloseName, Message},
    mapping::{
        client::{EventName, ToldAs},
        template::Fill,
    },
};

impl Codec {
    /// The frame for a command, sent `at_s` seconds after the session was opened; `None` for what this protocol does
    /// not tell its clients.
    #[must_use]
    pub fn encode(&self, command: ClientCommand, at_s: f64) -> Option<Message> {
        let command = match command {
            ClientCommand::Audio(bytes) => return Some(Message::Binary(bytes)),
            ClientCommand::Error(error) => return self.error(&error),
            ClientCommand::SessionClosed { why, .. } if self.told_as(why) != ToldAs::SessionClosed => {
                return self.closed_otherwise(why);
            }
            other => other,
        };
        let name = event_name(&command);
        let template = self.mapping.event(name)?;
        let mut json = String::with_capacity(256);
        template.render(&mut json, |slot| self.fill(&command, name.slot(slot), at_s));
        Some(Message::Text(json))
    }

    /// The close frame that ends the session for this reason.
    #[must_use]
    pub fn close(&self, why: CloseName) -> Message {
        match self.mapping.close(why) {
            Some(words) => Message::Close(words.code, words.text.clone()),
            None => Message::Close(1000, String::new()),
        }
    }

    /// The close frame after an error that ends the connection; `None` for one that does not.
    #[must_use]
    pub fn close_after(&self, error: &Error) -> Option<Message> {
        let (code, text) = self.mapping.error(error.kind)?.close.as_ref()?;
        let mut reason = String::new();
        text.render_plain(&mut reason, |_| Fill::Str(&error.detail));
        Some(Message::Close(*code, shortened(reason)))
    }

    fn error(&self, error: &Error) -> Option<Message> {
        let words = self.mapping.error(error.kind)?;
        let mut message = String::new();
        match &words.message {
            Some(template) => template.render_plain(&mut message, |_| Fill::Str(&error.detail)),
            None => message.push_str(&error.detail),
        }
        self.error_event(&words.code, &message, words.recoverable, error.segment_id)
    }

    fn error_event(
        &self,
        code: &str,
        message: &str,
        recoverable: bool,
        segment_id: Option<u32>,
    ) -> Option<Message> {
        let template = self.mapping.event(EventName::Error)?;
        let mut json = String::with_capacity(256);
        template.render(&mut json, |slot| match EventName::Error.slot(slot) {
            "code" => Fill::Str(code),
            "message" => Fill::Str(message),
            "recoverable" => Fill::Bool(recoverable),
            "segment_id" => segment_id.map_or(Fill::Null, |id| Fill::Int(id.into())),
            other => self.always(other),
        });
        Some(Message::Text(json))
    }

    fn told_as(&self, why: CloseName) -> ToldAs {
        self.mapping.close(why).map_or(ToldAs::SessionClosed, |words| words.told_as)
    }

    /// The end of a session by another event than its own, or by none.
    fn closed_otherwise(&self, why: CloseName) -> Option<Message> {
        let words = self.mapping.close(why).filter(|words| words.told_as == ToldAs::Error)?;
        self.error_event(&words.reason, &words.text, false, None)
    }

    /// A value that every event may tell, by [`EventName::ALWAYS`].
    fn always(&self, slot: &str) -> Fill<'_> {
        match slot {
            "session_id" => Fill::Str(&self.session_id),
            "model" => Fill::Str(&self.model),
            "opened_at" => Fill::Str(&self.opened_at),
            _ => Fill::Null,
        }
    }

    /// A slot's value; the names are those of [`EventName::slots`].
    fn fill<'v>(&'v self, command: &'v ClientCommand, slot: &str, at_s: f64) -> Fill<'v> {
        if slot == "unix_s" {
            return Fill::Float(self.opened_unix_s + at_s);
        }
        match (command, slot) {
            (ClientCommand::SessionCreated { session_id, .. }, "session_id")
            | (ClientCommand::SessionClosed { session_id, .. }, "session_id") => Fill::Str(session_id),
            (ClientCommand::SessionCreated { model, .. }, "model") => Fill::Str(model),
            (ClientCommand::SessionCreated { language, .. }, "language") => language.as_deref().into(),
            (ClientCommand::SpeechStarted { at_ms } | ClientCommand::SpeechEnded { at_ms }, "at_ms") => {
                whole(*at_ms)
            }
            (ClientCommand::SpeechStarted { at_ms } | ClientCommand::SpeechEnded { at_ms }, "at_s") => {
                seconds(*at_ms)
            }
            (ClientCommand::UtteranceGap { last_ms }, "last_s") => seconds(*last_ms),
            (
                ClientCommand::TranscriptPartial { from_ms, .. }
                | ClientCommand::TranscriptFinal { from_ms, .. },
                "from_s",
            ) => seconds(*from_ms),
            (
                ClientCommand::TranscriptPartial { from_ms, at_ms: length_ms, .. }
                | ClientCommand::TranscriptFinal { from_ms, duration_ms: length_ms, .. },
                "to_s",
            ) => seconds(from_ms + length_ms),
            (ClientCommand::TranscriptPartial { at_ms, .. }, "duration_s") => seconds(*at_ms),
            (ClientCommand::TranscriptFinal { ended, .. }, "ended") => Fill::Bool(*ended),
            (ClientCommand::TranscriptFinal { finalized, .. }, "finalized") => Fill::Bool(*finalized),
            (ClientCommand::Flushed { sequence } | ClientCommand::Cleared { sequence }, "sequence") => {
                Fill::Int((*sequence).into())
            }
            (
                ClientCommand::TranscriptPartial { text, .. } | ClientCommand::TranscriptFinal { text, .. },
                "text",
            ) => Fill::Str(text),
            (
                ClientCommand::TranscriptPartial { segment_id, .. }
                | ClientCommand::TranscriptFinal { segment_id, .. },
                "segment_id",
            ) => Fill::Int((*segment_id).into()),
            (
                ClientCommand::TranscriptPartial { speaker, .. }
                | ClientCommand::TranscriptFinal { speaker, .. },
                "speaker",
            ) => Fill::Str(speaker.name()),
            (
                ClientCommand::TranscriptPartial { speaker, .. }
                | ClientCommand::TranscriptFinal { speaker, .. },
                "source",
            ) => Fill::Str(speaker.source()),
            (ClientCommand::TranscriptPartial { at_ms, .. }, "at_ms") => whole(*at_ms),
            (ClientCommand::TranscriptFinal { .. }, "start_ms") => Fill::Int(0),
            (ClientCommand::TranscriptFinal { .. }, "start_s") => Fill::Float(0.0),
            (ClientCommand::TranscriptFinal { duration_ms, .. }, "end_ms") => whole(*duration_ms),
            (ClientCommand::TranscriptFinal { duration_ms, .. }, "end_s" | "duration_s") => {
                seconds(*duration_ms)
            }
            (ClientCommand::TranscriptFinal { language, .. }, "language") => language.as_deref().into(),
            (
                ClientCommand::SpeakingStarted { request_id, .. }
                | ClientCommand::SpeakingEnded { request_id, .. },
                "request_id",
            ) => Fill::Str(request_id),
            (
                ClientCommand::SpeakingStarted { at_ms, .. } | ClientCommand::SpeakingEnded { at_ms, .. },
                "at_ms",
            ) => whole(*at_ms),
            (ClientCommand::SpeakingStarted { text, .. }, "text") => Fill::Str(text),
            (ClientCommand::SpeakingEnded { cancelled, .. }, "cancelled") => Fill::Bool(*cancelled),
            (ClientCommand::SpeakingEnded { audio_ms, .. }, "audio_ms") => whole(*audio_ms),
            (ClientCommand::RateLimited { delay_ms }, "delay_ms") => whole(*delay_ms),
            (ClientCommand::FramesDropped { dropped_ms }, "dropped_ms") => whole(*dropped_ms),
            (ClientCommand::RolledOver { reason, .. }, "reason") => Fill::Str(reason.name()),
            (ClientCommand::RolledOver { gap_ms, .. }, "gap_ms") => whole(*gap_ms),
            (ClientCommand::RolledOver { standby, .. }, "standby") => Fill::Bool(*standby),
            (ClientCommand::RolledOver { kept_ms, .. }, "kept_ms") => whole(*kept_ms),
            (ClientCommand::SessionClosed { why, .. }, "reason") => {
                self.mapping.close(*why).map_or(Fill::Null, |words| Fill::Str(&words.reason))
            }
            (ClientCommand::SessionClosed { total_ms, .. }, "total_ms") => whole(*total_ms),
            (ClientCommand::SessionClosed { audio_ms, .. }, "audio_s") => seconds(*audio_ms),
            (ClientCommand::SessionClosed { segments, .. }, "segments") => Fill::Int((*segments).into()),
            _ => self.always(slot),
        }
    }
}

fn seconds(ms: u64) -> Fill<'static> {
    Fill::Float(ms as f64 / 1000.0)
}

fn whole(number: u64) -> Fill<'static> {
    Fill::Int(i64::try_from(number).unwrap_or(i64::MAX))
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
        // Audio has no event and errors have words of their own; both are handled before this is asked.
        ClientCommand::Audio(_) | ClientCommand::Error(_) => EventName::Error,
    }
}

/// RFC 6455 §5.5: a close frame's body is at most 125 bytes, two of them the code.
pub(super) fn shortened(mut reason: String) -> String {
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

    fn text(command: ClientCommand) -> String {
        match codec().encode(command, 0.1234) {
            Some(Message::Text(json)) => json,
            other => panic!("not a text frame: {other:?}"),
        }
    }

    #[test]
    fn events_carry_both_spellings() {
        let json = text(ClientCommand::SpeechStarted { at_ms: 920 });
        assert_eq!(json, r#"{"type":"vad.speech_start","timestamp_ms":920,"timestamp":1234567890.123}"#);
        let json = text(ClientCommand::TranscriptFinal {
            speaker: crate::event::Speaker::User,
            text: "hello \"you\"".into(),
            segment_id: 3,
            duration_ms: 3420,
            from_ms: 0,
            ended: true,
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
    fn errors_get_the_protocols_code_words_and_close() {
        let mut error = Error::new(ErrorKind::UnknownModel, "nope");
        assert_eq!(
            codec().close_after(&error),
            Some(Message::Close(1008, "Model not found: nope".into())),
            "golden c03b"
        );
        error.kind = ErrorKind::TranscribeFailed;
        error.segment_id = Some(2);
        assert_eq!(codec().close_after(&error), None);
        let json = text(ClientCommand::Error(error));
        assert_eq!(
            json,
            r#"{"type":"error","code":"worker_crash","message":"nope","recoverable":true,"resume_segment_id":2}"#
        );
    }

    #[test]
    fn a_close_reason_fits_its_frame() {
        assert_eq!(shortened("é".repeat(100)).len(), 122);
    }

    #[test]
    fn every_kind_of_error_has_words() {
        for kind in ErrorKind::ALL {
            let json = text(ClientCommand::Error(Error::new(kind, "detail")));
            let code = serde_json::from_str::<serde_json::Value>(&json).unwrap()["code"].clone();
            assert!(code.as_str().is_some_and(|code| !code.is_empty()), "{kind:?}");
        }
    }
}
