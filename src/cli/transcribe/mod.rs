//! `voxbridge transcribe`: recordings in, their words out, as text, subtitles or JSON.
//!
//! - [`live`]: over the WebSocket of a Macaw server or of voxbridge, in real time
//! - [`upload`]: over the HTTP API of OpenAI, which voxbridge serves too
//! - [`rest_session`]: over a bridge in this process, as fast as the model allows

pub(super) mod live;
pub(super) mod rest_session;
pub(super) mod upload;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::args::{TranscribeArgs, TranscriptFormatArg};
use super::client::ClientTiming;
use super::clock::clock;
use super::dial::ServerTarget;
use super::error::ClientError;
use super::files::{self, FileJob};
use super::output::printable;
use super::output_file::{Destination, OutputFile};
use super::read_input::check_inputs;
use super::recording::Recording;
use super::target::Target;
use super::view::{FileView, Printed, Terminal};
use crate::media::transcript::{Segment, Task, Transcript, TranscriptFormat};

/// Result of a recording.
#[derive(Debug, Default)]
pub(super) struct Transcribed {
    /// The utterances in the order of speech.
    pub(super) segments: Vec<Segment>,
    /// Length of the recording.
    pub(super) duration: Duration,
    /// Why the transcript is incomplete.
    pub(super) problem: Option<ClientError>,
}

/// Runs the command until `stop` completes with the number of a signal.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TranscribeArgs, stop: impl Future<Output = u8>) -> Result<(), ClientError> {
    check_format(args)?;
    let destinations = Destination::for_inputs(&args.files, args.output.as_deref(), args.format.extension())?;
    check_inputs(&args.files)?;
    let transcribe_all = async |target: &Target| {
        check_target(args, target)?;
        transcribe_all(args, destinations, target).await
    };
    Target::open(&args.target).await?.work(stop, transcribe_all).await
}

fn check_format(args: &TranscribeArgs) -> Result<(), ClientError> {
    let is_subtitles = matches!(args.format, TranscriptFormatArg::Srt | TranscriptFormatArg::Vtt);
    if is_subtitles && args.files.len() > 1 && args.output.is_none() {
        let reason = "subtitles of several recordings need --output DIR";
        return Err(ClientError::Usage(reason.to_owned()));
    }
    Ok(())
}

fn check_target(args: &TranscribeArgs, target: &Target) -> Result<(), ClientError> {
    let reason = match target {
        Target::Live(_) if args.translate => "--translate needs --upstream or the http:// URL of a server",
        Target::Http(_) if args.json => {
            "--json needs a server by WebSocket; for JSON with times, use --format json"
        }
        _ => return Ok(()),
    };
    Err(ClientError::Usage(reason.to_owned()))
}

async fn transcribe_all(
    args: &TranscribeArgs,
    destinations: Vec<Destination>,
    target: &Target,
) -> Result<(), ClientError> {
    let terminal = Terminal::stderr();
    let inputs = args.files.iter().zip(destinations);
    let jobs = inputs.map(|(file, destination)| {
        let job = TranscribeJob { args, target, file, destination, terminal: &terminal };
        FileJob { name: files::input_name(file), work: job.run() }
    });
    // Lines of several recordings in progress would mix.
    let parallel = if args.json { 1 } else { args.jobs.map_or(target.parallel_files(), usize::from) };
    files::run_all(jobs.collect(), parallel, &terminal, "transcribed").await
}

/// The transcription of one recording.
struct TranscribeJob<'c> {
    args: &'c TranscribeArgs,
    target: &'c Target,
    file: &'c PathBuf,
    destination: Destination,
    terminal: &'c Terminal,
}

