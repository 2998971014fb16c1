//! Answers of the HTTP API: event streams, whole JSON, and files of speech.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{MODEL, Piece, failure, request::AnswerForm};
use crate::{
    HttpApi,
    audio::{pcm, wav},
    hum_voice::SAMPLE_RATE_HZ,
};

/// Length that a WAV file names while it is generated.
const UNKNOWN_LENGTH: [u8; 4] = [0xff; 4];

/// Writes one answer.
#[derive(Debug)]
pub(super) struct AnswerWriter {
    api: HttpApi,
    form: AnswerForm,
    text: String,
    samples: Vec<i16>,
    has_begun: bool,
}

impl AnswerWriter {
    pub(super) const fn new(api: HttpApi, form: AnswerForm) -> Self {
        Self { api, form, text: String::new(), samples: Vec::new(), has_begun: false }
    }

    /// True if the answer is sent in pieces. Speech of MiniCPM-o comes as a whole.
    pub(super) fn is_stream(&self) -> bool {
        match self.form {
            AnswerForm::Chat { is_stream } | AnswerForm::Transcript { is_stream } => is_stream,
            AnswerForm::Speech => self.api == HttpApi::OpenaiAudio,
        }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            AnswerForm::Speech => "audio/wav",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// The next chunk of a stream.
    pub(super) fn chunk(&mut self, piece: Piece) -> Vec<u8> {
        match (self.form, piece) {
            (AnswerForm::Speech, Piece::Audio(base64)) => {
                let bytes = wav::write_s16(&samples(&base64), SAMPLE_RATE_HZ as u32);
                if std::mem::replace(&mut self.has_begun, true) {
                    return bytes[44..].to_vec();
                }
                let mut bytes = bytes;
                bytes[4..8].copy_from_slice(&UNKNOWN_LENGTH);
                bytes[40..44].copy_from_slice(&UNKNOWN_LENGTH);
                bytes
            }
            (AnswerForm::Speech, _) => Vec::new(),
            (_, Piece::Done) => self.end_of_stream(),
            (_, Piece::Failed(words) | Piece::Busy(words)) => {
                event(&serde_json::from_str(&failure(500, &words).json).unwrap_or_default())
                    + "data: [DONE]\n\n"
            }
            .into_bytes(),
            (AnswerForm::Transcript { .. }, Piece::Text(text)) => self.transcript_chunk(text).into_bytes(),
            (_, Piece::Text(text)) => self.chat_chunk("text", json!({"content": text})).into_bytes(),
            (_, Piece::Audio(base64)) => {
                let file = STANDARD.encode(wav::write_s16(&samples(&base64), SAMPLE_RATE_HZ as u32));
                let delta = match self.api {
                    HttpApi::VllmOmni => json!({"role": "assistant", "content": file}),
                    _ => json!({"audio": {"id": "audio-1", "data": file}}),
                };
                self.chat_chunk("audio", delta).into_bytes()
            }
            (_, Piece::Aborted) => Vec::new(),
        }
    }

    fn transcript_chunk(&mut self, text: String) -> String {
        self.text.push_str(&text);
        event(&match self.api {
            // speaches streams segments.
            HttpApi::OpenaiAudio => json!({"text": text}),
            _ => json!({"type": "transcript.text.delta", "delta": text}),
        })
    }

    fn chat_chunk(&self, modality: &str, delta: Value) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        let mut chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice],
        });
        if self.api == HttpApi::VllmOmni {
            chunk["modality"] = modality.into();
        }
        event(&chunk)
    }

    fn end_of_stream(&self) -> Vec<u8> {
        let mut end = match (self.form, self.api) {
            (AnswerForm::Transcript { .. }, HttpApi::OpenaiAudio) => return Vec::new(),
            (AnswerForm::Transcript { .. }, _) => {
                // The server removes the record that the model may add to a transcript.
                let text = self.text.split("\n||").next().unwrap_or_default().trim();
                event(&json!({"type": "transcript.text.done", "text": text}))
            }
            _ => self.chat_chunk("text", json!({})),
        };
        end.push_str("data: [DONE]\n\n");
        end.into_bytes()
    }

    /// Keeps a piece of an answer that is sent as a whole.
    pub(super) fn keep(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.text.push_str(&text),
            Piece::Audio(base64) => self.samples.extend(samples(&base64)),
            _ => {}
        }
    }

    /// The whole answer, with its media type.
    pub(super) fn whole(self) -> (&'static str, Vec<u8>) {
        let file = || wav::write_s16(&self.samples, SAMPLE_RATE_HZ as u32);
        let json = match self.form {
            AnswerForm::Speech => return ("audio/wav", file()),
            AnswerForm::Transcript { .. } => json!({"text": self.text}),
            AnswerForm::Chat { .. } => {
                let mut message = json!({"role": "assistant", "content": self.text});
                if !self.samples.is_empty() {
                    message["audio"] =
                        json!({"id": "audio-1", "data": STANDARD.encode(file()), "transcript": ""});
                }
                json!({
                    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL,
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                })
            }
        };
        ("application/json", json.to_string().into_bytes())
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn samples(base64: &str) -> Vec<i16> {
    let mut samples = Vec::new();
    // The simulator wrote it.
    let _valid = pcm::decode_base64_f32(base64, &mut samples);
    samples.into_iter().map(pcm::to_i16).collect()
}
