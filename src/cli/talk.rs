//! `voxbridge talk`: sends a spoken question and saves the model's spoken answer as a WAV file.
//!
//! The server decides when to answer (profile `conversation`), so the client sends audio until the answer is complete.

use std::time::Duration;

use tokio::time::{Instant, interval};

use super::args::TalkArgs;
use super::client::{Client, ClientTiming, ServerMessage, server_error};
use super::error::ClientError;
use super::output;
use super::output_file::{Destination, OutputFile};
use super::recording::{FRAME_SAMPLES, Recording};
use super::server_events::MacawEvent;
use super::speech_audio::SpeechAudio;
use super::stream_recording::{self, SILENT_FRAME, TRAILING_SILENCE_SAMPLES};

/// Answer of the model.
#[derive(Debug, Default)]
pub(super) struct SpokenAnswer {
    /// Text of the answer.
    pub(super) text: String,
    /// Audio of the answer.
    pub(super) speech: SpeechAudio,
    /// Time from the last audible sample of the question to the start of the answer.
    pub(super) latency: Duration,
}

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TalkArgs) -> Result<(), ClientError> {
    let samples = Recording::open(&args.file).await?.read_all().await?;
    let destination = Destination::of(&args.output);
    destination.check()?;
    let target = args.server.target()?;
    let (mut client, _) = Client::connect(&target, ClientTiming::default()).await?;
    let answer = match client.only_transcribes() {
        true => Err(ClientError::NoConversation),
        false => ask_question(&mut client, &samples).await,
    };
    client.close(|_| {}).await;
    let answer = answer?;
    OutputFile::write_all_to(&destination, &answer.speech.to_wav())?;
    print_summary(&answer, &destination);
    match destination == Destination::Stdout {
        // Standard output holds the WAV file.
        true => output::print_message(output::printable(&answer.text)),
        false => output::print_line(output::printable(&answer.text))?,
    }
    Ok(())
}

fn print_summary(answer: &SpokenAnswer, destination: &Destination) {
    output::print_message(format_args!(
        "{:.1} s of speech in {}, starting {:.1} s after the question",
        answer.speech.duration().as_secs_f64(),
        destination,
        answer.latency.as_secs_f64()
    ));
}

/// Sends a question in real time and waits for the complete answer. An early answer that the rest of the question
/// interrupted does not count.
pub(super) async fn ask_question(client: &mut Client, samples: &[i16]) -> Result<SpokenAnswer, ClientError> {
    let timing = *client.timing();
    let mut frames = samples.chunks(FRAME_SAMPLES);
    let (mut sent, question_end) = (0, stream_recording::end_of_audible_samples(samples));
    let mut ticks = interval(timing.frame_interval);
    let mut question_ended_at = None;
    let mut answer = SpokenAnswer::default();
    let mut last_message_at = Instant::now();
    let mut transcribed_at: Option<Instant> = None;
    let mut waiting = WaitState::default();
    let mut utterances = Utterances::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if sent >= samples.len() && last_message_at.elapsed() > timing.answer_timeout {
                    return Err(ClientError::Stalled(timing.answer_timeout));
                }
                let is_transcribed = sent >= question_end + TRAILING_SILENCE_SAMPLES && utterances.are_only_transcribed();
                let is_unanswered = transcribed_at.is_some_and(|at| at.elapsed() > timing.transcript_only_timeout);
                if sent >= samples.len() && (is_transcribed || is_unanswered) {
                    return Err(ClientError::NoConversation);
                }
                if sent >= samples.len() {
                    waiting.check(&timing)?;
                }
                client.send_audio(frames.next().unwrap_or(&SILENT_FRAME)).await?;
                sent += FRAME_SAMPLES;
                if sent >= question_end {
                    question_ended_at.get_or_insert_with(Instant::now);
                }
                if sent < samples.len() {
                    last_message_at = Instant::now();
                }
            }
            message = client.next() => {
                let message = message?.ok_or_else(|| client.connection_lost())?;
                last_message_at = Instant::now();
                if let ServerMessage::Event(event) = &message {
                    waiting.note(&event.event);
                    utterances.note(&event.event);
                }
                match &message {
                    ServerMessage::Event(event) if event.event.is_user_transcript() => {
                        transcribed_at = Some(last_message_at);
                    }
                    ServerMessage::Event(event) if event.event.begins_answer() => transcribed_at = None,
                    _ => {}
                }
                if answer.handle_message(message, question_ended_at)? && sent >= samples.len() {
                    return Ok(answer);
                }
            }
        }
    }
}

/// The server's progress with the question.
#[derive(Default)]
struct Utterances {
    started: usize,
    ended: usize,
    /// Transcripts that do not say whose words they are, as of servers that only transcribe.
    unlabelled: usize,
}

impl Utterances {
    fn note(&mut self, event: &MacawEvent) {
        match event {
            MacawEvent::SpeechStarted { .. } => self.started += 1,
            MacawEvent::SpeechEnded { .. } => self.ended += 1,
            MacawEvent::Final { is_labelled: false, .. } => self.unlabelled += 1,
            _ => {}
        }
    }

    /// True if a server that only transcribes has transcribed all utterances, so that nothing more comes.
    const fn are_only_transcribed(&self) -> bool {
        self.unlabelled > 0 && self.unlabelled >= self.ended && self.started == self.ended
    }
}

/// State of an answer that does not come.
#[derive(Default)]
struct WaitState {
    /// When the whole question was sent.
    since: Option<Instant>,
    /// The server has heard the question, or has said that it waits.
    is_heard: bool,
    is_answering: bool,
    is_reported: bool,
}

impl WaitState {
    fn note(&mut self, event: &MacawEvent) {
        self.is_heard |= event.shows_progress();
        self.is_answering |= event.begins_answer();
    }

    /// Once the whole question is sent: after a while, reports an answer that is missing, and fails if the server has not
    /// even heard the question.
    fn check(&mut self, timing: &ClientTiming) -> Result<(), ClientError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.is_answering || self.is_reported || since.elapsed() <= timing.unanswered_timeout {
            return Ok(());
        }
        if !self.is_heard {
            return Err(ClientError::NotHeard(timing.unanswered_timeout));
        }
        self.is_reported = true;
        output::print_message(format_args!(
            "the server hears the question but has not answered for {} s; its model may be busy or out of reach; waiting up \
             to {} s",
            timing.unanswered_timeout.as_secs_f64(),
            timing.answer_timeout.as_secs_f64()
        ));
        Ok(())
    }
}

impl SpokenAnswer {
    /// Handles a message; returns `true` at the end of a complete answer.
    fn handle_message(
        &mut self,
        message: ServerMessage,
        question_ended_at: Option<Instant>,
    ) -> Result<bool, ClientError> {
        let event = match message {
            ServerMessage::Audio(bytes) => {
                self.speech.push(&bytes)?;
                return Ok(false);
            }
            ServerMessage::Event(event) => event,
        };
        match event.event {
            MacawEvent::SpeakingStarted { .. } => {
                self.speech = SpeechAudio::default();
                self.latency = question_ended_at.map_or(Duration::ZERO, |at| at.elapsed());
            }
            MacawEvent::Final { text, assistant: true, .. } => self.text = text,
            MacawEvent::SpeakingEnded { cancelled, .. } => return Ok(!cancelled),
            MacawEvent::Error { code, message, recoverable: false } => {
                return Err(server_error(&code, &message));
            }
            MacawEvent::SessionClosed { reason } => {
                return Err(ClientError::session_closed(&reason));
            }
            event => event.notice().iter().for_each(output::print_message),
        }
        Ok(false)
    }
}
