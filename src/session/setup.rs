//! Opening of a session: its inputs, which are the parts of client protocol, profile and dialect that concern it, and its
//! first state.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    AudioTotals, ClientActivity, Session, SessionPhase, VoiceCatalog,
    assistant::Assistant,
    client_requests::saturating_u32,
    dialogue::Dialogue,
    drop_report::DropReport,
    floor::{Floor, FloorOptions},
    input::{
        rate_limiter::RateLimiter,
        speech_input::{InputSettings, InputUse, SpeechInput},
    },
    lanes::Lanes,
    microphone::AudioIntake,
    outbox::Actions,
    settings::Settings,
    stt::transcriber::Transcriber,
    timers::{Timer, Timers},
    tools::{SegmentIds, Tools},
    tts::{queue::TtsQueue, synthesizer::Synthesizer, voices::VoiceEncodingChoice},
};
use crate::mapping::{
    ClientMapping, Profile, UpstreamMapping,
    client::{AudioIn, AudioOut, TranscriptRules},
    profile::{DialogueRules, PlayoutRules},
    upstream::{DuplexLimits, Mode, VoiceEncoding},
};
use crate::{
    audio::vad::Sensitivity,
    event::{ClientCommand, Setting},
};

/// Inputs of a new session.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// The profile: the meaning of the client's commands.
    pub profile: Arc<Profile>,
    /// Format and limits of audio from the client.
    pub audio_in: AudioIn,
    /// Format of audio to the client.
    pub audio_out: AudioOut,
    /// How utterances are transcribed.
    pub transcripts: TranscriptRules,
    /// The client confirms when it has played a text or turn.
    pub confirms_playback: bool,
    /// The client gets transcripts only as replies to its own messages.
    pub lock_step: bool,
    /// The end of speech is reported to the client at once, not after the transcript.
    pub reports_speech_end_first: bool,
    /// The client gets notices while a request waits in the upstream's queue.
    pub reports_queue: bool,
    /// Final transcripts have word times in the client protocol.
    pub has_word_times: bool,
    /// Longest audio of one upstream request, ms.
    pub audio_max_ms: u64,
    /// Limits of the upstream's conversations.
    pub duplex: DuplexLimits,
    /// True if the upstream has chat turns. Transcription and text to speech need them.
    pub has_chat: bool,
    /// Encodings of voice samples that the upstream may accept, in the order of attempts.
    pub voice_encodings: Arc<[VoiceEncoding]>,
    /// Configured voices, by name.
    pub voice_catalog: Arc<VoiceCatalog>,
    /// Longest session, ms; 0 for no limit. The session then ends as soon as that interrupts no one.
    pub session_max_ms: u64,
    /// Seed of all random values: ids and jitter.
    pub seed: u64,
}

impl SessionSetup {
    /// Combines a client protocol, a profile and an upstream dialect. No voices are configured, and the idle timeout is
    /// the protocol's own.
    #[must_use]
    pub fn new(client: &ClientMapping, profile: Arc<Profile>, dialect: &UpstreamMapping, seed: u64) -> Self {
        Self {
            profile,
            audio_in: client.audio_in.clone(),
            audio_out: client.audio_out.clone(),
            transcripts: client.transcripts,
            confirms_playback: client.confirms_playback,
            lock_step: client.lock_step,
            reports_speech_end_first: client.realtime.is_some(),
            reports_queue: client.is_rest,
            has_word_times: client.has_word_times(),
            audio_max_ms: dialect.audio_max_ms,
            duplex: dialect.duplex.clone(),
            has_chat: dialect.modes.contains_key(&Mode::Chat),
            voice_encodings: dialect.voice_encodings.clone(),
            voice_catalog: Arc::default(),
            session_max_ms: 0,
            seed,
        }
    }

