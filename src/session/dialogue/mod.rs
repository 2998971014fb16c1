//! Conversation with the model in full duplex: microphone audio goes up in units of one second, or of the model's own length, and
//! the model speaks when it decides to.
//!
//! - [`steps`] lists what the conversation does after an input, and computes when the next unit is due
//! - [`uplink`] keeps microphone audio until it is sent
//! - [`turns`] tracks the model's turns and decides which output the client may hear; [`turn`] is one of them
//! - [`rollover`] opens, replaces and leaves the upstream session; [`rollover_limits`] are the limits that trigger a
//!   rollover; [`reply_tracker`] matches the model's output to the unit in flight; [`upstream_session`] is the session in use; [`standby`] prepares the next session
//! - [`idle_pause`] leaves the upstream session while no one speaks
//! - [`history`] is the text that the next session gets in its prompt

pub(crate) mod history;
mod idle_pause;
mod reply_tracker;
mod rollover;
mod rollover_limits;
mod standby;
mod steps;
pub(super) mod turn;
mod turns;
mod uplink;
mod upstream_session;
mod user_audio;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::uplink::UplinkCounts;
use self::{
    history::{History, HistoryMark},
    reply_tracker::{UNIT_DURATION, UnitInFlight, UplinkUnit},
    rollover::{DialogueUpstream, Outage},
    rollover_limits::RolloverLimits,
    standby::StandbyPlace,
    turns::Turns,
    uplink::Uplink,
    user_audio::UserAudio,
};
use super::{
    effects::Effects,
    floor::SpeechSource,
    lanes::{
        LaneSignal, Lanes,
        backoff::{ConnectionFailure, RetryState},
        connection::ConnectionChange,
    },
    outbox::Observation,
    timers::Timer,
    tools::Tools,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::{
        profile::{AssistantText, DialogueRules},
        upstream::DuplexLimits,
    },
    vocabulary::{
        ClientEvent, EndKind, LaneEvent, MessageMeta, Mode, RefusedPart, RolloverReason, Speaker, VideoFrame,
    },
};

/// Audio in a row on which a session fails before it is lost. One failure may be an accident; three seconds are what a new session
/// needs to become useful.
const FAILED_AUDIO_MAX: Duration = Duration::from_secs(3);

/// Conversation of one session.
#[derive(Debug)]
pub(crate) struct Dialogue {
    rules: Arc<DialogueRules>,
    mode: Mode,
    limits: RolloverLimits,
    /// The user's audio as of now; whether the user speaks, as of the last step.
    pub(crate) user: UserAudio,
    upstream: DialogueUpstream,
    standby: StandbyPlace,
    /// History in the prompt of the upstream session.
    known_history: HistoryMark,
    /// The user's audio on its way to the model.
    pub(super) uplink: Uplink,
    turns: Turns,
    video_frame: Option<VideoFrame>,
    /// An operator requested a rollover.
    rollover_requested: bool,
    /// A rollover is due and waits for a quiet moment, a standby or an answer.
    awaits_rollover: bool,
    /// Set while no one speaks.
    idle_since: Option<Instant>,
    /// The next upstream session resumes a paused conversation.
    is_resuming: bool,
    /// Set while no model receives the audio.
    outage: Option<Outage>,
    retry: Option<RetryState>,
    /// The client was informed of the current outage.
    outage_reported: bool,
    /// Final failure: no upstream was available.
    failure: Option<ConnectionFailure>,
}

impl Dialogue {
    /// Opens a conversation and dials at once: a model takes 10 to 16 s to be ready
    /// (mappings/notes/minicpm-o-duplex.md#rollover).
    pub(crate) fn open(
        now: Instant,
        rules: Arc<DialogueRules>,
        mode: Mode,
        duplex: &DuplexLimits,
        tools: &mut Tools,
    ) -> Box<Self> {
        let reports_words = matches!(rules.converse.text, AssistantText::Transcripts);
        let history = History::new(rules.converse.history_max_chars);
        let mut dialogue = Box::new(Self {
            limits: RolloverLimits::new(mode, duplex, &rules.rollover),
            uplink: Uplink::new(&rules.converse),
            rules,
            mode,
            user: UserAudio::default(),
            upstream: DialogueUpstream::Scheduled { at: now, after: None },
            standby: StandbyPlace::default(),
            known_history: HistoryMark::default(),
            turns: Turns::new(history, reports_words),
            video_frame: None,
            rollover_requested: false,
            awaits_rollover: false,
            idle_since: None,
            is_resuming: false,
            outage: None,
            retry: None,
            outage_reported: false,
            failure: None,
        });
        dialogue.dial(now, tools);
        dialogue
    }

