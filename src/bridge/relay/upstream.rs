//! Messages of the upstream, the opening of its session, and what changes for its connection.

use std::time::{Duration, Instant};

use super::{
    ClientMessage, Relay, RelayPhase, RelayStart,
    pending::{DroppedMessages, ReplyStage},
};
use crate::{
    bridge::session::LaneMessage,
    error::{Error, ErrorKind},
    session::{
        lanes::{backoff::ConnectionFailure, connection::ConnectionChange},
        measurement::Measurement,
        outbox::Observation,
        timers::Timer,
    },
    upstream::relay::{RelayUnits, end_reason_of},
    vocabulary::{
        DisconnectReason, EndKind, Lane, LaneEvent, LaneRequest, Message, MessageMeta, Mode, UpstreamEnd,
        relay::{RelayEndReason, RelayEventMeta},
    },
};

impl Relay {
    /// Handles what the upstream said.
    pub(super) fn handle_upstream_event(&mut self, now: Instant, lane: Lane, message: LaneMessage<'_>) {
        let LaneMessage { event, meta, text } = message;
        if let Some(tokens) = meta.context_tokens {
            self.client.context_tokens = Some(tokens);
            self.client.out.measure(Measurement::ContextUsage { lane, tokens });
        }
        match event {
            LaneEvent::Queued { .. } | LaneEvent::Granted => self.report_opening_progress(now, event, text),
            LaneEvent::Ready { session_id } => {
                self.client.session_id = session_id.map(str::to_owned);
                self.report_opening_progress(now, event, text);
            }
            LaneEvent::Closed(end) => {
                return match self.end_reason(end, meta) {
                    Some(reason) => self.handle_upstream_end(now, reason, end, text),
                    None => self.handle_fatal_error(now, event),
                };
            }
            LaneEvent::RecoverableError(words) => return self.handle_error(now, event, words, text),
            LaneEvent::AnswerDue | LaneEvent::Call { .. } | LaneEvent::Ignored | LaneEvent::Unknown(_) => {
                self.forward_unknown(text);
            }
            LaneEvent::Listen
            | LaneEvent::Text(_)
            | LaneEvent::Audio(_)
            | LaneEvent::Step { .. }
            | LaneEvent::Done { .. } => {
                if self.needs_forwarding() {
                    self.handle_model_output(now, message);
                }
            }
        }
        let change = self.lane.handle_event(now, lane, event);
        let opened = change == ConnectionChange::Ready;
        self.handle_change(now, change);
        if opened {
            self.handle_session_opened(now);
        }
        self.finish_if_answered(now);
    }

    /// True if model output goes to the client: the session is open, or the client waits for its close to be confirmed.
    fn needs_forwarding(&self) -> bool {
        self.reported.opened && (self.lane.is_open() || matches!(self.phase, RelayPhase::Closing(_)))
    }

    /// Reports queue position and opening, once each over all attempts, and the opening again if the session id changed.
    fn report_opening_progress(&mut self, now: Instant, event: &LaneEvent<'_>, text: &str) {
        let is_queue_update = self.reported.queued;
        match event {
            // Some servers confirm settings that change in an open session.
            _ if self.lane.is_open() && self.client.codecs.is_passthrough() => {
                return self.client.forward(text);
            }
            LaneEvent::Queued { .. } if !self.reported.granted => self.reported.queued = true,
            LaneEvent::Granted if !self.reported.granted => self.reported.granted = true,
            LaneEvent::Ready { .. } if !self.reported.opened || self.has_new_session_id() => {
                self.reported.opened = true;
                self.reported.session_id.clone_from(&self.client.session_id);
            }
            _ => return,
        }
        if self.forwards(text) {
            return self.client.forward(text);
        }
        let prompt_chars = self.opening.prompt_chars;
        let meta = RelayEventMeta { is_queue_update, prompt_chars, ..self.client.event_meta(now) };
        let encoded = self.client.codecs.client.encode(event, &meta);
        self.client.out.push_raw(encoded.map(Message::Text));
    }

    /// True if the client receives the id of the session that replaces a lost one. A chat client does not: some send their
    /// question whenever a session opens.
    fn has_new_session_id(&self) -> bool {
        self.client.mode != Mode::Chat
            && self.client.session_id.is_some()
            && self.client.session_id != self.reported.session_id
    }