    /// Opens a session. The client is notified at once, without waiting for an upstream.
    pub(crate) fn open(self, now: Instant, mut settings: Vec<Setting>) -> Session {
        let talk = self.profile.dialogue.clone();
        let voice_encoding = VoiceEncodingChoice::new(Arc::clone(&self.voice_encodings));
        let mut tools = Tools {
            lanes: Lanes::new(self.profile.lanes, voice_encoding, self.seed),
            floor: Floor::new(self.floor_options()),
            out: Actions::default(),
            timers: Timers::default(),
            segment_ids: SegmentIds::default(),
        };
        let session_id = format!("sess_{:012x}", tools.lanes.rng().u64(..) & 0xffff_ffff_ffff);
        if self.session_max_ms > 0 {
            tools.timers.set(Timer::TimeLimit, now + Duration::from_millis(self.session_max_ms));
        }
        tools.lanes.reports_queue = self.reports_queue;
        if self.lock_step {
            tools.out.enable_lockstep();
        }
        let input_settings = InputSettings {
            encoding: self.audio_in.encoding,
            rate_hz: self.audio_in.rate_hz,
            channels: self.audio_in.channels,
            sensitivity: Sensitivity::Normal,
            end_silence_ms: self.profile.listen.end_ms,
            segment_max_ms: self.profile.listen.segment_max_ms.min(saturating_u32(self.audio_max_ms)),
            cut_after_ms: self.transcripts.cut_after_ms,
            cut_pause_ms: self.transcripts.cut_pause_ms,
            is_manual: false,
        };
        let transcribes = talk.is_none() || self.profile.transcribes_user();
        let input_use = InputUse { records_utterances: transcribes, streams_audio: talk.is_some() };
        settings.insert(0, Setting::OutputRate(self.audio_out.rate_hz));
        let idle_timeout = Some(Duration::from_millis(self.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut session = Session {
            settings: Settings {
                language: None,
                tts_model: None,
                voice: None,
                microphone: self.profile.microphone(),
                rollover_events: false,
                output_format: (self.audio_out.encoding, self.audio_out.rate_hz),
                utterance_gap: None,
            },
            session_id,
            opened_at: now,
            phase: SessionPhase::Open,
            drain_plan: None,
            activity: ClientActivity {
                idle_timeout,
                idle_since: now,
                was_awaiting_reply: false,
                has_sent_audio: false,
                last_replied_at: None,
                silence_since: now,
                last_frame_length: Duration::ZERO,
                had_backpressure: false,
            },
            intake: AudioIntake {
                rate_limiter: RateLimiter::new(self.audio_in.rate_limit, self.audio_in.max_ahead_ms),
                dropped_groups: 0,
                audio_totals: AudioTotals::default(),
                speech_input: SpeechInput::new(self.profile.listen.clone(), input_settings, input_use),
                speech_events: Vec::new(),
                last_utterance_end_ms: None,
            },
            drop_report: DropReport::default(),
            transcriber: Transcriber::new(&self),
            synthesizer: Synthesizer::new(Arc::clone(&self.profile)),
            tts_queue: TtsQueue::default(),
            dialogue: None,
            assistant: None,
            tools,
            setup: self,
        };
        let language = settings.iter().find_map(|setting| match setting {
            Setting::Language(language) => Some(language.clone()),
            _ => None,
        });
        session.tools.out.push_client(ClientCommand::SessionCreated { language });
        open_assistant(&mut session);
        session.apply_settings(now, settings);
        if let Some(talk) = talk {
            open_dialogue(now, talk, &mut session);
        }
        session.arm_idle();
        session.arm_outputs(now);
        session
    }

    /// True if word times are estimated for a client that wants them.
    pub(crate) fn estimates_word_times(&self) -> bool {
        self.has_word_times && self.profile.hear.estimated_word_times
    }

    /// How audio is sent: the profile's rules, and what the protocol puts in their place.
    pub(crate) fn playout(&self) -> PlayoutRules {
        let rules = self.profile.playout;
        PlayoutRules {
            pace: self.audio_out.pace.unwrap_or(rules.pace),
            frame_ms: self.audio_out.frame_ms.unwrap_or(rules.frame_ms),
            ..rules
        }
    }

    /// Longest delay of the end of speech for its transcript.
    pub(crate) fn speech_end_wait(&self) -> Duration {
        match (self.reports_speech_end_first, self.transcripts.in_order) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::MAX,
            (false, false) => self.profile.hear.speech_end_wait,
        }
    }

    /// Options of the session's floor.
    pub(crate) fn floor_options(&self) -> FloorOptions {
        FloorOptions {
            frame_max_bytes: self.audio_out.frame_max_bytes,
            has_fixed_frames: self.audio_out.frame_ms.is_some(),
            confirms_playback: self.confirms_playback,
            playout: self.playout(),
        }
    }
}

fn open_assistant(session: &mut Session) {
    let Some(rules) = session.setup.profile.answers.clone() else { return };
    let voice = session.configured_voice();
    session.assistant = Some(Box::new(Assistant::new(session.setup.profile.clone(), rules, voice)));
}

fn open_dialogue(now: Instant, talk: Arc<DialogueRules>, session: &mut Session) {
    let settings = session.dialogue_settings();
    let (mode, duplex) = (session.setup.profile.mode, &session.setup.duplex);
    let Tools { lanes, out, .. } = &mut session.tools;
    session.dialogue = Some(Box::new(Dialogue::open(now, talk, mode, duplex, settings, lanes, out)));
}

/// Parameters of a relayed session.
#[derive(Debug, Clone)]
pub struct RelaySetup {
    /// Profile with a `relay` section.
    pub profile: Arc<Profile>,
    /// Closes a client that sends nothing for this time, ms. `None` takes the profile's value, 0 disables the limit.
    pub idle_ms: Option<u64>,
    /// Longest session, ms; 0 for no limit. An answer in progress is finished first.
    pub session_max_ms: u64,
    /// Wall clock at the start, seconds since 1970.
    pub unix_s: f64,
    /// Seed for ids and jitter.
    pub seed: u64,
}
