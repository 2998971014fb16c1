//! `voxbridge transcribe`: recordings in, their words out, as text, subtitles or JSON.
//!
//! - [`live`]: over the WebSocket of a Macaw server or of voxbridge, in real time
//! - [`upload`]: over the HTTP API of OpenAI, which voxbridge serves too
//! - [`rest_session`]: over a bridge in this process, as fast as the model allows
//! - [`output`]: writes a transcript as it comes; [`journal`]: keeps what is needed to go on after an interruption
//! - [`existing`]: finds transcripts that are there already

mod existing;
mod journal;
pub(super) mod live;
mod output;
pub(super) mod rest_session;
pub(super) mod upload;

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use self::existing::Found;
use self::journal::Subject;
use self::output::{Form, TranscriptOutput};
use super::args::{TranscribeArgs, TranscriptFormatArg};
use super::client::ClientTiming;
use super::clock::clock;
use super::dial::ServerTarget;
use super::ending::Ending;
use super::error::ClientError;
use super::files::{self, FileJob};
use super::inputs::{FolderFiles, Input};
use super::output_file::Destination;
use super::read_input::check_inputs;
use super::recording::Recording;
use super::target::Target;
use super::view::{FileView, Printed, Progress, Terminal, speed};
use crate::media::transcript::cues::CueRules;
use crate::media::transcript::{Segment, Task, WordList};
use crate::vocabulary::Setting;

/// Endings of the names of recordings, in folders.
const RECORDING_ENDINGS: &[&str] = &[
    "wav", "mp3", "m4a", "m4b", "mp4", "m4v", "mov", "aac", "webm", "mkv", "mka", "ogg", "oga", "opus",
    "flac", "aif", "aiff", "aifc", "caf", "mp2",
];

/// Result of a recording.
#[derive(Debug, Default)]
pub(super) struct Transcribed {
    /// The utterances in the order of speech.
    pub(super) segments: Vec<Segment>,
    /// Length of the recording.
    pub(super) duration: Duration,
    /// Where the first utterance begins whose transcript is empty.
    pub(super) wordless_from: Option<Duration>,
    /// The first utterance that was not transcribed.
    pub(super) failure: Option<ClientError>,
    /// Why the transcript ends before the recording.
    pub(super) problem: Option<ClientError>,
}

impl Transcribed {
    /// True if the model has answered, even without words.
    const fn has_answers(&self) -> bool {
        !self.segments.is_empty() || self.wordless_from.is_some()
    }

    /// Why a transcript of this many utterances, with this many gaps, is incomplete.
    pub(super) fn into_problem(self, utterances: usize, gaps: usize) -> Option<ClientError> {
        let has_answers = utterances > 0 || self.has_answers();
        let Self { wordless_from, failure, problem, .. } = self;
        let gaps_problem = (gaps > 0).then_some(ClientError::Gaps { gaps, utterances });
        let no_words = wordless_from.filter(|_| utterances == 0);
        problem
            .or(failure.filter(|_| !has_answers))
            .or(gaps_problem)
            .or(no_words.map(|at| ClientError::NoWords { first_utterance: Some(at) }))
    }
}

/// Runs the command until its end or a signal.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TranscribeArgs, ending: Ending) -> Result<(), ClientError> {
    check_inputs(&args.files)?;
    let folder_files = FolderFiles { endings: RECORDING_ENDINGS, is_recursive: args.recursive };
    let inputs = folder_files.expand(&args.files)?;
    let destinations = Destination::for_inputs(&inputs, args.output.as_deref(), args.format.extension())?;
    check_options(args, &destinations)?;
    let work = inputs.into_iter().zip(destinations);
    let is_done = |(input, destination): &(Input, Destination)| {
        resumes(args, input) && existing::find(&input.path, destination) == Found::Complete
    };
    let (done, work): (Vec<_>, Vec<_>) = work.partition(is_done);
    let done: Vec<String> = done.iter().map(|(_, destination)| destination.to_string()).collect();
    let hint = "--overwrite transcribes them anew, and --output DIR/ writes elsewhere";
    files::report_done(&done, work.len(), "recordings are transcribed", hint);
    if work.is_empty() {
        return Ok(());
    }
    let transcribe_all = async |target: &Target| {
        check_target(args, target)?;
        transcribe_all(args, work, target).await
    };
    Target::work(&args.target, ending, transcribe_all).await
}

/// True if a finished transcript of this recording stays, and one that was interrupted is continued. In folders, that needs no
/// option.
const fn resumes(args: &TranscribeArgs, input: &Input) -> bool {
    args.resume || (input.in_folder.is_some() && !args.overwrite)
}

