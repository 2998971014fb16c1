//! OpenAI Realtime client of `voxbridge demo --openai`: asks a spoken question, listens to the answer, interrupts it, and
//! listens to the next one. Audio travels as base64 in JSON.

use std::path::Path;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{DemoResult, SpokenReply};
use crate::audio::{MODEL_RATE_HZ, SPEECH_RATE_HZ, pcm, wav};
use crate::cli::client::{Client, ClientTiming, ServerMessage, server_error};
use crate::cli::dial::ServerTarget;
use crate::cli::error::ClientError;
use crate::cli::speech_audio::SpeechAudio;
use crate::cli::stream_recording::end_of_audible_samples;

/// A model's name that tells the protocol.
pub(in crate::cli) const MODEL: &str = "gpt-realtime";
/// Samples of 100 ms at OpenAI's rate, which is also the model's.
const CHUNK_SAMPLES: usize = MODEL_RATE_HZ as usize / 10;
const CHUNK_INTERVAL: Duration = Duration::from_millis(100);
/// The user interrupts the answer after this time, with the beginning of the recording.
const INTERRUPTED_AFTER: Duration = Duration::from_millis(1200);
const INTERRUPTION_SAMPLES: usize = MODEL_RATE_HZ as usize * 5 / 2;

/// Asks the question `wav_bytes` as an OpenAI client and saves the last answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_openai_demo(url: &str, wav_bytes: Vec<u8>, out: &Path) -> Result<DemoResult, ClientError> {
    let samples = at_model_rate(&super::read_recording(wav_bytes).await?);
    let target =
        ServerTarget { url: url.to_owned(), model: Some(MODEL.to_owned()), ..ServerTarget::default() };
    let (mut client, _) = Client::connect(&target, ClientTiming::default()).await?;
    let dialogue = hold_dialogue(&mut client, &samples).await;
    client.hang_up().await;
    let Dialogue { transcripts, answer, .. } = dialogue?;
    let latency = answer.latency.unwrap_or_default();
    let reply = SpokenReply::save(answer.text, &answer.speech, latency, true, out)?;
    Ok(DemoResult { transcripts, final_latency: None, reply })
}

/// Resamples int16 from 16 kHz to OpenAI's rate.
pub(in crate::cli) fn at_model_rate(samples: &[i16]) -> Vec<i16> {
    let samples: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
    // Both rates are supported.
    let resampled = wav::resample_all(&samples, SPEECH_RATE_HZ, MODEL_RATE_HZ).unwrap_or_default();
    resampled.into_iter().map(pcm::to_i16).collect()
}

/// The conversation so far.
#[derive(Default)]
struct Dialogue<'s> {
    /// Rest of the user's speech; silence follows.
    speech: &'s [i16],
    /// When the user's last sound was sent.
    silent_since: Option<Instant>,
    /// When the current answer was first heard.
    answer_began_at: Option<Instant>,
    was_interrupted: bool,
    transcripts: Vec<String>,
    answer: ModelAnswer,
}

/// The current answer.
#[derive(Default)]
struct ModelAnswer {
    text: String,
    speech: SpeechAudio,
    /// Time from the user's last sound to the first audio.
    latency: Option<Duration>,
}

/// Speaks in real time, and ends with the first answer that nothing interrupts.
async fn hold_dialogue<'s>(client: &mut Client, samples: &'s [i16]) -> Result<Dialogue<'s>, ClientError> {
    let stall_timeout = client.timing().stall_timeout;
    let question = audible(samples);
    let mut dialogue = Dialogue { speech: question, ..Dialogue::default() };
    client
        .send_command(&json!({"type": "session.update", "session": {
            "type": "realtime", "instructions": "You are a helpful assistant. Answer briefly.",
            "audio": {"input": {
                "transcription": {"model": "whisper-1"},
                "turn_detection": {"type": "server_vad", "silence_duration_ms": 1000, "interrupt_response": true}
            }}
        }}))
        .await?;
    let mut ticks = interval(CHUNK_INTERVAL);
    let mut last_event_at = Instant::now();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if dialogue.speech.is_empty() && last_event_at.elapsed() > stall_timeout {
                    return Err(ClientError::Stalled(stall_timeout));
                }
                if dialogue.should_interrupt() {
                    dialogue.was_interrupted = true;
                    dialogue.speech = audible(&question[..question.len().min(INTERRUPTION_SAMPLES)]);
                }
                let audio = STANDARD.encode(dialogue.next_chunk());
                client.send_command(&json!({"type": "input_audio_buffer.append", "audio": audio})).await?;
            }
            message = client.next() => {
                let message = message?.ok_or_else(|| client.connection_lost())?;
                last_event_at = Instant::now();
                let ServerMessage::Event(event) = message else { continue };
                if dialogue.handle_event(&serde_json::from_str(&event.text).unwrap_or_default())? {
                    return Ok(dialogue);
                }
            }
        }
    }
}

/// The samples up to the last sound.
fn audible(samples: &[i16]) -> &[i16] {
    &samples[..end_of_audible_samples(samples)]
}

impl<'s> Dialogue<'s> {
    /// True once the question was asked and a part of its answer was heard.
    fn should_interrupt(&self) -> bool {
        let is_due = self.answer_began_at.is_some_and(|at| at.elapsed() >= INTERRUPTED_AFTER);
        is_due && self.speech.is_empty() && !self.was_interrupted
    }

    /// The next 100 ms of the microphone, int16 little endian.
    fn next_chunk(&mut self) -> Vec<u8> {
        let (chunk, rest) = self.speech.split_at(self.speech.len().min(CHUNK_SAMPLES));
        self.speech = rest;
        if !chunk.is_empty() {
            self.silent_since = Some(Instant::now());
        }
        let mut bytes: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        bytes.resize(2 * CHUNK_SAMPLES, 0);
        bytes
    }

    /// Handles an event; returns true at the end of an answer that nothing interrupted.
    fn handle_event(&mut self, event: &Value) -> Result<bool, ClientError> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/type") {
            "response.created" => {
                self.answer = ModelAnswer::default();
                self.answer_began_at = None;
            }
            "response.output_audio.delta" => {
                self.answer.speech.push(&STANDARD.decode(text("/delta")).unwrap_or_default())?;
                self.answer_began_at.get_or_insert_with(Instant::now);
                let silent_since = self.silent_since;
                self.answer.latency = self.answer.latency.or_else(|| Some(silent_since?.elapsed()));
            }
            "response.output_audio_transcript.done" => text("/transcript").clone_into(&mut self.answer.text),
            "conversation.item.input_audio_transcription.completed" => {
                self.transcripts.push(text("/transcript").to_owned());
            }
            "error" => return Err(server_error(text("/error/code"), text("/error/message"))),
            "response.done" => match text("/response/status") {
                "failed" => {
                    return Err(server_error(
                        "response failed",
                        text("/response/status_details/error/message"),
                    ));
                }
                "cancelled" => self.answer_began_at = None,
                _ => return Ok(self.speech.is_empty()),
            },
            _ => {}
        }
        Ok(false)
    }
}
