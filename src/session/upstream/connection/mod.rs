//! One lane's life: dialled, queued, initialised, asked, closed politely; tried again while it has not been asked.
//!
//! A link knows nothing of what it is asked for. Its owner asks when it is [`Link::is_ready`] and hears [`News`]. Here is
//! what an owner does with it; [`life`] is what happens to it.

mod transitions;

use std::time::{Duration, Instant};

use super::backoff::{Failure, Trouble};
use crate::session::{context::Host, measurement::Purpose, outbox::Action};
use crate::{
    event::{Lane, LaneCommand, Mode},
    mapping::upstream::VoiceEncoding,
};

/// What its owner should know.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// It can be asked.
    Ready,
    /// It waits in a queue that somebody else holds up.
    Queued,
    /// The queue does not move: this in words, once.
    Stuck(String),
    /// The model had nothing to say; the link is on its way out.
    Empty,
    /// It failed for good; the link is on its way out.
    Failed(Failure),
}

#[derive(Debug)]
enum Phase {
    /// Connecting.
    Dialling { until: Instant },
    /// Connecting for nobody any more; whoever answers is told goodbye.
    Unwanted { until: Instant },
    /// Connected; the queue decides.
    Waiting(Queue),
    /// It has a worker, and nobody has said yet what it is initialised with.
    Granted,
    /// `init` sent.
    Initialising { until: Instant },
    /// Initialised and not asked.
    Ready,
    /// In use for as long as it lasts, as a conversation is.
    Engaged,
    /// Owes an answer; silent since.
    Asked { heard_at: Instant },
    /// Owes an answer nobody wants any more. It cannot be stopped (field notes §2: the gateway would hand out a worker
    /// whose model still talks), so it is waited out.
    Draining { until: Instant },
    /// Closed from our side or theirs; waits for the end of the transport.
    Leaving { until: Instant, retry: bool },
    /// Waits before another attempt.
    Pausing { until: Instant },
    /// Over.
    Gone,
}

#[derive(Debug)]
struct Queue {
    since: Instant,
    moved_at: Instant,
    position: Option<u32>,
    told: bool,
}

/// One lane.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    lane: Lane,
    purpose: Purpose,
    mode: Mode,
    /// What it is initialised with, once that is known.
    init: Option<LaneCommand>,
    /// How the voice in it was written, until it is known whether that was right.
    spelled: Option<VoiceEncoding>,
    phase: Phase,
    opened_at: Instant,
    /// When this attempt got a worker.
    granted_at: Option<Instant>,
    /// Answers it owes, where it may be more than one.
    owed: u16,
    trouble: Option<Trouble>,
}

impl UpstreamConnection {
    /// Dials.
    pub(crate) fn open(now: Instant, what_for: (Purpose, Mode), init: LaneCommand, host: &mut Host) -> Self {
        Self::start(now, what_for, Some(init), host)
    }

    /// Dials; what it is initialised with may come later.
    pub(crate) fn start(
        now: Instant,
        (purpose, mode): (Purpose, Mode),
        init: Option<LaneCommand>,
        host: &mut Host,
    ) -> Self {
        let mut link = Self {
            lane: Lane(0),
            purpose,
            mode,
            init,
            spelled: None,
            phase: Phase::Gone,
            opened_at: now,
            granted_at: None,
            owed: 0,
            trouble: None,
        };
        link.dial(now, host);
        link
    }

    pub(crate) const fn lane(&self) -> Lane {
        self.lane
    }

