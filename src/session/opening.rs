//! Opening of a session: its parts in their first state, and the first settings.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    AudioTotals, ClientActivity, Session, SessionPhase, SessionState,
    acknowledged_audio::AcknowledgedAudio,
    assistant::Assistant,
    dialogue::Dialogue,
    drop_report::DropReport,
    floor::Floor,
    input::{
        rate_limiter::RateLimiter,
        speech_input::{InputUse, SpeechInput},
    },
    lanes::{Lanes, voice_encoding::VoiceEncodingChoice},
    microphone::AudioIntake,
    outbox::Actions,
    setup::SessionSetup,
    status,
    stt::transcriber::Transcriber,
    timers::{Timer, Timers},
    tools::{SegmentIds, Tools},
    tts::{queue::TtsQueue, synthesizer::Synthesizer},
};
use crate::{
    spelling::profile::DialogueRules,
    vocabulary::{ClientEvent, Setting, TurnEnd},
};

impl SessionSetup {
    /// Opens a session. The client is notified at once, without waiting for an upstream.
    pub(crate) fn open(self, now: Instant, mut settings: Vec<Setting>) -> Session {
        let talk = self.profile.dialogue.clone();
        let voice_encoding = VoiceEncodingChoice::new(Arc::clone(&self.voice_encodings));
        let lanes = Lanes::new(self.profile.lanes, voice_encoding, self.seed);
        let mut tools = Tools {
            settings: self.default_settings(),
            voice: None,
            out: Actions::new(lanes.action_numbers()),
            lanes,
            floor: Floor::new(self.floor_options()),
            timers: Timers::default(),
            segment_ids: SegmentIds::default(),
        };
        let limit_ms = Some(self.session_max_ms).filter(|ms| *ms > 0);
        let session_id = format!("sess_{:012x}", tools.lanes.rng().u64(..) & 0xffff_ffff_ffff);
        if let Some(limit_ms) = limit_ms {
            tools.timers.set(Timer::TimeLimit, now + Duration::from_millis(limit_ms));
        }
        tools.lanes.reports_queue = self.is_request;
        let input_settings = self.input_settings(&tools.settings);
        let transcribes = talk.is_none() || self.profile.transcribes_user();
        let input_use = InputUse { records_utterances: transcribes, streams_audio: talk.is_some() };
        settings.insert(0, Setting::OutputRateHz(self.audio_out.rate_hz));
        let idle_timeout = Some(Duration::from_millis(self.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut session = Session {
            session_id,
            opened_at: now,
            phase: SessionPhase::Open,
            state: SessionState::Idle,
            drain_plan: None,
            waits_for_progress: false,
            activity: ClientActivity {
                idle_timeout,
                idle_since: now,
                was_awaiting_reply: false,
                has_sent_audio: false,
                last_replied_at: None,
                silence_since: now,
                user_silence: None,
                last_frame_length: Duration::ZERO,
                acknowledged: AcknowledgedAudio::default(),
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
            tts_queue: TtsQueue::new(self.audio_out.speak_sentences),
            dialogue: None,
            assistant: None,
            tools,
            setup: self,
        };
        let language = settings.iter().find_map(|setting| match setting {
            Setting::Language(language) => Some(language.clone()),
            _ => None,
        });
        session.tools.out.push_client(ClientEvent::SessionCreated { language, limit_ms });
        session.note_missing_judge(TurnEnd::OfProfile);
        open_assistant(&mut session);
        session.apply_settings(now, settings);
        if let Some(talk) = talk {
            open_dialogue(now, talk, &mut session);
        }
        session.arm_idle();
        session.arm_outputs(now);
        session.state = status::state(&session);
        session
    }
}

fn open_assistant(session: &mut Session) {
    let Some(rules) = session.setup.profile.answers.clone() else { return };
    let (profile, can_speak) = (session.setup.profile.clone(), session.setup.can_speak);
    session.assistant = Some(Box::new(Assistant::new(profile, rules, can_speak)));
}

fn open_dialogue(now: Instant, talk: Arc<DialogueRules>, session: &mut Session) {
    let (mode, duplex) = (session.setup.profile.mode, &session.setup.duplex);
    session.dialogue = Some(Box::new(Dialogue::open(now, talk, mode, duplex, &mut session.tools)));
}
