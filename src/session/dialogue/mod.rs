//! A conversation: the microphone goes up second by second, the model speaks when it likes, for hours.
//!
//! - [`uplink`] keeps the user's audio until it is sent, [`reply_tracker`] keeps one unit in flight
//! - [`turns`] is what the model says, [`turn`] by [`turn`], and what of it may be heard
//! - [`rollover_limits`] says when the upstream session has to be replaced, [`rollover`] replaces it, also when it is lost, and
//!   [`standby`] has the next one ready; [`unit_errors`] is what an upstream cannot do
//! - [`pacing`] says when a unit is due
//!
//! Whatever happens, [`Dialogue::advance`] is called last and does all that can be done then.

pub(crate) mod history;
mod pacing;
mod rollover;
mod rollover_limits;
mod standby;
mod turn;
mod turns;
mod unit_errors;
mod uplink;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::uplink::UplinkCounts;
use self::{
    rollover::{DialogueUpstream, Outage},
    rollover_limits::RolloverLimits,
    standby::Standby,
    turns::{TranscriptOptions, Turns},
    uplink::Uplink,
};
use super::{
    context::LaneContext,
    outbox::Observation,
    upstream::{
        backoff::{ConnectionFailure, RetryState},
        connection::{ConnectionEvent, millis},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        ClientCommand, DisconnectReason, Lane, LaneCommand, LaneEvent, MessageMeta, Mode, RolloverReason,
        VideoFrame, VoiceSample,
    },
    mapping::{
        profile::{AssistantText, DialogueRules},
        upstream::DuplexLimits,
    },
};

/// What a conversation needs to know of its session, at this instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionSnapshot {
    /// When the client last sent audio, heard or not.
    pub(crate) client_audio_at: Option<Instant>,
    /// When the microphone was last listened to, and how long that frame was.
    pub(crate) last_mic_frame: Option<(Instant, Duration)>,
    /// When the user was last heard to speak.
    pub(crate) voice_at: Option<Instant>,
    /// The user is in the middle of an utterance.
    pub(crate) in_speech: bool,
    /// A text is being spoken or about to be: it has the floor.
    pub(crate) is_tts_active: bool,
    /// A text is being made: it has a worker, or waits for one.
    pub(crate) is_synthesizing: bool,
    /// The client wants partial transcripts.
    pub(crate) partials: bool,
    /// The client wants to know of rollovers.
    pub(crate) rollover_events: bool,
}

/// One session's conversation.
#[derive(Debug)]
pub(crate) struct Dialogue {
    rules: Arc<DialogueRules>,
    mode: Mode,
    limits: RolloverLimits,
    voice: Option<VoiceSample>,
    upstream: DialogueUpstream,
    standby: Option<Standby>,
    /// The last one kept in readiness, which did not know the newest: another takes its place when it is gone.
    replaced_standby: Option<Lane>,
    /// No second worker was to be had for this upstream session.
    standby_unavailable: bool,
    uplink: Uplink,
    turns: Turns,
    video_frame: Option<VideoFrame>,
    /// An operator wants another upstream session.
    rollover_requested: bool,
    /// No audio reaches a model.
    outage: Option<Outage>,
    retry: Option<RetryState>,
    /// The client knows that there is trouble.
    outage_reported: bool,
    /// It is over: no upstream was to be had.
    failure: Option<ConnectionFailure>,
}

