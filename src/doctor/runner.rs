//! The walk to one upstream on real sockets, and the trials after one that failed.

use std::{sync::Arc, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::Uri;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as WsError, Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::{
    connect_check::{Notes, reach, refused, stopped, unexpected},
    diagnosis::Subject,
    experiments::{Clue, Trial, Tried, trials},
    fingerprint,
    report::Walked,
    session_check::{Depth, Plan, Walk, Want},
    step::{Bounds, Outcome, Step, Verdict},
    symptom::Symptom,
};
use crate::{
    audio::SPEECH_RATE_HZ,
    config::UpstreamConfig,
    event::{Append, Frame, LaneCommand, Opening, VoiceSample, Why},
    mapping::{
        Library, UpstreamMapping,
        upstream::{Mode, VoiceEncoding},
    },
    net::Transport,
    secret::shown_url,
    server::upstream_pool::dial::Dialer,
    session::tts::voices::Encodings,
    upstream::Dialect,
};

/// A worker that cleans up after a client that left impolitely needs less (field notes minicpm-o.md §1.2).
const BEFORE_TRIAL: Duration = Duration::from_millis(500);

type Socket = WebSocketStream<Box<dyn Transport>>;

/// One upstream, and what it is to be told.
#[derive(Clone)]
pub(crate) struct Patient {
    pub(crate) config: UpstreamConfig,
    pub(crate) dialect: Arc<UpstreamMapping>,
    /// The mode to walk in.
    pub(crate) mode: Mode,
    /// Other modes that the configuration needs.
    pub(crate) needs: Vec<Mode>,
    pub(crate) words: Words,
}

/// What sessions are opened with.
#[derive(Clone)]
pub(crate) struct Words {
    /// A conversation's system prompt.
    pub(crate) prompt: String,
    /// A conversation's settings, a JSON object.
    pub(crate) config: Arc<str>,
    /// What a chat is asked of a recording.
    pub(crate) question: String,
    /// The voice that speaks when none is named.
    pub(crate) voice: Option<VoiceSample>,
}

impl Words {
    /// What opens a session in a mode.
    fn init(&self, mode: Mode, encoding: Option<VoiceEncoding>) -> LaneCommand {
        let voice = self.voice.clone().filter(|_| encoding.is_some());
        let command = match mode {
            Mode::Chat => LaneCommand::Init(voice),
            Mode::Audio | Mode::Video => LaneCommand::Converse(Box::new(Opening {
                prompt: self.prompt.clone(),
                config: self.config.clone(),
                voice,
            })),
        };
        Encodings::new(encoding.into_iter().collect()).spell(command).0
    }

    /// One silent second, in a conversation or as a recording.
    fn question(&self, mode: Mode) -> LaneCommand {
        let audio = Arc::new(vec![0; SPEECH_RATE_HZ as usize]);
        match mode {
            Mode::Chat => LaneCommand::Transcribe { prompt: self.question.clone(), audio },
            Mode::Audio | Mode::Video => {
                LaneCommand::Append(Append { audio, input_id: "".into(), force_listen: false, frame: None })
            }
        }
    }
}

/// Walks to one upstream. What is seen on the way is told as it comes.
pub(crate) async fn examine(
    patient: &Patient,
    library: &Library,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
    live: mpsc::Sender<Outcome>,
) -> Walked {
    let mut notes = Notes::new(&Step::UPSTREAM, Some(live));
    let mut examination = Examination { patient, library, bounds, stop: &mut stop };
    let (subject, clue) = examination.walk(&mut notes).await;
    let name = patient.config.name.clone().unwrap_or_else(|| subject.authority.clone());
    Walked { name, subject, outcomes: notes.end(), clue }
}

struct Examination<'e> {
    patient: &'e Patient,
    library: &'e Library,
    bounds: Bounds,
    stop: &'e mut watch::Receiver<bool>,
}

/// One attempt at a session.
struct Attempt {
    reached: Option<Depth>,
    heard: Vec<String>,
}