fn check_options(args: &TranscribeArgs, destinations: &[Destination]) -> Result<(), ClientError> {
    let is_subtitles = matches!(args.format, TranscriptFormatArg::Srt | TranscriptFormatArg::Vtt);
    let to_stdout = destinations.contains(&Destination::Stdout);
    let reason = if is_subtitles && destinations.len() > 1 && to_stdout {
        "subtitles of several recordings need --output DIR"
    } else if args.resume && to_stdout {
        "--resume needs --output: what was printed on standard output cannot be continued"
    } else if args.word_timestamps && args.format != TranscriptFormatArg::Json {
        "--word-timestamps needs --format json"
    } else {
        return Ok(());
    };
    Err(ClientError::Usage(reason.to_owned()))
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
    work: Vec<(Input, Destination)>,
    target: &Target,
) -> Result<(), ClientError> {
    let terminal = Terminal::stderr();
    let is_one_of_several = work.len() > 1;
    let jobs = work.into_iter().map(|(input, destination)| {
        let name = files::input_name(&input.path);
        let job = TranscribeJob { args, target, input, destination, is_one_of_several, terminal: &terminal };
        FileJob { name, work: job.run() }
    });
    // Lines of several recordings in progress would mix.
    let parallel = if args.json { 1 } else { args.jobs.map_or(target.parallel_files(), usize::from) };
    files::run_all(jobs.collect(), parallel, &terminal, "transcribed").await
}

/// The transcription of one recording.
struct TranscribeJob<'c> {
    args: &'c TranscribeArgs,
    target: &'c Target,
    input: Input,
    destination: Destination,
    is_one_of_several: bool,
    terminal: &'c Terminal,
}