    /// Its upstream lets it wait.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(&self.phase, Phase::Waiting(queue) if queue.position.is_some())
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    pub(crate) const fn owes_answer(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// Owes an answer nobody wants.
    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// A worker is at work for it, or about to be.
    pub(crate) const fn holds_worker(&self) -> bool {
        self.granted_at.is_some()
            && !matches!(self.phase, Phase::Gone | Phase::Pausing { .. } | Phase::Dialling { .. })
    }

    /// When its worker was assigned: the upstream's time limit counts from then (field notes §1.6).
    pub(crate) const fn granted_at(&self) -> Option<Instant> {
        self.granted_at
    }

    /// Is to be gone by then, whatever it waits for.
    pub(crate) fn hurry(&mut self, by: Instant) {
        if let Phase::Draining { until } | Phase::Leaving { until, .. } | Phase::Unwanted { until } =
            &mut self.phase
        {
            *until = (*until).min(by);
        }
    }

    /// Now it is known what it is initialised with.
    pub(crate) fn initialise_with(&mut self, now: Instant, init: LaneCommand, host: &mut Host) {
        self.init = Some(init);
        self.initialise(now, host);
    }

    /// Its upstream refused what it was to be initialised with, and waits for something else.
    pub(crate) fn await_init(&mut self) {
        if self.is_initialising() {
            (self.phase, self.init) = (Phase::Granted, None);
        }
    }

    /// It is being initialised.
    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.phase, Phase::Initialising { .. })
    }

    /// A link in use owes so many answers, which are waited out when nobody wants them any more.
    pub(crate) const fn owe(&mut self, now: Instant, answers: u16) {
        if self.is_engaged() && answers > 0 {
            self.phase = Phase::Asked { heard_at: now };
            self.owed = answers;
        }
    }

    /// Leaves a link in use with somebody else's words; what the upstream still says is heard.
    pub(crate) fn leave_saying(&mut self, now: Instant, words: String, host: &mut Host) {
        host.out.push(Action::ToLane(self.lane, LaneCommand::Spelled(words)));
        let until = now + Duration::from_millis(host.times.close_max_ms);
        self.phase = Phase::Leaving { until, retry: false };
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// Not asked yet and initialised, or to be, like this.
    pub(crate) fn serves(&self, init: &LaneCommand) -> bool {
        let fresh = matches!(
            self.phase,
            Phase::Dialling { .. }
                | Phase::Waiting(_)
                | Phase::Granted
                | Phase::Initialising { .. }
                | Phase::Ready
                | Phase::Pausing { .. }
        );
        fresh && self.init.as_ref() == Some(init)
    }

    /// Why the last attempt failed, since the last one that did not.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_ref().map(Trouble::words)
    }

    /// In use until it ends.
    pub(crate) const fn is_engaged(&self) -> bool {
        matches!(self.phase, Phase::Engaged)
    }

    /// From now on a ready link is in use until it ends; then it has failed, and is not tried again.
    pub(crate) const fn engage(&mut self) {
        if self.is_ready() {
            self.phase = Phase::Engaged;
        }
    }

    /// Asks a ready link.
    pub(crate) fn ask(&mut self, now: Instant, question: LaneCommand, host: &mut Host) {
        let (question, _) = host.encodings.spell(question);
        host.out.push(Action::ToLane(self.lane, question));
        self.phase = Phase::Asked { heard_at: now };
    }

    /// The answer is complete; a link that ended with it stays on its way out.
    pub(crate) const fn answered(&mut self) {
        if self.owes_answer() {
            self.phase = Phase::Ready;
        }
    }

    /// Leaves politely, wherever it is (field notes §1.2: a bare drop made 14 of 20 following connects fail).
    pub(crate) fn close(&mut self, now: Instant, host: &mut Host) {
        match &mut self.phase {
            // The handshake may have been answered already.
            Phase::Dialling { until } => self.phase = Phase::Unwanted { until: *until },
            // In the queue nobody has been assigned yet, so there is nobody to say goodbye to.
            Phase::Waiting(queue) if queue.position.is_some() => {
                host.out.push(Action::DropLane(self.lane));
                self.phase = Phase::Gone;
            }
            // A worker may be on its way; the gateway keeps what is said to it until then.
            Phase::Waiting(_) => self.say_goodbye(now, host),
            // A worker answers only when it is initialised, which may take 10 to 16 s.
            Phase::Initialising { until } => {
                let ready_at = *until;
                self.say_goodbye(ready_at, host);
            }
            Phase::Granted | Phase::Ready | Phase::Engaged | Phase::Asked { .. } | Phase::Draining { .. } => {
                self.say_goodbye(now, host);
            }
            Phase::Leaving { retry, .. } => *retry = false,
            Phase::Pausing { .. } => self.phase = Phase::Gone,
            Phase::Unwanted { .. } | Phase::Gone => {}
        }
    }

    /// Says goodbye to an upstream that may be listening from `heard_at` on.
    fn say_goodbye(&mut self, heard_at: Instant, host: &mut Host) {
        host.out.push(Action::ToLane(self.lane, LaneCommand::Close));
        let until = heard_at + Duration::from_millis(host.times.close_max_ms);
        self.phase = Phase::Leaving { until, retry: false };
    }

    /// Leaves politely, once it owes nothing, and hands itself over to the session, which waits for the end of the
    /// transport.
    pub(crate) fn retire(mut self, now: Instant, host: &mut Host) {
        let until = host.drained_by(now);
        if self.owes_answer() && until > now {
            self.phase = Phase::Draining { until };
        } else {
            self.close(now, host);
        }
        if let Some(by) = host.is_in_hurry() {
            // A goodbye has its time in any case; one that waits for an initialisation has no more.
            self.hurry(by.max(now) + Duration::from_millis(host.times.close_max_ms));
        }
        if !self.is_gone() {
            host.leaving.push(self);
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