impl Examination<'_> {
    async fn walk(&mut self, notes: &mut Notes) -> (Subject, Option<Clue>) {
        let Patient { config, dialect, mode, words, .. } = self.patient;
        let mut subject = Subject {
            dialect: dialect.name.clone(),
            title: dialect.title.clone(),
            has_ca: config.ca.is_some(),
            ..Subject::default()
        };
        let encoding = words.voice.is_some().then(|| dialect.voice_encodings.first().copied()).flatten();
        let trial = self.trial(dialect.clone(), *mode, encoding, Depth::Answer);
        let dialer = match self.dialer(&config.url, dialect) {
            Ok(dialer) => dialer,
            // The configuration was read a moment ago; a file it names may be gone since.
            Err(words) => {
                notes.tell(Outcome::failed(
                    Step::Configuration,
                    Duration::ZERO,
                    Symptom::Misconfigured(words),
                ));
                return (subject, None);
            }
        };
        subject.authority = dialer.authority().to_owned();
        subject.url = shown_url(&dialer.url(*mode));
        if !self.fits(dialect, &words.init(*mode, encoding), notes) {
            return (subject, None);
        }
        let attempt = self.attempt(&dialer, &trial, notes).await;
        let clue = self.find_out(&attempt, notes).await;
        if attempt.reached == Some(Depth::Answer) && !*self.stop.borrow() {
            self.needs(&dialer, notes).await;
        }
        (subject, clue)
    }

    fn trial(
        &self,
        dialect: Arc<UpstreamMapping>,
        mode: Mode,
        voice: Option<VoiceEncoding>,
        depth: Depth,
    ) -> Trial {
        Trial { dialect, mode, own_path: false, voice, depth, clue: Clue::Again }
    }

    fn dialer(&self, url: &str, dialect: &Arc<UpstreamMapping>) -> Result<Dialer, String> {
        let config = UpstreamConfig {
            url: url.to_owned(),
            dialect: dialect.name.clone(),
            ..self.patient.config.clone()
        };
        config.way(dialect).map(|(_, dialer)| dialer)
    }

    /// Whether the opening is within what the dialect allows.
    fn fits(&self, dialect: &Arc<UpstreamMapping>, init: &LaneCommand, notes: &mut Notes) -> bool {
        let (bytes, limit) = (Dialect::new(dialect.clone()).encode(init).len(), dialect.message_max_bytes);
        if bytes > limit {
            let symptom = Symptom::VoiceTooLarge { bytes, limit };
            notes.tell(Outcome::failed(Step::Configuration, Duration::ZERO, symptom));
            return false;
        }
        let voice = if self.patient.words.voice.is_some() { ", voice default" } else { "" };
        let note = format!("dialect {}, mode {}{voice}", dialect.name, self.patient.mode.name());
        notes.tell(Outcome { step: Step::Configuration, took: None, verdict: Verdict::Ok, note });
        true
    }

    /// One session as far as it goes.
    async fn attempt(&mut self, dialer: &Dialer, trial: &Trial, notes: &mut Notes) -> Attempt {
        let nothing = Attempt { reached: None, heard: Vec::new() };
        let Some(reached) = reach(dialer.endpoint(), &self.bounds, self.stop, notes).await else {
            return nothing;
        };
        let start = Instant::now();
        // Not given up when the user wants to go: who was let in must say goodbye.
        let upgrade = dialer.upgrade(reached.transport, trial.mode);
        tokio::pin!(upgrade);
        let upgraded = timeout(self.bounds.step, &mut upgrade).await;
        let took = start.elapsed();
        let (mut socket, response) = match upgraded {
            Ok(Ok(upgraded)) => upgraded,
            Ok(Err(error)) => {
                let symptom = refused(&error, dialer.endpoint(), &reached.addresses).await;
                notes.tell(Outcome::failed(Step::Upgrade, took, symptom));
                return nothing;
            }
            Err(_) => {
                let hung = WsError::ConnectionClosed;
                let symptom = match refused(&hung, dialer.endpoint(), &reached.addresses).await {
                    Symptom::SpeaksTls => Symptom::SpeaksTls,
                    _ => Symptom::HungUp(format!("nothing for {} s", self.bounds.step.as_secs_f64())),
                };
                notes.tell(Outcome::failed(Step::Upgrade, took, symptom));
                // Who lets us in at last may hold a worker for us: a goodbye, if there is time for one.
                if let Ok(Ok((mut late, _))) = timeout(self.bounds.close, upgrade).await {
                    let mut walk = Walk::new(now(), self.plan(trial));
                    walk.stop(now(), "upgrade failed");
                    drive(&mut walk, &mut late, &self.bounds, self.stop, &mut Notes::new(&[], None)).await;
                }
                return nothing;
            }
        };
        let mut walk = Walk::new(Instant::now().into_std(), self.plan(trial));
        match unexpected(&response) {
            Some(symptom) => {
                notes.tell(Outcome::failed(Step::Upgrade, took, symptom));
                walk.stop(now(), "upgrade failed");
            }
            None => notes.tell(Outcome::good(
                Step::Upgrade,
                took,
                self.bounds.upgrade,
                path_of(&shown_url(&dialer.url(trial.mode))),
            )),
        }
        drive(&mut walk, &mut socket, &self.bounds, self.stop, notes).await;
        Attempt { reached: walk.reached(), heard: walk.heard().to_vec() }
    }

    fn plan(&self, trial: &Trial) -> Plan {
        Plan {
            dialect: trial.dialect.clone(),
            init: self.patient.words.init(trial.mode, trial.voice),
            question: self.patient.words.question(trial.mode),
            depth: trial.depth,
            bounds: self.bounds,
        }
    }

    /// Why it failed, if something else works.
    async fn find_out(&mut self, attempt: &Attempt, notes: &Notes) -> Option<Clue> {
        let failed =
            notes.outcomes().iter().find_map(|outcome| Some((outcome.step, outcome.failure()?.clone())));
        let (step, symptom) = failed?;
        if step == Step::Queue
            && let Some(title) = fingerprint::like_a_server_of(self.library, &attempt.heard)
        {
            return Some(Clue::ClientProtocol(title));
        }
        let Patient { config, dialect, mode, words, .. } = self.patient;
        let path = config.url.parse::<Uri>().map_or_else(|_| String::new(), |uri| uri.path().to_owned());
        let at_other_path = path != "/" && path != dialect.path;
        let tried = Tried { dialect, mode: *mode, at_other_path, voice: words.voice.is_some() };
        for trial in trials(self.library, &tried, step, &symptom) {
            if *self.stop.borrow() {
                return None;
            }
            sleep(BEFORE_TRIAL).await;
            if let Some(clue) = self.works(trial).await {
                return Some(clue);
            }
        }
        None
    }

    /// The clue, if this gets as far as it should.
    async fn works(&mut self, trial: Trial) -> Option<Clue> {
        let url = match trial.own_path {
            true => at_path(&self.patient.config.url, &trial.dialect.path)?,
            false => self.patient.config.url.clone(),
        };
        let dialer = self.dialer(&url, &trial.dialect).ok()?;
        let mut unseen = Notes::new(&[], None);
        let attempt = self.attempt(&dialer, &trial, &mut unseen).await;
        let is_held = |outcome: &Outcome| matches!(outcome.failure(), Some(Symptom::Held { .. }));
        let held = unseen.outcomes().iter().any(is_held);
        if held && trial.depth > Depth::Queue {
            // So would all others be, each for as long.
            return Some(Clue::Held);
        }
        // Who is in the queue was let in, and has understood what was said of it.
        let works = held || attempt.reached.is_some_and(|reached| reached >= trial.depth);
        works.then(|| match trial.clue {
            Clue::Place(_, dialect) => Clue::Place(shown_url(&dialer.url(trial.mode)), dialect),
            clue => clue,
        })
    }

    /// Whether the other modes that the configuration needs are let in.
    async fn needs(&mut self, dialer: &Dialer, notes: &mut Notes) {
        let (start, mut refused) = (Instant::now(), Vec::new());
        for mode in &self.patient.needs {
            let trial = self.trial(self.patient.dialect.clone(), *mode, None, Depth::Queue);
            let mut unseen = Notes::new(&[], None);
            self.attempt(dialer, &trial, &mut unseen).await;
            let failure = unseen.outcomes().iter().find(|outcome| outcome.step == Step::Upgrade);
            // A queue that is held meanwhile says nothing about the mode.
            if let Some(symptom) = failure.and_then(Outcome::failure) {
                refused.push((mode.name().to_owned(), symptom.brief()));
            }
        }
        let names: Vec<&str> = self.patient.needs.iter().map(|mode| mode.name()).collect();
        if !refused.is_empty() {
            notes.tell(Outcome::failed(Step::Modes, start.elapsed(), Symptom::NoModes(refused)));
        } else if !names.is_empty() {
            notes.tell(Outcome::good(
                Step::Modes,
                start.elapsed(),
                Duration::MAX,
                format!("{} too", names.join(", ")),
            ));
        }
    }
}