impl TranscribeJob<'_> {
    /// Transcribes the recording. Returns the text for standard output that was not printed yet.
    async fn run(self) -> Result<String, ClientError> {
        let started_at = Instant::now();
        let form = self.form();
        if resumes(self.args, &self.input) {
            match (existing::find(&self.input.path, &self.destination), &self.destination) {
                (Found::Older, Destination::File(path)) => {
                    return Err(ClientError::OlderTranscript(path.clone()));
                }
                (Found::Complete, _) => {
                    let name = self.name();
                    self.terminal.print_message(format_args!("{name}: another run has transcribed it"));
                    return Ok(String::new());
                }
                _ => {}
            }
        }
        let mut output = match self.args.json {
            true => TranscriptOutput::none(self.name(), form, self.terminal),
            false => {
                let (destination, is_one_of_several) = (&self.destination, self.is_one_of_several);
                TranscriptOutput::new(self.name(), form, destination, is_one_of_several, self.terminal)
            }
        };
        let transcribed = self.transcribe(&mut output).await?;
        let (utterances, gaps) = (output.segment_count(), output.gaps().len());
        if utterances + gaps == 0 && transcribed.problem.is_none() && transcribed.wordless_from.is_none() {
            let found = match self.target {
                Target::Http(_) => "the server returned no words",
                Target::Local(_) | Target::Live(_) => "no speech was found in the recording",
            };
            self.terminal.print_message(format_args!("{}: {found}", self.name()));
        }
        let duration = transcribed.duration;
        let problem = transcribed.into_problem(utterances, gaps);
        let printed = output.finish(duration, problem.is_none())?;
        if let (Destination::File(path), false) = (&self.destination, self.args.json) {
            let took = started_at.elapsed();
            let speed = speed(took, duration).map_or_else(String::new, |speed| format!(" ({speed})"));
            let (name, length, took) = (self.name(), clock(duration), clock(took));
            let path = path.display();
            self.terminal
                .print_message(format_args!("{name}: {length} of audio in {took}{speed}, in {path}"));
        }
        match problem {
            // The words before the damage are worth more than none.
            Some(problem) => {
                self.terminal.print(printed)?;
                Err(problem)
            }
            None => Ok(printed),
        }
    }

    fn name(&self) -> String {
        files::input_name(&self.input.path)
    }

    /// Transcribes what the output lacks.
    async fn transcribe(&self, output: &mut TranscriptOutput<'_>) -> Result<Transcribed, ClientError> {
        match self.target {
            Target::Http(target) => {
                let request = upload::Request {
                    task: self.task(),
                    language: self.args.language.clone(),
                    needs_times: self.args.format != TranscriptFormatArg::Text,
                    needs_word_times: self.needs_word_times(),
                };
                let mut view = self.view(None);
                self.keep_journal(output, None)?;
                let on_progress = |progress: Progress<'_>| record(output, &mut view, &progress);
                upload::transcribe(target, &request, &self.input.path, on_progress).await
            }
            Target::Local(bridge) => {
                let mut recording = self.open(output).await?;
                let mut settings = vec![
                    Setting::Task(self.task() == Task::Translate),
                    Setting::Partials(self.needs_partials()),
                    Setting::EstimatedWordTimes(self.args.format != TranscriptFormatArg::Text),
                ];
                settings.extend(self.args.language.clone().map(Setting::Language));
                let mut view = self.view(recording.expected_length);
                let mut transcribed = Transcribed::default();
                for span in output.missing() {
                    view.begin_at(Duration::from_millis(span.from_ms));
                    let on_progress = |progress: Progress<'_>| record(output, &mut view, &progress);
                    let part = rest_session::RecordingPart { recording: &mut recording, span };
                    let (settings, done) = (settings.clone(), &mut transcribed);
                    rest_session::transcribe(bridge, self.args.json, settings, part, done, on_progress)
                        .await?;
                    output.complete(span)?;
                    // The recording is damaged: nothing follows.
                    if transcribed.problem.is_some() {
                        break;
                    }
                }
                Ok(transcribed)
            }
            Target::Live(server) => {
                let recording = self.open(output).await?;
                let target = ServerTarget { language: self.args.language.clone(), ..server.clone() };
                let mut view = self.view(recording.expected_length);
                let on_progress = |progress: Progress<'_>| record(output, &mut view, &progress);
                live::transcribe(&target, ClientTiming::default(), recording, on_progress).await
            }
        }
    }

    /// Opens the recording, and the journal of its transcript.
    async fn open(&self, output: &mut TranscriptOutput<'_>) -> Result<Recording, ClientError> {
        let recording = Recording::open(&self.input.path).await?;
        if let Some((number, of)) = recording.track {
            let name = self.name();
            self.terminal.print_message(format_args!("{name}: audio track {number} of {of} is transcribed"));
        }
        // In real time, a recording is not continued.
        let checksum = match (self.target, &self.destination) {
            (Target::Local(_), Destination::File(_)) => Some(recording.checksum().await),
            _ => None,
        };
        self.keep_journal(output, checksum)?;
        Ok(recording)
    }

    fn keep_journal(
        &self,
        output: &mut TranscriptOutput<'_>,
        recording: Option<String>,
    ) -> Result<(), ClientError> {
        let subject = Subject { recording, task: self.task(), language: self.args.language.clone() };
        // An interrupted run is continued, unless `--overwrite` is given.
        let follows_recording = !self.args.resume || self.input.in_folder.is_some();
        output.keep_journal(subject, !self.args.overwrite, follows_recording)
    }

    const fn task(&self) -> Task {
        if self.args.translate { Task::Translate } else { Task::Transcribe }
    }

    /// Words of unfinished utterances are only shown on a terminal or as events.
    const fn needs_partials(&self) -> bool {
        self.args.json || self.terminal.has_bars()
    }

    /// Cues begin and end with words.
    const fn needs_word_times(&self) -> bool {
        self.args.word_timestamps
            || matches!(self.args.format, TranscriptFormatArg::Srt | TranscriptFormatArg::Vtt)
    }

    fn view(&self, length: Option<Duration>) -> FileView<io::Stdout> {
        let printed = if self.args.json { Printed::Events } else { Printed::Nothing };
        self.terminal.file(&self.name(), length, printed, io::stdout())
    }

    fn form(&self) -> Form {
        let TranscribeArgs { max_line, max_lines, max_cue, .. } = self.args;
        let cues = CueRules {
            max_line: usize::from(*max_line),
            max_lines: usize::from(*max_lines),
            max_cue_ms: u64::try_from(max_cue.as_millis()).unwrap_or(u64::MAX),
        };
        let words = if self.args.word_timestamps { WordList::InSegments } else { WordList::None };
        Form { format: self.args.format, task: self.task(), cues, words }
    }
}

/// Writes what was transcribed, and shows it.
fn record(
    output: &mut TranscriptOutput<'_>,
    view: &mut FileView<io::Stdout>,
    progress: &Progress<'_>,
) -> Result<(), ClientError> {
    match progress {
        Progress::Transcribed(segment) => output.add_segment(segment)?,
        Progress::Failed(gap) => output.add_gap(gap)?,
        _ => {}
    }
    view.show(progress)
}