impl TranscribeJob<'_> {
    /// Transcribes the recording. Returns the text for standard output.
    async fn run(self) -> Result<String, ClientError> {
        let started_at = Instant::now();
        let transcribed = self.transcribe().await?;
        let Self { terminal, destination, .. } = &self;
        if transcribed.segments.is_empty() && transcribed.problem.is_none() {
            let found = match self.target {
                Target::Http(_) => "the server returned no words",
                Target::Local(_) | Target::Live(_) => "no speech was found in the recording",
            };
            terminal.print_message(format_args!("{}: {found}", self.name()));
        }
        let printed = match (self.printed(), destination) {
            (Printed::Nothing, Destination::Stdout) => self.format(&transcribed),
            (Printed::Nothing, file) => {
                OutputFile::write_all_to(file, self.format(&transcribed).as_bytes())?;
                let (length, took) = (clock(transcribed.duration), clock(started_at.elapsed()));
                terminal
                    .print_message(format_args!("{}: {length} of audio in {took}, in {file}", self.name()));
                String::new()
            }
            _ => String::new(),
        };
        match transcribed.problem {
            // The words before the damage are worth more than none.
            Some(problem) => {
                self.terminal.print(printed)?;
                Err(problem)
            }
            None => Ok(printed),
        }
    }

    fn name(&self) -> String {
        files::input_name(self.file)
    }

    async fn transcribe(&self) -> Result<Transcribed, ClientError> {
        let (args, task) = (self.args, self.task());
        match self.target {
            Target::Http(target) => {
                let needs_times = args.format != TranscriptFormatArg::Text;
                let request = upload::Request { task, language: args.language.clone(), needs_times };
                let mut view = self.view(None);
                upload::transcribe(target, &request, self.file, |progress| view.show(progress)).await
            }
            Target::Local(bridge) => {
                let recording = Recording::open(self.file).await?;
                let mut settings =
                    json!({"type": "configure", "task": task.name(), "partials": self.needs_partials()});
                if let Some(language) = &args.language {
                    settings["language"] = language.as_str().into();
                }
                let mut view = self.view(recording.expected_length);
                rest_session::transcribe(bridge, &settings, recording, |progress| view.show(progress)).await
            }
            Target::Live(server) => {
                let recording = Recording::open(self.file).await?;
                let target = ServerTarget { language: args.language.clone(), ..server.clone() };
                let mut view = self.view(recording.expected_length);
                let timing = ClientTiming::default();
                live::transcribe(&target, timing, recording, |progress| view.show(progress)).await
            }
        }
    }

    const fn task(&self) -> Task {
        if self.args.translate { Task::Translate } else { Task::Transcribe }
    }

    /// Words of unfinished utterances are only shown on a terminal or as events.
    const fn needs_partials(&self) -> bool {
        self.args.json || self.terminal.has_bars()
    }

    fn view(&self, length: Option<Duration>) -> FileView<io::Stdout> {
        self.terminal.file(&self.name(), length, self.printed(), io::stdout())
    }

    /// The words of a single recording are printed as they come.
    fn printed(&self) -> Printed {
        let is_text = self.args.format == TranscriptFormatArg::Text;
        match (self.args.json, &self.destination) {
            (true, _) => Printed::Events,
            (false, Destination::Stdout) if is_text && self.args.files.len() == 1 => Printed::Words,
            _ => Printed::Nothing,
        }
    }

    /// The transcript in the format asked for.
    fn format(&self, transcribed: &Transcribed) -> String {
        let Transcribed { segments, duration, .. } = transcribed;
        let transcript = Transcript { segments, duration: *duration, task: self.task(), wants_words: true };
        let is_one_of_several = self.args.files.len() > 1;
        match self.args.format {
            TranscriptFormatArg::Text => {
                let lines: String =
                    segments.iter().map(|segment| printable(segment.text.trim()) + "\n").collect();
                match is_one_of_several && self.destination == Destination::Stdout {
                    true => format!("==> {} <==\n{lines}", self.name()),
                    false => lines,
                }
            }
            TranscriptFormatArg::Srt => transcript.write(TranscriptFormat::Srt),
            TranscriptFormatArg::Vtt => transcript.write(TranscriptFormat::Vtt),
            TranscriptFormatArg::Json => {
                let mut json = transcript.verbose();
                if is_one_of_several {
                    json["file"] = self.name().into();
                }
                format!("{json}\n")
            }
        }
    }
}
