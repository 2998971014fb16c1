//! The bench of an acceptance run: a bridge in this process in front of the servers, the recordings, the questions that the
//! sections ask, and the end of the run.

use std::{cell::Cell, pin::pin, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use super::ledger::Ledger;

use crate::{
    audio::encode::AudioFormat,
    cli::{
        ClientError, ClientTiming, ServerTarget,
        client::Client,
        known_recordings::KnownRecording,
        local_bridge::LocalBridge,
        recording::Recording,
        speak::{self, Speech},
        speech_audio::SpeechAudio,
        transcribe::{self, rest_session::RecordingPart},
        view::Progress,
    },
    media::transcript::partial::Span,
    server::queue_keeper::QueueWaits,
    session::measurement::SessionState,
    verify::figure::{Expectation, Figure},
    vocabulary::Setting,
};

/// A question that shows no progress for this long hangs, queueing and retries included.
const STALL_MAX: Duration = Duration::from_secs(90);
/// Words of the request that warms up speech.
const WARM_UP_TEXT: &str = "This is the first sentence.";

/// Options of the run.
pub(super) struct Plan {
    pub(super) is_quick: bool,
    pub(super) languages: Vec<String>,
    pub(super) sessions_max: usize,
    pub(super) recordings: Vec<KnownRecording>,
}

/// Why a run ends before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    /// The time of the whole run is over.
    TimeOver,
    /// A signal stops the command.
    Signal(u8),
}

impl EarlyEnd {
    /// The reason for what was not measured.
    pub(super) fn reason(self) -> String {
        match self {
            Self::TimeOver => "time was over".to_owned(),
            Self::Signal(number) => format!("stopped by signal {number}"),
        }
    }
}

/// The end of a run: whether it comes early, and the queues that are left then.
#[derive(Clone)]
pub(super) struct RunEnd {
    pub(super) early: watch::Receiver<Option<EarlyEnd>>,
    pub(super) leaving: QueueWaits,
}

/// A figure without a value: it failed with this problem, unless the run ended before it could be measured.
pub(super) fn unmeasured(
    end: Option<EarlyEnd>,
    name: &str,
    unit: &str,
    expected: Expectation,
    problem: &str,
) -> Figure {
    match end {
        Some(end) => Figure::skipped(name, &end.reason()),
        None => Figure::failed(name, unit, expected, problem),
    }
}

/// The bench. Each section adds its figures.
pub(super) struct Bench<'l> {
    pub(super) bridge: LocalBridge,
    pub(super) plan: Plan,
    pub(super) ledger: &'l mut Ledger,
    /// Time in which the server initialised a session, as section `server` measured it.
    pub(super) server_init: Duration,
    pub(super) ended: watch::Receiver<Option<EarlyEnd>>,
    /// A question that the early end of the run cut short waited in an upstream's queue.
    pub(super) was_queued: Cell<bool>,
    /// Transcription and speech were asked for once, so that what the server does only once is done.
    pub(super) is_warm: [bool; 2],
}

/// Speech that the server made of a text.
pub(super) struct Spoken {
    pub(super) speech: SpeechAudio,
    pub(super) first_audio: Duration,
    pub(super) took: Duration,
}

/// Sessions that the server has initialised, and how long that took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Openings {
    pub(super) sessions: u64,
    pub(super) seconds: f64,
}

impl Openings {
    /// The openings after the earlier ones.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            sessions: self.sessions.saturating_sub(earlier.sessions),
            seconds: (self.seconds - earlier.seconds).max(0.0),
        }
    }

    /// Average time of one.
    pub(super) fn mean(self) -> f64 {
        self.seconds / self.sessions.max(1) as f64
    }

    /// Text to add to a note about a time that includes these openings.
    pub(super) fn note(self) -> String {
        match self.sessions {
            0 => String::new(),
            1 => format!("; {:.1} s of it to open the session", self.seconds),
            sessions => format!("; {:.1} s of it to open {sessions} sessions", self.seconds),
        }
    }
}

/// The expectation on a time that includes the opening of sessions, rounded up to a tenth.
pub(super) fn at_most(limit: f64, opening_seconds: f64) -> Expectation {
    Expectation::AtMost(((limit + opening_seconds) * 10.0 - 1e-6).ceil() / 10.0)
}

