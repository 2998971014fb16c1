//! One conversation, sans-IO: settings, utterances, texts being spoken, and the lanes that serve them.
//!
//! Takes neutral events with the instant they came, appends [`action`]s. Knows no wire, no clock and no task.
//!
//! - [`ear`] turns microphone audio into utterances, [`meter`] judges how fast it comes
//! - [`settings`] is what the client set; [`hear`] turns each [`utterance`] into words, [`speak`] texts into audio for
//!   the [`mouth`]
//! - [`link`] is one lane's life, [`retry`] its patience, [`host`] what lanes share
//! - [`reading`] makes a text speakable, [`voices`] finds the voice for it, [`words`] takes out of the model's text what
//!   people are not to see

pub(crate) mod action;
mod ear;
mod hear;
mod host;
mod link;
mod meter;
mod mouth;
mod reading;
mod retry;
mod settings;
mod speak;
mod utterance;
mod voices;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the conversation that shows text comes with another change")
)]
mod words;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    action::Action,
    ear::{Ear, Heard, Hearing},
    hear::Hear,
    host::Host,
    link::{Link, millis},
    meter::{Meter, Verdict},
    settings::{Settings, asking, speaking, whole_u32},
    speak::Speak,
};
pub use self::{action::Observation, ear::Account, voices::VoiceBook};
use crate::{
    audio::vad::Sensitivity,
    error::Error,
    event::{ClientCommand, ClientEvent, CloseName, Lane, LaneEvent, Setting, Why},
    mapping::{
        Profile,
        client::{AudioIn, AudioOut},
    },
};

/// When voxbridge stops, answers that nobody waits for any more are waited out no longer than this.
const HURRY: Duration = Duration::from_secs(10);

/// What a session starts from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What the verbs mean.
    pub profile: Arc<Profile>,
    /// The client protocol's audio and limits.
    pub audio_in: AudioIn,
    /// The client protocol's audio.
    pub audio_out: AudioOut,
    /// Longest question the upstream takes, ms.
    pub audio_max_ms: u64,
    /// Voices by name.
    pub voices: Arc<VoiceBook>,
    /// Seed of everything random: ids and jitter.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In use.
    Open,
    /// To be closed as soon as what was said is answered, or at this instant.
    Finishing(CloseName, Instant),
    /// The client is gone; the lanes are on their way.
    Over,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    setup: Setup,
    settings: Settings,
    session_id: String,
    opened_at: Instant,
    phase: Phase,
    idle: Option<Duration>,
    idle_since: Instant,
    /// Something was owed when last looked at.
    owed: bool,
    /// When the last audio came.
    audio_at: Instant,
    meter: Meter,
    dropped_groups: u64,
    ear: Ear,
    heard: Vec<Heard>,
    hear: Hear,
    speak: Speak,
    host: Host,
}

