//! The client half of `voxbridge demo`: plays a recording, collects its words, and has an answer spoken.
//!
//! It is an ordinary client: it knows nothing of the server behind the URL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::{Client, Target, Timing};
use super::error::ClientError;
use super::{speak, stream_recording, talk, text_chunks};

/// The recording that comes with the program: eleven seconds of J. F. Kennedy's inaugural address, 16 kHz mono.
pub const RECORDING: &[u8] = include_bytes!("../../examples/speech/jfk_16k.wav");

/// What came of a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// What was understood, utterance by utterance; empty if there was no speech.
    pub transcripts: Vec<String>,
    /// From the last audible sample to the last transcript.
    pub final_latency: Option<Duration>,
    /// The answer, if one was to be spoken.
    pub reply: Option<Reply>,
}

/// A spoken answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What was to be spoken, or what the model said by itself.
    pub text: String,
    /// The model said it by itself.
    pub by_itself: bool,
    /// How much audio came.
    pub duration: Duration,
    /// From the request, or from the last audible sample, to its first audio.
    pub first_audio: Duration,
    /// Where it is now.
    pub file: PathBuf,
}

/// Plays `wav_bytes` to the server at `url` and, with `speak_reply`, saves a spoken answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_client(
    url: &str,
    wav_bytes: Vec<u8>,
    speak_reply: bool,
    out: &Path,
) -> Result<Heard, ClientError> {
    run_client_timed(url, wav_bytes, speak_reply, out, Timing::default()).await
}

pub(super) async fn run_client_timed(
    url: &str,
    wav_bytes: Vec<u8>,
    speak_reply: bool,
    out: &Path,
    timing: Timing,
) -> Result<Heard, ClientError> {
    let samples = stream_recording::samples_of(&wav_bytes, "the recording")?;
    let target = Target { url: url.to_owned(), model: None, language: None, key: None };
    let (mut client, _) = Client::connect(&target, timing).await?;
    let heard = converse(&mut client, &samples, speak_reply, out).await;
    client.close(|_| {}).await;
    heard
}

/// Plays `wav_bytes` to a server that talks, and saves its answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_talk(url: &str, wav_bytes: &[u8], out: &Path) -> Result<Heard, ClientError> {
    let samples = stream_recording::samples_of(wav_bytes, "the recording")?;
    let target = Target { url: url.to_owned(), model: None, language: None, key: None };
    let (mut client, _) = Client::connect(&target, Timing::default()).await?;
    let answer = talk::ask(&mut client, &samples).await;
    client.close(|_| {}).await;
    let talk::Answer { words, speech, latency } = answer?;
    speak::save(out, &speech.wav()).await?;
    let (duration, file) = (speech.duration(), out.to_path_buf());
    let reply = Reply { text: words, by_itself: true, duration, first_audio: latency, file };
    Ok(Heard { transcripts: Vec::new(), final_latency: None, reply: Some(reply) })
}

async fn converse(
    client: &mut Client,
    samples: &[i16],
    speak_reply: bool,
    out: &Path,
) -> Result<Heard, ClientError> {
    let listened = stream_recording::listen(client, samples, |_| Ok(())).await?;
    let mut heard = Heard { transcripts: listened.finals, final_latency: listened.latency, reply: None };
    if speak_reply {
        heard.reply = Some(reply(client, &heard.transcripts, out).await?);
    }
    Ok(heard)
}

async fn reply(client: &mut Client, transcripts: &[String], out: &Path) -> Result<Reply, ClientError> {
    let text = match transcripts {
        [] => "I heard nothing.".to_owned(),
        some => format!("You said: {}", some.join(" ")),
    };
    // A demo of a long recording need not repeat all of it.
    let text = text_chunks::pieces(&text, text_chunks::PIECE_MAX_CHARS)
        .first()
        .map_or(String::new(), |&it| it.to_owned());
    let mut speech = speak::Speech::default();
    let first_audio = speak::say(client, &text, None, "demo", &mut speech).await?;
    speak::save(out, &speech.wav()).await?;
    Ok(Reply { text, by_itself: false, duration: speech.duration(), first_audio, file: out.to_path_buf() })
}