impl Bench<'_> {
    /// Opens a session of a client of Macaw's or OpenAI's protocol. The model decides on the route.
    pub(super) async fn connect(&self, query: &str, model: &str) -> Result<Client, ClientError> {
        let address =
            self.bridge.address().ok_or(ClientError::LocalServer("it does not listen".to_owned()))?;
        let url = format!("ws://{address}/v1/realtime?{query}");
        let target = ServerTarget { url, model: Some(model.to_owned()), ..ServerTarget::default() };
        let timing = ClientTiming {
            answer_timeout: STALL_MAX,
            late_transcript_timeout: STALL_MAX,
            stall_timeout: STALL_MAX,
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
        let settings =
            vec![Setting::Task(false), Setting::Partials(false), Setting::Language(language.to_owned())];
        let progressed = Cell::new(Instant::now());
        let on_progress = |progress: Progress<'_>| {
            progressed.set(Instant::now());
            match progress {
                Progress::Failed(gap) => Err(ClientError::ModelFailed(gap.message.clone())),
                _ => Ok(()),
            }
        };
        let part = RecordingPart { recording: &mut recording, span: Span::WHOLE };
        let mut done = transcribe::Transcribed::default();
        let asked =
            transcribe::rest_session::transcribe(&self.bridge, false, settings, part, &mut done, on_progress);
        self.while_progressing(&progressed, asked).await?;
        let texts: Vec<&str> = done.segments.iter().map(|segment| segment.text.trim()).collect();
        let (text, duration, utterances) = (texts.join(" "), done.duration, done.segments.len());
        done.into_problem(utterances, 0).map_or(Ok((text, duration)), Err)
    }

    /// Speaks a text as fast as the server does.
    pub(super) async fn speak(&self, text: &str, voice: Option<&str>) -> Result<Spoken, ClientError> {
        let started = Instant::now();
        let progressed = Cell::new(started);
        let (mut speech, mut first_audio) = (SpeechAudio::default(), None);
        let on_speech = |made: Speech<'_>| {
            progressed.set(Instant::now());
            match made {
                Speech::Part(_) => Ok(()),
                Speech::Audio(audio) => {
                    first_audio.get_or_insert_with(|| started.elapsed());
                    speech.push(audio)
                }
            }
        };
        let text = [text.to_owned()];
        let asked = speak::rest_session::speak(&self.bridge, &text, voice, on_speech);
        self.while_progressing(&progressed, asked).await?;
        Ok(Spoken { speech, first_audio: first_audio.unwrap_or_default(), took: started.elapsed() })
    }

    /// Transcribes once for nothing: a model's first request takes longer than all others.
    pub(super) async fn warm_up_transcription(&mut self) {
        if std::mem::replace(&mut self.is_warm[0], true) {
            return;
        }
        let Some(recording) = self.plan.recordings.first() else { return };
        if let Ok(opened) = recording.open() {
            // A failure repeats itself in the figures.
            let _ = self.transcribe(opened, &recording.language).await;
        }
        self.ledger.take_trace();
    }

    /// Speaks once for nothing.
    pub(super) async fn warm_up_speech(&mut self) {
        if std::mem::replace(&mut self.is_warm[1], true) {
            return;
        }
        let _ = self.speak(WARM_UP_TEXT, None).await;
        self.ledger.take_trace();
    }

    /// The sessions that the server has initialised so far.
    pub(super) fn openings(&self) -> Openings {
        let (sessions, seconds) = self.bridge.metrics().initialised_lanes();
        Openings { sessions, seconds }
    }

    /// Why the run ends now; `None` while it goes on.
    pub(super) fn early_end(&self) -> Option<EarlyEnd> {
        *self.ended.borrow()
    }

    /// True if a question that the early end of the run cut short waited in an upstream's queue, or still does.
    pub(super) fn has_waited_in_queue(&self) -> bool {
        self.was_queued.get() || self.bridge.waits_in_queue()
    }

    /// True if a session waits in an upstream's queue.
    fn is_queued(&self) -> bool {
        self.bridge.registry().all().iter().any(|session| session.state() == SessionState::Queued)
    }

    /// A figure without a value because of this problem; see [`unmeasured`].
    pub(super) fn unmeasured(
        &self,
        name: &str,
        unit: &str,
        expected: Expectation,
        problem: &ClientError,
    ) -> Figure {
        unmeasured(self.early_end(), name, unit, expected, &problem.to_string())
    }

    /// Limits the time of one question. An early end of the run ends it at once.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        question: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => {
                // No question is sent after the end of the run.
                self.was_queued.set(self.was_queued.get() || self.is_queued());
                Err(ClientError::ModelFailed("the run has ended".to_owned()))
            }
            done = timeout(limit, question) => done.unwrap_or_else(|_| Err(self.stalled(limit))),
        }
    }

    /// Error for a question that has made no progress for this long.
    fn stalled(&self, limit: Duration) -> ClientError {
        match self.is_queued() {
            true => ClientError::NoUpstreamSession(format!(
                "the session has waited for {} s in the server's queue, where another client holds the worker",
                limit.as_secs()
            )),
            false => ClientError::Stalled(limit),
        }
    }

    /// Limits the time without progress of one question, however long it is.
    async fn while_progressing<T>(
        &self,
        progressed: &Cell<Instant>,
        question: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut question = pin!(question);
        let watched = async {
            loop {
                let deadline = progressed.get() + STALL_MAX;
                match timeout_at(deadline, &mut question).await {
                    Ok(done) => return done,
                    Err(_) if progressed.get() + STALL_MAX <= deadline => return Err(self.stalled(STALL_MAX)),
                    Err(_) => {}
                }
            }
        };
        self.within(Duration::MAX, watched).await
    }
}

/// Encodes a sound for the report. A sound that cannot be encoded is left out.
pub(super) fn sound_file(speech: &SpeechAudio) -> Vec<u8> {
    speech.encode(AudioFormat::Mp3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Verdict;

    #[test]
    fn expectation_allows_for_the_opening_of_sessions() {
        let at = |sessions, seconds| Openings { sessions, seconds };
        let two = at(3, 26.5).since(at(1, 1.5));
        assert_eq!((two, two.mean()), (at(2, 25.0), 12.5));
        assert!(two.note().contains("25.0 s of it to open 2 sessions"), "{}", two.note());
        assert_eq!(at_most(2.0, 12.04), Expectation::AtMost(14.1));
        assert_eq!(at_most(2.0, 0.0), Expectation::AtMost(2.0));
        assert_eq!(at_most(0.3, 0.0), Expectation::AtMost(0.3));
    }

    #[test]
    fn figure_that_an_early_end_prevented_is_skipped() {
        let figure = |end| unmeasured(end, "a.b", "s", Expectation::AtMost(1.0), "no answer");
        assert_eq!((figure(None).verdict, figure(None).note.as_str()), (Verdict::Fail, "no answer"));
        let skipped = figure(Some(EarlyEnd::Signal(15)));
        assert_eq!((skipped.verdict, skipped.note.as_str()), (Verdict::Skipped, "stopped by signal 15"));
    }
}
