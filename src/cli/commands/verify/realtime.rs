//! A client of OpenAI's Realtime API that asks one question, spoken or typed, and waits for its answer.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::bench::Bench;
use crate::{
    audio::MODEL_RATE_HZ,
    cli::{
        ClientError,
        client::{Client, ServerMessage, server_error},
        demo::openai::MODEL,
        speech_audio::SpeechAudio,
    },
};

/// Samples of 100 ms at OpenAI's rate.
const CHUNK_SAMPLES: usize = MODEL_RATE_HZ as usize / 10;
const CHUNK_INTERVAL: Duration = Duration::from_millis(100);

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
    answer: Answer,
    /// The last problem that the server reported and that did not end the session.
    last_problem: Option<ClientError>,
}

impl Realtime {
    /// Opens a session with these settings.
    pub(super) async fn open(bench: &Bench<'_>, mut settings: Value) -> Result<Self, ClientError> {
        let client = bench.connect("", MODEL).await?;
        settings["type"] = "realtime".into();
        let (asked_at, answer) = (Instant::now(), Answer::default());
        let mut realtime = Self { client, asked_at, answer, last_problem: None };
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
        self.wait_for_answer(&[]).await
    }

    /// Asks a spoken question (24 kHz) in real time. The server decides when it ends.
    pub(super) async fn ask(&mut self, speech: &[i16]) -> Result<Answer, ClientError> {
        self.wait_for_answer(speech).await
    }

    /// Speaks in real time, then is silent until the answer is complete. An answer that the rest of the speech interrupted does
    /// not count.
    async fn wait_for_answer(&mut self, speech: &[i16]) -> Result<Answer, ClientError> {
        let is_spoken = !speech.is_empty();
        let mut chunks = speech.chunks(CHUNK_SAMPLES);
        let mut has_ended = !is_spoken;
        let mut ticks = interval(CHUNK_INTERVAL);
        let limit = self.client.timing().answer_timeout;
        let mut last_event_at = Instant::now();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if has_ended && last_event_at.elapsed() > limit {
                        return Err(self.last_problem.take().unwrap_or(ClientError::Stalled(limit)));
                    }
                    if !is_spoken {
                        continue;
                    }
                    let mut samples = chunks.next().unwrap_or_default().to_vec();
                    if samples.is_empty() {
                        has_ended = true;
                    } else {
                        (self.asked_at, last_event_at) = (Instant::now(), Instant::now());
                    }
                    samples.resize(CHUNK_SAMPLES, 0);
                    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                    let audio = STANDARD.encode(bytes);
                    self.send(&json!({"type": "input_audio_buffer.append", "audio": audio})).await?;
                }
                message = self.client.next() => {
                    let Some(message) = message? else {
                        return Err(self.last_problem.take().unwrap_or_else(|| self.client.connection_lost()));
                    };
                    last_event_at = Instant::now();
                    let ServerMessage::Event(event) = message else { continue };
                    let is_complete = self.handle_event(&serde_json::from_str(&event.text).unwrap_or_default())?;
                    if is_complete && has_ended {
                        return Ok(std::mem::take(&mut self.answer));
                    }
                }
            }
        }
    }

    /// Handles an event; returns true at the end of an answer that nothing interrupted.
    fn handle_event(&mut self, event: &Value) -> Result<bool, ClientError> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/type") {
            "response.created" => self.answer = Answer::default(),
            "response.output_audio.delta" => {
                self.note_first_output();
                self.answer.speech.push(&STANDARD.decode(text("/delta")).unwrap_or_default())?;
            }
            "response.output_text.delta" => self.note_first_output(),
            "response.output_audio_transcript.done" => text("/transcript").clone_into(&mut self.answer.words),
            "response.output_text.done" => text("/text").clone_into(&mut self.answer.words),
            "response.function_call_arguments.done" => {
                let call = ["/call_id", "/name", "/arguments"].map(|key| text(key).to_owned());
                self.answer.calls.push(call);
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
                status => return Ok(status != "cancelled"),
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
