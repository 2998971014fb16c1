//! What happens to a link: what its upstream says, what becomes of its transport, what time brings.

use std::time::{Duration, Instant};

use super::{UpstreamConnection, News, Phase, Queue, millis};
use crate::session::upstream::backoff::{Failure, Trouble};
use crate::session::{
    context::Host,
    measurement::Figure,
    outbox::{Action, Observation},
};
use crate::{
    error::ErrorKind,
    event::{EndMeaning, Ending, LaneCommand, LaneEvent, Why},
    mapping::profile::LaneTimes,
};

impl UpstreamConnection {
    /// The transport is up.
    pub(crate) fn opened(&mut self, now: Instant, host: &mut Host) {
        match self.phase {
            Phase::Dialling { .. } => {
                self.phase = Phase::Waiting(Queue { since: now, moved_at: now, position: None, told: false });
            }
            Phase::Unwanted { .. } => self.say_goodbye(now, host),
            _ => {}
        }
    }

    /// The upstream said something.
    pub(crate) fn event(&mut self, now: Instant, event: &LaneEvent<'_>, host: &mut Host) -> News {
        match (&mut self.phase, event) {
            (_, LaneEvent::Unknown(words)) => {
                host.out.observe(Observation::UnknownFromLane { lane: self.lane, words: words.clone() });
                News::None
            }
            (Phase::Waiting(queue), LaneEvent::Queued { position, length, wait_s }) => {
                if queue.position != *position || queue.position.is_none() {
                    queue.moved_at = now;
                    queue.position = *position;
                }
                self.trouble = None;
                let words = queue_words(*position, *length, *wait_s);
                host.out.observe(Observation::LaneQueued { lane: self.lane, position: *position, words });
                News::Queued
            }
            // Nobody hears the goodbye until it is this one's turn, and others wait for theirs.
            (Phase::Leaving { retry: false, .. }, LaneEvent::Queued { .. }) if self.granted_at.is_none() => {
                host.out.push(Action::DropLane(self.lane));
                self.phase = Phase::Gone;
                News::None
            }
            (Phase::Waiting(queue), LaneEvent::Granted) => {
                let after = now - queue.since;
                host.out.measured(Figure::LaneGranted { lane: self.lane, after });
                self.granted_at = Some(now);
                self.phase = Phase::Granted;
                self.initialise(now, host);
                News::None
            }
            (Phase::Initialising { .. }, LaneEvent::Ready { session_id }) => {
                self.phase = Phase::Ready;
                self.trouble = None;
                if let Some(granted_at) = self.granted_at {
                    let after = now - granted_at;
                    host.out.measured(Figure::LaneInitialised { lane: self.lane, after });
                }
                if let Some(spelled) = self.spelled.take() {
                    host.encodings.worked(spelled);
                }
                host.out.observe(Observation::LaneReady {
                    lane: self.lane,
                    session_id: session_id.map(str::to_owned),
                    waited_ms: millis(now - self.opened_at),
                });
                News::Ready
            }
            (Phase::Asked { heard_at }, LaneEvent::Text(_) | LaneEvent::Audio(_) | LaneEvent::Listen) => {
                *heard_at = now;
                News::None
            }
            (Phase::Draining { .. }, LaneEvent::Done { .. }) if self.owed > 1 => {
                self.owed -= 1;
                News::None
            }
            (Phase::Draining { .. }, LaneEvent::Done { .. }) => {
                self.say_goodbye(now, host);
                News::None
            }
            (_, LaneEvent::Trouble(words)) => self.troubled(now, words, host),
            (_, LaneEvent::Closed(ending)) => self.ended(now, ending, host),
            _ => News::None,
        }
    }

    /// Initialises a worker that waits for it.
    pub(crate) fn initialise(&mut self, now: Instant, host: &mut Host) {
        let Some(init) = self.init.clone().filter(|_| matches!(self.phase, Phase::Granted)) else { return };
        let (init, spelled) = host.encodings.spell(init);
        self.spelled = spelled;
        host.out.push(Action::ToLane(self.lane, init));
        self.phase = Phase::Initialising { until: now + Duration::from_millis(host.times.init_max_ms) };
    }

