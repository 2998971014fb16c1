//! Sends errors, and the reason of the session's end.

use serde_json::json;

use super::{Realtime, events::EventLabels};
use crate::{
    error::{Error, ErrorKind, Origin},
    spelling::client::{RealtimeEvent, ReportedAs},
    vocabulary::{CloseReason, EntryId, Message},
};

impl<L: EventLabels> Realtime<L> {
    /// Sends an error: of an utterance as its failed transcription, of an answer as its failed response.
    pub(super) fn send_error(&mut self, error: &Error, send: &mut dyn FnMut(Message)) {
        let (code, message) = self.spell_error(error);
        if let Some(segment_id) = error.segment_id {
            if let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) {
                response.failure = Some((error_type(error.kind), code, message));
                return;
            }
            let number = EntryId(segment_id);
            if self.items.awaits_transcript(number) {
                self.items.complete_transcript(number, None);
                let fields = json!({
                    "item_id": self.events.item_id(number), "content_index": 0,
                    "error": { "type": error_type(error.kind), "code": code, "message": message, "param": null },
                });
                self.send(RealtimeEvent::TranscriptionFailed, fields, send);
                return self.send_item_done(number, send);
            }
        }
        // Clients that only transcribe, such as LiveKit's, end at any error, so they get no error for a notice.
        if error.kind == ErrorKind::QueueStuck && self.session.is_transcription {
            return;
        }
        let event_id = match error.kind {
            ErrorKind::EmptyCommit => self.commit_event_id.take(),
            _ => error.request_id.clone(),
        };
        let mut fields = json!({ "error": {
            "type": error_type(error.kind), "code": code, "message": message, "param": error.param,
            "event_id": event_id,
        } });
        let spelling = self.events.mapping.error(error.kind);
        let is_fatal = spelling.is_some_and(|spelling| !spelling.recoverable);
        self.events.labels.add_error_fields(is_fatal, &mut fields);
        self.send(RealtimeEvent::Error, fields, send);
    }

    /// Code and message of an error.
    fn spell_error(&self, error: &Error) -> (String, String) {
        let Some(spelling) = self.events.mapping.error(error.kind) else { return Default::default() };
        (spelling.code.clone(), spelling.message(&error.detail))
    }

    pub(super) fn send_close_reason(&mut self, why: CloseReason, send: &mut dyn FnMut(Message)) {
        let Some(spelling) = self.events.mapping.close(why) else { return };
        match spelling.reported_as {
            ReportedAs::Error => {
                let error = json!({
                    "type": "invalid_request_error", "code": spelling.reason, "message": spelling.text,
                    "param": null, "event_id": null,
                });
                self.send(RealtimeEvent::Error, json!({ "error": error }), send);
            }
            ReportedAs::SessionClosed => {
                let reason = spelling.reason.clone();
                self.send(RealtimeEvent::SessionClosed, json!({ "reason": reason }), send);
            }
            ReportedAs::Nothing => {}
        }
    }
}

/// OpenAI's type of an error.
pub(in crate::client) const fn error_type(kind: ErrorKind) -> &'static str {
    match kind.origin() {
        Origin::Client => "invalid_request_error",
        Origin::Bridge | Origin::Upstream => "server_error",
    }
}
