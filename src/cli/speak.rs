//! `voxbridge speak`: synthesizes a text on a server and saves the speech as a WAV file.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval, sleep_until};

use crate::audio::{MODEL_RATE_HZ, wav};
use crate::session::tts::text_normalization::split_parts;

use super::args::SpeakArgs;
use super::client::{Client, ClientTiming, ServerMessage, server_error};
use super::dial::ServerTarget;
use super::error::ClientError;
use super::output;
use super::read_input;
use super::server_events::MacawEvent;

/// Maximum characters of a `tts.speak` (Macaw field notes §1.4).
pub(super) const CHUNK_MAX_CHARS: usize = 4096;

/// Upper bound of a text from standard input; hours of speech.
const STDIN_TEXT_MAX_BYTES: u64 = 1 << 20;

/// Upper bound of received audio: three hours of speech, more than any text needs.
const AUDIO_MAX_BYTES: usize = 3 * 3600 * 2 * MODEL_RATE_HZ as usize;

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &SpeakArgs) -> Result<(), ClientError> {
    let text = if args.text == "-" { read_standard_input().await? } else { args.text.clone() };
    check_directory_exists(&args.output)?;
    let target = args.server.target()?;
    let mut speech = SpeechAudio::default();
    let result = speak(&target, ClientTiming::default(), &text, args.voice.as_deref(), &mut speech).await;
    // Audio received before an error is worth keeping.
    if !speech.bytes.is_empty() {
        write_output(&args.output, &speech.to_wav()).await?;
        output::print_message(format_args!(
            "{:.1} s of speech in {}",
            speech.duration().as_secs_f64(),
            destination_name(&args.output)
        ));
    }
    result
}

/// Name of the output for messages; `-` is standard output.
pub(super) fn destination_name(output: &Path) -> std::path::Display<'_> {
    if output == Path::new("-") { Path::new("standard output") } else { output }.display()
}

/// Speaks the whole text in one session and collects the audio, without terminal and files.
pub(super) async fn speak(
    target: &ServerTarget,
    timing: ClientTiming,
    text: &str,
    voice: Option<&str>,
    speech: &mut SpeechAudio,
) -> Result<(), ClientError> {
    let chunks = split_parts(text, CHUNK_MAX_CHARS);
    if chunks.is_empty() {
        return Err(ClientError::InvalidText("there is no text to speak".to_owned()));
    }
    let (mut client, _) = Client::connect(target, timing).await?;
    let mut result = Ok(());
    for (number, chunk) in chunks.into_iter().enumerate() {
        // A second request would cancel a running one (field notes §1.8), so requests are sequential.
        result =
            speak_chunk(&mut client, &chunk, voice, &format!("speak_{number}"), speech).await.map(|_| ());
        if result.is_err() {
            break;
        }
    }
    client.close(|_| {}).await;
    result
}

/// Received speech: int16 little endian at [`MODEL_RATE_HZ`]. Messages may split samples.
#[derive(Debug, Default)]
pub(super) struct SpeechAudio {
    bytes: Vec<u8>,
}

impl SpeechAudio {
    /// Appends audio.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.bytes.len() + bytes.len() > AUDIO_MAX_BYTES {
            return Err(ClientError::TooMuchAudio(AUDIO_MAX_BYTES));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Duration of the audio.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.bytes.len() as f64 / f64::from(2 * MODEL_RATE_HZ))
    }

    /// Converts the audio to a WAV file.
    pub(super) fn to_wav(&self) -> Vec<u8> {
        let samples: Vec<i16> =
            self.bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        wav::write_s16(&samples, MODEL_RATE_HZ)
    }
}

/// Speaks one text, appends its audio to `speech` and returns the time to the first audio.
pub(super) async fn speak_chunk(
    client: &mut Client,
    text: &str,
    voice: Option<&str>,
    request_id: &str,
    speech: &mut SpeechAudio,
) -> Result<Duration, ClientError> {
    let mut command = json!({"type": "tts.speak", "text": text, "request_id": request_id});
    if let Some(voice) = voice {
        command["voice"] = json!(voice);
    }
    client.send_command(&command).await?;

    let timing = *client.timing();
    let requested_at = Instant::now();
    let mut last_message_at = requested_at;
    let mut first_audio = None;
    let mut error_while_speaking = None;
    let mut started = false;
    let mut keep_alive_ticks = interval(timing.keep_alive_interval);
    keep_alive_ticks.reset();
    loop {
        let message = tokio::select! {
            message = client.next() => message?,
            _ = keep_alive_ticks.tick() => {
                client.send_keep_alive().await?;
                continue;
            }
            () = sleep_until(last_message_at + timing.answer_timeout) => return Err(ClientError::Stalled(timing.answer_timeout)),
        };
        last_message_at = Instant::now();
        match message {
            Some(ServerMessage::Audio(bytes)) => {
                if !bytes.is_empty() {
                    first_audio.get_or_insert_with(|| requested_at.elapsed());
                }
                speech.push(&bytes)?;
            }
            Some(ServerMessage::Event(event)) => match event.event {
                MacawEvent::SpeakingStarted { request_id: id }
                    if is_same_request(id.as_deref(), request_id) =>
                {
                    started = true;
                }
                MacawEvent::SpeakingEnded { request_id: id, cancelled }
                    if is_same_request(id.as_deref(), request_id) =>
                {
                    return match (error_while_speaking, first_audio) {
                        (Some(error), _) => Err(error),
                        (None, _) if cancelled => {
                            Err(ClientError::ConnectionLost("the server stopped speaking".to_owned()))
                        }
                        (None, Some(latency)) => Ok(latency),
                        (None, None) => Err(ClientError::NoAudio),
                    };
                }
                MacawEvent::Error { code, message, recoverable } => {
                    let error = server_error(&code, &message);
                    // After `tts.speaking_start`, `tts.speaking_end` still follows, maybe after more audio (field notes §1.5).
                    if !(started && recoverable) {
                        return Err(error);
                    }
                    error_while_speaking = Some(error);
                }
                MacawEvent::SessionClosed { reason } => {
                    return Err(ClientError::session_closed(&reason));
                }
                event => event.notice().iter().for_each(output::print_message),
            },
            None => return Err(client.connection_lost()),
        }
    }
}

/// True if the event belongs to this request. Servers that follow the protocol page send no request id.
fn is_same_request(event_request_id: Option<&str>, request_id: &str) -> bool {
    event_request_id.is_none_or(|event_request_id| event_request_id == request_id)
}

/// Writes to a file, or to standard output for `-`.
pub(super) async fn write_output(destination: &Path, bytes: &[u8]) -> Result<(), ClientError> {
    let failed =
        |reason: io::Error| ClientError::UnwritableOutput { destination: destination.to_path_buf(), reason };
    if destination == Path::new("-") {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(ClientError::unwritable_stdout);
    }
    tokio::fs::write(destination, bytes).await.map_err(failed)
}

/// Rejects a missing output directory before minutes of speech would be lost.
pub(super) fn check_directory_exists(destination: &Path) -> Result<(), ClientError> {
    let directory = match destination.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => return Ok(()),
    };
    if directory.is_dir() {
        return Ok(());
    }
    let reason = io::Error::new(io::ErrorKind::NotFound, "there is no such directory");
    Err(ClientError::UnwritableOutput { destination: PathBuf::from(destination), reason })
}

async fn read_standard_input() -> Result<String, ClientError> {
    let (bytes, _) = read_input::read_input(Path::new("-"), STDIN_TEXT_MAX_BYTES).await?;
    String::from_utf8(bytes).map_err(|_| ClientError::InvalidText("the text is not UTF-8".to_owned()))
}