    /// True if the client receives the upstream's message as it is. An event that the upstream sent no message about has
    /// an empty one.
    fn forwards(&self, text: &str) -> bool {
        self.client.codecs.is_passthrough() && !text.is_empty()
    }

    /// Forwards an unknown message. The connection reports it to operators.
    fn forward_unknown(&mut self, text: &str) {
        if self.forwards(text) {
            self.client.forward(text);
        }
    }

    /// Handles output of the model in an open session.
    fn handle_model_output(&mut self, now: Instant, message: LaneMessage<'_>) {
        let LaneMessage { event: output, meta, .. } = message;
        let in_flight = &mut self.messages.in_flight;
        let append = match output {
            _ if self.client.mode == Mode::Chat => in_flight.current_append(meta.input_id),
            LaneEvent::Step { .. } => in_flight.match_whole_answer(),
            _ => {
                let in_turn = self.client.turn.is_some();
                in_flight.match_reply(reply_stage(output), meta.input_id, meta.response_id, in_turn)
            }
        };
        self.lane.answer_count += 1;
        self.client.start_turn_if_speaking(output, meta, &append, self.lane.lanes.rng());
        self.client.pass_on(now, message, &append);
        if self.client.end_turn_if_complete(output) && self.client.mode == Mode::Chat {
            self.messages.in_flight.complete_answer(meta.input_id);
        }
    }

    /// Why the upstream session ended regularly. `None` after an error: another session replaces an open one.
    fn end_reason(&self, end: &UpstreamEnd, meta: MessageMeta<'_>) -> Option<RelayEndReason> {
        let codecs = &self.client.codecs;
        if !codecs.uses_commands() {
            return meta.end_reason;
        }
        let reason = end_reason_of(codecs.upstream.mapping(), end);
        let was_opened = self.lane.is_open() || matches!(self.phase, RelayPhase::Closing(_));
        (!was_opened || reason != RelayEndReason::Failed).then_some(reason)
    }

    /// Handles an error that ends the upstream session, or the attempt to open it. Before the session is open, another attempt
    /// follows. In an open session the upstream counts as lost.
    fn handle_fatal_error(&mut self, now: Instant, event: &LaneEvent<'_>) {
        self.try_next_init_variant(now);
        let change = self.lane.handle_own_event(now, event);
        self.handle_change(now, change);
    }

    /// Handles an error that the upstream session survives.
    fn handle_error(&mut self, now: Instant, event: &LaneEvent<'_>, words: &str, text: &str) {
        if self.handle_refused_open(now, words, text) {
            return;
        }
        if !self.needs_forwarding() {
            return self.handle_fatal_error(now, event);
        }
        if self.client.mode == Mode::Chat {
            // No answer, or no more of it, will follow.
            self.client.turn = None;
            self.messages.in_flight.complete_answer(None);
        } else {
            self.messages.in_flight.match_whole_answer();
        }
        if self.client.codecs.is_passthrough() {
            self.client.forward(text);
        } else {
            self.report_error(now, &Error::new(ErrorKind::ModelFailed, words));
        }
    }

    /// Handles a refused opening of an upstream that waits for another one. If messages pass unchanged, the client
    /// decides. Otherwise the session ends after every variant was refused.
    ///
    /// Returns false if the session was not being opened.
    fn handle_refused_open(&mut self, now: Instant, words: &str, text: &str) -> bool {
        if !self.lane.is_initialising() {
            return false;
        }
        if self.client.codecs.is_passthrough() {
            self.await_new_opening();
            self.client.forward(text);
            return true;
        }
        self.count_refusal(true);
        let is_exhausted = self.opening.is_exhausted(self.rules.open_attempts);
        if is_exhausted {
            self.end(now, RelayEndReason::Failed, Some(words));
        }
        is_exhausted
    }

    /// Counts a refused opening, except while a lost upstream is replaced: an upstream has accepted this opening before, so the
    /// opening is not the cause.
    fn count_refusal(&mut self, is_refused: bool) {
        self.opening.refusals += u32::from(is_refused && self.lane.lost_since.is_none());
    }

