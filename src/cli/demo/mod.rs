//! Client half of `voxbridge demo`: sends a recording, collects the transcripts and requests a spoken answer.
//!
//! It is an ordinary client and knows nothing about the server behind the URL. [`openai`] is the client of another protocol.

pub mod openai;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::client::{Client, ClientTiming};
use crate::cli::dial::ServerTarget;
use crate::cli::error::ClientError;
use crate::cli::{speak, stream_recording, talk};
use crate::session::tts::text_normalization::split_parts;

/// Built-in recording, which the playground plays as well.
pub use crate::server::playground::RECORDING;

/// Result of a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoResult {
    /// Transcripts, one per utterance; empty if there was no speech.
    pub transcripts: Vec<String>,
    /// Time from the last audible sample to the last transcript.
    pub final_latency: Option<Duration>,
    /// The spoken answer, if one was requested.
    pub reply: Option<SpokenReply>,
}

/// Spoken answer of a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpokenReply {
    /// Text of the answer: the requested text, or the words of the model.
    pub text: String,
    /// True if the model answered by itself, in a conversation.
    pub is_unprompted: bool,
    /// Duration of the audio.
    pub duration: Duration,
    /// Time from the request, or from the last audible sample, to the first audio.
    pub first_audio: Duration,
    /// WAV file with the answer.
    pub file: PathBuf,
}

/// Sends the recording `wav_bytes` to the server at `url`. With `needs_reply`, saves a spoken answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_speech_demo(
    url: &str,
    wav_bytes: Vec<u8>,
    needs_reply: bool,
    out: &Path,
) -> Result<DemoResult, ClientError> {
    run_speech_demo_with_timing(url, wav_bytes, needs_reply, out, ClientTiming::default()).await
}

pub(in crate::cli) async fn run_speech_demo_with_timing(
    url: &str,
    wav_bytes: Vec<u8>,
    needs_reply: bool,
    out: &Path,
    timing: ClientTiming,
) -> Result<DemoResult, ClientError> {
    let samples = stream_recording::decode_wav(&wav_bytes, "the recording")?;
    let target = ServerTarget { url: url.to_owned(), ..ServerTarget::default() };
    let (mut client, _) = Client::connect(&target, timing).await?;
    let result = transcribe_and_reply(&mut client, &samples, needs_reply, out).await;
    client.close(|_| {}).await;
    result
}

/// Sends the question `wav_bytes` to a conversational server and saves its answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_conversation_demo(
    url: &str,
    wav_bytes: &[u8],
    out: &Path,
) -> Result<DemoResult, ClientError> {
    let samples = stream_recording::decode_wav(wav_bytes, "the recording")?;
    let target = ServerTarget { url: url.to_owned(), ..ServerTarget::default() };
    let (mut client, _) = Client::connect(&target, ClientTiming::default()).await?;
    let answer = talk::ask_question(&mut client, &samples).await;
    client.close(|_| {}).await;
    let talk::SpokenAnswer { text, speech, latency } = answer?;
    speak::write_output(out, &speech.to_wav()).await?;
    let (duration, file) = (speech.duration(), out.to_path_buf());
    let reply = SpokenReply { text, is_unprompted: true, duration, first_audio: latency, file };
    Ok(DemoResult { transcripts: Vec::new(), final_latency: None, reply: Some(reply) })
}

async fn transcribe_and_reply(
    client: &mut Client,
    samples: &[i16],
    needs_reply: bool,
    out: &Path,
) -> Result<DemoResult, ClientError> {
    let transcription = stream_recording::stream_and_transcribe(client, samples, |_| Ok(())).await?;
    let mut result = DemoResult {
        transcripts: transcription.finals,
        final_latency: transcription.final_latency,
        reply: None,
    };
    if needs_reply {
        result.reply = Some(speak_reply(client, &result.transcripts, out).await?);
    }
    Ok(result)
}

async fn speak_reply(
    client: &mut Client,
    transcripts: &[String],
    out: &Path,
) -> Result<SpokenReply, ClientError> {
    let text = match transcripts {
        [] => "I heard nothing.".to_owned(),
        spoken => format!("You said: {}", spoken.join(" ")),
    };
    // A demo of a long recording need not repeat all of it.
    let text = split_parts(&text, speak::CHUNK_MAX_CHARS).into_iter().next().unwrap_or_default();
    let mut speech = speak::SpeechAudio::default();
    let first_audio = speak::speak_chunk(client, &text, None, "demo", &mut speech).await?;
    speak::write_output(out, &speech.to_wav()).await?;
    Ok(SpokenReply {
        text,
        is_unprompted: false,
        duration: speech.duration(),
        first_audio,
        file: out.to_path_buf(),
    })
}