    /// Something went wrong upstream, and its session goes on: what that means depends on what was wanted of it.
    fn troubled(&mut self, now: Instant, words: &str, host: &mut Host) -> News {
        host.out.observe(Observation::LaneTrouble { lane: self.lane, words: words.to_owned() });
        match self.phase {
            Phase::Initialising { .. } => {
                self.init_failed(host);
                let words = format!("the upstream could not initialise: {words}");
                self.start_over(now, words, host);
                News::None
            }
            Phase::Asked { .. } => {
                self.close(now, host);
                self.failed(format!("the upstream could not answer: {words}"), host)
            }
            Phase::Draining { .. } => {
                self.say_goodbye(now, host);
                News::None
            }
            // A conversation knows by itself what it makes of it.
            _ => News::None,
        }
    }

    /// It may have been the voice, and how that was written.
    fn init_failed(&mut self, host: &mut Host) {
        if let Some(spelled) = self.spelled.take() {
            host.encodings.failed(spelled);
        }
    }

    /// Another attempt, once this one has left politely.
    fn start_over(&mut self, now: Instant, words: String, host: &mut Host) {
        Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, words);
        self.say_goodbye(now, host);
        let until = now + Duration::from_millis(host.times.close_max_ms);
        self.phase = Phase::Leaving { until, retry: true };
    }

    fn ended(&mut self, now: Instant, ending: &Ending, host: &mut Host) -> News {
        // Its close frame follows; until then the worker is still being cleaned up.
        let until = now + Duration::from_millis(host.times.close_max_ms);
        // A conversation owes no answer that could be empty: it is lost, whatever it ended with.
        let owed = self.owes_answer();
        let asked = match self.phase {
            Phase::Asked { .. } | Phase::Engaged => true,
            Phase::Unwanted { .. } | Phase::Draining { .. } => {
                self.phase = Phase::Leaving { until, retry: false };
                return News::None;
            }
            Phase::Leaving { .. } | Phase::Pausing { .. } | Phase::Gone => return News::None,
            _ => false,
        };
        let retry = !asked;
        self.init_failed(host);
        self.phase = Phase::Leaving { until, retry };
        let words = format!("the upstream ended the session: {}", ending.words);
        match (asked, ending.meaning) {
            (true, EndMeaning::EmptyAnswer) if owed => News::Empty,
            (true, meaning @ (EndMeaning::UsedUp | EndMeaning::UsedUpAndOpen)) => {
                if meaning == EndMeaning::UsedUpAndOpen {
                    host.out.push(Action::ToLane(self.lane, LaneCommand::Close));
                }
                News::Failed(Failure { kind: ErrorKind::Unavailable, words, asked })
            }
            (true, _) => self.failed(words, host),
            (false, meaning) => {
                let full = meaning == EndMeaning::QueueFull;
                let kind = if full { ErrorKind::QueueFull } else { ErrorKind::Unavailable };
                Trouble::note(&mut self.trouble, now, kind, words);
                News::None
            }
        }
    }

    /// The transport is gone.
    pub(crate) fn closed(&mut self, now: Instant, why: &Why, host: &mut Host) -> News {
        match self.phase {
            Phase::Gone | Phase::Pausing { .. } => News::None,
            Phase::Unwanted { .. } | Phase::Draining { .. } | Phase::Leaving { retry: false, .. } => {
                self.phase = Phase::Gone;
                News::None
            }
            Phase::Leaving { retry: true, .. } => self.pause(now, host),
            Phase::Asked { .. } | Phase::Engaged => {
                let when = if self.owes_answer() { " before it had answered" } else { "" };
                self.phase = Phase::Gone;
                self.failed(format!("the upstream {why}{when}"), host)
            }
            _ => {
                self.phase = Phase::Gone;
                self.init_failed(host);
                Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, format!("the upstream {why}"));
                self.pause(now, host)
            }
        }
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant, host: &mut Host) -> News {
        if self.next_timeout(&host.times).is_none_or(|due| due > now) {
            return News::None;
        }
        let times = host.times;
        match &mut self.phase {
            Phase::Dialling { .. } => {
                let words =
                    format!("the upstream did not answer the connection within {} ms", times.dial_max_ms);
                host.out.push(Action::DropLane(self.lane));
                Trouble::note(&mut self.trouble, now, ErrorKind::Unavailable, words);
                self.pause(now, host)
            }
            Phase::Waiting(queue) => {
                let waited = now - queue.since;
                let place = queue
                    .position
                    .map_or("said nothing".to_owned(), |at| format!("left us at position {at}"));
                let words = format!(
                    "the upstream's queue {place} for {:.0} s; another client may hold the worker",
                    waited.as_secs_f64()
                );
                if waited >= Duration::from_millis(times.queue_max_ms) {
                    host.out.push(Action::DropLane(self.lane));
                    return self.fail(Failure { kind: ErrorKind::QueueStuck, words, asked: false });
                }
                if host.holds_worker {
                    // It is this session itself that holds the queue up, and not for long.
                    queue.moved_at = now;
                    return News::None;
                }
                queue.told = true;
                News::Stuck(words)
            }
            Phase::Initialising { .. } => {
                let words = format!("the upstream did not initialise within {} ms", times.init_max_ms);
                self.start_over(now, words, host);
                News::None
            }
            Phase::Draining { .. } => {
                self.say_goodbye(now, host);
                News::None
            }
            Phase::Asked { .. } => {
                let words = format!("the upstream did not answer within {} ms", times.answer_max_ms);
                self.close(now, host);
                self.failed(words, host)
            }
            Phase::Leaving { retry: true, .. } => {
                host.out.push(Action::DropLane(self.lane));
                self.pause(now, host)
            }
            Phase::Unwanted { .. } | Phase::Leaving { retry: false, .. } => {
                host.out.push(Action::DropLane(self.lane));
                self.phase = Phase::Gone;
                News::None
            }
            Phase::Pausing { .. } => {
                self.dial(now, host);
                News::None
            }
            Phase::Granted | Phase::Ready | Phase::Engaged | Phase::Gone => News::None,
        }
    }

    /// When [`Link::timeout`] has something to do.
    pub(crate) fn next_timeout(&self, times: &LaneTimes) -> Option<Instant> {
        let ms = Duration::from_millis;
        match &self.phase {
            Phase::Dialling { until }
            | Phase::Unwanted { until }
            | Phase::Initialising { until }
            | Phase::Draining { until }
            | Phase::Leaving { until, .. }
            | Phase::Pausing { until } => Some(*until),
            Phase::Waiting(queue) if queue.told => Some(queue.since + ms(times.queue_max_ms)),
            Phase::Waiting(queue) => {
                Some((queue.moved_at + ms(times.queue_stuck_ms)).min(queue.since + ms(times.queue_max_ms)))
            }
            Phase::Asked { heard_at } => Some(*heard_at + ms(times.answer_max_ms)),
            Phase::Granted | Phase::Ready | Phase::Engaged | Phase::Gone => None,
        }
    }

    pub(crate) fn dial(&mut self, now: Instant, host: &mut Host) {
        // A number of its own for each attempt: whatever still comes of the last one is for nobody.
        self.lane = host.new_lane();
        self.granted_at = None;
        self.spelled = None;
        host.out.measured(Figure::LaneDialled { lane: self.lane, purpose: self.purpose });
        host.out.push(Action::OpenLane(self.lane, self.mode));
        self.phase = Phase::Dialling { until: now + Duration::from_millis(host.times.dial_max_ms) };
    }

    /// Another attempt after a pause, or the end of all attempts. The last transport is gone.
    fn pause(&mut self, now: Instant, host: &mut Host) -> News {
        let Some(trouble) = &self.trouble else {
            self.dial(now, host);
            return News::None;
        };
        match trouble.next_attempt(now, self.opened_at, &host.times, &mut host.rng) {
            Err(failure) => {
                host.out.observe(Observation::LaneFailed { lane: self.lane, words: failure.words.clone() });
                self.fail(failure)
            }
            Ok(until) => {
                host.out.observe(Observation::LaneRetry {
                    lane: self.lane,
                    words: trouble.words().to_owned(),
                    pause_ms: millis(until - now),
                });
                self.phase = Phase::Pausing { until };
                News::None
            }
        }
    }

    /// The upstream failed a link in use.
    fn failed(&self, words: String, host: &mut Host) -> News {
        host.out.observe(Observation::LaneFailed { lane: self.lane, words: words.clone() });
        News::Failed(Failure { kind: ErrorKind::Unavailable, words, asked: true })
    }

    /// For good; its transport is gone or dropped.
    fn fail(&mut self, failure: Failure) -> News {
        self.phase = Phase::Gone;
        News::Failed(failure)
    }
}

fn queue_words(position: Option<u32>, length: Option<u32>, wait_s: Option<f64>) -> String {
    let position = position.map_or("unknown".to_owned(), |position| position.to_string());
    let length = length.map_or(String::new(), |length| format!(" of {length}"));
    let wait = wait_s.map_or(String::new(), |wait| format!(", about {wait:.0} s"));
    format!("position {position}{length}{wait}")
}
