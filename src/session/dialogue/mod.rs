//! Conversation with the model in full duplex: microphone audio goes up in units of one second, the model speaks when
//! it decides to.
//!
//! - [`steps`] lists what the conversation does after an input
//! - [`uplink`] keeps microphone audio until it is sent; [`pacing`] computes when the next unit is due
//! - [`turns`] tracks the model's turns and decides which output the client may hear; [`turn`] is one of them
//! - [`rollover`] opens, replaces and leaves the upstream session; [`rollover_limits`] are the limits that trigger a
//!   rollover; [`upstream_session`] is the session in use; [`standby`] prepares the next session; [`unit_errors`] counts failed units
//! - [`history`] is the text that the next session gets in its prompt

pub(crate) mod history;
mod pacing;
mod rollover;
mod rollover_limits;
mod standby;
mod steps;
pub(super) mod turn;
mod turns;
mod unit_errors;
mod uplink;
mod upstream_session;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::uplink::UplinkCounts;
use self::{
    history::HistoryMark,
    rollover::{DialogueUpstream, Outage},
    rollover_limits::RolloverLimits,
    standby::Standby,
    turn::TranscriptOptions,
    turns::Turns,
    uplink::Uplink,
};
use super::{
    floor::SpeechSource,
    outbox::Observation,
    timers::Timer,
    upstream::{
        LaneContext,
        backoff::{ConnectionFailure, RetryState},
        connection::{ConnectionEvent, UpstreamConnection},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{DisconnectReason, Lane, LaneCommand, LaneEvent, MessageMeta, Mode, VideoFrame, VoiceSample},
    mapping::{
        profile::{AssistantText, DialogueRules},
        upstream::DuplexLimits,
    },
};

/// State of the surrounding session at this instant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SessionSnapshot {
    /// Time of the client's last audio, muted or not.
    pub(crate) client_audio_at: Option<Instant>,
    /// Time and length of the last microphone frame that was not muted.
    pub(crate) last_mic_frame: Option<(Instant, Duration)>,
    /// Time of the user's last detected voice.
    pub(crate) voice_at: Option<Instant>,
    /// An utterance of the user is in progress.
    pub(crate) in_speech: bool,
    /// A requested text is being spoken or is queued. The model must be silent meanwhile.
    pub(crate) is_tts_active: bool,
    /// A requested text is being synthesised: it holds a worker or waits for one.
    pub(crate) is_synthesizing: bool,
    /// The client wants partial transcripts.
    pub(crate) partials: bool,
    /// The client wants rollover events.
    pub(crate) rollover_events: bool,
}

/// Effect of an upstream's message on the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventEffect {
    /// The lane does not belong to the conversation.
    NotOwned,
    /// More text or audio of the turn that is being played.
    Continued,
    /// Anything else.
    Changed,
}

/// Conversation of one session.
#[derive(Debug)]
pub(crate) struct Dialogue {
    rules: Arc<DialogueRules>,
    mode: Mode,
    limits: RolloverLimits,
    voice: Option<VoiceSample>,
    upstream: DialogueUpstream,
    standby: Option<Standby>,
    /// Lane of an outdated standby. Its replacement is opened when this lane is gone.
    replaced_standby: Option<Lane>,
    /// History in the prompt of the upstream session.
    known_history: HistoryMark,
    /// No second worker was available during this upstream session.
    standby_unavailable: bool,
    /// The user's audio on its way to the model.
    pub(super) uplink: Uplink,
    turns: Turns,
    video_frame: Option<VideoFrame>,
    /// An operator requested a rollover.
    rollover_requested: bool,
    /// A rollover is due and waits for a quiet moment, a standby or an answer.
    awaits_rollover: bool,
    /// Set while no model receives the audio.
    outage: Option<Outage>,
    retry: Option<RetryState>,
    /// The client was informed of the current outage.
    outage_reported: bool,
    /// Final failure: no upstream was available.
    failure: Option<ConnectionFailure>,
}

impl Dialogue {
    /// Opens a conversation and dials at once: a model takes 10 to 16 s to be ready (field notes §7.2).
    pub(crate) fn open(
        now: Instant,
        rules: Arc<DialogueRules>,
        mode: Mode,
        duplex: &DuplexLimits,
        voice: Option<VoiceSample>,
        context: &mut LaneContext,
    ) -> Self {
        let mut dialogue = Self {
            limits: RolloverLimits::new(mode, duplex, &rules.rollover),
            uplink: Uplink::new(&rules.converse),
            rules,
            mode,
            voice,
            upstream: DialogueUpstream::Scheduled { at: now, after: None },
            standby: None,
            replaced_standby: None,
            known_history: HistoryMark::default(),
            standby_unavailable: false,
            turns: Turns::default(),
            video_frame: None,
            rollover_requested: false,
            awaits_rollover: false,
            outage: None,
            retry: None,
            outage_reported: false,
            failure: None,
        };
        dialogue.dial(now, context);
        dialogue
    }

    /// Replaces the upstream session at the next quiet moment.
    pub(crate) const fn request_rollover(&mut self) {
        self.rollover_requested = true;
    }

