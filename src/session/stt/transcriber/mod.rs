//! Utterances on their way to words: asked one after the other, told to the client in the order they were spoken.
//!
//! The order is the Macaw server's (field notes macaw.md §1.8): start, partials, final, end; a final that takes too long
//! lets the end go first and still comes.

mod finality;
mod interim;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::utterance::{State, Utterance, Words, length_ms};
use crate::session::{
    context::Host,
    input::speech_input::{SpeechEvent, Piece},
    measurement::Purpose,
    outbox::Observation,
    upstream::{
        backoff::Failure,
        connection::{UpstreamConnection, News},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{ClientCommand, Lane, LaneCommand, LaneEvent, Mode, Speaker, Why},
    mapping::profile::{HearRules, LaneTimes},
};
use interim::Interim;

/// What its lanes are for.
const LANES: (Purpose, Mode) = (Purpose::Transcribe, Mode::Chat);

/// What a question needs to know of the session's settings.
pub(crate) struct Asking<'s> {
    pub(crate) rules: &'s HearRules,
    /// Whether anybody wants to know the words.
    pub(crate) wanted: bool,
    pub(crate) language: &'s str,
    pub(crate) hot_words: &'s [String],
    pub(crate) partials: bool,
}

/// All utterances of a session that are not settled.
#[derive(Debug, Default)]
pub(crate) struct Hear {
    utterances: VecDeque<Utterance>,
    link: Option<UpstreamConnection>,
    /// The link was given up so that a text can be spoken; the next question opens another.
    yielded: bool,
    pieces: u32,
    /// Nothing that waits is dropped: the client is held back instead.
    keeps_all: bool,
    interim: Option<Interim>,
    interim_due: Option<Instant>,
    /// Audio that was dropped because too much waited, ms.
    dropped_ms: u64,
}

