//! One client session, sans-IO: settings, utterances, texts to speak, the conversation, and the lanes that serve them.
//!
//! Takes neutral events with the instant of their arrival, and appends [`outbox::Action`]s. Knows no wire format, clock
//! or task.
//!
//! - [`setup`] holds the inputs of a new session, [`settings`] the client's settings, [`client_requests`] other requests
//! - [`microphone`] takes the client's audio, [`input`] turns it into utterances, [`stt`] utterances into transcripts
//! - [`drop_report`] reports audio that was dropped
//! - [`tts`] turns texts into audio, [`floor`] decides who is heard and plays it; [`outbox::lockstep`] serves clients that wait for one reply per message
//! - [`dialogue`] is the conversation with the model, with its [`dialogue::history`]
//! - [`assistant`] is a conversation that takes turns, with its [`assistant::entries`]
//! - [`lanes`] are the upstream sessions, [`routing`] passes what happens on a lane to its owner
//! - [`timers`] is the table of all deadlines
//! - [`tools`] are what these share; [`effects`] says what an input changed, and [`follow_up`] runs the steps below; [`shutdown`] ends a session, [`drain_plan`] has the deadlines of a graceful end
//! - [`measurement`] and [`status`] serve operators
//! - a client of the model's own protocol has another kind of session: [`crate::bridge`]'s relay
//!
//! # What an input changes
//!
//! Each input is handled by its owner first. Then it takes these steps, in this order:
//!
//! 1. `play`: sends audio that is due, if [`timers::Timer::Playout`] has expired
//! 2. `speak_next_queued`: speaks the next queued text once nothing else is being spoken
//! 3. `advance_dialogue`: lets the conversation continue ([`dialogue`] lists its own steps), or begins and ends answers
//! 4. `report_dropped`: reports audio that was dropped
//! 5. `finish_if_quiet`: starts to close a draining session that interrupts no one
//! 6. `report_transcripts`: reports silence, and replies to a client in lock step
//! 7. `track_backpressure`: arms the timer of an utterance without audio
//! 8. `track_replies`: arms the timer of an idle client
//! 9. `arm_outputs`: arms the timers of the floor and of the lanes
//! 10. `finish_if_answered`: ends a closing session whose replies are sent
//!
//! | input | steps |
//! |---|---|
//! | a frame of audio that decides nothing | the floor's timer if audio may leave, the next unit of a conversation, and 6 |
//! | a frame that starts or ends an utterance, or interrupts | 1–10 |
//! | a keep-alive, a picture | none |
//! | any other message of the client | 1–10 |
//! | more audio or text of the text or turn that is being played | the next unit of a conversation, and the floor's timer |
//! | other output of the conversation's model | 1–5, 8–10 |
//! | a message or the end of another lane | 1–10 |
//! | a timer, a drain, an operator's request | its handler, by name, then 1–10 |
//!
//! A frame or delta takes all steps while the session drains, and when a timer has expired by its instant.

