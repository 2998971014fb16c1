//! Messages of the upstream, and the events for the relay's client.

use std::time::Instant;

use super::{
    Relay, RelayPhase, RelayTurn, ReplyMerger,
    merge_reply::{NoticeSink, StepMeta},
    pending::{AppendMeta, ReplyStage},
};
use crate::session::{lanes::connection::ConnectionChange, measurement::Measurement, timers::Timer};
use crate::{
    error::{Error, ErrorKind},
    event::{
        EndKind, Lane, Message, MessageMeta, Mode, UpstreamEnd,
        relay::{ClientNotice, NoticeMeta, RelayEndReason, RelayUpstreamEvent, StepOutput},
    },
};

impl Relay {
    /// Handles a message of the upstream. `text` is the message itself.
    pub(crate) fn handle_upstream_message(
        &mut self,
        now: Instant,
        lane: Lane,
        (event, meta): (&RelayUpstreamEvent<'_>, MessageMeta<'_>),
        text: &str,
    ) {
        if !self.owns_lane(lane) {
            self.handle_lane_event(now, lane, &event.to_lane_event());
            return;
        }
        if let Some(tokens) = meta.context_tokens {
            self.context_tokens = Some(tokens);
            self.out.measure(Measurement::ContextUsage { lane, tokens });
        }
        match event {
            RelayUpstreamEvent::Queued(_) | RelayUpstreamEvent::Granted => {
                self.report_opening_progress(now, event, text);
            }
            RelayUpstreamEvent::Opened(session_id) => {
                self.session_id = session_id.map(str::to_owned);
                self.report_opening_progress(now, event, text);
            }
            RelayUpstreamEvent::Ended(reason, end) => {
                return self.handle_upstream_end(now, *reason, end, text);
            }
            RelayUpstreamEvent::Failed(end, goes_on) => {
                return self.handle_failure(now, event, end, *goes_on, text);
            }
            RelayUpstreamEvent::Unknown(_) => self.forward_unknown(text),
            _ if self.needs_forwarding() => self.handle_model_output(now, event, meta, text),
            _ => {}
        }
        let change = self.handle_lane_event(now, lane, &event.to_lane_event());
        let opened = change == ConnectionChange::Ready;
        self.handle_change(now, change);
        if opened {
            self.handle_session_opened(now);
        }
        self.finish_if_answered(now);
    }

    /// True if model output goes to the client: the session is open, or the client waits for its close to be confirmed.
    fn needs_forwarding(&self) -> bool {
        self.reported.opened && (self.is_open() || matches!(self.phase, RelayPhase::Closing(_)))
    }

    /// Reports queue position and opening, once each over all attempts, and the opening again if the session id changed.
    fn report_opening_progress(&mut self, now: Instant, event: &RelayUpstreamEvent<'_>, text: &str) {
        let notice = match event {
            // Some servers confirm settings that change in an open session.
            _ if self.is_open() && self.codecs.is_passthrough() => {
                return self.send_client(Message::Text(text.to_owned()));
            }
            RelayUpstreamEvent::Queued(place) if !self.reported.granted => ClientNotice::Queued {
                queue: *place,
                is_update: std::mem::replace(&mut self.reported.queued, true),
            },
            RelayUpstreamEvent::Granted if !std::mem::replace(&mut self.reported.granted, true) => {
                ClientNotice::Granted
            }
            RelayUpstreamEvent::Opened(_) if !self.reported.opened || self.has_new_session_id() => {
                self.reported.opened = true;
                self.reported.session_id.clone_from(&self.session_id);
                ClientNotice::Opened { prompt_chars: self.opening.prompt_chars }
            }
            _ => return,
        };
        if self.codecs.is_passthrough() {
            return self.send_client(Message::Text(text.to_owned()));
        }
        let notice_meta = self.notice_meta(now);
        if let Some(encoded) = self.codecs.encode_notice(&notice, &notice_meta) {
            self.send_client(Message::Text(encoded));
        }
    }

