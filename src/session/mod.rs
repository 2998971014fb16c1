//! One conversation, sans-IO: settings, utterances, texts being spoken, and the lanes that serve them.
//!
//! Takes neutral events with the instant they came, appends [`action`]s. Knows no wire, no clock and no task.
//!
//! - [`ear`] turns microphone audio into utterances, [`meter`] judges how fast it comes
//! - [`setup`] is what it starts from, [`settings`] what the client set, [`asked`] what else it asks for
//! - [`hear`] turns each [`utterance`] into words, [`speak`] texts into audio for the [`mouth`]; [`texts`] wait to be
//!   spoken in order, [`lockstep`] is how some clients are told what was understood
//! - [`converse`] talks with the model itself; [`memory`] is what was said
//! - [`link`] is one lane's life, [`retry`] its patience, [`host`] what lanes share, [`lanes`] finds a lane's owner
//! - [`ending`] is how a session ends, [`parting`] what is finished first when it is not the client's wish; [`figure`] is
//!   what is measured, [`standing`] where it is, [`lull`] how long the client may be left unread
//! - [`relay`] is another kind of session: of a client that speaks the model's own protocol
//! - [`reading`] makes a text speakable, [`voices`] finds the voice for it, [`words`] takes out of the model's text what
//!   people are not to see

mod client_requests;
mod context;
mod dialogue;
mod drain_plan;
pub(crate) mod input;
mod lane_routing;
pub(crate) mod measurement;
pub(crate) mod outbox;
pub(crate) mod relay;
mod settings;
mod setup;
mod shutdown;
mod status;
pub(crate) mod stt;
pub(crate) mod tts;
pub(crate) mod upstream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    context::Host,
    dialogue::{Converse, Scene, history::Memory},
    drain_plan::Parting,
    input::{
        rate_limiter::{Meter, Verdict},
        speech_input::{SpeechInput, SpeechEvent, Hearing, Use},
    },
    outbox::lockstep::Owed,
    settings::{Settings, asking, whole_u32},
    stt::transcriber::Hear,
    tts::{
        player::{By, Mouth},
        queue::Texts,
        synthesizer::Speak,
        voices::Encodings,
    },
    upstream::connection::millis,
};
pub use self::{
    dialogue::Streamed,
    input::{read_window::Lull, speech_input::Account},
    measurement::{Asked, Figure, Purpose, Reason, Stage, State, Tally},
    outbox::Observation,
    relay::RelaySetup,
    setup::Setup,
    tts::voices::VoiceBook,
};
use crate::{
    audio::vad::Sensitivity,
    error::Error,
    event::{ClientCommand, ClientEvent, CloseName, Microphone, Setting},
    mapping::profile::{Rhythm, TalkRules},
};

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
    /// It is to end as soon as nobody is cut off.
    parting: Option<Parting<CloseName>>,
    /// When its time is up.
    ends_at: Option<Instant>,
    idle: Option<Duration>,
    idle_since: Instant,
    /// Something was owed when last looked at.
    owed: bool,
    /// When nothing was owed any more.
    answered_at: Option<Instant>,
    /// When the last audio came.
    audio_at: Instant,
    /// How long the last frame of it was.
    frame: Duration,
    /// The same, where none has come yet.
    client_at: Option<Instant>,
    /// When the microphone was last listened to, and how long that frame was.
    mic: Option<(Instant, Duration)>,
    /// When the user was last heard to speak.
    voice_at: Option<Instant>,
    meter: Meter,
    dropped_groups: u64,
    tally: Tally,
    ear: SpeechInput,
    heard: Vec<SpeechEvent>,
    hear: Hear,
    speak: Speak,
    texts: Texts,
    /// Where the last utterance ended, ms, while the client may have to be told that nothing follows.
    gap_from_ms: Option<u64>,
    /// The client was held back when last looked at.
    held: bool,
    converse: Option<Box<Converse>>,
    host: Host,
}