    /// Handles the end of the upstream session.
    fn handle_upstream_end(&mut self, now: Instant, reason: RelayEndReason, end: &UpstreamEnd, text: &str) {
        let was_initialising = self.lane.is_initialising();
        let is_opening = !self.lane.is_open() && !matches!(self.phase, RelayPhase::Closing(_));
        // A server without room says nothing about the opening.
        if end.kind != EndKind::QueueFull {
            self.count_refusal(was_initialising);
            self.try_next_init_variant(now);
        }
        let is_final = matches!(reason, RelayEndReason::Timeout | RelayEndReason::ContextFull);
        let mut end = end.clone();
        if end.kind == EndKind::BackendLost && self.lane.is_open() && self.messages.sent_unchecked {
            // The client's message is the likelier cause.
            end.kind = EndKind::Refused;
        }
        let is_backend_lost =
            end.kind == EndKind::BackendLost && self.lane.is_open() && self.phase == RelayPhase::Open;
        let has_attempts = self.opening.refusals < self.rules.open_attempts.max(1);
        let can_retry = is_opening && (has_attempts || self.lane.lost_since.is_some()) && !is_final;
        let event = LaneEvent::Closed(end.clone());
        let change = self.lane.handle_own_event(now, &event);
        if can_retry || is_backend_lost {
            return self.handle_change(now, change);
        }
        if is_opening {
            // Another upstream would refuse the opening too, so no further attempt follows.
            self.lane.close(now);
        }
        self.lane.detach(&mut self.timers);
        if self.forwards(text) {
            self.close_passthrough(now, reason, text);
        } else {
            let client_closed = matches!(self.phase, RelayPhase::Closing(_));
            let detail = (reason == RelayEndReason::Failed && !client_closed).then_some(end.detail.as_str());
            let reason = if client_closed { RelayEndReason::ClientClose } else { reason };
            self.end(now, reason, detail);
        }
    }