impl Hear {
    /// All utterances of a session; where `keeps_all`, none is ever dropped.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self { keeps_all, ..Self::default() }
    }

    /// Utterances and committed pieces so far whose words were wanted.
    pub(crate) const fn segments(&self) -> u32 {
        self.pieces
    }

    /// Nothing is owed to the client: no start without its end, no audio without its words.
    pub(crate) fn is_settled(&self) -> bool {
        self.utterances.is_empty()
    }

    /// Audio that was dropped because too much waited, ms.
    pub(crate) const fn dropped_ms(&self) -> u64 {
        self.dropped_ms
    }

    /// Its lane waits in a queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.link.as_ref().is_some_and(UpstreamConnection::is_queued)
    }

    /// The lane in use.
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.link.as_ref().map(UpstreamConnection::lane)
    }

    /// Whether its lane holds a worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.link.as_ref().is_some_and(UpstreamConnection::holds_worker)
    }

    /// The ear heard something.
    pub(crate) fn heard(&mut self, now: Instant, heard: SpeechEvent, asking: &Asking<'_>, host: &mut Host) {
        match heard {
            SpeechEvent::Started { at_ms } => {
                self.utterances.push_back(Utterance::open(host.segments.take(), Some(at_ms)));
                self.yielded = false;
                self.interim_due = (!asking.rules.interim.is_zero()).then(|| now + asking.rules.interim);
            }
            SpeechEvent::Piece(piece) => self.complete(now, piece, asking, host),
            SpeechEvent::Interrupted => {}
        }
        self.limit(asking, host);
        self.proceed(now, asking, host);
    }

    fn complete(&mut self, now: Instant, piece: Piece, asking: &Asking<'_>, host: &mut Host) {
        self.interim_due = None;
        self.pieces += u32::from(asking.wanted);
        let Some(utterance) = self.utterances.back_mut() else { return };
        if !piece.voiced && !piece.last {
            // Nothing to ask and nothing to tell: the same utterance goes on, however often nothing is committed.
            utterance.segment_id = host.segments.take();
            return;
        }
        utterance.complete_at = Some(now);
        utterance.from_ms = piece.at_ms.saturating_sub(length_ms(&piece.audio));
        // As they were when it was said: the settings may be others when it is asked, or answered.
        utterance.prompt = asking.prompt();
        utterance.language = asking.language.to_owned();
        utterance.closes = piece.last.then_some(piece.at_ms);
        // What holds no speech, such as the rest after a commit, has no words.
        utterance.state = if piece.voiced && asking.wanted {
            State::Waiting(Arc::new(piece.audio))
        } else {
            State::Settled(None)
        };
        if !piece.last {
            self.utterances.push_back(Utterance::open(host.segments.take(), None));
        }
    }

    /// Keeps what waits for the upstream bounded: the oldest goes, and the client is told.
    fn limit(&mut self, asking: &Asking<'_>, host: &mut Host) {
        if self.keeps_all {
            return;
        }
        let waiting = |utterance: &Utterance| match &utterance.state {
            State::Waiting(audio) => length_ms(audio),
            _ => 0,
        };
        let mut total: u64 = self.utterances.iter().map(waiting).sum();
        for utterance in &mut self.utterances {
            if total <= asking.rules.backlog_max_ms {
                break;
            }
            if let State::Waiting(audio) = &utterance.state {
                let dropped_ms = length_ms(audio);
                total -= dropped_ms;
                self.dropped_ms += dropped_ms;
                utterance.state = State::Settled(None);
                host.out.client(ClientCommand::FramesDropped { dropped_ms });
            }
        }
    }

    /// The upstream said something on the lane in use.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        asking: &Asking<'_>,
        host: &mut Host,
    ) {
        let Some(link) = &mut self.link else { return };
        let owed = link.owes_answer();
        let news = link.event(now, event, host);
        self.news(now, news, asking, host);
        if !owed {
            return;
        }
        match event {
            LaneEvent::Text(text) => self.text(now, text, asking, host),
            LaneEvent::Done { text, .. } => self.answer(now, *text, asking, host),
            _ => {}
        }
    }

    fn text(&mut self, now: Instant, text: &str, asking: &Asking<'_>, host: &mut Host) {
        if let Some(interim) = &mut self.interim {
            interim.text.push_str(text);
            return;
        }
        // Words are told of the utterance whose turn it is; a late one only gets its final.
        let front = self.utterances.iter().position(|utterance| !utterance.released);
        let asked = self.utterances.iter_mut().enumerate().find(|(_, utterance)| utterance.is_asked());
        let Some((at, utterance)) = asked else { return };
        let State::Asked(audio, so_far) = &mut utterance.state else { return };
        so_far.push_str(text);
        if asking.partials && front == Some(at) && !so_far.trim().is_empty() {
            utterance.timing.told(now, utterance.complete_at, host);
            host.out.client(ClientCommand::TranscriptPartial {
                speaker: Speaker::User,
                text: so_far.trim().to_owned(),
                segment_id: utterance.segment_id,
                at_ms: length_ms(audio),
                from_ms: utterance.from_ms,
            });
        }
    }

    /// The answer is complete; `text` is all of it where the upstream repeats it.
    fn answer(&mut self, now: Instant, text: Option<&str>, asking: &Asking<'_>, host: &mut Host) {
        if let Some(link) = &mut self.link {
            link.answered();
        }
        if let Some(interim) = self.interim.take() {
            self.tell_interim(text.unwrap_or(&interim.text), &interim, asking, host);
        } else if let Some(utterance) = self.utterances.iter_mut().find(|utterance| utterance.is_asked())
            && let State::Asked(audio, so_far) = &utterance.state
        {
            let text = text.filter(|text| !text.trim().is_empty()).unwrap_or(so_far).trim().to_owned();
            let words = Words { text, duration_ms: length_ms(audio), language: utterance.language.clone() };
            utterance.state = State::Settled(Some(Ok(words)));
        }
        // One fresh session an utterance (field notes §5): what was asked before must not colour the next answer.
        self.leave(now, host);
        self.proceed(now, asking, host);
    }

    fn news(&mut self, now: Instant, news: News, asking: &Asking<'_>, host: &mut Host) {
        match news {
            News::None | News::Queued => {}
            News::Ready => self.proceed(now, asking, host),
            News::Stuck(words) => host.out.error(Error::new(ErrorKind::QueueStuck, words)),
            News::Empty => self.answer(now, Some(""), asking, host),
            News::Failed(failure) => {
                self.failed(failure, asking, host);
                self.leave(now, host);
                self.proceed(now, asking, host);
            }
        }
    }

    fn failed(&mut self, failure: Failure, asking: &Asking<'_>, host: &mut Host) {
        if self.interim.take().is_some() {
            return;
        }
        let asked = self.utterances.iter_mut().find(|utterance| {
            if failure.asked { utterance.is_asked() } else { matches!(utterance.state, State::Waiting(_)) }
        });
        let Some(utterance) = asked else {
            // The user still speaks: there is time, and nobody to disappoint yet.
            self.yielded = true;
            return;
        };
        utterance.attempts += 1;
        if let State::Asked(audio, _) = &utterance.state
            && utterance.attempts < asking.rules.attempts
        {
            utterance.state = State::Waiting(audio.clone());
            host.out.observe(Observation::AskedAgain(failure.words));
            return;
        }
        let kind = if failure.asked { ErrorKind::TranscribeFailed } else { failure.kind };
        let detail = format!("utterance {} was not transcribed: {}", utterance.segment_id, failure.words);
        let error = Error { kind, detail, segment_id: Some(utterance.segment_id) };
        utterance.state = State::Settled(Some(Err(error)));
    }

    pub(crate) fn opened(&mut self, now: Instant, host: &mut Host) {
        if let Some(link) = &mut self.link {
            link.opened(now, host);
        }
    }

    pub(crate) fn closed(&mut self, now: Instant, why: &Why, asking: &Asking<'_>, host: &mut Host) {
        if let Some(link) = &mut self.link {
            let news = link.closed(now, why, host);
            self.news(now, news, asking, host);
        }
    }

    pub(crate) fn timeout(&mut self, now: Instant, asking: &Asking<'_>, host: &mut Host) {
        if let Some(link) = &mut self.link {
            let news = link.timeout(now, host);
            self.news(now, news, asking, host);
        }
        self.proceed(now, asking, host);
    }

    /// Another lane may be dialled again.
    pub(crate) fn resume(&mut self, now: Instant, asking: &Asking<'_>, host: &mut Host) {
        self.proceed(now, asking, host);
    }

    pub(crate) fn next_timeout(&self, times: &LaneTimes, rules: &HearRules) -> Option<Instant> {
        let link = self.link.as_ref().and_then(|link| link.next_timeout(times));
        let release = self.front().and_then(|front| front.complete_at).map(|at| at + rules.speech_end_wait);
        [link, release, self.interim_due].into_iter().flatten().min()
    }

    /// Gives the worker back while it is only held in reserve, because a text waits to be spoken.
    pub(crate) fn yield_worker(&mut self, now: Instant, host: &mut Host) {
        let busy = self.link.as_ref().is_some_and(UpstreamConnection::owes_answer)
            || self.utterances.iter().any(|utterance| matches!(utterance.state, State::Waiting(_)));
        if self.link.is_some() && !busy {
            self.yielded = true;
            self.leave(now, host);
        }
    }

    /// The session ends: the utterance that is still being spoken is dropped, its pair closed at `at_ms`.
    pub(crate) fn abandon_recording(
        &mut self,
        now: Instant,
        at_ms: u64,
        asking: &Asking<'_>,
        host: &mut Host,
    ) {
        if let Some(utterance) =
            self.utterances.back_mut().filter(|utterance| matches!(utterance.state, State::Recording))
        {
            utterance.state = State::Settled(None);
            utterance.closes = Some(at_ms);
            utterance.complete_at = Some(now);
        }
        self.interim_due = None;
        self.proceed(now, asking, host);
    }

    /// Whatever is still owed will not come: pairs are closed, an open one at `at_ms`, and the lane is left.
    pub(crate) fn stop(&mut self, now: Instant, at_ms: u64, asking: &Asking<'_>, host: &mut Host) {
        for utterance in &mut self.utterances {
            if !matches!(utterance.state, State::Settled(_)) {
                utterance.state = State::Settled(None);
            }
        }
        if let Some(utterance) = self.utterances.back_mut() {
            utterance.closes = utterance.closes.or(Some(at_ms));
        }
        self.interim = None;
        self.interim_due = None;
        self.proceed(now, asking, host);
        self.leave(now, host);
    }

    fn leave(&mut self, now: Instant, host: &mut Host) {
        if let Some(link) = self.link.take() {
            link.retire(now, host);
        }
    }

    /// Does all that can be done now: tells, asks, dials.
    fn proceed(&mut self, now: Instant, asking: &Asking<'_>, host: &mut Host) {
        self.tell(now, asking, host);
        let none_left = self.utterances.is_empty();
        let waiting =
            self.utterances.iter_mut().find(|utterance| matches!(utterance.state, State::Waiting(_)));
        match (&mut self.link, waiting) {
            (Some(link), Some(utterance)) => {
                if let (State::Waiting(audio), true) = (&utterance.state, link.is_ready()) {
                    let audio = audio.clone();
                    let prompt = utterance.prompt.clone();
                    link.ask(now, LaneCommand::Transcribe { prompt, audio: audio.clone() }, host);
                    utterance.state = State::Asked(audio, String::new());
                }
            }
            (None, _) if !host.may_dial() => {}
            (None, Some(_)) => {
                self.yielded = false;
                self.link = Some(UpstreamConnection::open(now, LANES, LaneCommand::Init(None), host));
            }
            // Dialled at the first sound, so that queueing and initialising overlap the user's speech.
            (None, None) if !none_left && !self.yielded && asking.wanted => {
                self.link = Some(UpstreamConnection::open(now, LANES, LaneCommand::Init(None), host));
            }
            (Some(_), None) if none_left && self.interim.is_none() => self.leave(now, host),
            (Some(_) | None, None) => {}
        }
    }

    fn front(&self) -> Option<&Utterance> {
        self.utterances.iter().find(|utterance| !utterance.released)
    }

    /// Tells the client what is due, in order.
    fn tell(&mut self, now: Instant, asking: &Asking<'_>, host: &mut Host) {
        let mut at = 0;
        while let Some(utterance) = self.utterances.get_mut(at) {
            if let (Some(at_ms), false) = (utterance.opens, utterance.opening_told) {
                utterance.opening_told = true;
                host.out.client(ClientCommand::SpeechStarted { at_ms });
            }
            if utterance.settle(now, host) {
                self.utterances.remove(at);
                continue;
            }
            let overdue =
                utterance.complete_at.is_some_and(|complete| now >= complete + asking.rules.speech_end_wait);
            if overdue && !utterance.released {
                utterance.released = true;
                if let Some(at_ms) = utterance.closes {
                    host.out.client(ClientCommand::SpeechEnded { at_ms });
                }
            }
            if !utterance.released {
                return;
            }
            at += 1;
        }
    }
}

impl Asking<'_> {
    fn prompt(&self) -> String {
        self.rules.prompt(self.language, self.hot_words)
    }
}
