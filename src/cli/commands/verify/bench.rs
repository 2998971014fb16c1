//! The bench of an acceptance run: a bridge in this process in front of the servers, the recordings, and the figures so far.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;

use crate::{
    cli::{
        ClientError, ClientTiming, ServerTarget,
        client::Client,
        known_recordings::KnownRecording,
        local_bridge::LocalBridge,
        output::print_line,
        recording::Recording,
        speak::{self, Speech},
        speech_audio::SpeechAudio,
        transcribe,
        view::Progress,
    },
    media::{encode::AudioFormat, transcript::partial::Span},
    verify::{
        figure::{Figure, Verdict},
        report,
    },
};

/// Time limit of one question to the server, queueing and retries included.
const QUESTION_MAX: Duration = Duration::from_secs(90);

/// Options of the run.
pub(super) struct Plan {
    pub(super) is_quick: bool,
    pub(super) languages: Vec<String>,
    pub(super) sessions_max: usize,
    pub(super) recordings: Vec<KnownRecording>,
}

/// The bench. Each section adds its figures.
pub(super) struct Bench<'l> {
    pub(super) bridge: LocalBridge,
    pub(super) plan: Plan,
    pub(super) ledger: &'l mut Ledger,
}

/// Speech that the server made of a text.
pub(super) struct Spoken {
    pub(super) speech: SpeechAudio,
    pub(super) first_audio: Duration,
    pub(super) took: Duration,
}

impl Bench<'_> {
    /// Opens a session of a client of Macaw's or OpenAI's protocol. The model decides on the route.
    pub(super) async fn connect(&self, query: &str, model: &str) -> Result<Client, ClientError> {
        let address =
            self.bridge.address().ok_or(ClientError::LocalServer("it does not listen".to_owned()))?;
        let url = format!("ws://{address}/v1/realtime?{query}");
        let target = ServerTarget { url, model: Some(model.to_owned()), ..ServerTarget::default() };
        let timing = ClientTiming {
            answer_timeout: QUESTION_MAX,
            late_transcript_timeout: QUESTION_MAX,
            ..ClientTiming::default()
        };
        Ok(Client::connect(&target, timing).await?.0)
    }

    /// Transcribes a recording as fast as the server takes it.
    pub(super) async fn transcribe(
        &self,
        mut recording: Recording,
        language: &str,
    ) -> Result<(String, Duration), ClientError> {
        let settings = serde_json::json!({
            "type": "configure", "task": "transcribe", "partials": false, "language": language,
        });
        let on_progress = |progress: Progress<'_>| match progress {
            Progress::Failed(gap) => Err(ClientError::ModelFailed(gap.message.clone())),
            _ => Ok(()),
        };
        let recording = (&mut recording, Span::WHOLE);
        let mut done = transcribe::Transcribed::default();
        let asked =
            transcribe::rest_session::transcribe(&self.bridge, &settings, recording, &mut done, on_progress);
        within(QUESTION_MAX, asked).await?;
        let texts: Vec<&str> = done.segments.iter().map(|segment| segment.text.trim()).collect();
        let (text, duration, utterances) = (texts.join(" "), done.duration, done.segments.len());
        done.into_problem(utterances, 0).map_or(Ok((text, duration)), Err)
    }

    /// Speaks a text as fast as the server does.
    pub(super) async fn speak(&self, text: &str, voice: Option<&str>) -> Result<Spoken, ClientError> {
        let started = tokio::time::Instant::now();
        let (mut speech, mut first_audio) = (SpeechAudio::default(), None);
        let on_speech = |made: Speech<'_>| match made {
            Speech::Part(_) => Ok(()),
            Speech::Audio(audio) => {
                first_audio.get_or_insert_with(|| started.elapsed());
                speech.push(audio)
            }
        };
        let text = [text.to_owned()];
        within(QUESTION_MAX, speak::rest_session::speak(&self.bridge, &text, voice, on_speech)).await?;
        Ok(Spoken { speech, first_audio: first_audio.unwrap_or_default(), took: started.elapsed() })
    }
}

/// Limits the time of one question.
pub(super) async fn within<T>(
    limit: Duration,
    question: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    timeout(limit, question).await.unwrap_or(Err(ClientError::Stalled(limit)))
}

/// Encodes a sound for the report. A sound that cannot be encoded is left out.
pub(super) fn sound_file(speech: &SpeechAudio) -> Vec<u8> {
    speech.encode(AudioFormat::Mp3).unwrap_or_default()
}

/// The figures, and the traces of the sessions that gave them.
pub(super) struct Ledger {
    pub(super) figures: Vec<Figure>,
    dir: PathBuf,
    is_printing: bool,
    seen_traces: BTreeSet<PathBuf>,
}

impl Ledger {
    /// An empty ledger. Traces are in `traces` of this directory.
    pub(super) fn new(dir: &Path, is_printing: bool) -> Self {
        let mut ledger =
            Self { figures: Vec::new(), dir: dir.to_owned(), is_printing, seen_traces: BTreeSet::new() };
        ledger.new_traces();
        ledger
    }

    pub(super) fn trace_dir(&self) -> PathBuf {
        self.dir.join("traces")
    }

    /// Adds figures. Failures get the trace of the last session that began since the figures before.
    pub(super) fn add(&mut self, figures: impl IntoIterator<Item = Figure>) {
        let trace = self.new_traces();
        for mut figure in figures {
            if let Some(trace) = &trace {
                figure.set_trace(trace);
            }
            if self.is_printing {
                // The run goes on for its report when the terminal is gone.
                let _ = print_line(report::format_line(&figure));
            }
            self.figures.push(figure);
        }
    }

    /// The last of the traces that appeared since the last call.
    fn new_traces(&mut self) -> Option<PathBuf> {
        let found: BTreeSet<PathBuf> = list(&self.trace_dir()).collect();
        let last = found.difference(&self.seen_traces).last().cloned();
        self.seen_traces.extend(found);
        last
    }

    /// Writes a file that serves as the trace of a failure without a session.
    pub(super) fn write_trace(&self, name: &str, text: &str) -> std::io::Result<PathBuf> {
        fs::create_dir_all(self.trace_dir())?;
        let path = self.trace_dir().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Removes the traces of this run that no failure names, and directories that are empty then. Call it after the sessions.
    pub(super) fn remove_other_traces(&self, earlier: &BTreeSet<PathBuf>) {
        let is_named = |path: &PathBuf| {
            let name = path.display().to_string();
            self.figures.iter().any(|figure| figure.trace.as_ref() == Some(&name))
        };
        let others: Vec<PathBuf> =
            list(&self.trace_dir()).filter(|path| !earlier.contains(path) && !is_named(path)).collect();
        // A failed removal does no harm.
        others.iter().for_each(|path| _ = fs::remove_file(path));
        let _ = fs::remove_dir(self.trace_dir());
        let _ = fs::remove_dir(&self.dir);
    }

    /// The traces that exist.
    pub(super) fn all_traces(&self) -> BTreeSet<PathBuf> {
        list(&self.trace_dir()).collect()
    }

    /// Names and traces of the failures, each trace once.
    pub(super) fn failed_traces(&self) -> Vec<(String, PathBuf)> {
        let mut traces: Vec<(String, PathBuf)> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.verdict == Verdict::Fail) {
            let Some(trace) = figure.trace.as_ref().map(PathBuf::from) else { continue };
            match traces.iter_mut().find(|(_, known)| *known == trace) {
                Some((names, _)) => names.push_str(&format!(", {}", figure.name)),
                None => traces.push((figure.name.clone(), trace)),
            }
        }
        traces
    }
}

fn list(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}