    /// Replaces the upstream session at the next quiet moment.
    pub(crate) const fn request_rollover(&mut self) {
        self.rollover_requested = true;
    }

    /// Adds the user's words to what later prompts tell the model.
    pub(crate) fn remember_user_words(&mut self, segment_id: u32, text: &str) {
        self.turns.history.push(Speaker::User, segment_id, text);
    }

    /// Keeps the newest camera picture for the next unit. Returns false if the mode has no pictures.
    pub(crate) fn push_video_frame(&mut self, frame: VideoFrame) -> bool {
        let takes_video = self.mode == Mode::Video;
        if takes_video {
            self.video_frame = Some(frame);
        }
        takes_video
    }

    /// Where the user's audio went.
    pub(crate) fn uplink_counts(&self) -> UplinkCounts {
        self.uplink.counts()
    }

    /// True while the model's turn is open.
    pub(crate) const fn is_speaking(&self) -> bool {
        self.turns.open.is_some()
    }

    /// Stops the model's turn and its playout.
    pub(crate) fn interrupt(&mut self, now: Instant, tools: &mut Tools) {
        if self.turns.open.is_some() || tools.floor.is_busy() {
            tools.floor.out.observe(Observation::Interrupted);
        }
        self.turns.interrupt(now, tools);
        tools.floor.cancel(now, SpeechSource::Model);
    }

    /// Sends the audio that was held while a text was spoken, because the user interrupted the text.
    pub(crate) fn restore_held(&mut self) {
        self.uplink.restore_held();
    }

    /// Takes the final failure, once.
    pub(crate) const fn take_failure(&mut self) -> Option<ConnectionFailure> {
        self.failure.take()
    }