pub(crate) mod assistant;
mod client_requests;
pub(crate) mod dialogue;
pub(crate) mod drain_plan;
mod drop_report;
pub(crate) mod effects;
pub(crate) mod floor;
mod follow_up;
pub(crate) mod growing_text;
pub(crate) mod input;
pub(crate) mod lanes;
pub(crate) mod measurement;
mod microphone;
pub(crate) mod outbox;
pub(crate) mod output_filter;
mod settings;
mod setup;
mod shutdown;
mod status;
pub(crate) mod stt;
pub(crate) mod timers;
pub(crate) mod tools;
pub(crate) mod tts;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    assistant::Assistant,
    client_requests::saturating_u32,
    dialogue::Dialogue,
    drain_plan::DrainPlan,
    drop_report::DropReport,
    effects::Effects,
    floor::{Floor, SpeechSource},
    input::{
        rate_limiter::RateLimiter,
        speech_input::{InputSettings, InputUse, SpeechInput},
    },
    lanes::Lanes,
    microphone::AudioIntake,
    outbox::{Actions, lockstep::AwaitedReply},
    settings::Settings,
    stt::transcriber::Transcriber,
    timers::{Timer, Timers},
    tools::{SegmentIds, Tools},
    tts::{queue::TtsQueue, synthesizer::Synthesizer, voices::VoiceEncodingChoice},
};
pub use self::{
    dialogue::UplinkCounts,
    input::{read_window::ReadWindow, speech_input::SampleCounts},
    measurement::{
        AudioOrigin, AudioTotals, BargeInStage, EndReason, LanePurpose, Measurement, SessionState,
    },
    outbox::Observation,
    setup::{RelaySetup, SessionSetup},
    status::SessionReport,
    tts::voices::VoiceCatalog,
};
use crate::{
    audio::vad::Sensitivity,
    error::Error,
    event::{ClientCommand, ClientEvent, CloseReason, Setting},
    mapping::profile::DialogueRules,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// The session accepts input.
    Open,
    /// The session closes once all replies are sent, or [`Timer::Finish`] expires.
    Finishing(CloseReason),
    /// The client side is closed; lanes may still be closing.
    Ended,
}

/// Last activity of the client, and whether it waits.
#[derive(Debug)]
struct ClientActivity {
    /// The client may be silent for this long; `None` without a limit.
    idle_timeout: Option<Duration>,
    idle_since: Instant,
    /// The client waited for a reply after the last input.
    was_awaiting_reply: bool,
    /// The client has sent audio.
    has_sent_audio: bool,
    /// When the last pending reply was sent.
    last_replied_at: Option<Instant>,
    /// Since when no audio has arrived, although the client was read.
    silence_since: Instant,
    /// Length of the last audio frame.
    last_frame_length: Duration,
    /// The client was under back-pressure after the last input.
    had_backpressure: bool,
}

/// One client session.
#[derive(Debug)]
pub(crate) struct Session {
    setup: SessionSetup,
    settings: Settings,
    session_id: String,
    opened_at: Instant,
    phase: SessionPhase,
    /// Plan of a graceful end, while the session waits for a moment that interrupts no one.
    drain_plan: Option<DrainPlan<CloseReason>>,
    activity: ClientActivity,
    intake: AudioIntake,
    drop_report: DropReport,
    transcriber: Transcriber,
    synthesizer: Synthesizer,
    tts_queue: TtsQueue,
    dialogue: Option<Box<Dialogue>>,
    assistant: Option<Box<Assistant>>,
    tools: Tools,
}

