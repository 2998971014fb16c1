//! The client's side of a relay: events for the client, and the answer that it has received in part.

use std::time::Instant;

use super::{
    Arc, RelayCodecs,
    merge_reply::{OutputSink, ReplyMerger, StepMeta},
    pending::AppendMeta,
};
use crate::{
    bridge::session::LaneMessage,
    session::outbox::{Action, Actions},
    vocabulary::{LaneEvent, Message, MessageMeta, Mode, Sound, relay::RelayEventMeta},
};

/// The client's side of a relay.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) codecs: Arc<RelayCodecs>,
    pub(super) mode: Mode,
    pub(super) out: Actions,
    pub(super) opened_at: Instant,
    /// Upstream's session id.
    pub(super) session_id: Option<String>,
    pub(super) context_tokens: Option<u32>,
    /// Id of the answer that the client has received in part.
    pub(super) turn: Option<String>,
    pub(super) merger: ReplyMerger,
}

impl ClientSide {
    pub(super) fn send(&mut self, message: Message) {
        self.out.push(Action::RawToClient(message));
    }

    /// Sends a message of the upstream as it is.
    pub(super) fn forward(&mut self, text: &str) {
        self.send(Message::Text(text.to_owned()));
    }

    pub(super) fn event_meta(&self, now: Instant) -> RelayEventMeta<'_> {
        RelayEventMeta {
            session_id: self.session_id.as_deref(),
            context_tokens: self.context_tokens,
            elapsed_s: (now - self.opened_at).as_secs_f64(),
            ..RelayEventMeta::default()
        }
    }

    /// Starts a turn with the first output. Its id is the upstream's, the client's, or a new one.
    pub(super) fn start_turn_if_speaking(
        &mut self,
        output: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        append: &AppendMeta,
        rng: &mut fastrand::Rng,
    ) {
        let is_speaking = match output {
            LaneEvent::Text(_) | LaneEvent::Audio(_) => true,
            LaneEvent::Step { text, audio, .. } => !text.is_empty() || !audio.is_none(),
            _ => false,
        };
        if is_speaking && self.turn.is_none() {
            let named = meta.response_id.or(append.response_id.as_deref()).map(str::to_owned);
            let generated = || format!("resp_{:012x}", rng.u64(..) & 0xffff_ffff_ffff);
            self.turn = Some(named.unwrap_or_else(generated));
        }
    }

    /// Ends the turn with its last output. True for the end of an answer.
    pub(super) fn end_turn_if_complete(&mut self, output: &LaneEvent<'_>) -> bool {
        let is_answered = matches!(output, LaneEvent::Done { .. });
        let ends_turn = matches!(output, LaneEvent::Listen | LaneEvent::Step { end_of_turn: true, .. });
        if ends_turn || (is_answered && self.mode == Mode::Chat) {
            self.turn = None;
        }
        is_answered
    }

    /// Passes output of the model on.
    pub(super) fn pass_on(&mut self, now: Instant, message: LaneMessage<'_>, append: &AppendMeta) {
        if self.codecs.is_passthrough() {
            self.forward(message.text);
        } else if self.codecs.merges_replies() {
            self.send_merged(now, message.event, message.meta);
        } else {
            self.send_separately(now, message, append);
        }
    }

    /// Sends the parts of a step in one event.
    fn send_merged(&mut self, now: Instant, output: &LaneEvent<'_>, meta: MessageMeta<'_>) {
        let step = StepMeta {
            reply_id: meta.input_id.or(meta.response_id),
            input_id: meta.input_id,
            context_tokens: meta.context_tokens,
        };
        self.with_merger(now, |merger, emit| match output {
            LaneEvent::Text(text) => merger.push_text(now, text, step, emit),
            LaneEvent::Audio(audio) => merger.push_audio(now, *audio, step, emit),
            LaneEvent::Listen => merger.handle_listening(step, emit),
            LaneEvent::Done { .. } => merger.end_step(step, emit),
            _ => {
                merger.flush(emit);
                emit(output, step.context_tokens);
            }
        });
    }

    /// Sends every part of a step in an event of its own.
    fn send_separately(&mut self, now: Instant, message: LaneMessage<'_>, append: &AppendMeta) {
        let parts = match message.event {
            // The end of a step, which says nothing else.
            LaneEvent::Done { text: None, audio } if audio.is_none() && self.mode != Mode::Chat => return,
            LaneEvent::Step { text, audio, end_of_turn } => {
                let audio = Some(*audio).filter(|audio| !audio.is_none());
                // An empty step is reported too: some clients wait for it.
                let is_empty_step = audio.is_none() && !end_of_turn;
                let text = Some(*text).filter(|text| is_empty_step || !text.is_empty());
                let listen = end_of_turn.then_some(LaneEvent::Listen);
                [text.map(LaneEvent::Text), audio.map(LaneEvent::Audio), listen]
            }
            output => [Some(output.clone()), None, None],
        };
        // Only ids that the client gave are reported to it.
        let input_id = append.input_id.as_deref().filter(|_| append.is_client_id);
        let turn = self.turn.take();
        for part in parts.iter().flatten() {
            self.send_event(now, part, message.meta.response_id.or(turn.as_deref()), input_id);
        }
        self.turn = turn;
    }

    /// Sends output that belongs to this answer and this append.
    fn send_event(
        &mut self,
        now: Instant,
        output: &LaneEvent<'_>,
        response_id: Option<&str>,
        input_id: Option<&str>,
    ) {
        let event_meta = RelayEventMeta { response_id, input_id, ..self.event_meta(now) };
        let encoded = self.codecs.client.encode(output, &event_meta);
        self.out.push_raw(encoded.map(Message::Text));
    }

    /// Sends held parts and ends the open turn.
    pub(super) fn close_turn(&mut self, now: Instant) {
        let Some(turn) = self.turn.take() else { return };
        let merges_replies = self.codecs.merges_replies();
        if merges_replies && !self.codecs.is_passthrough() {
            return self.with_merger(now, |merger, emit| merger.end_turn(emit));
        }
        if self.mode != Mode::Chat {
            let end = match merges_replies {
                true => LaneEvent::Step { text: "", audio: Sound::NONE, end_of_turn: true },
                false => LaneEvent::Listen,
            };
            self.send_event(now, &end, Some(&turn), None);
        }
    }

    /// Sends held parts. The turn stays open.
    pub(super) fn flush_turn(&mut self, now: Instant) {
        self.with_merger(now, |merger, emit| merger.flush(emit));
    }

    /// Sends held parts whose time is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.merger.flush_at().is_some_and(|at| at <= now) {
            self.with_merger(now, |merger, emit| merger.handle_timeout(emit));
        }
    }

    fn with_merger(&mut self, now: Instant, act: impl FnOnce(&mut ReplyMerger, &mut OutputSink<'_>)) {
        let Self { merger, codecs, out, session_id, context_tokens, opened_at, .. } = self;
        let elapsed_s = (now - *opened_at).as_secs_f64();
        act(merger, &mut |output, tokens| {
            // Protocols with this field always send it, so an unknown usage becomes 0.
            let context_tokens = tokens.or(*context_tokens).or(Some(0));
            let session_id = session_id.as_deref();
            let event_meta =
                RelayEventMeta { session_id, context_tokens, elapsed_s, ..RelayEventMeta::default() };
            let encoded = codecs.client.encode(output, &event_meta);
            out.push_raw(encoded.map(Message::Text));
        });
    }
}