impl Session {
    /// Opens a session: the client is told at once, whatever the upstream does.
    pub(crate) fn open(now: Instant, setup: Setup, model: String, mut settings: Vec<Setting>) -> Self {
        let mut host = Host::new(setup.profile.lanes, setup.seed);
        let session_id = format!("sess_{:012x}", host.rng.u64(..) & 0xffff_ffff_ffff);
        let hearing = Hearing {
            rate_hz: setup.audio_in.rate_hz,
            channels: setup.audio_in.channels,
            sensitivity: Sensitivity::Normal,
            end_ms: setup.profile.listen.end_ms,
            segment_max_ms: setup.profile.listen.segment_max_ms.min(whole_u32(setup.audio_max_ms)),
        };
        let speak = Speak::new(setup.audio_out.frame_max_bytes);
        settings.insert(0, Setting::OutputRate(setup.audio_out.rate_hz));
        let idle = Some(Duration::from_millis(setup.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut session = Self {
            settings: Settings {
                language: None,
                hot_words: Vec::new(),
                partials: setup.profile.hear.partials,
                speak_model: None,
                voice: None,
            },
            session_id,
            opened_at: now,
            phase: Phase::Open,
            idle,
            idle_since: now,
            owed: false,
            audio_at: now,
            meter: Meter::new(setup.audio_in.rate_limit, setup.audio_in.ahead_max_ms),
            dropped_groups: 0,
            ear: Ear::new(setup.profile.listen.clone(), hearing),
            heard: Vec::new(),
            hear: Hear::default(),
            speak,
            host,
            setup,
        };
        let language = settings.iter().find_map(|setting| match setting {
            Setting::Language(language) => Some(language.clone()),
            _ => None,
        });
        let created =
            ClientCommand::SessionCreated { session_id: session.session_id.clone(), model, language };
        session.host.out.client(created);
        session.configure(now, settings);
        session
    }

    pub(crate) fn id(&self) -> &str {
        &self.session_id
    }

    /// Where every sample went, and how many sample groups were dropped as too far ahead of the clock.
    pub(crate) fn account(&self) -> (Account, u64) {
        (self.ear.account(), self.dropped_groups)
    }

    /// The client said something.
    pub(crate) fn client(&mut self, now: Instant, event: ClientEvent<'_>) {
        if self.phase != Phase::Open {
            return;
        }
        match event {
            ClientEvent::Audio(bytes) => self.audio(now, bytes),
            ClientEvent::Configure(settings) => self.configure(now, settings),
            ClientEvent::Speak(request) => self.start_speaking(now, *request),
            ClientEvent::CancelSpeech => {
                self.speak.cancel(now, &mut self.host);
                self.idle_since = now;
            }
            ClientEvent::Commit => {
                self.ear.commit(&mut self.heard);
                self.tell_heard(now);
            }
            ClientEvent::Close(why) => self.finish(now, why),
        }
        self.settle(now);
    }

    /// Bad input: the client is told, the session goes on.
    pub(crate) fn refuse(&mut self, error: Error) {
        if self.phase == Phase::Open {
            self.host.out.error(error);
        }
    }

    /// For the log.
    pub(crate) fn observe(&mut self, observation: Observation) {
        self.host.out.observe(observation);
    }

    /// The client's transport is gone.
    pub(crate) fn client_gone(&mut self, now: Instant) {
        if self.phase != Phase::Over {
            self.end(now);
        }
    }

    /// voxbridge stops: what is being said and spoken is finished first, within a bound.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.host.hurry(now + HURRY);
        if self.phase == Phase::Open {
            self.finish(now, CloseName::Shutdown);
            self.settle(now);
        }
    }

    fn audio(&mut self, now: Instant, bytes: &[u8]) {
        self.idle_since = now;
        self.audio_at = now;
        let groups = self.ear.groups(bytes.len());
        let length = Duration::from_secs_f64(groups as f64 / f64::from(self.ear.hearing().rate_hz.max(1)));
        if groups > 0 {
            match self.meter.frame(now, length) {
                Verdict::Take => {}
                Verdict::TakeAndWarn(delay_ms) => {
                    self.host.out.client(ClientCommand::RateLimited { delay_ms });
                }
                Verdict::Drop => {
                    self.ear.discard(bytes);
                    self.dropped_groups += groups;
                    let dropped_ms = millis(length).max(1);
                    return self.host.out.client(ClientCommand::FramesDropped { dropped_ms });
                }
            }
        }
        if self.speak.is_audible() {
            self.ear.mute(bytes, &mut self.heard);
        } else {
            self.ear.hear(bytes, &mut self.heard);
        }
        self.tell_heard(now);
    }

    fn tell_heard(&mut self, now: Instant) {
        let mut heard = std::mem::take(&mut self.heard);
        let asking = asking(&self.setup.profile, &self.settings);
        for heard in heard.drain(..) {
            self.hear.heard(now, heard, &asking, &mut self.host);
        }
        self.heard = heard;
    }

    /// A lane's transport is up.
    pub(crate) fn lane_opened(&mut self, now: Instant, lane: Lane) {
        if self.hear.lane() == Some(lane) {
            self.hear.opened(now, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            self.speak.opened(now, &mut self.host);
        } else {
            self.with_leaving(lane, |link, host| link.opened(now, host));
        }
    }

    /// An upstream said something.
    pub(crate) fn lane_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>) {
        if self.hear.lane() == Some(lane) {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.event(now, event, &asking, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            let queued = self.speak.event(now, event, &speaking(&self.setup.profile), &mut self.host);
            if queued {
                // The worker that is wanted may be the one we hold in reserve for the user's words.
                self.hear.yield_worker(now, &mut self.host);
            }
        } else {
            self.with_leaving(lane, |link, host| {
                link.event(now, event, host);
            });
            self.resume(now);
        }
        self.settle(now);
    }

    /// A lane's transport is gone.
    pub(crate) fn lane_closed(&mut self, now: Instant, lane: Lane, why: &Why) {
        if self.hear.lane() == Some(lane) {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.closed(now, why, &asking, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            self.speak.closed(now, why, &speaking(&self.setup.profile), &mut self.host);
        } else {
            self.with_leaving(lane, |link, host| {
                link.closed(now, why, host);
            });
            self.resume(now);
        }
        self.settle(now);
    }

    fn with_leaving(&mut self, lane: Lane, act: impl FnOnce(&mut Link, &mut Host)) {
        let Some(at) = self.host.leaving.iter().position(|link| link.lane() == lane) else { return };
        let mut link = self.host.leaving.swap_remove(at);
        act(&mut link, &mut self.host);
        if !link.is_gone() {
            self.host.leaving.push(link);
        }
    }

    /// Dials what had to wait until a lane was gone.
    fn resume(&mut self, now: Instant) {
        if self.phase != Phase::Over {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.resume(now, &asking, &mut self.host);
            self.speak.resume(now, &speaking(&self.setup.profile), &mut self.host);
        }
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant) {
        let leaving = self.host.leaving.iter().any(Link::holds_worker);
        self.host.holds_worker = leaving || self.hear.holds_worker() || self.speak.holds_worker();
        let asking = asking(&self.setup.profile, &self.settings);
        if self.hear.interim_is_due(now)
            && let Some(audio) = self.ear.so_far()
        {
            self.hear.ask_interim(now, audio, &asking, &mut self.host);
        }
        self.hear.timeout(now, &asking, &mut self.host);
        self.speak.timeout(now, &speaking(&self.setup.profile), &mut self.host);
        for mut link in std::mem::take(&mut self.host.leaving) {
            link.timeout(now, &mut self.host);
            if !link.is_gone() {
                self.host.leaving.push(link);
            }
        }
        self.resume(now);
        if self.stall_due().is_some_and(|due| due <= now) {
            self.ear.end(&mut self.heard);
            self.tell_heard(now);
        }
        if self.idle_due().is_some_and(|due| due <= now) {
            self.finish(now, CloseName::Idle);
        }
        self.settle(now);
    }

    /// When [`Session::timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let times = &self.host.times;
        let finishing = match self.phase {
            Phase::Finishing(_, until) => Some(until),
            Phase::Open | Phase::Over => None,
        };
        let leaving = self.host.leaving.iter().filter_map(|link| link.next_timeout(times)).min();
        let hear = self.hear.next_timeout(times, &self.setup.profile.hear);
        [finishing, leaving, hear, self.speak.next_timeout(times), self.stall_due(), self.idle_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When an utterance ends because its audio has stopped coming: nobody waits for what will not be sent.
    fn stall_due(&self) -> Option<Instant> {
        let recording = self.phase == Phase::Open && self.ear.so_far().is_some();
        let stall = Duration::from_millis(self.setup.profile.listen.stall_ms.into());
        recording.then(|| self.audio_at + stall)
    }

    /// The client waits for words or for speech.
    fn owes(&self) -> bool {
        self.speak.is_busy() || !self.hear.is_settled()
    }

    /// When the session ends for want of audio: who listens sends none, and who waits for words sends none either, as long
    /// as an upstream's queue may take.
    fn idle_due(&self) -> Option<Instant> {
        let idle = self.idle.filter(|_| self.phase == Phase::Open && !self.speak.is_busy())?;
        let due = self.idle_since + idle;
        let patience = Duration::from_millis(self.setup.profile.lanes.queue_max_ms);
        Some(if self.hear.is_settled() { due } else { due.max(self.audio_at + patience) })
    }

    /// Everything is done and said, and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        let lanes = self.hear.lane().is_some() || self.speak.is_busy() || !self.host.leaving.is_empty();
        self.phase == Phase::Over && !lanes && self.host.out.is_empty()
    }

    /// The next thing to do.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.host.out.pop()
    }

    /// Begins to end: what is being said is dropped as the Macaw server drops it, what was said is still answered
    /// (the server answers commands only after the answer it owes, field notes macaw.md §1.8).
    fn finish(&mut self, now: Instant, why: CloseName) {
        if why == CloseName::Shutdown {
            self.ear.commit(&mut self.heard);
            self.tell_heard(now);
        } else {
            self.speak.cancel(now, &mut self.host);
        }
        self.ear.stop();
        let asking = asking(&self.setup.profile, &self.settings);
        self.hear.abandon_recording(now, self.ear.at_ms(), &asking, &mut self.host);
        self.phase = Phase::Finishing(why, now + self.setup.profile.hear.speech_end_wait);
    }

    /// Ends when nothing is owed any more.
    fn settle(&mut self, now: Instant) {
        let owes = self.owes();
        if self.speak.is_busy() || (self.owed && !owes) {
            self.idle_since = now;
        }
        self.owed = owes;
        let Phase::Finishing(why, until) = self.phase else { return };
        if self.owes() && now < until {
            return;
        }
        self.end(now);
        self.host.out.client(ClientCommand::SessionClosed {
            why,
            total_ms: millis(now - self.opened_at),
            segments: self.hear.segments(),
            session_id: self.session_id.clone(),
        });
        self.host.out.push(Action::EndClient(why));
    }

    /// Closes every pair and leaves every lane.
    fn end(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.ear.stop();
        self.speak.cancel(now, &mut self.host);
        let asking = asking(&self.setup.profile, &self.settings);
        self.hear.stop(now, self.ear.at_ms(), &asking, &mut self.host);
    }
}