impl Session {
    /// Opens a session. The client is notified at once, without waiting for an upstream.
    pub(crate) fn open(now: Instant, setup: SessionSetup, mut settings: Vec<Setting>) -> Self {
        let talk = setup.profile.dialogue.clone();
        let voice_encoding = VoiceEncodingChoice::new(Arc::clone(&setup.voice_encodings));
        let mut tools = Tools {
            lanes: Lanes::new(setup.profile.lanes, voice_encoding, setup.seed),
            floor: Floor::new(setup.floor_options()),
            out: Actions::default(),
            timers: Timers::default(),
            segment_ids: SegmentIds::default(),
        };
        let session_id = format!("sess_{:012x}", tools.lanes.rng().u64(..) & 0xffff_ffff_ffff);
        if setup.session_max_ms > 0 {
            tools.timers.set(Timer::TimeLimit, now + Duration::from_millis(setup.session_max_ms));
        }
        tools.lanes.reports_queue = setup.reports_queue;
        if setup.lock_step {
            tools.out.enable_lockstep();
        }
        let input_settings = InputSettings {
            encoding: setup.audio_in.encoding,
            rate_hz: setup.audio_in.rate_hz,
            channels: setup.audio_in.channels,
            sensitivity: Sensitivity::Normal,
            end_silence_ms: setup.profile.listen.end_ms,
            segment_max_ms: setup.profile.listen.segment_max_ms.min(saturating_u32(setup.audio_max_ms)),
            cut_after_ms: setup.transcripts.cut_after_ms,
            cut_pause_ms: setup.transcripts.cut_pause_ms,
            is_manual: false,
        };
        let transcribes = talk.is_none() || setup.profile.transcribes_user();
        let input_use = InputUse { records_utterances: transcribes, streams_audio: talk.is_some() };
        settings.insert(0, Setting::OutputRate(setup.audio_out.rate_hz));
        let idle_timeout = Some(Duration::from_millis(setup.audio_in.idle_ms)).filter(|idle| !idle.is_zero());
        let mut session = Self {
            settings: Settings {
                language: None,
                tts_model: None,
                voice: None,
                microphone: setup.profile.microphone(),
                rollover_events: false,
                output_format: (setup.audio_out.encoding, setup.audio_out.rate_hz),
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
                rate_limiter: RateLimiter::new(setup.audio_in.rate_limit, setup.audio_in.max_ahead_ms),
                dropped_groups: 0,
                audio_totals: AudioTotals::default(),
                speech_input: SpeechInput::new(setup.profile.listen.clone(), input_settings, input_use),
                speech_events: Vec::new(),
                last_utterance_end_ms: None,
            },
            drop_report: DropReport::default(),
            transcriber: Transcriber::new(&setup),
            synthesizer: Synthesizer::new(Arc::clone(&setup.profile)),
            tts_queue: TtsQueue::default(),
            dialogue: None,
            assistant: None,
            tools,
            setup,
        };
        let language = settings.iter().find_map(|setting| match setting {
            Setting::Language(language) => Some(language.clone()),
            _ => None,
        });
        session.tools.out.push_client(ClientCommand::SessionCreated { language });
        session.open_assistant();
        session.apply_settings(now, settings);
        if let Some(talk) = talk {
            session.open_dialogue(now, talk);
        }
        session.arm_idle();
        session.arm_outputs(now);
        session
    }

    fn open_assistant(&mut self) {
        let Some(rules) = self.setup.profile.answers.clone() else { return };
        let voice = self.configured_voice();
        self.assistant = Some(Box::new(Assistant::new(self.setup.profile.clone(), rules, voice)));
    }

    fn open_dialogue(&mut self, now: Instant, talk: Arc<DialogueRules>) {
        let settings = self.dialogue_settings();
        let (mode, duplex) = (self.setup.profile.mode, &self.setup.duplex);
        let Tools { lanes, out, .. } = &mut self.tools;
        self.dialogue = Some(Box::new(Dialogue::open(now, talk, mode, duplex, settings, lanes, out)));
    }

    pub(crate) fn id(&self) -> &str {
        &self.session_id
    }

    /// Counts of all samples, and the number of sample groups dropped as too far ahead of the clock.
    pub(crate) fn sample_counts(&self) -> (SampleCounts, u64) {
        (self.intake.speech_input.sample_counts(), self.intake.dropped_groups)
    }

