//! `voxbridge talk`: a spoken question in, the model's spoken answer out as a WAV file.
//!
//! The server decides when it answers (profile `conversation`), so the microphone stays open until it has.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, interval};

use super::args::TalkArgs;
use super::client::{Client, Incoming, Target, Timing, printable, server_error};
use super::error::ClientError;
use super::server_events::ClientSeen;
use super::speak::{self, Speech};
use super::stream_recording::{self, FRAME_SAMPLES, SILENCE};
use super::{key, read_input, transcribe};

/// What the model answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Its words.
    pub(super) words: String,
    /// Its voice.
    pub(super) speech: Speech,
    /// From the last audible sample of the question to the first of the answer.
    pub(super) latency: Duration,
}

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TalkArgs) -> Result<(), ClientError> {
    let (bytes, what) = read_input::read(&args.file, transcribe::INPUT_MAX_BYTES).await?;
    let samples = stream_recording::samples_of(&bytes, &what)?;
    drop(bytes);
    speak::check_place(&args.output)?;
    let target = Target {
        url: args.url.clone(),
        model: args.model.clone(),
        language: None,
        key: key::shown(args.key.key_file.as_deref())?,
    };
    let (mut client, _) = Client::connect(&target, Timing::default()).await?;
    let answer = ask(&mut client, &samples).await;
    client.close(|_| {}).await;
    let answer = answer?;
    println!("{}", printable(&answer.words));
    speak::save(&args.output, &answer.speech.wav()).await?;
    report(&answer, &args.output);
    Ok(())
}

fn report(answer: &Answer, place: &Path) {
    eprintln!(
        "voxbridge: {:.1} s of speech in {}, the first of it {:.1} s after the question",
        answer.speech.duration().as_secs_f64(),
        place.display(),
        answer.latency.as_secs_f64()
    );
}

/// Plays a question as a microphone would, and waits until the answer to it has been heard. An answer that came too
/// early and was interrupted by the rest of the question does not count.
pub(super) async fn ask(client: &mut Client, samples: &[i16]) -> Result<Answer, ClientError> {
    let timing = *client.timing();
    let mut frames = samples.chunks(FRAME_SAMPLES);
    let (mut sent, question_end) = (0, stream_recording::last_audible(samples));
    let mut ticks = interval(timing.frame);
    let mut asked_at = None;
    let mut answer = Answer::default();
    let mut heard_at = Instant::now();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if sent >= samples.len() && heard_at.elapsed() > timing.answer {
                    return Err(ClientError::Stalled(timing.answer));
                }
                client.send_audio(frames.next().unwrap_or(&SILENCE)).await?;
                sent += FRAME_SAMPLES;
                if sent >= question_end {
                    asked_at.get_or_insert_with(Instant::now);
                }
                if sent < samples.len() {
                    heard_at = Instant::now();
                }
            }
            message = client.next() => {
                let message = message?.ok_or_else(|| ClientError::Lost(client.ending().to_owned()))?;
                heard_at = Instant::now();
                if answer.take(message, asked_at)? && sent >= samples.len() {
                    return Ok(answer);
                }
            }
        }
    }
}

impl Answer {
    /// Takes what the server says; whether an answer has been heard to its end.
    fn take(&mut self, message: Incoming, asked_at: Option<Instant>) -> Result<bool, ClientError> {
        let event = match message {
            Incoming::Audio(bytes) => {
                self.speech.push(&bytes)?;
                return Ok(false);
            }
            Incoming::Event(event) => event,
        };
        match event.seen {
            ClientSeen::SpeakingStarted { .. } => {
                self.speech = Speech::default();
                self.latency = asked_at.map_or(Duration::ZERO, |at| at.elapsed());
            }
            ClientSeen::Final { text, assistant: true, .. } => self.words = text,
            ClientSeen::SpeakingEnded { cancelled, .. } => return Ok(!cancelled),
            ClientSeen::Error { code, message, recoverable: false } => {
                return Err(server_error(&code, &message));
            }
            ClientSeen::Error { code, message, .. } => {
                eprintln!("voxbridge: {}", printable(&format!("the server reports {code}: {message}")));
            }
            ClientSeen::SessionClosed { reason } => {
                return Err(ClientError::Lost(format!("the server closed the session: {reason}")));
            }
            _ => {}
        }
        Ok(false)
    }
}
