//! A client of OpenAI's Realtime API that asks questions, spoken or typed, and waits for their answers. Audio travels as base64 in
//! JSON.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{
    client::{Client, ServerMessage, server_error},
    error::ClientError,
    speech_audio::SpeechAudio,
};
use crate::audio::{MODEL_RATE_HZ, SPEECH_RATE_HZ, pcm, wav};

/// A model's name that tells the protocol.
pub(super) const MODEL: &str = "gpt-realtime";
/// Samples of 100 ms at OpenAI's rate, which is also the model's.
const CHUNK_SAMPLES: usize = MODEL_RATE_HZ as usize / 10;
const CHUNK_INTERVAL: Duration = Duration::from_millis(100);
/// The user interrupts an answer after this time.
const INTERRUPTED_AFTER: Duration = Duration::from_millis(1200);

/// Resamples int16 from 16 kHz to OpenAI's rate.
pub(super) fn at_model_rate(samples: &[i16]) -> Vec<i16> {
    let samples: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
    // Both rates are supported.
    let resampled = wav::resample_all(&samples, SPEECH_RATE_HZ, MODEL_RATE_HZ).unwrap_or_default();
    resampled.into_iter().map(pcm::to_i16).collect()
}

/// The answer to a question.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) words: String,
    pub(super) speech: SpeechAudio,
    /// Time to the first audio or words, from the user's last sound, or from the request.
    pub(super) latency: Option<Duration>,
    /// Calls of functions: id, name and arguments.
    pub(super) calls: Vec<[String; 3]>,
}

/// The client.
pub(super) struct Realtime {
    client: Client,
    asked_at: Instant,
    /// When the current answer was first heard.
    heard_at: Option<Instant>,
    answer: Answer,
    /// The user's words.
    pub(super) transcripts: Vec<String>,
    /// The last problem that the server reported and that did not end the session.
    last_problem: Option<ClientError>,
}

impl Realtime {
    /// Opens a session with these settings.
    pub(super) async fn open(client: Client, mut settings: Value) -> Result<Self, ClientError> {
        settings["type"] = "realtime".into();
        let mut realtime = Self {
            client,
            asked_at: Instant::now(),
            heard_at: None,
            answer: Answer::default(),
            transcripts: Vec::new(),
            last_problem: None,
        };
        realtime.send(&json!({"type": "session.update", "session": settings})).await?;
        Ok(realtime)
    }

    pub(super) async fn hang_up(self) {
        self.client.hang_up().await;
    }

    /// Adds an item to the conversation.
    pub(super) async fn add_item(&mut self, item: &Value) -> Result<(), ClientError> {
        self.send(&json!({"type": "conversation.item.create", "item": item})).await
    }

    /// Types a message.
    pub(super) async fn add_message(&mut self, text: &str) -> Result<(), ClientError> {
        let content = json!([{"type": "input_text", "text": text}]);
        self.add_item(&json!({"type": "message", "role": "user", "content": content})).await
    }

    /// Asks for the answer to the items so far.
    pub(super) async fn request_answer(&mut self) -> Result<Answer, ClientError> {
        self.asked_at = Instant::now();
        self.send(&json!({"type": "response.create"})).await?;
        self.ask(&[], &[]).await
    }

    /// Asks a spoken question (24 kHz) in real time, and is silent until the answer is complete. The server decides when the
    /// question ends. The interruption, unless it is empty, is spoken once, into an answer. An answer that speech interrupted does
    /// not count.
    pub(super) async fn ask(
        &mut self,
        mut speech: &[i16],
        mut interruption: &[i16],
    ) -> Result<Answer, ClientError> {
        let is_spoken = !speech.is_empty();
        let limit = self.client.timing().stall_timeout;
        let mut ticks = interval(CHUNK_INTERVAL);
        let mut last_event_at = Instant::now();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if speech.is_empty() && last_event_at.elapsed() > limit {
                        return Err(self.last_problem.take().unwrap_or(ClientError::Stalled(limit)));
                    }
                    if !is_spoken {
                        continue;
                    }
                    if speech.is_empty() && self.heard_at.is_some_and(|at| at.elapsed() >= INTERRUPTED_AFTER) {
                        speech = std::mem::take(&mut interruption);
                    }
                    let (chunk, rest) = speech.split_at(speech.len().min(CHUNK_SAMPLES));
                    speech = rest;
                    if !chunk.is_empty() {
                        (self.asked_at, last_event_at) = (Instant::now(), Instant::now());
                    }
                    self.send_audio(chunk).await?;
                }
                message = self.client.next() => {
                    let Some(message) = message? else {
                        return Err(self.last_problem.take().unwrap_or_else(|| self.client.connection_lost()));
                    };
                    last_event_at = Instant::now();
                    let ServerMessage::Event(event) = message else { continue };
                    let is_complete = self.handle_event(&serde_json::from_str(&event.text).unwrap_or_default())?;
                    if is_complete && speech.is_empty() {
                        return Ok(std::mem::take(&mut self.answer));
                    }
                }
            }
        }
    }

    /// Sends 100 ms of audio: these samples, then silence.
    async fn send_audio(&mut self, samples: &[i16]) -> Result<(), ClientError> {
        let mut bytes = pcm::s16le_bytes(samples);
        bytes.resize(2 * CHUNK_SAMPLES, 0);
        let audio = STANDARD.encode(bytes);
        self.send(&json!({"type": "input_audio_buffer.append", "audio": audio})).await
    }

    /// Handles an event; returns true at the end of an answer that nothing interrupted.
    fn handle_event(&mut self, event: &Value) -> Result<bool, ClientError> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/type") {
            "response.created" => (self.answer, self.heard_at) = (Answer::default(), None),
            "response.output_audio.delta" => {
                self.note_first_output();
                self.heard_at.get_or_insert_with(Instant::now);
                self.answer.speech.push(&STANDARD.decode(text("/delta")).unwrap_or_default())?;
            }
            "response.output_text.delta" => self.note_first_output(),
            "response.output_audio_transcript.done" => text("/transcript").clone_into(&mut self.answer.words),
            "response.output_text.done" => text("/text").clone_into(&mut self.answer.words),
            "response.function_call_arguments.done" => {
                let call = ["/call_id", "/name", "/arguments"].map(|key| text(key).to_owned());
                self.answer.calls.push(call);
            }
            "conversation.item.input_audio_transcription.completed" => {
                self.transcripts.push(text("/transcript").to_owned());
            }
            "error" => {
                let problem = server_error(text("/error/code"), text("/error/message"));
                // Other problems, such as a queue that stands still, do not end the session.
                if text("/error/type") == "invalid_request_error" {
                    return Err(problem);
                }
                self.last_problem = Some(problem);
            }
            "response.done" => match text("/response/status") {
                "failed" => {
                    let message = text("/response/status_details/error/message");
                    return Err(server_error("response failed", message));
                }
                "cancelled" => self.heard_at = None,
                _ => return Ok(true),
            },
            _ => {}
        }
        Ok(false)
    }

    fn note_first_output(&mut self) {
        self.answer.latency.get_or_insert_with(|| self.asked_at.elapsed());
    }

    async fn send(&mut self, event: &Value) -> Result<(), ClientError> {
        self.client.send_command(event).await
    }
}
