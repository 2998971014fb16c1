//! Section `capacity`: more and more sessions at a time, until one waits in the queue or the option's limit is reached.

use std::{cell::Cell, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    bench::{Bench, EarlyEnd, Openings, at_most, unmeasured},
    talk::Talk,
};
use crate::{
    cli::ClientError,
    error::ErrorKind,
    server::RestSession,
    verify::figure::{Expectation, Figure},
    vocabulary::{ClientEvent, ClientRequest, Mode, SpeakRequest},
};

/// Time for which all conversations must be served together, and the interval between checks.
const SERVED_FOR: Duration = Duration::from_secs(3);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const FIRST_AUDIO: &str = "capacity.first_audio";
const TEXT: &str = "This sentence is spoken by several sessions at the same time.";
/// Time limit of one session, with all others before it in the queue.
const SESSION_MAX: Duration = Duration::from_secs(180);
/// Longer than a worker needs to clean up.
const WORKER_PAUSE: Duration = Duration::from_secs(2);
const SESSIONS_MIN: Expectation = Expectation::AtLeast(1.0);
const SERVED_MIN: Expectation = Expectation::AtLeast(1.0);
/// Without the time in which the server opens a session.
const FIRST_AUDIO_MAX: f64 = 4.0;

/// How one session fared.
struct Served {
    has_queued: bool,
    first_audio: Duration,
}

/// Measurements so far.
#[derive(Default)]
struct Measured {
    /// Most sessions at a time without a wait.
    free: usize,
    /// The last first audio of these sessions, and the time in which the server opened them.
    first_audio: (Duration, Openings),
    /// Why there were no more.
    limit: Option<String>,
    /// Share of the sessions that failed, and the first error.
    failed: Option<(f64, String)>,
}

/// Counts sessions of speech, or of conversations (`Mode::Audio`) where the server has no speech.
pub(super) async fn run(bench: &mut Bench<'_>, mode: Mode) {
    if mode == Mode::Chat {
        bench.warm_up_speech().await;
    }
    let (mut measured, sessions_max) = (Measured::default(), bench.plan.sessions_max);
    for sessions in 1..=sessions_max {
        let mut before = bench.openings();
        let mut all = serve_at_once(bench, mode, sessions).await;
        if all.iter().flatten().any(|one| one.has_queued) && bench.early_end().is_none() {
            // A worker may still have been busy with the session before.
            sleep(WORKER_PAUSE).await;
            before = bench.openings();
            all = serve_at_once(bench, mode, sessions).await;
        }
        if bench.early_end().is_some() {
            break;
        }
        if !measured.note(sessions, &all, bench.openings().since(before)) {
            break;
        }
    }
    let mut figures = measured.figures(sessions_max, bench.early_end());
    // A conversation has no text whose speech could be awaited.
    figures.retain(|figure| mode == Mode::Chat || figure.name != FIRST_AUDIO);
    bench.ledger.add(figures);
}

impl Measured {
    /// Notes how this number of sessions at a time fared; false if more need not be tried.
    fn note(&mut self, sessions: usize, all: &[Result<Served, ClientError>], openings: Openings) -> bool {
        let served: Vec<&Served> = all.iter().flatten().collect();
        if let Some(error) = all.iter().find_map(|one| one.as_ref().err()) {
            let note = format!("{} of {sessions} sessions at a time: {error}", served.len());
            self.failed = Some((served.len() as f64 / sessions as f64, note));
            self.limit = Some(format!("{sessions} at a time failed"));
        } else if served.iter().any(|one| one.has_queued) {
            self.limit = Some(format!("{sessions} at a time wait in the queue"));
        } else {
            self.free = sessions;
            let first_audio = served.iter().map(|one| one.first_audio).max().unwrap_or_default();
            self.first_audio = (first_audio, openings);
        }
        self.limit.is_none()
    }

    fn figures(&self, sessions_max: usize, end: Option<EarlyEnd>) -> Vec<Figure> {
        if self.free == 0 && self.limit.is_none() {
            return vec![unmeasured(end, "capacity.sessions", "", SESSIONS_MIN, "nothing was tried")];
        }
        let (share, note) = match &self.failed {
            Some((share, note)) => (*share, note.clone()),
            None => (1.0, "no session failed".to_owned()),
        };
        let limit = match (&self.limit, end) {
            (Some(limit), _) => limit.clone(),
            (None, Some(end)) => format!("{} with more at a time", end.reason()),
            (None, None) => format!("no session waited in the queue; at most {sessions_max} were tried"),
        };
        let mut figures = vec![
            Figure::measured("capacity.served", share, "share", SERVED_MIN).with_note(&note),
            Figure::measured("capacity.sessions", self.free as f64, "", SESSIONS_MIN).with_note(&limit),
        ];
        if self.free > 0 {
            let (first_audio, openings) = self.first_audio;
            let note = format!("the last of {} sessions at a time{}", self.free, openings.note());
            let expected = at_most(FIRST_AUDIO_MAX, openings.mean());
            let seconds = first_audio.as_secs_f64();
            figures.push(Figure::measured(FIRST_AUDIO, seconds, "s", expected).with_note(&note));
        }
        figures
    }
}

