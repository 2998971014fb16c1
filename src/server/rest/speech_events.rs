//! The server-sent events of speech, in the forms of OpenAI and of Cartesia.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    speech_format::OPENAI_RATE_HZ,
    style::{Failure, Style},
};

/// The events of one text.
pub(super) struct SpeechEvents {
    pub(super) style: Style,
    /// The client's name for the text, which Cartesia's events have.
    pub(super) context_id: String,
    /// Length of the text, bytes.
    pub(super) characters: usize,
}

impl SpeechEvents {
    /// Encoded audio.
    pub(super) fn audio(&self, encoded: &[u8]) -> Value {
        let audio = STANDARD.encode(encoded);
        match self.style {
            Style::Cartesia => json!({
                "type": "chunk", "context_id": self.context_id, "data": audio, "done": false, "status_code": 206,
                "step_time": 0.0,
            }),
            _ => json!({"type": "speech.audio.delta", "audio": audio}),
        }
    }

    /// The last event, after this many bytes of int16 audio.
    pub(super) fn done(&self, audio_bytes: usize) -> Value {
        if self.style == Style::Cartesia {
            return json!({"type": "done", "context_id": self.context_id, "done": true, "status_code": 200});
        }
        // MiniCPM-o counts no tokens; these are estimates in the usual relation: a token is about four characters, and a second of
        // speech has 50.
        let (input, output) = (self.characters / 4 + 1, audio_bytes / 2 * 50 / OPENAI_RATE_HZ as usize);
        let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        json!({"type": "speech.audio.done", "usage": usage})
    }

    /// The event for a failure.
    pub(super) fn failed(&self, failure: &Failure) -> Value {
        let mut event = failure.body(self.style);
        if self.style == Style::Cartesia {
            event["type"] = "error".into();
            event["context_id"] = self.context_id.as_str().into();
            event["done"] = true.into();
            event["status_code"] = failure.status.as_u16().into();
        }
        event
    }
}