/// Path and query, which is what a handshake asks for.
fn path_of(url: &str) -> String {
    url.parse::<Uri>().ok().and_then(|uri| uri.path_and_query().map(ToString::to_string)).unwrap_or_default()
}

/// The same server at another path, and without the query.
fn at_path(url: &str, path: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}{path}", uri.scheme_str()?, uri.authority()?))
}

/// Carries out what the walk wants until it is over.
async fn drive(
    walk: &mut Walk,
    socket: &mut Socket,
    bounds: &Bounds,
    stop: &mut watch::Receiver<bool>,
    notes: &mut Notes,
) {
    let (mut closing, mut left, mut stopping) = (None, false, false);
    loop {
        while let Some(outcome) = walk.outcome() {
            notes.tell(outcome);
        }
        let until = match walk.poll() {
            Want::Over => return,
            Want::Send(text) => {
                // That the peer is gone is seen when it is read.
                if timeout(bounds.step, socket.send(Message::text(text))).await.is_err() {
                    walk.ended(now(), Why::Lost("it takes nothing".to_owned()));
                }
                continue;
            }
            Want::Leave(until) if !std::mem::replace(&mut left, true) => {
                let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                let _ = timeout(bounds.close, socket.close(Some(frame))).await;
                until
            }
            Want::Wait(until) | Want::Leave(until) => until,
        };
        tokio::select! {
            next = socket.next() => match next {
                Some(Ok(Message::Text(text))) => walk.frame(now(), Frame::Text(&text)),
                Some(Ok(Message::Binary(bytes))) => walk.frame(now(), Frame::Binary(&bytes)),
                Some(Ok(Message::Close(frame))) => {
                    closing = Some(frame.map_or(Why::Closed(1005, String::new()), |frame| {
                        Why::Closed(frame.code.into(), frame.reason.to_string())
                    }));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => walk.ended(now(), closing.take().unwrap_or_else(|| Why::Lost(error.to_string()))),
                None => walk.ended(now(), closing.take().unwrap_or_else(|| Why::Lost("it hung up".to_owned()))),
            },
            () = sleep_until(until.into()) => walk.tick(now()),
            () = stopped(stop), if !stopping => {
                stopping = true;
                walk.stop(now(), "interrupted");
            }
        }
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