    /// True if the client must be told the id of the session that replaces a lost one. A chat client is not told: some
    /// send their question whenever a session opens.
    fn has_new_session_id(&self) -> bool {
        self.mode != Mode::Chat && self.session_id.is_some() && self.session_id != self.reported.session_id
    }

    /// Forwards an unknown message. The connection reports it to operators.
    fn forward_unknown(&mut self, text: &str) {
        if self.codecs.is_passthrough() && !text.is_empty() {
            self.send_client(Message::Text(text.to_owned()));
        }
    }

    /// Handles output of the model in an open session.
    fn handle_model_output(
        &mut self,
        now: Instant,
        event: &RelayUpstreamEvent<'_>,
        meta: MessageMeta<'_>,
        text: &str,
    ) {
        let append = match event {
            _ if self.mode == Mode::Chat => self.messages.in_flight.current_append(meta.input_id),
            RelayUpstreamEvent::Output(_) => self.messages.in_flight.match_whole_answer(),
            _ => self.messages.in_flight.match_reply(
                reply_stage(event),
                meta.input_id,
                meta.response_id,
                self.turn.is_some(),
            ),
        };
        self.answer_count += 1;
        self.start_turn_if_speaking(event, meta, &append);
        if self.codecs.is_passthrough() {
            self.send_client(Message::Text(text.to_owned()));
        } else if self.codecs.merges_replies() {
            self.send_merged(now, event, meta);
        } else {
            self.send_separately(now, event, meta, &append);
        }
        self.end_turn_if_complete(event, meta);
    }

    /// Starts a turn with the first output. Its id is the upstream's, the client's, or a new one.
    fn start_turn_if_speaking(
        &mut self,
        event: &RelayUpstreamEvent<'_>,
        meta: MessageMeta<'_>,
        append: &AppendMeta,
    ) {
        let is_speaking = match event {
            RelayUpstreamEvent::Text(_) | RelayUpstreamEvent::Speech(_) => true,
            RelayUpstreamEvent::Output(output) => !output.text.is_empty() || output.audio.is_some(),
            _ => false,
        };
        if !is_speaking || self.turn.is_some() {
            return;
        }
        let named = meta.response_id.or(append.response_id.as_deref()).map(str::to_owned);
        let generated = || format!("resp_{:012x}", self.lanes.rng().u64(..) & 0xffff_ffff_ffff);
        self.turn = Some(RelayTurn { response_id: named.unwrap_or_else(generated) });
    }

    fn end_turn_if_complete(&mut self, event: &RelayUpstreamEvent<'_>, meta: MessageMeta<'_>) {
        match event {
            RelayUpstreamEvent::Listening
            | RelayUpstreamEvent::Output(StepOutput { end_of_turn: true, .. }) => self.turn = None,
            RelayUpstreamEvent::Answered(..) if self.mode == Mode::Chat => {
                self.turn = None;
                self.messages.in_flight.complete_answer(meta.input_id);
            }
            _ => {}
        }
    }

    /// Sends the parts of a step in one event.
    fn send_merged(&mut self, now: Instant, event: &RelayUpstreamEvent<'_>, meta: MessageMeta<'_>) {
        let step = StepMeta {
            reply_id: meta.input_id.or(meta.response_id),
            input_id: meta.input_id,
            context_tokens: meta.context_tokens,
        };
        self.with_merger(now, |merger, emit| match event {
            RelayUpstreamEvent::Text(text) => merger.push_text(now, text, step, emit),
            RelayUpstreamEvent::Speech(audio) => merger.push_audio(now, audio, step, emit),
            RelayUpstreamEvent::Listening => merger.handle_listening(step, emit),
            RelayUpstreamEvent::Answered(..) => merger.end_step(step, emit),
            RelayUpstreamEvent::Output(output) => {
                merger.flush(emit);
                emit(&ClientNotice::Output(*output), step.context_tokens);
            }
            _ => {}
        });
    }