impl Dialogue {
    /// A conversation that dials at once: a model takes 10 to 16 s to be ready (field notes §7.2).
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
            standby_unavailable: false,
            turns: Turns::default(),
            video_frame: None,
            rollover_requested: false,
            outage: None,
            retry: None,
            outage_reported: false,
            failure: None,
        };
        dialogue.dial(now, context);
        dialogue
    }

    /// It is to go on in another upstream session, at the next quiet moment.
    pub(crate) const fn request_rollover(&mut self) {
        self.rollover_requested = true;
    }

    /// The voice of upstream sessions from the next one on.
    pub(crate) fn set_voice(&mut self, voice: Option<VoiceSample>) {
        self.voice = voice;
    }

    /// The user's audio; while a text is heard the model hears silence.
    pub(crate) fn push_audio(&mut self, samples: &mut Vec<i16>, silenced: bool) {
        self.uplink.push(samples, silenced);
    }

    /// What the camera sees; the newest counts. Whether this conversation has eyes.
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

    /// Samples that wait to be a unit.
    pub(crate) fn waiting_samples(&self) -> usize {
        self.uplink.len()
    }

    /// The model speaks, as far as the upstream has said.
    pub(crate) const fn is_speaking(&self) -> bool {
        self.turns.is_open()
    }

    /// The user or the client wants silence of the model.
    pub(crate) fn interrupt(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if self.turns.is_open() || context.player.is_busy() {
            context.out.observe(Observation::Interrupted);
        }
        self.turns.interrupt(now, self.transcript_options(view), context);
        context.player.cancel_all(now, &mut context.out);
    }

    /// The user spoke into a text: what was said into it is heard.
    pub(crate) fn restore_held(&mut self) {
        self.uplink.restore_held();
    }

    /// Why it is over, once.
    pub(crate) const fn take_failure(&mut self) -> Option<ConnectionFailure> {
        self.failure.take()
    }

    /// The upstream said something on one of its lanes.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        if self.is_standby(lane) {
            return self.handle_standby_event(now, event, meta, context);
        }
        let Some(connection) = self.upstream.connection_mut() else { return };
        let connection_event = connection.handle_event(now, event, context);
        self.handle_connection_event(now, connection_event, view, context);
        self.handle_model_output(now, event, meta, view, context);
    }

    /// What the model says.
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
        match event {
            LaneEvent::Listen => self.turns.handle_listen(now, answered.as_ref(), meta, options, context),
            LaneEvent::Text(text) => self.turns.handle_text(now, text, meta, options, context),
            LaneEvent::Audio(samples) => self.turns.handle_audio(now, samples, meta, options, context),
            LaneEvent::Done { text, audio } => {
                self.turns.handle_done(now, *text, audio, meta, options, context)
            }
            _ => {}
        }
        if self.turns.is_open() {
            self.uplink.clear_unanswered();
        }
    }

    /// A lane's transport is up.
    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(connection) = self.connection_of(lane) {
            connection.handle_opened(now, context);
        }
    }

    /// A lane's transport is gone.
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

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if let Some(standby) = &mut self.standby {
            let connection_event = standby.session.connection.handle_timeout(now, context);
            self.handle_standby_connection_event(now, &connection_event, context);
        }
        if let Some(connection) = self.upstream.connection_mut() {
            let connection_event = connection.handle_timeout(now, context);
            self.handle_connection_event(now, connection_event, view, context);
        }
        if let DialogueUpstream::Active(session) = &mut self.upstream {
            session.handle_timeout(now, &self.limits, context);
        }
    }

    /// Does all that can be done now: lets the model speak again, replaces what has to be replaced, sends what is due.
    pub(crate) fn advance(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if !view.is_tts_active {
            self.uplink.discard_held();
        }
        let dropped_ms = self
            .uplink
            .drop_excess(matches!(self.upstream, DialogueUpstream::Active(_)), &self.rules.converse);
        if dropped_ms > 0 {
            context.out.push_client(ClientCommand::FramesDropped { dropped_ms });
        }
        self.check_yielding(now, view, context);
        self.check_reply_timeout(now, view, context);
        self.check_limits(now, view, context);
        self.feed_standby(now, context);
        self.redial_if_due(now, view, context);
        self.report_connect_error(context);
        self.send_due_unit(now, view, context);
    }

    /// The model that listens may speak again; one that does not listen is replaced.
    fn check_yielding(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        let DialogueUpstream::Active(session) = &self.upstream else { return };
        let rules = &self.rules.barge_in;
        self.turns.lift_fence_if_due(
            now,
            view.voice_at,
            session.tracker.sent_count(),
            view.is_tts_active,
            rules,
        );
        if self.turns.yield_deadline(rules).is_some_and(|due| due <= now) {
            self.roll_over(now, RolloverReason::NotYielding, view, context);
        }
    }

    /// An upstream that has stopped answering is lost.
    fn check_reply_timeout(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        let bound = self.rules.converse.unit_reply_max;
        if session.tracker.in_flight().is_some_and(|unit| now >= unit.sent_at + bound) {
            session.connection.close(now, context);
            let detail = format!("the upstream did not answer a second of audio within {} ms", millis(bound));
            let lane = session.connection.lane();
            context.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
            self.handle_upstream_loss(now, detail, view, context);
        }
    }

    /// Who waits for a model is told, once, why it does not come.
    fn report_connect_error(&mut self, context: &mut LaneContext) {
        let DialogueUpstream::Connecting(connection) = &self.upstream else { return };
        if let (Some(detail), false) = (connection.last_error(), self.outage_reported) {
            self.outage_reported = true;
            let detail = format!("no model is there to talk to yet: {detail}; it is tried again");
            context.out.push_error(Error::new(ErrorKind::Unavailable, detail));
        }
    }

    /// Sends a unit when one is due.
    fn send_due_unit(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        match self.next_unit_at(now, view, context.player.is_audible()) {
            None if self.is_idle() => return self.uplink.release_memory(),
            None => return,
            Some(due) if due > now => return,
            Some(_) => {}
        }
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        let last = session.tracker.last_sent_at().unwrap_or(session.ready_at);
        let voiced = view.in_speech || view.voice_at.is_some_and(|at| at >= last);
        if view.voice_at.is_some_and(|at| now >= at + self.rules.converse.trailing_silence) {
            self.uplink.clear_unanswered();
        }
        let mut unit = self.uplink.take(voiced && !self.turns.is_open());
        unit.force_listen = self.turns.force_listen(now, session.tracker.sent_count() + 1);
        unit.has_speech = view.in_speech || self.turns.is_open();
        unit.frame = self.video_frame.take();
        session.send_unit(now, unit, context);
    }

    /// Nothing is on its way to the model, and nothing is waited for.
    fn is_idle(&self) -> bool {
        matches!(&self.upstream, DialogueUpstream::Active(session) if session.tracker.in_flight().is_none() && session.pending_rollover.is_none())
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
                context.out.push_error(Error::new(ErrorKind::QueueStuck, detail))
            }
            ConnectionEvent::Failed(failure) if failure.was_in_use => {
                self.handle_upstream_loss(now, failure.detail, view, context)
            }
            ConnectionEvent::Failed(failure) => self.give_up(failure),
        }
    }

    fn transcript_options(&self, view: &SessionSnapshot) -> TranscriptOptions {
        TranscriptOptions {
            transcripts: self.rules.converse.text == AssistantText::Transcripts,
            partials: view.partials,
            is_tts_active: view.is_tts_active,
        }
    }

    /// What an upstream session is opened with.
    fn init_command(&self, context: &LaneContext) -> LaneCommand {
        LaneCommand::InitConversation(Box::new(crate::event::ConversationInit {
            prompt: self.rules.converse.prompt(&context.history.text()),
            config: Arc::clone(&self.rules.converse.config),
            voice: self.voice.clone(),
        }))
    }
}
