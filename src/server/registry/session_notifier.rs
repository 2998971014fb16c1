//! What webhooks tell about one session.

use serde_json::json;

use super::SessionInfo;
use crate::{
    date::rfc3339,
    server::webhooks::{WebhookEvent, Webhooks},
    telemetry::access_log::AccessRecord,
    vocabulary::{ClientEvent, TokenUsage},
};

/// Tells about one session.
pub(crate) struct SessionNotifier {
    webhooks: Webhooks,
    /// Tokens of all turns.
    usage: TokenUsage,
    turns: u64,
}

impl SessionNotifier {
    pub(crate) fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, usage: TokenUsage::default(), turns: 0 }
    }

    /// The session has begun.
    pub(crate) fn session_started(&self, info: &SessionInfo) {
        let opened = rfc3339(info.opened_unix.as_secs_f64());
        let data = json!({
            "session": info.id, "client": info.client, "profile": info.profile, "key": info.key.as_deref(), "subject": info.subject,
            "peer": info.peer.to_string(), "path": info.path, "trace_id": info.trace_id.to_string(), "opened": opened,
        });
        self.webhooks.send(WebhookEvent::SessionStarted, data);
    }

    /// Tells about a turn of the model that has ended.
    pub(crate) fn tell_event(&mut self, info: &SessionInfo, event: &ClientEvent) {
        let ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, .. } = event else { return };
        self.turns += 1;
        self.usage = self.usage.plus(*usage);
        let data = json!({
            "session": info.id, "client": info.client, "profile": info.profile, "key": info.key.as_deref(), "turn": segment_id,
            "interrupted": cancelled, "audio_ms": audio_ms, "usage": usage_data(*usage),
        });
        self.webhooks.send(WebhookEvent::TurnEnded, data);
    }

    /// The session has ended: its line in the access log, and its tokens.
    pub(crate) fn session_ended(&self, record: &AccessRecord) {
        // Cannot fail: the record has only strings, numbers and maps with string keys.
        let mut data = serde_json::to_value(record).unwrap_or_default();
        data["turns"] = self.turns.into();
        data["usage"] = usage_data(self.usage);
        self.webhooks.send(WebhookEvent::SessionEnded, data);
    }
}

fn usage_data(usage: TokenUsage) -> serde_json::Value {
    json!({
        "input_tokens": usage.input(), "output_tokens": usage.output(), "input_text_tokens": usage.input_text,
        "input_audio_tokens": usage.input_audio, "input_image_tokens": usage.input_images, "cached_tokens": usage.cached,
        "output_text_tokens": usage.output_text, "output_audio_tokens": usage.output_audio,
    })
}
