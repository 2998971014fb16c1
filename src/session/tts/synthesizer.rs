//! Texts being spoken: one at a time, the latest wins, exactly one end for each start.
//!
//! An answer that was cancelled cannot be stopped upstream (MiniCPM-o field notes §2), so its lane is waited out before
//! its worker is given back: the client hears silence at once, the model finishes for nobody.

use std::{collections::VecDeque, time::Instant};

use super::player::By;
use crate::session::{
    context::Host,
    measurement::Purpose,
    outbox::Observation,
    upstream::{
        backoff::Failure,
        connection::{UpstreamConnection, News},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{Lane, LaneCommand, LaneEvent, Mode, VoiceSample, Why},
    mapping::profile::{LaneTimes, SpeakRules},
};

/// A text ready to be spoken.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) request_id: String,
    /// As the client wrote it.
    pub(crate) text: String,
    /// As the model gets it, in parts.
    pub(crate) parts: VecDeque<String>,
    pub(crate) instruction: Option<String>,
    pub(crate) voice: Option<VoiceSample>,
}

/// What speaking needs of the session's settings.
pub(crate) struct Speaking<'s> {
    pub(crate) rules: &'s SpeakRules,
}

/// The text being made in one session.
#[derive(Debug, Default)]
pub(crate) struct Speak {
    current: Option<Speech>,
}

#[derive(Debug)]
struct Speech {
    script: Script,
    link: Option<UpstreamConnection>,
    /// The part being answered has brought audio.
    part_heard: bool,
    /// Parts that were answered, and those of them without audio.
    parts_done: usize,
    silent_parts: usize,
    attempts: u32,
}