    /// Handles what happened on the lane in use.
    pub(crate) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let has_change = signal.change != ConnectionChange::None;
        if has_change {
            self.handle_change(now, signal.change, tools);
        }
        let Some((event, meta)) = signal.message else { return Effects::ALL };
        let is_open = self.turns.open.as_ref().is_some_and(|turn| turn.playing.is_some());
        self.handle_model_output(now, event, meta, tools);
        let is_plain = matches!(event, LaneEvent::Text(_) | LaneEvent::Audio(_))
            && !has_change
            && self.turns.fence.is_none()
            && !self.awaits_rollover;
        if is_open && is_plain && self.rollover_due(now, &tools.lanes).is_none() {
            Effects::DELTA
        } else {
            Effects::MODEL
        }
    }

    /// Handles output of the model.
    fn handle_model_output(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        tools: &mut Tools,
    ) {
        if let LaneEvent::RecoverableError(detail) = event {
            return self.handle_unit_error(now, detail, meta, tools);
        }
        self.turns.usage.note_message(event, meta);
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        let answered = session.handle_reply(now, event, meta, &self.limits, &mut tools.lanes);
        if session.has_short_units() {
            tools.floor.note_streamed_turns();
        }
        self.arm_reply(&mut tools.timers);
        match event {
            LaneEvent::Listen => self.turns.handle_listen(now, answered.as_ref(), meta, tools),
            LaneEvent::Text(text) => self.turns.handle_text(now, text, meta, tools),
            LaneEvent::Audio(samples) => self.turns.handle_audio(now, samples, meta, tools),
            LaneEvent::Done { text, audio } => {
                self.turns.handle_done(now, *text, audio, meta, tools);
            }
            _ => {}
        }
        if self.turns.open.is_some() {
            self.uplink.clear_unanswered();
        }
        if answered.is_some() {
            tools.floor.out.push_client(self.audio_answered());
        }
    }

    /// How much of the user's audio has been answered: all that was sent, because only one unit is in flight.
    fn audio_answered(&self) -> ClientEvent {
        let UplinkCounts { appended, silenced, dropped, .. } = self.uplink.counts();
        ClientEvent::AudioAnswered { samples: appended + silenced + dropped }
    }

    /// Handles what happened on the standby's lane.
    pub(crate) fn handle_standby_signal(
        &mut self,
        now: Instant,
        signal: &LaneSignal<'_>,
        lanes: &mut Lanes,
    ) -> Effects {
        self.standby.handle_signal(now, signal, &self.limits, lanes)
    }

    /// Ends a reply whose end the upstream did not report in time.
    pub(crate) fn end_late_reply(&mut self, now: Instant, tools: &mut Tools) {
        if tools.timers.take_expired(Timer::ReplyEnd, now)
            && let DialogueUpstream::Active(session) = &mut self.upstream
        {
            session.end_reply(now, &self.limits, &mut tools.lanes);
            self.arm_reply(&mut tools.timers);
            tools.floor.out.push_client(self.audio_answered());
        }
    }

    fn handle_change(&mut self, now: Instant, change: ConnectionChange, tools: &mut Tools) {
        match change {
            ConnectionChange::None | ConnectionChange::Queued | ConnectionChange::EmptyAnswer => {}
            ConnectionChange::Ready => {
                self.activate(now, tools);
            }
            ConnectionChange::QueueStuck(detail) => {
                tools.floor.out.push_error(Error::new(ErrorKind::QueueStuck, detail));
            }
            ConnectionChange::Failed(failure) if failure.is_context_full() => {
                self.roll_over(now, RolloverReason::ContextFull, tools);
            }
            ConnectionChange::Failed(failure) if failure.was_in_use() => {
                self.handle_upstream_loss(now, failure, tools);
            }
            ConnectionChange::Failed(failure) => {
                self.leave_upstream(now, false, tools);
                self.give_up(failure);
            }
        }
    }

    /// Handles an error that the upstream reported for a unit, in a session that continues
    /// (mappings/notes/minicpm-o-legacy.md#faults). The failed unit is over, and the next one may succeed.
    fn handle_unit_error(&mut self, now: Instant, detail: &str, meta: MessageMeta<'_>, tools: &mut Tools) {
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        // The unit is not counted as answered.
        let failed = session.tracker.in_flight.take();
        let failed_length = failed.as_ref().map_or(UNIT_DURATION, |unit| unit.unit.length());
        tools.timers.clear(&[Timer::Reply, Timer::ReplyEnd]);
        if let (Some(UnitInFlight { unit, number, .. }), Some(part)) = (failed, meta.refused)
            && unit.frame.is_some()
            && meta.input_id.is_none_or(|id| id.parse() == Ok(number))
        {
            return tools.floor.out.push_error(self.leave_picture_out(&unit, part, detail));
        }
        session.failed_audio += failed_length;
        if session.failed_audio < FAILED_AUDIO_MAX || !tools.lanes.is_engaged(session.id) {
            return;
        }
        let seconds = FAILED_AUDIO_MAX.as_secs();
        let detail = format!("the upstream failed on {seconds} seconds of audio in a row: {detail}");
        let lane = tools.lanes.lane(session.id);
        tools.lanes.close(now, session.id);
        tools.floor.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
        self.handle_upstream_loss(now, ConnectionFailure::in_use(EndKind::Other, detail), tools);
    }

    /// Sends a refused unit's audio again without its picture, because the picture may be the cause. What was accepted is not
    /// sent again. Returns the error for the client.
    fn leave_picture_out(&mut self, unit: &UplinkUnit, part: RefusedPart, detail: &str) -> Error {
        if let DialogueUpstream::Active(session) = &mut self.upstream {
            session.leaves_picture_out = true;
        }
        let then = match part {
            RefusedPart::Whole => {
                self.uplink.give_back(unit);
                self.uplink.allow_catch_up();
                "the unit is sent again without it"
            }
            RefusedPart::Piece => "the audio that came with it is lost",
        };
        let words = format!("the upstream refused a picture; {then}: {detail}");
        Error::new(ErrorKind::Refused, words)
    }
}
