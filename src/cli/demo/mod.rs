//! Client half of `voxbridge demo`: sends a recording, collects the transcripts and requests a spoken answer.
//!
//! It is an ordinary client and knows nothing about the server behind the URL. [`openai`] is the client of another protocol.

pub mod openai;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::audio::SPEECH_RATE_HZ;
use crate::cli::client::{Client, ClientTiming};
use crate::cli::dial::ServerTarget;
use crate::cli::error::ClientError;
use crate::cli::output_file::{Destination, OutputFile};
use crate::cli::recording::Recording;
use crate::cli::speak::{CHUNK_MAX_CHARS, live::speak_part};
use crate::cli::speech_audio::SpeechAudio;
use crate::cli::stream_recording::{StreamProgress, end_of_audible_samples};
use crate::cli::{stream_recording, talk};
use crate::session::tts::text_normalization::split_parts;

/// Built-in recording, which the playground plays as well.
pub use crate::server::playground::RECORDING;

/// Name of the recording in messages.
const RECORDING_NAME: &str = "the recording";

/// Result of a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoResult {
    /// Transcripts, one per utterance; empty if there was no speech.
    pub transcripts: Vec<String>,
    /// Time from the last audible sample to the last transcript.
    pub final_latency: Option<Duration>,
    /// The spoken answer.
    pub reply: SpokenReply,
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

impl SpokenReply {
    /// Saves an answer in `out`.
    fn save(
        text: String,
        speech: &SpeechAudio,
        first_audio: Duration,
        is_unprompted: bool,
        out: &Path,
    ) -> Result<Self, ClientError> {
        OutputFile::write_all_to(&Destination::of(out), &speech.to_wav())?;
        Ok(Self { text, is_unprompted, duration: speech.duration(), first_audio, file: out.to_path_buf() })
    }
}

/// Sends the recording `wav_bytes` to the server at `url` and saves a spoken answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_speech_demo(
    url: &str,
    wav_bytes: Vec<u8>,
    out: &Path,
    timing: ClientTiming,
) -> Result<DemoResult, ClientError> {
    let wav_bytes = Bytes::from(wav_bytes);
    let speech_end = end_of_audible_samples(&read_recording(wav_bytes.clone()).await?);
    let recording = Recording::decode(wav_bytes, RECORDING_NAME)?;
    let target = ServerTarget { url: url.to_owned(), ..ServerTarget::default() };
    let (mut client, _) = Client::connect(&target, timing).await?;
    let result = transcribe_and_reply(&mut client, recording, speech_end, out).await;
    client.close(|_| {}).await;
    result
}

/// Sends the question `wav_bytes` to a conversational server and saves its answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_conversation_demo(
    url: &str,
    wav_bytes: Vec<u8>,
    out: &Path,
) -> Result<DemoResult, ClientError> {
    let samples = read_recording(wav_bytes).await?;
    let target = ServerTarget { url: url.to_owned(), ..ServerTarget::default() };
    let (mut client, _) = Client::connect(&target, ClientTiming::default()).await?;
    let answer = talk::ask_question(&mut client, &samples).await;
    client.close(|_| {}).await;
    let talk::SpokenAnswer { text, speech, latency } = answer?;
    let reply = SpokenReply::save(text, &speech, latency, true, out)?;
    Ok(DemoResult { transcripts: Vec::new(), final_latency: None, reply })
}

/// Decodes the whole recording to int16 mono at 16 kHz.
async fn read_recording(bytes: impl Into<Bytes>) -> Result<Vec<i16>, ClientError> {
    Recording::decode(bytes, RECORDING_NAME)?.read_all().await
}

async fn transcribe_and_reply(
    client: &mut Client,
    recording: Recording,
    speech_end: usize,
    out: &Path,
) -> Result<DemoResult, ClientError> {
    let (transcripts, final_latency) = transcribe_live(client, recording, speech_end).await?;
    let reply = speak_reply(client, &transcripts, out).await?;
    Ok(DemoResult { transcripts, final_latency, reply })
}

/// Transcribes a recording in real time. Returns also the time from its last audible sample, which has the number `speech_end`, to
/// the last transcript.
pub(in crate::cli) async fn transcribe_live(
    client: &mut Client,
    mut recording: Recording,
    speech_end: usize,
) -> Result<(Vec<String>, Option<Duration>), ClientError> {
    let speech_end = Duration::from_secs_f64(speech_end as f64 / f64::from(SPEECH_RATE_HZ));
    let (mut speech_end_at, mut final_latency) = (None, None);
    let on_progress = |progress: StreamProgress<'_>| {
        match progress {
            StreamProgress::Sent(position) if position >= speech_end => {
                speech_end_at.get_or_insert_with(Instant::now);
            }
            StreamProgress::Event(event) if event.event.has_words() => {
                final_latency = speech_end_at.map(|at: Instant| at.elapsed());
            }
            _ => {}
        }
        Ok(())
    };
    let transcription = stream_recording::stream_and_transcribe(client, &mut recording, on_progress).await?;
    Ok((transcription.texts(), final_latency))
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
    let text = split_parts(&text, CHUNK_MAX_CHARS).into_iter().next().unwrap_or_default();
    let mut speech = SpeechAudio::default();
    let first_audio = speak_part(client, &text, None, "demo", |audio| speech.push(audio)).await?;
    SpokenReply::save(text, &speech, first_audio, false, out)
}
