//! `voxbridge speak`: a text in, its sound out as a WAV file.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval, sleep_until};

use crate::audio::{MODEL_RATE_HZ, wav};

use super::args::SpeakArgs;
use super::client::{Client, Incoming, Target, Timing, server_error};
use super::error::ClientError;
use super::server_events::ClientSeen;
use super::text_chunks::{PIECE_MAX_CHARS, pieces};
use super::{key, read_input};

/// Longest text from standard input; hours of speech.
const TEXT_MAX_BYTES: u64 = 1 << 20;

/// Three hours of speech; a server that sends more is not speaking a text.
const AUDIO_MAX_BYTES: usize = 3 * 3600 * 2 * MODEL_RATE_HZ as usize;

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &SpeakArgs) -> Result<(), ClientError> {
    let text = if args.text == "-" { standard_input().await? } else { args.text.clone() };
    check_place(&args.output)?;
    let target = Target {
        url: args.url.clone(),
        model: args.model.clone(),
        language: None,
        key: key::shown(args.key.key_file.as_deref())?,
    };
    let mut speech = Speech::default();
    let spoken = speak(&target, Timing::default(), &text, args.voice.as_deref(), &mut speech).await;
    // What was heard until an error is worth keeping.
    if !speech.bytes.is_empty() {
        save(&args.output, &speech.wav()).await?;
        let place = if args.output == Path::new("-") { Path::new("standard output") } else { &args.output };
        eprintln!("voxbridge: {:.1} s of speech in {}", speech.duration().as_secs_f64(), place.display());
    }
    spoken
}

/// Everything but the terminal and the file: a session in which the whole text is spoken.
pub(super) async fn speak(
    target: &Target,
    timing: Timing,
    text: &str,
    voice: Option<&str>,
    speech: &mut Speech,
) -> Result<(), ClientError> {
    let pieces = pieces(text, PIECE_MAX_CHARS);
    if pieces.is_empty() {
        return Err(ClientError::BadText("there is no text to speak".to_owned()));
    }
    let (mut client, _) = Client::connect(target, timing).await?;
    let mut spoken = Ok(());
    for (number, piece) in pieces.into_iter().enumerate() {
        // One after the other: a second request would silence the first (field notes §1.8).
        spoken = say(&mut client, piece, voice, &format!("speak_{number}"), speech).await.map(|_| ());
        if spoken.is_err() {
            break;
        }
    }
    client.close(|_| {}).await;
    spoken
}

/// What was heard: int16 little endian at [`MODEL_RATE_HZ`], whatever the pieces were cut like.
#[derive(Debug, Default)]
pub(super) struct Speech {
    bytes: Vec<u8>,
}

impl Speech {
    /// Takes audio in.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.bytes.len() + bytes.len() > AUDIO_MAX_BYTES {
            return Err(ClientError::TooMuchAudio(AUDIO_MAX_BYTES));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// How long it is.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.bytes.len() as f64 / f64::from(2 * MODEL_RATE_HZ))
    }

    /// As a WAV file.
    pub(super) fn wav(&self) -> Vec<u8> {
        let samples: Vec<i16> =
            self.bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
        wav::write_s16(&samples, MODEL_RATE_HZ)
    }
}

/// Has one text spoken, appends what is heard, and returns how long the first audio took.
pub(super) async fn say(
    client: &mut Client,
    text: &str,
    voice: Option<&str>,
    request_id: &str,
    speech: &mut Speech,
) -> Result<Duration, ClientError> {
    let mut command = json!({"type": "tts.speak", "text": text, "request_id": request_id});
    if let Some(voice) = voice {
        command["voice"] = json!(voice);
    }
    client.command(&command).await?;

    let timing = *client.timing();
    let asked_at = Instant::now();
    let mut last_at = asked_at;
    let mut first_audio = None;
    let mut broken = None;
    let mut started = false;
    let mut beats = interval(timing.keep_alive);
    beats.reset();
    loop {
        let message = tokio::select! {
            message = client.next() => message?,
            _ = beats.tick() => {
                client.keep_alive().await?;
                continue;
            }
            () = sleep_until(last_at + timing.answer) => return Err(ClientError::Stalled(timing.answer)),
        };
        last_at = Instant::now();
        match message {
            Some(Incoming::Audio(bytes)) => {
                if !bytes.is_empty() {
                    first_audio.get_or_insert_with(|| asked_at.elapsed());
                }
                speech.push(&bytes)?;
            }
            Some(Incoming::Event(event)) => match event.seen {
                ClientSeen::SpeakingStarted { request_id: id } if is_ours(id.as_deref(), request_id) => {
                    started = true;
                }
                ClientSeen::SpeakingEnded { request_id: id, cancelled }
                    if is_ours(id.as_deref(), request_id) =>
                {
                    return match (broken, first_audio) {
                        (Some(error), _) => Err(error),
                        (None, _) if cancelled => {
                            Err(ClientError::Lost("the server stopped speaking".to_owned()))
                        }
                        (None, Some(latency)) => Ok(latency),
                        (None, None) => Err(ClientError::NoAudio),
                    };
                }
                ClientSeen::Error { code, message, recoverable } => {
                    let error = server_error(&code, &message);
                    // Once it speaks, `tts.speaking_end` still follows, maybe after more audio (field notes §1.5).
                    if !(started && recoverable) {
                        return Err(error);
                    }
                    broken = Some(error);
                }
                ClientSeen::SessionClosed { reason } => {
                    return Err(ClientError::Lost(format!("the server closed the session: {reason}")));
                }
                _ => {}
            },
            None => return Err(ClientError::Lost(client.ending().to_owned())),
        }
    }
}

/// Servers of the protocol page do not name the request.
fn is_ours(named: Option<&str>, request_id: &str) -> bool {
    named.is_none_or(|named| named == request_id)
}

/// Writes to a file, or to standard output for `-`.
pub(super) async fn save(place: &Path, bytes: &[u8]) -> Result<(), ClientError> {
    let failed = |why: io::Error| ClientError::Output { what: place.to_path_buf(), why };
    if place == Path::new("-") {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(ClientError::stdout);
    }
    tokio::fs::write(place, bytes).await.map_err(failed)
}

/// Finds a wrong directory before minutes of speech are lost to it.
pub(super) fn check_place(place: &Path) -> Result<(), ClientError> {
    let directory = match place.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => return Ok(()),
    };
    if directory.is_dir() {
        return Ok(());
    }
    let why = io::Error::new(io::ErrorKind::NotFound, "there is no such directory");
    Err(ClientError::Output { what: PathBuf::from(place), why })
}

async fn standard_input() -> Result<String, ClientError> {
    let (bytes, _) = read_input::read(Path::new("-"), TEXT_MAX_BYTES).await?;
    String::from_utf8(bytes).map_err(|_| ClientError::BadText("the text is not UTF-8".to_owned()))
}