    /// Counts of the conversation's audio; `None` without a conversation.
    pub(crate) fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.dialogue.as_ref().map(|dialogue| dialogue.uplink_counts())
    }

    /// True while the driver should stop reading from the client: too much audio waits for a transcript, or the client
    /// itself waits for a reply.
    fn needs_backpressure(&self) -> bool {
        let max_backlog_ms = self.setup.audio_in.backpressure_ms;
        self.phase == SessionPhase::Open
            && ((max_backlog_ms > 0 && self.transcriber.queue.backlog_ms() > max_backlog_ms)
                || self.tools.out.awaits_final())
    }

    /// Handles a command or audio of the client.
    pub(crate) fn handle_client_event(&mut self, now: Instant, event: ClientEvent<'_>) {
        if self.phase != SessionPhase::Open {
            return self.handle_late_client_event(now, &event);
        }
        match event {
            ClientEvent::Audio(bytes) => {
                let is_first = !std::mem::replace(&mut self.activity.has_sent_audio, true);
                let is_decisive = self.handle_audio(now, bytes) || is_first;
                if self.setup.lock_step {
                    self.tools.out.await_reply(AwaitedReply::Current);
                }
                if !is_decisive {
                    return self.follow(now, Effects::FRAME);
                }
            }
            ClientEvent::Played(turn) => self.tools.floor.confirm_played(now, turn, &mut self.tools.out),
            ClientEvent::Configure(settings) => {
                self.apply_settings(now, settings);
                self.tools.out.push_client(ClientCommand::Configured);
            }
            ClientEvent::AppendText(text) => self.update_tts_queue(now, |queue| queue.append(&text)),
            ClientEvent::Flush => self.update_tts_queue(now, TtsQueue::flush),
            ClientEvent::Clear => {
                let sequence = self.tts_queue.clear();
                self.stop_speech(now);
                self.activity.idle_since = now;
                self.tools.out.push_client(ClientCommand::Cleared { sequence });
            }
            ClientEvent::Finalize => self.finalize_transcripts(now),
            ClientEvent::Finish => self.finish_after_replies(now),
            ClientEvent::KeepAlive => {
                self.activity.idle_since = now;
                return self.follow(now, Effects::NONE);
            }
            ClientEvent::Speak(request) => self.start_speech(now, *request),
            ClientEvent::CancelSpeech => {
                self.stop_speech(now);
                self.activity.idle_since = now;
            }
            ClientEvent::Commit { may_be_empty } => self.commit_audio(now, may_be_empty),
            ClientEvent::ClearAudio => {
                self.intake.speech_input.clear();
                if let Some(assistant) = &mut self.assistant {
                    assistant.release_prepared(now, &mut self.tools.lanes, &mut self.tools.out);
                }
                let Tools { lanes, timers, out, .. } = &mut self.tools;
                let at_ms = self.intake.speech_input.listened_ms();
                self.transcriber.abandon_recording(now, at_ms, lanes, timers, out);
                self.pass_on_words();
                self.tools.out.push_client(ClientCommand::AudioCleared);
            }
            ClientEvent::VideoFrame(frame) => {
                self.add_picture(frame);
                return self.follow(now, Effects::NONE);
            }
            ClientEvent::AddEntry(entry, place) => {
                self.add_entry(*entry, place);
                return self.follow(now, Effects::NONE);
            }
            ClientEvent::RemoveEntry(id) => self.with_entries(|entries| entries.remove(id)),
            ClientEvent::TruncateEntry(id, heard_ms) => {
                self.with_entries(|entries| entries.truncate(id, heard_ms));
            }
            ClientEvent::Answer(request) => self.request_answer(now, *request),
            ClientEvent::Close(reason) => self.begin_shutdown(now, reason),
        }
        self.follow(now, Effects::ALL);
    }

    /// Stops all speech: the current text and the model's turn.
    pub(super) fn stop_speech(&mut self, now: Instant) {
        let Tools { lanes, floor, out, .. } = &mut self.tools;
        self.synthesizer.cancel(now, floor, lanes, out);
        self.interrupt_model(now);
    }

    /// Interrupts the model's turn or answer.
    pub(super) fn interrupt_model(&mut self, now: Instant) {
        if let Some(assistant) = &mut self.assistant {
            assistant.interrupt(now, &mut self.tools);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.interrupt(now, &mut self.tools.floor, &mut self.tools.out);
        }
    }

    /// Reports invalid input to the client; the session continues.
    pub(crate) fn report_error(&mut self, error: Error) {
        if self.phase == SessionPhase::Open {
            self.tools.out.push_error(error);
        }
    }

    /// Reports an event to the log.
    pub(crate) fn observe(&mut self, observation: Observation) {
        self.tools.out.observe(observation);
    }

    /// True if a text of the client is being spoken or about to be.
    fn is_floor_taken(&self) -> bool {
        self.tools.floor.is_busy_with(SpeechSource::Text)
    }
}

/// Whole milliseconds of a duration, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