impl Speak {
    /// Whether a text is being made or about to be.
    pub(crate) const fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// The lane in use.
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.link().map(UpstreamConnection::lane)
    }

    /// Its lane waits in a queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.link().is_some_and(UpstreamConnection::is_queued)
    }

    /// Whether its lane holds a worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.link().is_some_and(UpstreamConnection::holds_worker)
    }

    fn link(&self) -> Option<&UpstreamConnection> {
        self.current.as_ref()?.link.as_ref()
    }

    fn link_mut(&mut self) -> Option<&mut UpstreamConnection> {
        self.current.as_mut()?.link.as_mut()
    }

    /// Speaks a text; what was being spoken is cancelled first.
    pub(crate) fn start(&mut self, now: Instant, script: Script, speaking: &Speaking<'_>, host: &mut Host) {
        host.mouth.cancel(now, &mut host.out);
        let init = LaneCommand::Init(script.voice.clone());
        let spare = self.current.take().and_then(|speech| speech.link).and_then(|link| {
            if link.serves(&init) {
                return Some(link);
            }
            link.retire(now, host);
            None
        });
        host.mouth.begin(now, By::Request, script.request_id.clone(), script.text.clone());
        self.current = Some(Speech {
            script,
            link: spare,
            part_heard: false,
            parts_done: 0,
            silent_parts: 0,
            attempts: 0,
        });
        self.proceed(now, speaking, host);
    }

    /// Stops speaking; silent when nothing is being spoken (golden c10i).
    pub(crate) fn cancel(&mut self, now: Instant, host: &mut Host) {
        if host.mouth.is_busy_by(By::Request) {
            host.mouth.cancel(now, &mut host.out);
        }
        self.leave(now, host);
    }

    /// Nothing more is made; the client hears what was.
    fn leave(&mut self, now: Instant, host: &mut Host) {
        if let Some(link) = self.current.take().and_then(|speech| speech.link) {
            link.retire(now, host);
        }
    }

    /// The upstream said something; whether it was that others are to be waited for.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        speaking: &Speaking<'_>,
        host: &mut Host,
    ) -> bool {
        let Some(link) = self.link_mut() else { return false };
        let owed = link.owes_answer();
        let news = link.event(now, event, host);
        let queued = news == News::Queued;
        self.news(now, news, speaking, host);
        if owed {
            match event {
                LaneEvent::Audio(samples) => self.audio(now, samples, host),
                LaneEvent::Done { audio, .. } => self.part_done(now, audio, speaking, host),
                _ => {}
            }
        }
        queued
    }

    fn audio(&mut self, now: Instant, samples: &[f32], host: &mut Host) {
        let Some(speech) = self.current.as_mut().filter(|_| !samples.is_empty()) else { return };
        speech.part_heard = true;
        host.mouth.say(now, samples, &mut host.out);
    }

    /// One part of the text is spoken; `audio` is all of it where the upstream did not stream.
    fn part_done(&mut self, now: Instant, audio: &[f32], speaking: &Speaking<'_>, host: &mut Host) {
        let Some(speech) = &mut self.current else { return };
        if let Some(link) = &mut speech.link {
            link.answered();
        }
        let heard_before = std::mem::take(&mut speech.part_heard);
        speech.script.parts.pop_front();
        speech.parts_done += 1;
        if !heard_before {
            self.audio(now, audio, host);
            if let Some(speech) = &mut self.current {
                speech.silent_parts += usize::from(!std::mem::take(&mut speech.part_heard));
            }
        }
        if self.current.as_ref().is_some_and(|speech| speech.script.parts.is_empty()) {
            self.finish(now, host);
        }
        self.proceed(now, speaking, host);
    }

    /// The whole text is made.
    fn finish(&mut self, now: Instant, host: &mut Host) {
        let (silent, parts) =
            self.current.as_ref().map_or((0, 0), |speech| (speech.silent_parts, speech.parts_done));
        if silent > 0 {
            // The back-end swallows its speech errors (field notes §2): text came, audio did not.
            let words = format!("the upstream answered {silent} of {parts} parts of the text without audio");
            host.out.error(Error::new(ErrorKind::SpeakFailed, words));
        }
        host.mouth.finish(now, &mut host.out);
        self.leave(now, host);
    }

    fn news(&mut self, now: Instant, news: News, speaking: &Speaking<'_>, host: &mut Host) {
        match news {
            News::None | News::Queued => {}
            News::Ready => self.proceed(now, speaking, host),
            News::Stuck(words) => host.out.error(Error::new(ErrorKind::QueueStuck, words)),
            News::Empty => {
                // The link ended with its answer; what is left of the text needs another.
                if let Some(link) = self.current.as_mut().and_then(|speech| speech.link.take()) {
                    link.retire(now, host);
                }
                self.part_done(now, &[], speaking, host);
            }
            News::Failed(failure) => self.failed(now, failure, speaking, host),
        }
    }

    fn failed(&mut self, now: Instant, failure: Failure, speaking: &Speaking<'_>, host: &mut Host) {
        let Some(speech) = &mut self.current else { return };
        if let Some(link) = speech.link.take() {
            link.retire(now, host);
        }
        speech.attempts += 1;
        if failure.asked && !host.mouth.is_audible() && speech.attempts < speaking.rules.attempts {
            host.out.observe(Observation::AskedAgain(failure.words));
            // What came was too little to be heard, and comes again.
            speech.part_heard = false;
            host.mouth.forget();
            return self.proceed(now, speaking, host);
        }
        let kind = if failure.asked { ErrorKind::SpeakFailed } else { failure.kind };
        host.out.error(Error::new(kind, failure.words));
        // The error first, then the end, and not as a cancel (golden c10l).
        host.mouth.finish(now, &mut host.out);
        self.current = None;
    }

    pub(crate) fn opened(&mut self, now: Instant, host: &mut Host) {
        if let Some(link) = self.link_mut() {
            link.opened(now, host);
        }
    }

    pub(crate) fn closed(&mut self, now: Instant, why: &Why, speaking: &Speaking<'_>, host: &mut Host) {
        if let Some(link) = self.link_mut() {
            let news = link.closed(now, why, host);
            self.news(now, news, speaking, host);
        }
    }

    pub(crate) fn timeout(&mut self, now: Instant, speaking: &Speaking<'_>, host: &mut Host) {
        if let Some(link) = self.link_mut() {
            let news = link.timeout(now, host);
            self.news(now, news, speaking, host);
        }
        self.proceed(now, speaking, host);
    }

    /// Another lane may be dialled again.
    pub(crate) fn resume(&mut self, now: Instant, speaking: &Speaking<'_>, host: &mut Host) {
        self.proceed(now, speaking, host);
    }

    pub(crate) fn next_timeout(&self, times: &LaneTimes) -> Option<Instant> {
        self.link()?.next_timeout(times)
    }

    /// Dials or asks, whichever can be done now.
    fn proceed(&mut self, now: Instant, speaking: &Speaking<'_>, host: &mut Host) {
        let Some(speech) = &mut self.current else { return };
        match &mut speech.link {
            None if host.may_dial() => {
                let init = LaneCommand::Init(speech.script.voice.clone());
                speech.link = Some(UpstreamConnection::open(now, (Purpose::Speak, Mode::Chat), init, host));
            }
            // What is made long before it is heard is made for nobody if it is cancelled.
            Some(link) if link.is_ready() && !host.mouth.is_ahead(now) => {
                let Some(part) = speech.script.parts.front() else { return };
                let question = LaneCommand::Speak {
                    before_voice: speaking.rules.before_voice.clone(),
                    after_voice: speaking.rules.after_voice_with(speech.script.instruction.as_deref()),
                    request: speaking.rules.request(part),
                    voice: speech.script.voice.clone(),
                };
                link.ask(now, question, host);
            }
            _ => {}
        }
    }
}