    /// Sets the voice of the next upstream sessions.
    pub(crate) fn set_voice(&mut self, voice: Option<VoiceSample>) {
        self.voice = voice;
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

    /// Samples that wait to be sent.
    pub(crate) fn waiting_samples(&self) -> usize {
        self.uplink.len()
    }

    /// True while the model's turn is open.
    pub(crate) const fn is_speaking(&self) -> bool {
        self.turns.open.is_some()
    }

    /// Stops the model's turn and its playout.
    pub(crate) fn interrupt(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if self.turns.open.is_some() || context.floor.is_busy() {
            context.out.observe(Observation::Interrupted);
        }
        self.turns.interrupt(now, self.transcript_options(view), context);
        context.floor.cancel(now, SpeechSource::Model, &mut context.out);
    }

    /// Sends the audio that was held while a text was spoken, because the user interrupted the text.
    pub(crate) fn restore_held(&mut self) {
        self.uplink.restore_held();
    }

    /// Takes the final failure, once.
    pub(crate) const fn take_failure(&mut self) -> Option<ConnectionFailure> {
        self.failure.take()
    }

    /// Handles a message of the upstream, if the lane belongs to the conversation.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) -> EventEffect {
        if self.is_standby(lane) {
            self.handle_standby_event(now, event, meta, context);
            return EventEffect::Changed;
        }
        let Some(connection) = self.upstream.connection_mut().filter(|connection| connection.lane() == lane)
        else {
            return EventEffect::NotOwned;
        };
        let connection_event = connection.handle_event(now, event, context);
        if connection_event != ConnectionEvent::None {
            self.handle_connection_event(now, connection_event, view, context);
            self.handle_model_output(now, event, meta, view, context);
            return EventEffect::Changed;
        }
        let is_open = self.turns.open.as_ref().is_some_and(|turn| turn.playing.is_some());
        self.handle_model_output(now, event, meta, view, context);
        let is_plain = matches!(event, LaneEvent::Text(_) | LaneEvent::Audio(_))
            && self.turns.fence.is_none()
            && !self.awaits_rollover;
        if is_open && is_plain && self.rollover_due(now).is_none() {
            EventEffect::Continued
        } else {
            EventEffect::Changed
        }
    }

    /// Handles output of the model.
    fn handle_model_output(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        if let LaneEvent::RecoverableError(detail) = event {
            return self.handle_unit_error(now, detail, view, context);
        }
        let options = self.transcript_options(view);
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        let answered = session.handle_reply(now, event, meta, &self.limits, context);
        self.arm_reply(context);
        match event {
            LaneEvent::Listen => self.turns.handle_listen(now, answered.as_ref(), meta, options, context),
            LaneEvent::Text(text) => self.turns.handle_text(now, text, meta, options, context),
            LaneEvent::Audio(samples) => self.turns.handle_audio(now, samples, meta, context),
            LaneEvent::Done { text, audio } => {
                self.turns.handle_done(now, *text, audio, meta, options, context);
            }
            _ => {}
        }
        if self.turns.open.is_some() {
            self.uplink.clear_unanswered();
        }
    }

    /// A lane's transport is open.
    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(connection) = self.connection_of(lane) {
            connection.handle_opened(now, context);
        }
    }

    /// A lane's transport closed.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        lane: Lane,
        reason: &DisconnectReason,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let Some(connection) = self.connection_of(lane) else { return };
        let connection_event = connection.handle_closed(now, reason, context);
        if self.is_standby(lane) {
            self.handle_standby_connection_event(now, &connection_event, context);
        } else {
            self.handle_connection_event(now, connection_event, view, context);
        }
    }

    /// Handles the expired timers of the lanes.
    pub(crate) fn handle_timeout(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if let Some(standby) = &mut self.standby {
            let connection_event = standby.session.connection.handle_timeout(now, context);
            self.handle_standby_connection_event(now, &connection_event, context);
        }
        if let Some(connection) = self.upstream.connection_mut() {
            let connection_event = connection.handle_timeout(now, context);
            self.handle_connection_event(now, connection_event, view, context);
        }
        if context.timers.take_expired(Timer::ReplyEnd, now)
            && let DialogueUpstream::Active(session) = &mut self.upstream
        {
            session.end_reply(now, &self.limits, context);
            self.arm_reply(context);
        }
    }

    /// Earliest deadline of the lanes.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        self.connections().filter_map(UpstreamConnection::deadline).min()
    }

    fn handle_connection_event(
        &mut self,
        now: Instant,
        connection_event: ConnectionEvent,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        match connection_event {
            ConnectionEvent::None | ConnectionEvent::Queued | ConnectionEvent::EmptyAnswer => {}
            ConnectionEvent::Ready => self.activate_connection(now, view, context),
            ConnectionEvent::QueueStuck(detail) => {
                context.out.push_error(Error::new(ErrorKind::QueueStuck, detail));
            }
            ConnectionEvent::Failed(failure) if failure.was_in_use => {
                self.handle_upstream_loss(now, failure.detail, view, context);
            }
            ConnectionEvent::Failed(failure) => {
                self.leave_upstream(now, false, view, context);
                self.give_up(failure);
            }
        }
    }

    fn transcript_options(&self, view: &SessionSnapshot) -> TranscriptOptions {
        TranscriptOptions {
            transcripts: self.rules.converse.text == AssistantText::Transcripts,
            partials: view.partials,
        }
    }

    /// Command that initialises an upstream session.
    fn init_command(&self, context: &LaneContext) -> LaneCommand {
        LaneCommand::InitConversation(Box::new(crate::event::ConversationInit {
            prompt: self.rules.converse.prompt(&context.history.text()),
            config: Arc::clone(&self.rules.converse.config),
            voice: self.voice.clone(),
        }))
    }
}
