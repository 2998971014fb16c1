//! One client session, sans-IO: settings, utterances, texts to speak, the conversation, and the lanes that serve them.
//!
//! Takes neutral events with the instant of their arrival, and appends [`outbox::Action`]s. Knows no wire format, clock
//! or task.
//!
//! [`Session`] decides when something is done: its [`lifecycle`] begins and ends it, and its [`activity`] is the client that speaks,
//! waits or is idle. [`Owners`] do it, and know neither. A message of an upstream goes through [`lanes`] to its owner, and a
//! frame of the client through [`microphone`] and [`input`] to the conversation and the transcriber. Either returns [`effects`],
//! and [`follow_up`] runs the steps below.
//!
//! - [`opening`] makes a session of its [`setup`]; [`client_requests`] handles what clients ask for, [`texts_to_speak`] what they
//!   want spoken, [`setting_changes`] what they set; [`settings`] is what follows from the settings in force
//! - [`microphone`] takes the client's audio, [`input`] finds utterances in it; [`drop_report`] reports what was dropped
//! - [`speech_events`] handles what was found: utterances, pauses and barge-ins
//! - [`lanes`] are the upstream sessions with their owners, [`floor`] decides who is heard and plays it
//! - the [`owners`]: [`stt`] makes transcripts of utterances, [`tts`] audio of texts, [`dialogue`] converses in full duplex, and
//!   [`assistant`] takes turns
//! - [`outbox`] is what leaves, [`timers`] are all deadlines, and [`tools`] are these with lanes and floor; [`usage`] counts tokens,
//!   [`pace`] estimates how long words take
//! - [`user_silence`] lets the model answer a silence, for clients that ask for it
//! - [`lifecycle`] ends a session by the deadlines of [`drain_plan`]; [`measurement`] and [`status`] serve operators, and
//!   [`read_window`] the driver
//!
//! A newcomer changes the owner that a behaviour belongs to. This file only decides which owner gets a client's message.
//! A client of the model's own protocol has another kind of session: [`crate::bridge`]'s relay.
//!
//! # What an input changes
//!
//! Each input is handled by its owner first. Then it takes the steps that its effects ask for, in this order:
//!
//! 1. `play`: sends audio that is due, if [`timers::Timer::Playout`] has expired
//! 2. `speak_next_queued`: speaks the next queued text once nothing else is being spoken
//! 3. `advance_dialogue`: lets the conversation continue ([`dialogue`] lists its own steps), or begins and ends answers
//! 4. `report_dropped`: reports audio that was dropped
//! 5. `close_if_quiet`: starts to close a draining session that interrupts no one
//! 6. `report_transcripts`: reports silence, and replies to a client in lock step
//! 7. `track_backpressure`: arms the timer of an utterance without audio
//! 8. `user_silence.track`: arms the timer of a silence that is answered
//! 9. `track_replies`: arms the timer of an idle client
//! 10. `arm_outputs`: dials lanes that had to wait, and arms the timers of the floor and of the lanes
//! 11. `end_if_answered`: ends a closing session whose replies are sent
//!
//! | input | effects | steps |
//! |---|---|---|
//! | a frame of audio that decides nothing | `FRAME` | the floor's timer if audio may leave, the next unit of a conversation, and 6 |
//! | a keep-alive, a picture | `NONE` | none |
//! | more audio or text of the speech that is being played | `DELTA` | the next unit of a conversation, and the floor's timer |
//! | other output of the conversation's model | `MODEL` | 1–5, 9–11 |
//! | anything else | `ALL` | 1–11 |
//! | the same, and a text waits in an upstream's queue | `WORKER_WANTED` | idle workers are given back, then 1–11 |
//! | the same, and a lane that was left has changed | `LANE_LEFT` | lanes that waited for it are dialled, then 1–11 |
//!
//! A frame or delta takes all its steps while the session drains, and when a timer has expired by its instant.