impl Session {
    /// Opens a session: the client is told at once, whatever the upstream does.
    pub(crate) fn open(now: Instant, setup: Setup, model: String, mut settings: Vec<Setting>) -> Self {
        let talk = setup.profile.talk.clone();
        let memory = Memory::new(talk.as_ref().map_or(0, |talk| talk.converse.memory_max_chars));
        let mouth = Mouth::new(setup.audio_out.frame_max_bytes, setup.profile.playout);
        let encodings = Encodings::new(Arc::clone(&setup.voice_encodings));
        let mut host = Host::new(setup.profile.lanes, encodings, mouth, memory, setup.seed);
        let session_id = format!("sess_{:012x}", host.rng.u64(..) & 0xffff_ffff_ffff);
        if setup.lock_step {
            host.out.keep_step();
        }
        let hearing = Hearing {
            encoding: setup.audio_in.encoding,
            rate_hz: setup.audio_in.rate_hz,
            channels: setup.audio_in.channels,
            sensitivity: Sensitivity::Normal,
            end_ms: setup.profile.listen.end_ms,
            segment_max_ms: setup.profile.listen.segment_max_ms.min(whole_u32(setup.audio_max_ms)),
        };
        let transcribes = talk.as_ref().is_none_or(|talk| talk.converse.transcribe_user);
        let usage = Use { record: transcribes, stream: talk.is_some() };
        settings.insert(0, Setting::OutputRate(setup.audio_out.rate_hz));
        let idle = Some(Duration::from_millis(setup.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut session = Self {
            settings: Settings {
                language: None,
                hot_words: Vec::new(),
                partials: setup.profile.hear.partials,
                speak_model: None,
                voice: None,
                microphone: talk.as_ref().map_or(Microphone::Muted, |talk| talk.converse.microphone),
                rollover_events: false,
                output: (setup.audio_out.encoding, setup.audio_out.rate_hz),
                utterance_gap: None,
            },
            session_id,
            opened_at: now,
            phase: Phase::Open,
            parting: None,
            ends_at: (setup.session_max_ms > 0).then(|| now + Duration::from_millis(setup.session_max_ms)),
            idle,
            idle_since: now,
            owed: false,
            answered_at: None,
            audio_at: now,
            frame: Duration::ZERO,
            client_at: None,
            mic: None,
            voice_at: None,
            meter: Meter::new(setup.audio_in.rate_limit, setup.audio_in.ahead_max_ms),
            dropped_groups: 0,
            tally: Tally::default(),
            ear: SpeechInput::new(setup.profile.listen.clone(), hearing, usage),
            heard: Vec::new(),
            hear: Hear::new(setup.audio_in.hold_back_ms > 0),
            speak: Speak::default(),
            texts: Texts::default(),
            gap_from_ms: None,
            held: false,
            converse: None,
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
        if let Some(talk) = talk {
            session.open_conversation(now, talk);
        }
        session
    }

    fn open_conversation(&mut self, now: Instant, talk: Arc<TalkRules>) {
        let voice = self.chosen_voice();
        let (mode, duplex) = (self.setup.profile.mode, &self.setup.duplex);
        self.converse = Some(Box::new(Converse::open(now, talk, mode, duplex, voice, &mut self.host)));
    }

    pub(crate) fn id(&self) -> &str {
        &self.session_id
    }

    /// Where every sample went, and how many sample groups were dropped as too far ahead of the clock.
    pub(crate) fn account(&self) -> (Account, u64) {
        (self.ear.account(), self.dropped_groups)
    }

    /// Where the audio of the conversation went; none without one.
    pub(crate) fn streamed(&self) -> Option<Streamed> {
        self.converse.as_ref().map(|converse| converse.streamed())
    }

    /// Whether audio leaves as it is heard.
    pub(crate) fn paces(&self) -> bool {
        self.setup.profile.playout.pace == Rhythm::RealTime
    }

    /// Whether the client is to be read no further for now: so much waits for words that more would have to be dropped, or
    /// it waits for an answer itself.
    pub(crate) fn holds_back(&self) -> bool {
        let most = self.setup.audio_in.hold_back_ms;
        self.phase == Phase::Open && ((most > 0 && self.hear.backlog_ms() > most) || self.host.out.owes_all())
    }

    /// The client said something.
    pub(crate) fn client(&mut self, now: Instant, event: ClientEvent<'_>) {
        if self.phase != Phase::Open {
            return self.client_parts(now, &event);
        }
        match event {
            ClientEvent::Audio(bytes) => {
                self.audio(now, bytes);
                self.host.out.owe(Owed::Step);
            }
            ClientEvent::Configure(settings) => {
                self.configure(now, settings);
                self.host.out.client(ClientCommand::Configured);
            }
            ClientEvent::AppendText(text) => self.gather(now, |texts| texts.append(&text)),
            ClientEvent::Flush => self.gather(now, Texts::flush),
            ClientEvent::Clear => {
                let sequence = self.texts.clear();
                self.silence(now);
                self.idle_since = now;
                self.host.out.client(ClientCommand::Cleared { sequence });
            }
            ClientEvent::Finalize => self.finalize(now),
            ClientEvent::Finish => self.conclude(now),
            ClientEvent::KeepAlive => self.idle_since = now,
            ClientEvent::Speak(request) => self.start_speaking(now, *request),
            ClientEvent::CancelSpeech => {
                self.silence(now);
                self.idle_since = now;
            }
            ClientEvent::Commit => {
                self.ear.commit(&mut self.heard);
                self.tell_heard(now);
            }
            ClientEvent::Frame(frame) => {
                if !self.converse.as_mut().is_some_and(|converse| converse.see(frame)) {
                    let profile = &self.setup.profile.name;
                    let note = format!("a picture does nothing in profile {profile}: its model sees nothing");
                    self.host.out.observe(Observation::NoEffect(note));
                }
            }
            ClientEvent::Close(why) => self.finish(now, why),
        }
        self.settle(now);
    }

    /// Nobody wants to hear any more of what is being spoken.
    pub(super) fn silence(&mut self, now: Instant) {
        self.speak.cancel(now, &mut self.host);
        self.interrupt_model(now);
    }

    /// The model is to listen.
    pub(super) fn interrupt_model(&mut self, now: Instant) {
        let scene = self.scene();
        if let Some(converse) = &mut self.converse {
            converse.interrupt(now, &scene, &mut self.host);
        }
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

    fn audio(&mut self, now: Instant, bytes: &[u8]) {
        self.idle_since = now;
        self.audio_at = now;
        self.client_at = Some(now);
        let groups = self.ear.groups(bytes.len());
        let length = Duration::from_secs_f64(groups as f64 / f64::from(self.ear.hearing().rate_hz.max(1)));
        self.tally.came += length;
        self.frame = length;
        if groups > 0 {
            match self.meter.frame(now, length) {
                Verdict::Take => {}
                Verdict::TakeAndWarn(delay_ms) => {
                    self.host.out.client(ClientCommand::RateLimited { delay_ms });
                }
                Verdict::Drop => {
                    self.ear.discard(bytes);
                    self.dropped_groups += groups;
                    self.tally.dropped_fast += length;
                    let dropped_ms = millis(length).max(1);
                    return self.host.out.client(ClientCommand::FramesDropped { dropped_ms });
                }
            }
        }
        let muted = self.host.mouth.is_audible() && self.settings.microphone == Microphone::Muted;
        if muted {
            self.tally.muted += length;
            self.ear.mute(bytes, &mut self.heard);
        } else {
            self.ear.hear(bytes, &mut self.heard);
            // What the model does not hear it does not wait for.
            if !self.hushes() {
                self.mic = Some((now, length));
            }
        }
        // Muting hears out what came before it, which is no voice of now.
        if self.ear.take_voiced() && !muted {
            self.voice_at = Some(now);
            self.host.mouth.asked(now);
        }
        self.tell_heard(now);
    }

    /// Hands the conversation what was heard.
    fn stream(&mut self) {
        let hush = self.hushes();
        if let (Some(converse), Some(samples)) = (&mut self.converse, self.ear.stream()) {
            converse.audio(samples, hush);
        }
    }

    /// While the client hears a text it asked for, the model hears silence.
    fn hushes(&self) -> bool {
        self.host.mouth.is_audible() && self.host.mouth.is_busy_by(By::Request)
    }

    /// Hands on what was heard, and what was found in it.
    fn tell_heard(&mut self, now: Instant) {
        self.stream();
        let mut heard = std::mem::take(&mut self.heard);
        for heard in heard.drain(..) {
            if heard == SpeechEvent::Interrupted {
                self.interrupted(now);
            }
            self.note_gap(&heard);
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.heard(now, heard, &asking, &mut self.host);
        }
        self.heard = heard;
    }

    /// The user speaks into what is being spoken.
    fn interrupted(&mut self, now: Instant) {
        let after = self.ear.spoken();
        self.host.out.measured(Figure::BargeIn { stage: Stage::Noticed, after });
        let floor_taken = self.floor_taken();
        if let Some(converse) = self.converse.as_mut().filter(|_| floor_taken) {
            converse.recall();
        }
        self.silence(now);
    }

    /// A text that the client asked for is being spoken, or about to be.
    fn floor_taken(&self) -> bool {
        self.speak.is_busy() || self.host.mouth.is_busy_by(By::Request)
    }

    /// What the conversation needs to know.
    fn scene(&self) -> Scene {
        Scene {
            client_at: self.client_at,
            mic: self.mic,
            voice_at: self.voice_at,
            in_speech: self.ear.in_speech(),
            floor_taken: self.floor_taken(),
            text_in_making: self.speak.is_busy(),
            partials: self.settings.partials,
            rollover_events: self.settings.rollover_events,
        }
    }

    /// Watches for interruptions while there is something to interrupt.
    fn watch(&mut self) {
        let Some(talk) = &self.setup.profile.talk else { return };
        let speaking = self.converse.as_ref().is_some_and(|converse| converse.is_speaking())
            || self.host.mouth.is_audible();
        let open = self.settings.microphone == Microphone::Open;
        self.ear.watch(Some(&talk.barge_in).filter(|_| speaking && open));
    }
}