    /// Sends every part of a step in an event of its own.
    fn send_separately(
        &mut self,
        now: Instant,
        event: &RelayUpstreamEvent<'_>,
        meta: MessageMeta<'_>,
        append: &AppendMeta,
    ) {
        let client_input_id = append.input_id.as_deref().filter(|_| append.is_client_id);
        let response_id = self.turn.as_ref().map(|turn| turn.response_id.as_str());
        let notice_meta = NoticeMeta {
            response_id: meta.response_id.or(response_id),
            // Only ids that the client gave are reported to it.
            input_id: client_input_id,
            ..self.notice_meta(now)
        };
        let mut notices = Vec::new();
        match event {
            RelayUpstreamEvent::Text(text) => notices.push(ClientNotice::Text(text)),
            RelayUpstreamEvent::Speech(audio) => notices.push(ClientNotice::Speech(audio)),
            RelayUpstreamEvent::Listening => notices.push(ClientNotice::Listening),
            RelayUpstreamEvent::Answered(text, audio) => notices.push(ClientNotice::Answered(*text, *audio)),
            RelayUpstreamEvent::Output(output) => {
                // An empty step is reported too: some clients wait for it.
                let is_empty_step = output.audio.is_none() && !output.end_of_turn;
                notices.extend(
                    Some(output.text)
                        .filter(|text| is_empty_step || !text.is_empty())
                        .map(ClientNotice::Text),
                );
                notices.extend(output.audio.map(ClientNotice::Speech));
                notices.extend(output.end_of_turn.then_some(ClientNotice::Listening));
            }
            _ => {}
        }
        let encoded: Vec<_> =
            notices.iter().filter_map(|notice| self.codecs.encode_notice(notice, &notice_meta)).collect();
        encoded.into_iter().for_each(|text| self.send_client(Message::Text(text)));
    }

    /// Sends held parts and ends the open turn.
    pub(super) fn close_turn(&mut self, now: Instant) {
        let Some(turn) = self.turn.take() else { return };
        if self.codecs.merges_replies() && !self.codecs.is_passthrough() {
            return self.with_merger(now, |merger, emit| merger.end_turn(emit));
        }
        let notice_meta = NoticeMeta { response_id: Some(&turn.response_id), ..self.notice_meta(now) };
        let ended = if self.codecs.merges_replies() {
            ClientNotice::Output(StepOutput { text: "", audio: None, end_of_turn: true })
        } else {
            ClientNotice::Listening
        };
        if self.mode != Mode::Chat
            && let Some(text) = self.codecs.encode_notice(&ended, &notice_meta)
        {
            self.send_client(Message::Text(text));
        }
    }

    /// Sends held parts. The turn stays open.
    pub(super) fn flush_turn(&mut self, now: Instant) {
        self.with_merger(now, |merger, emit| merger.flush(emit));
    }

    /// Sends held parts whose time is over.
    pub(super) fn handle_merge_timeout(&mut self, now: Instant) {
        if self.timers.take_expired(Timer::HeldOutput, now) {
            self.with_merger(now, |merger, emit| merger.handle_timeout(emit));
        }
    }