mod acknowledged_audio;
mod activity;
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
mod lifecycle;
pub(crate) mod measurement;
mod microphone;
mod opening;
pub(crate) mod outbox;
pub(crate) mod output_filter;
mod owners;
mod pace;
mod read_window;
mod setting_changes;
mod settings;
mod setup;
mod speech_events;
mod status;
pub(crate) mod stt;
mod texts_to_speak;
pub(crate) mod timers;
pub(crate) mod tools;
pub(crate) mod tts;
pub(crate) mod usage;
mod user_silence;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    activity::ClientActivity,
    effects::Effects,
    lifecycle::{Lifecycle, SessionPhase},
    outbox::{Action, lockstep::AwaitedReply},
    owners::Owners,
    tools::Tools,
};
pub use self::{
    dialogue::UplinkCounts,
    input::speech_input::{SampleCounts, pause::TurnDecision},
    measurement::{
        AudioOrigin, AudioTotals, BargeInStage, EarlyQuestionResult, EndReason, Measurement, SessionState,
    },
    outbox::{
        Observation,
        recorded::{RecordOptions, RecordedItem, UserAudio},
    },
    read_window::ReadWindow,
    setup::{RelaySetup, SessionSetup},
    status::SessionReport,
    tts::voices::{DEFAULT_VOICE, VoiceCatalog},
};
use crate::{
    error::Error,
    spelling::client::LockStep,
    vocabulary::{ClientRequest, CloseReason, EntryId, Lane, PauseId, ServerCallResult, ToolServer},
};

/// One client session.
#[derive(Debug)]
pub(crate) struct Session {
    session_id: String,
    /// State for operators, as of the last input that may have changed it.
    state: SessionState,
    lifecycle: Lifecycle,
    activity: ClientActivity,
    owners: Owners,
}

impl Session {
    pub(crate) fn id(&self) -> &str {
        &self.session_id
    }

    /// Counts of all samples, and the number of sample groups dropped as too far ahead of the clock.
    pub(crate) fn sample_counts(&self) -> (SampleCounts, u64) {
        let intake = &self.owners.intake;
        (intake.speech_input.sample_counts(), intake.dropped_groups)
    }