    /// The upstream's transport closed.
    pub(super) fn handle_upstream_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        let refused_init = !self.reported.opened && self.lane.is_initialising();
        self.try_next_init_variant(now);
        let signal = self.lane.lanes.handle_closed(now, lane, reason);
        self.opening.refusals += u32::from(refused_init);
        if refused_init && self.opening.is_exhausted(self.rules.open_attempts) {
            let detail = format!("the upstream {reason} in every attempt to open the session");
            return self.fail_permanently(now, ConnectionFailure::unused(ErrorKind::Unavailable, detail));
        }
        self.handle_change(now, signal.map_or(ConnectionChange::None, |signal| signal.change));
    }

    /// Tries the next variant of the opening after a failed initialisation: this upstream may not accept the current
    /// one.
    pub(super) fn try_next_init_variant(&mut self, now: Instant) {
        if self.lane.is_initialising() {
            self.opening.init_variant += 1;
            self.initialise(now);
        }
    }

    /// Handles what changed for the connection.
    pub(super) fn handle_change(&mut self, now: Instant, change: ConnectionChange) {
        match change {
            ConnectionChange::Failed(failure) if failure.was_in_use() => {
                self.handle_upstream_loss(now, failure);
            }
            // [`Timer::Resume`] limits the time without an upstream.
            ConnectionChange::Failed(_) if self.lane.lost_since.is_some() => {
                self.leave_upstream(now);
                let pause = Duration::from_millis(self.lane.lanes.times().retry_max_ms);
                self.lane.schedule_dial(now + pause, &mut self.timers);
            }
            ConnectionChange::Failed(failure) => self.fail_permanently(now, failure),
            ConnectionChange::QueueStuck(detail) => {
                let Some(connection) = self.lane.connection() else { return };
                let queued = Observation::LaneQueued { lane: connection.lane, position: None, words: detail };
                self.client.out.observe(queued);
            }
            ConnectionChange::None
            | ConnectionChange::Queued
            | ConnectionChange::Ready
            | ConnectionChange::EmptyAnswer => {}
        }
        self.send_early();
        if matches!(self.phase, RelayPhase::Closing(_)) && !self.lane.is_live() {
            self.confirm_close(now);
        }
    }

    /// Initialises the upstream session with the client's opening, if both exist.
    pub(super) fn initialise(&mut self, now: Instant) {
        match self.opening.encode(&self.client.codecs) {
            Ok(Some(init)) => self.lane.initialise(now, init),
            Ok(None) => {}
            Err(error) => self.report_error(now, &error),
        }
    }

    /// Opens the session with the next message, if the client sent no opening.
    pub(super) fn init_with_first_message(&mut self, now: Instant) {
        if self.opening.start == RelayStart::FirstMessage
            && self.opening.first_message.is_none()
            && !self.lane.is_open()
        {
            self.opening.first_message = self.messages.pending.pop();
            self.initialise(now);
        }
    }

    /// Replaces a first message that did not open the session by the client's opening.
    pub(super) fn replace_first_message(&mut self, now: Instant, text: &str) {
        let sent_early = self.sent_early_count() + usize::from(self.lane.is_initialising());
        if let Some(first) = self.opening.first_message.take() {
            self.messages.pending.push_front(first);
        }
        self.opening.start = RelayStart::Init(Some(text.to_owned()));
        if let Some(id) = self.lane.id() {
            self.messages.sent_early = Some((self.lane.lanes.lane(id), sent_early));
            self.lane.lanes.await_init(id);
        }
        self.initialise(now);
        self.send_early();
    }

    /// Sends waiting messages before the session is open. A server of the client's own protocol receives them then
    /// without voxbridge too. They are kept for another attempt.
    pub(super) fn send_early(&mut self) {
        let sent = self.sent_early_count();
        let Some(connection) = self.lane.connection() else { return };
        if !self.client.codecs.is_passthrough() || self.reported.opened || !connection.is_initialising() {
            return;
        }
        let lane = connection.lane;
        for message in self.messages.pending.iter_after(sent) {
            self.lane.lanes.send(lane, LaneRequest::RawText(message.text.clone()));
        }
        self.messages.sent_early = Some((lane, self.messages.pending.len()));
    }

    fn sent_early_count(&self) -> usize {
        self.messages.sent_early.filter(|(lane, _)| self.lane.is(*lane)).map_or(0, |(_, count)| count)
    }

    /// Waits for another opening after the upstream refused the last one and the messages behind it.
    pub(super) fn await_new_opening(&mut self) {
        (0..self.sent_early_count()).for_each(|_| drop(self.messages.pending.pop()));
        (self.opening.start, self.opening.first_message, self.messages.sent_early) =
            (RelayStart::Unknown, None, None);
        if let Some(id) = self.lane.id() {
            self.lane.lanes.await_init(id);
        }
    }

    /// Reports to the client the audio that the model will not hear, because no upstream was ready for it.
    fn report_dropped(&mut self, now: Instant, gap_ms: u64, dropped: DroppedMessages) {
        let DroppedMessages { count, audio_ms } = dropped;
        if count > 0 {
            let detail = format!(
                "the model was not reachable for {gap_ms} ms; the oldest {count} messages with {audio_ms} ms of audio were dropped"
            );
            self.report_error(now, &Error::new(ErrorKind::ModelFailed, detail));
        }
    }

    /// Sends the waiting messages in a session that has opened.
    pub(super) fn handle_session_opened(&mut self, now: Instant) {
        self.opening.refusals = 0;
        self.messages.units = RelayUnits::default();
        self.messages.sent_unchecked = false;
        self.timers.clear(&[Timer::Resume]);
        if let Some(gap) = self.lane.engage(now) {
            let (kept, dropped) =
                (self.messages.pending.len() as u64, std::mem::take(&mut self.messages.pending.dropped));
            let gap_ms = crate::session::millis(gap);
            self.client.out.observe(Observation::RelayResumed { gap_ms, kept, dropped: dropped.count });
            self.report_dropped(now, gap_ms, dropped);
        }
        if let Some(ClientMessage { text, append: Some(append) }) = self.opening.first_message.take() {
            self.messages.in_flight.push(&text, append);
        }
        let sent_early = self.sent_early_count();
        self.messages.sent_early = None;
        for at in 0.. {
            match self.messages.pending.pop() {
                Some(ClientMessage { text, append: Some(append) }) if at < sent_early => {
                    self.messages.in_flight.push(&text, append);
                }
                Some(_) if at < sent_early => self.messages.sent_unchecked = true,
                Some(message) => self.send_upstream(now, message, None),
                None => break,
            }
        }
    }
}

const fn reply_stage(output: &LaneEvent<'_>) -> ReplyStage {
    match output {
        LaneEvent::Text(_) => ReplyStage::Text,
        LaneEvent::Audio(_) => ReplyStage::Speech,
        LaneEvent::Listen => ReplyStage::Listening,
        _ => ReplyStage::Done,
    }
}
