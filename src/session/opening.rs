//! Opening of a session: its parts in their first state, and the first settings.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::{
    AudioTotals, Session, SessionState,
    activity::ClientActivity,
    assistant::Assistant,
    dialogue::Dialogue,
    drop_report::DropReport,
    floor::Floor,
    input::{
        rate_limiter::RateLimiter,
        speech_input::{InputUse, SpeechInput},
    },
    lanes::{Lanes, voice_encoding::VoiceEncodingChoice},
    lifecycle::Lifecycle,
    microphone::AudioIntake,
    outbox::Actions,
    owners::Owners,
    setup::SessionSetup,
    status,
    stt::transcriber::Transcriber,
    timers::{Timer, Timers},
    tools::{SegmentIds, Tools},
    tts::{queue::TtsQueue, synthesizer::Synthesizer},
};
use crate::vocabulary::{ClientEvent, Setting, TurnEnd};

impl SessionSetup {
    /// Opens a session. The client is notified at once, without waiting for an upstream.
    pub(crate) fn open(self, now: Instant, settings: Vec<Setting>) -> Box<Session> {
        let limit_ms = Some(self.session_max_ms).filter(|ms| *ms > 0);
        let idle_timeout = Some(Duration::from_millis(self.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut owners = self.open_owners();
        let session_id = session_id(owners.tools.lanes.rng());
        if let Some(limit_ms) = limit_ms {
            owners.tools.timers.set(Timer::TimeLimit, now + Duration::from_millis(limit_ms));
        }
        let language = settings.iter().find_map(|setting| match setting {
            Setting::Language(language) => Some(language.clone()),
            _ => None,
        });
        owners.tools.floor.out.push_client(ClientEvent::SessionCreated { language, limit_ms });
        let missing_judge = owners.setup.missing_judge(TurnEnd::OfProfile);
        missing_judge.into_iter().for_each(|note| owners.tools.floor.out.observe(note));
        owners.apply_settings(now, settings);
        let Owners { setup: Self { profile, duplex, .. }, dialogue, tools, .. } = &mut owners;
        if let Some(rules) = profile.dialogue.clone() {
            *dialogue = Some(Dialogue::open(now, rules, profile.mode, duplex, tools));
        }
        let activity = ClientActivity::new(now, idle_timeout);
        activity.arm_idle(true, &mut owners);
        owners.arm_outputs(now);
        let lifecycle = Lifecycle::new(now);
        // Boxed, because a session is large, and moved more than once until it runs.
        let mut session =
            Box::new(Session { session_id, state: SessionState::Idle, lifecycle, activity, owners });
        session.state = status::state(&session);
        session
    }

    /// The owners of a new session, without a conversation in full duplex.
    fn open_owners(self) -> Owners {
        let profile = Arc::clone(&self.profile);
        let tools = self.open_tools();
        let input_settings = self.input_settings(&tools.settings);
        let input_use = InputUse {
            records_utterances: profile.dialogue.is_none() || profile.transcribes_user(),
            streams_audio: profile.dialogue.is_some(),
        };
        // A model that is not prompted for calls speaks beside them.
        let asks_silently = self.can_speak && !self.calls_natively;
        let assistant = profile
            .answers
            .clone()
            .map(|rules| Box::new(Assistant::new(Arc::clone(&profile), rules, asks_silently, &self)));
        Owners {
            intake: AudioIntake {
                rate_limiter: RateLimiter::new(self.audio_in.rate_limit, self.audio_in.max_ahead_ms),
                dropped_groups: 0,
                audio_totals: AudioTotals::default(),
                speech_input: SpeechInput::new(profile.listen.clone(), input_settings, input_use),
                speech_events: Vec::new(),
                last_utterance_end_ms: None,
            },
            drop_report: DropReport::default(),
            transcriber: Transcriber::new(&self),
            tts_queue: TtsQueue::new(self.audio_out.speak_sentences),
            synthesizer: Synthesizer::new(profile),
            dialogue: None,
            assistant,
            tools,
            setup: self,
        }
    }

    fn open_tools(&self) -> Tools {
        let voice_encoding = VoiceEncodingChoice::new(Arc::clone(&self.voice_encodings));
        let mut lanes = Lanes::new(self.profile.lanes, voice_encoding, self.seed);
        lanes.reports_queue = self.is_request;
        let settings = self.default_settings();
        let mut floor = Floor::new(self.floor_options(), Actions::new(lanes.shared.out.numbers()));
        floor
            .set_format(settings.output_format())
            .expect("the check of the client's mapping has tried this format");
        Tools {
            settings,
            voice: None,
            voice_name: None,
            lanes,
            floor,
            timers: Timers::default(),
            segment_ids: SegmentIds::default(),
        }
    }
}

/// A new id: `sess_`, and 12 hexadecimal digits.
fn session_id(rng: &mut Rng) -> String {
    let random = rng.u64(..);
    let digits = (0..12).rev().map(|place| b"0123456789abcdef"[(random >> (4 * place)) as usize % 16]);
    let mut id = String::with_capacity(17);
    id.push_str("sess_");
    id.extend(digits.map(char::from));
    id
}