async fn serve_at_once(bench: &Bench<'_>, mode: Mode, sessions: usize) -> Vec<Result<Served, ClientError>> {
    if mode == Mode::Chat {
        return join_all((0..sessions).map(|_| bench.within(SESSION_MAX, speak(bench)))).await;
    }
    let (before, is_over) = (bench.openings(), Cell::new(false));
    let are_open = || bench.openings().since(before).sessions >= sessions as u64;
    let held = (0..sessions).map(|_| bench.within(SESSION_MAX, converse(bench, &are_open, &is_over)));
    join_all(held).await
}

/// Holds a conversation until all of them have been open and served for [`SERVED_FOR`], or one of them waits for a worker.
async fn converse(
    bench: &Bench<'_>,
    are_open: &impl Fn() -> bool,
    is_over: &Cell<bool>,
) -> Result<Served, ClientError> {
    let mut talk = Talk::new(bench.connect("", "conversation").await?);
    while !is_over.get() && !talk.has_waited {
        talk.be_silent(LOOK_INTERVAL).await?;
        if are_open() {
            talk.be_silent(SERVED_FOR).await?;
            break;
        }
    }
    is_over.set(true);
    let has_queued = talk.has_waited;
    talk.close().await;
    Ok(Served { has_queued, first_audio: Duration::ZERO })
}

/// Speaks a text in a session of its own.
async fn speak(bench: &Bench<'_>) -> Result<Served, ClientError> {
    let RestSession { requests, mut events } = bench.bridge.open(false).await?;
    let started = Instant::now();
    let request = SpeakRequest { text: TEXT.to_owned(), ..SpeakRequest::default() };
    requests.send(ClientRequest::Speak(Box::new(request))).await;
    let (mut has_queued, mut first_audio) = (false, None);
    loop {
        match events.next_event().await.map_err(ClientError::ConnectionLost)? {
            ClientEvent::Queued { .. } => has_queued = true,
            ClientEvent::Error(notice) if notice.kind == ErrorKind::QueueStuck => has_queued = true,
            ClientEvent::Audio(_) => _ = first_audio.get_or_insert_with(|| started.elapsed()),
            ClientEvent::SpeakingEnded { cancelled: true, .. } => return Err(ClientError::cut_short()),
            ClientEvent::SpeakingEnded { cancelled: false, .. } => {
                let first_audio = first_audio.ok_or(ClientError::NoAudio)?;
                return Ok(Served { has_queued, first_audio });
            }
            ClientEvent::Error(error) => return Err(ClientError::from_model(error)),
            ClientEvent::SessionClosed { reason, .. } => return Err(ClientError::bridge_closed(reason)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Verdict;

    fn served(has_queued: bool) -> Result<Served, ClientError> {
        Ok(Served { has_queued, first_audio: Duration::from_secs(14) })
    }

    #[test]
    fn first_audio_allows_for_the_opening_and_names_do_not_depend_on_success() {
        let mut measured = Measured::default();
        assert!(measured.note(1, &[served(false)], Openings { sessions: 1, seconds: 12.0 }));
        assert!(!measured.note(2, &[served(false), served(true)], Openings::default()));
        let figures = measured.figures(4, None);
        assert!(figures.iter().all(|figure| figure.verdict == Verdict::Pass), "{figures:#?}");
        assert_eq!(figures[2].expected.to_string(), "<= 16");

        let mut failing = Measured::default();
        failing.note(1, &[served(false)], Openings::default());
        failing.note(2, &[served(false), Err(ClientError::NoAudio)], Openings::default());
        let failed = failing.figures(4, None);
        let names =
            |figures: &[Figure]| -> Vec<String> { figures.iter().map(|it| it.name.clone()).collect() };
        assert_eq!(names(&figures), names(&failed));
        assert_eq!((failed[0].value, failed[0].verdict), (Some(0.5), Verdict::Fail));
    }

    #[test]
    fn early_end_keeps_what_was_measured() {
        let nothing = Measured::default().figures(4, Some(EarlyEnd::TimeOver));
        assert_eq!(nothing[0].verdict, Verdict::Skipped);
        let mut measured = Measured::default();
        measured.note(1, &[served(false)], Openings { sessions: 1, seconds: 12.0 });
        let figures = measured.figures(4, Some(EarlyEnd::TimeOver));
        assert_eq!(figures[1].value, Some(1.0));
        assert!(figures[1].note.contains("time was over"), "{}", figures[1].note);
    }
}