    fn with_merger(&mut self, now: Instant, act: impl FnOnce(&mut ReplyMerger, &mut NoticeSink<'_>)) {
        let Self { merger, codecs, out, timers, session_id, context_tokens, opened_at, .. } = self;
        let elapsed_s = (now - *opened_at).as_secs_f64();
        act(merger, &mut |notice, tokens| {
            // Protocols with this field always send it, so an unknown usage becomes 0.
            let context_tokens = tokens.or(*context_tokens).or(Some(0));
            let session_id = session_id.as_deref();
            let notice_meta = NoticeMeta { session_id, context_tokens, elapsed_s, ..NoticeMeta::default() };
            let encoded = codecs.encode_notice(notice, &notice_meta).map(Message::Text);
            out.push_raw(encoded);
        });
        timers.set_or_clear(Timer::HeldOutput, merger.flush_at());
    }

    /// Handles an error that the upstream reported.
    fn handle_failure(
        &mut self,
        now: Instant,
        event: &RelayUpstreamEvent<'_>,
        end: &UpstreamEnd,
        goes_on: bool,
        text: &str,
    ) {
        if goes_on && self.handle_refused_open(now, end, text) {
            return;
        }
        if !goes_on || !self.needs_forwarding() {
            // Before the session is open, another attempt follows. In an open session the upstream counts as lost.
            self.try_next_init_variant(now);
            let change = self.handle_own_event(now, &event.to_lane_event());
            return self.handle_change(now, change);
        }
        if self.mode == Mode::Chat {
            // No answer, or no more of it, will follow.
            self.turn = None;
            self.messages.in_flight.complete_answer(None);
        } else {
            self.messages.in_flight.match_whole_answer();
        }
        if self.codecs.is_passthrough() {
            self.send_client(Message::Text(text.to_owned()));
        } else {
            self.report_error(now, &Error::new(ErrorKind::ModelFailed, end.detail.clone()));
        }
    }

    /// Handles a refused opening of an upstream that waits for another one. If messages pass unchanged, the client
    /// decides. Otherwise the session ends after every variant was refused.
    ///
    /// Returns false if the session was not being opened.
    fn handle_refused_open(&mut self, now: Instant, end: &UpstreamEnd, text: &str) -> bool {
        if !self.is_initialising() {
            return false;
        }
        if self.codecs.is_passthrough() {
            self.await_new_opening();
            self.send_client(Message::Text(text.to_owned()));
            return true;
        }
        self.count_refusal(true);
        let is_exhausted = self.is_init_exhausted();
        if is_exhausted {
            self.end(now, RelayEndReason::Failed, Some(&end.detail));
        }
        is_exhausted
    }

    /// Counts a refused opening, except while a lost upstream is replaced: an upstream has accepted this opening before, so the
    /// opening is not the cause.
    fn count_refusal(&mut self, is_refused: bool) {
        self.opening.refusals += u32::from(is_refused && self.outage.is_none());
    }

    /// Handles the end of the upstream session.
    fn handle_upstream_end(&mut self, now: Instant, reason: RelayEndReason, end: &UpstreamEnd, text: &str) {
        let was_initialising = self.is_initialising();
        let is_opening = !self.is_open() && !matches!(self.phase, RelayPhase::Closing(_));
        // A server without room says nothing about the opening.
        if end.kind != EndKind::QueueFull {
            self.count_refusal(was_initialising);
            self.try_next_init_variant(now);
        }
        let is_final = matches!(reason, RelayEndReason::Timeout | RelayEndReason::ContextFull);
        let is_backend_lost = end.kind == EndKind::BackendLost
            && self.is_open()
            && self.phase == RelayPhase::Open
            && !self.messages.sent_unchecked;
        let has_attempts = self.opening.refusals < self.rules.open_attempts.max(1);
        let can_retry = is_opening && (has_attempts || self.outage.is_some()) && !is_final;
        let event = RelayUpstreamEvent::Ended(reason, end.clone());
        let change = self.handle_own_event(now, &event.to_lane_event());
        if can_retry || is_backend_lost {
            return self.handle_change(now, change);
        }
        if is_opening {
            // Another upstream would refuse the opening too, so no further attempt follows.
            self.close_lane(now);
        }
        self.detach_connection();
        if self.codecs.is_passthrough() {
            self.close_passthrough(now, reason, text);
        } else {
            let client_closed = matches!(self.phase, RelayPhase::Closing(_));
            let detail = (reason == RelayEndReason::Failed && !client_closed).then_some(end.detail.as_str());
            let reason = if client_closed { RelayEndReason::ClientClose } else { reason };
            self.end(now, reason, detail);
        }
    }
}

const fn reply_stage(event: &RelayUpstreamEvent<'_>) -> ReplyStage {
    match event {
        RelayUpstreamEvent::Text(_) => ReplyStage::Text,
        RelayUpstreamEvent::Speech(_) => ReplyStage::Speech,
        RelayUpstreamEvent::Listening => ReplyStage::Listening,
        _ => ReplyStage::Done,
    }
}
