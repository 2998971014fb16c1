//! Words of the user's audio, where the session asks for them. They come beside the response.

use std::time::Instant;

use serde_json::json;

use super::{OpenaiSession, prompt};
use crate::{
    generate::{AnswerPiece, Generation},
    session_context::{SimContext, SimSessionEnd},
};

/// The transcription of one item.
#[derive(Debug)]
pub(super) struct Transcription {
    item_id: String,
    seconds: f64,
    text: String,
    pub(super) generation: Generation,
}

impl Transcription {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.generation.step_deadline()
    }
}

impl OpenaiSession {
    /// Begins to transcribe an item's audio, float32 at 16 kHz.
    pub(super) fn transcribe(&mut self, item_id: &str, audio: Vec<f32>, ctx: &mut SimContext<'_>) {
        let seconds = audio.len() as f64 / 16_000.0;
        let request = prompt::transcript_request(audio);
        let generation = Generation::start(request, item_id.to_owned(), None, ctx);
        let item_id = item_id.to_owned();
        self.transcriptions.push(Transcription { item_id, seconds, text: String::new(), generation });
    }

    pub(super) fn run_transcription(
        &mut self,
        at: usize,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        let transcription = &mut self.transcriptions[at];
        let name = |end: &str| format!("conversation.item.input_audio_transcription.{end}");
        let about = |more: serde_json::Value| {
            let mut members = more;
            members["item_id"] = transcription.item_id.as_str().into();
            members["content_index"] = 0.into();
            members
        };
        match transcription.generation.next_piece() {
            Some(AnswerPiece::Text(text)) => {
                self.server.send(ctx, &name("delta"), about(json!({"delta": text})));
                self.transcriptions[at].text.push_str(&text);
                return Ok(());
            }
            Some(AnswerPiece::Audio(_)) => return Ok(()),
            Some(AnswerPiece::Abort) => return Err(SimSessionEnd::Aborted),
            Some(AnswerPiece::Crash(words)) => {
                let error = json!({
                    "type": "server_error", "code": "audio_unintelligible", "message": words, "param": null,
                });
                self.server.send(ctx, &name("failed"), about(json!({"error": error})));
            }
            Some(AnswerPiece::Done) | None => {
                let usage = json!({"type": "duration", "seconds": transcription.seconds});
                let words = json!({"transcript": transcription.text, "usage": usage});
                self.server.send(ctx, &name("completed"), about(words));
            }
        }
        let done = self.transcriptions.remove(at);
        if let Some(item) = self.conversation.find_mut(&done.item_id) {
            item.wire["content"][0]["transcript"] = done.text.into();
        }
        Ok(())
    }
}