    /// Counts of the conversation's audio; `None` without a conversation.
    pub(crate) fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.owners.uplink_counts()
    }

    /// Audio totals so far.
    pub(crate) fn audio_totals(&self) -> AudioTotals {
        self.owners.audio_totals()
    }

    /// True for a lane that the driver must not read for now.
    pub(crate) fn is_lane_held(&self, lane: Lane) -> bool {
        self.owners.tools.lanes.is_held(lane)
    }

    /// Takes the oldest action.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        let Tools { lanes, floor, .. } = &mut self.owners.tools;
        floor.out.pop(&mut lanes.shared.out)
    }

    /// Instant of the earliest timer.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.owners.tools.timers.next
    }

    /// True if the session has ended, the outbox is empty and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.lifecycle.has_ended() && self.owners.tools.lanes.are_gone() && self.owners.is_over()
    }

    /// Handles a command or audio of the client.
    pub(crate) fn handle_client_request(&mut self, now: Instant, request: ClientRequest<'_>) {
        if self.lifecycle.phase != SessionPhase::Open {
            return self.lifecycle.handle_late_request(now, &request, &mut self.owners);
        }
        let effects = match request {
            ClientRequest::Audio(bytes) => {
                let is_first = !std::mem::replace(&mut self.activity.has_sent_audio, true);
                let frame = self.owners.handle_audio(now, bytes);
                (self.activity.idle_since, self.activity.silence_since) = (now, now);
                self.activity.last_frame_length = frame.length;
                if self.owners.setup.answers_frames {
                    self.answer_frame(bytes.len());
                }
                if frame.is_decisive || is_first { Effects::ALL } else { Effects::FRAME }
            }
            ClientRequest::KeepAlive => {
                self.activity.idle_since = now;
                Effects::NONE
            }
            ClientRequest::VideoFrame(_) | ClientRequest::AddEntry(..) => {
                self.change_conversation(now, request);
                Effects::NONE
            }
            ClientRequest::RemoveEntry(_) | ClientRequest::TruncateEntry(..) => {
                self.change_conversation(now, request);
                Effects::ALL
            }
            ClientRequest::Finish => {
                self.lifecycle.finish_after_replies(now, &mut self.owners);
                Effects::ALL
            }
            ClientRequest::Close(reason) => {
                self.lifecycle.close(now, reason, &mut self.owners);
                Effects::ALL
            }
            request => {
                self.activity.note_request(now, &request);
                self.owners.handle_request(now, request);
                Effects::ALL
            }
        };
        self.follow(now, effects);
    }

    /// Answers a frame of audio, for protocols that answer each: in lock step, or by an acknowledgement.
    fn answer_frame(&mut self, bytes: usize) {
        let Owners { setup, intake, tools, .. } = &mut self.owners;
        if setup.lock_step == LockStep::EveryFrame {
            tools.floor.out.await_reply(AwaitedReply::Current);
        }
        if setup.acknowledges_audio {
            let to_ms = intake.speech_input.listened_ms();
            tools.floor.out.push_client(self.activity.acknowledged.add(bytes as u64, to_ms));
        }
    }

    /// Changes the conversation that the assistant knows.
    fn change_conversation(&mut self, now: Instant, request: ClientRequest<'_>) {
        if self.owners.change_conversation(now, request) {
            self.follow(now, Effects::ALL);
        }
    }

    /// Takes the model's verdict on a pause: the probability that the user has finished, or `None` if there is none.
    pub(crate) fn handle_verdict(&mut self, now: Instant, pause: PauseId, probability: Option<f32>) {
        if self.lifecycle.is_open() {
            self.owners.intake.judge_pause(pause, probability);
            self.owners.process_speech_events(now);
            self.follow(now, Effects::ALL);
        }
    }

    /// A worker is free in this pause, and no one waits for it.
    pub(crate) fn handle_free_worker(&mut self, now: Instant, pause: PauseId) {
        if self.lifecycle.is_open()
            && let Some(assistant) = &mut self.owners.assistant
        {
            assistant.ask_early(now, pause, &mut self.owners.tools);
            self.follow(now, Effects::ALL);
        }
    }

    /// Offers the tools of these servers from now on.
    pub(crate) fn set_tool_servers(&mut self, now: Instant, servers: Arc<[ToolServer]>) {
        if let Some(assistant) = &mut self.owners.assistant {
            assistant.set_tool_servers(now, servers, &mut self.owners.tools);
            self.follow(now, Effects::ALL);
        }
    }

    /// Takes the result of a call on a tool server.
    pub(crate) fn handle_tool_result(&mut self, now: Instant, call: EntryId, result: ServerCallResult) {
        if !self.lifecycle.has_ended()
            && let Some(assistant) = &mut self.owners.assistant
        {
            assistant.take_tool_result(now, call, result, &mut self.owners.tools);
            self.follow(now, Effects::ALL);
        }
    }

    /// Moves the conversation to another upstream session, on an operator's request.
    pub(crate) fn request_rollover(&mut self, now: Instant) {
        match &mut self.owners.dialogue {
            Some(dialogue) => dialogue.request_rollover(),
            None => {
                let note = "there is no conversation to roll over in this session".to_owned();
                self.observe(Observation::NoEffect(note));
            }
        }
        self.follow(now, Effects::ALL);
    }

    /// Ends the session because the client's transport is gone.
    pub(crate) fn handle_client_gone(&mut self, now: Instant) {
        if !self.lifecycle.has_ended() {
            self.owners.tools.floor.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.lifecycle.end(now, &mut self.owners);
            self.state = SessionState::Ending;
        }
    }

    /// Ends the session after the current speech and replies, `within` a bound. When called twice, the earlier deadline
    /// wins.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, reason: CloseReason) {
        self.lifecycle.drain(now, within, reason, &mut self.owners);
        if !self.lifecycle.has_ended() {
            self.follow(now, Effects::ALL);
        }
    }

    /// Reports invalid input to the client; the session continues.
    pub(crate) fn report_error(&mut self, error: Error) {
        if self.lifecycle.is_open() {
            self.owners.tools.floor.out.push_error(error);
        }
    }

    /// Records the audio of both sides from now on.
    pub(crate) const fn record_audio(&mut self) {
        self.owners.tools.floor.out.records_audio = true;
    }

    /// Reports an event to the log.
    pub(crate) fn observe(&mut self, observation: Observation) {
        self.owners.tools.floor.out.observe(observation);
    }
}

/// Whole milliseconds of a duration, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
