//! The client's side of a relay: events for the client, and the answer that it has received in part.

use std::time::Instant;

use super::{
    Arc, RelayCodecs,
    merge_reply::{OutputSink, ReplyMerger, StepMeta},
    pending::AppendMeta,
};
use crate::{
    session::outbox::{Action, Actions},
    vocabulary::{
        Message, MessageMeta, Mode,
        relay::{ClientNotice, ModelOutput, NoticeMeta, StepOutput},
    },
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

    /// Sends an event, if the client's protocol has it.
    pub(super) fn notify(&mut self, now: Instant, notice: &ClientNotice<'_>) {
        let encoded = self.codecs.encode_notice(notice, &self.notice_meta(now));
        self.out.push_raw(encoded.map(Message::Text));
    }

    pub(super) fn notice_meta(&self, now: Instant) -> NoticeMeta<'_> {
        NoticeMeta {
            session_id: self.session_id.as_deref(),
            response_id: None,
            input_id: None,
            context_tokens: self.context_tokens,
            elapsed_s: (now - self.opened_at).as_secs_f64(),
        }
    }

    /// Starts a turn with the first output. Its id is the upstream's, the client's, or a new one.
    pub(super) fn start_turn_if_speaking(
        &mut self,
        output: ModelOutput<'_>,
        meta: MessageMeta<'_>,
        append: &AppendMeta,
        rng: &mut fastrand::Rng,
    ) {
        let is_speaking = match output {
            ModelOutput::Text(_) | ModelOutput::Speech(_) => true,
            ModelOutput::Step(step) => !step.text.is_empty() || step.audio.is_some(),
            ModelOutput::Listening | ModelOutput::Answered(..) => false,
        };
        if is_speaking && self.turn.is_none() {
            let named = meta.response_id.or(append.response_id.as_deref()).map(str::to_owned);
            let generated = || format!("resp_{:012x}", rng.u64(..) & 0xffff_ffff_ffff);
            self.turn = Some(named.unwrap_or_else(generated));
        }
    }

    /// Ends the turn with its last output. True for the end of an answer.
    pub(super) fn end_turn_if_complete(&mut self, output: ModelOutput<'_>) -> bool {
        let is_answered = matches!(output, ModelOutput::Answered(..));
        if output.parts().end_of_turn || (is_answered && self.mode == Mode::Chat) {
            self.turn = None;
        }
        is_answered
    }

    /// Passes output of the model on. `text` is the upstream's message.
    pub(super) fn pass_on(
        &mut self,
        now: Instant,
        (output, meta): (ModelOutput<'_>, MessageMeta<'_>),
        text: &str,
        append: &AppendMeta,
    ) {
        if self.codecs.is_passthrough() {
            self.forward(text);
        } else if self.codecs.merges_replies() {
            self.send_merged(now, output, meta);
        } else {
            self.send_separately(now, output, meta, append);
        }
    }

    /// Sends the parts of a step in one event.
    fn send_merged(&mut self, now: Instant, output: ModelOutput<'_>, meta: MessageMeta<'_>) {
        let step = StepMeta {
            reply_id: meta.input_id.or(meta.response_id),
            input_id: meta.input_id,
            context_tokens: meta.context_tokens,
        };
        self.with_merger(now, |merger, emit| match output {
            ModelOutput::Text(text) => merger.push_text(now, text, step, emit),
            ModelOutput::Speech(audio) => merger.push_audio(now, audio, step, emit),
            ModelOutput::Listening => merger.handle_listening(step, emit),
            ModelOutput::Answered(..) => merger.end_step(step, emit),
            ModelOutput::Step(_) => {
                merger.flush(emit);
                emit(output, step.context_tokens);
            }
        });
    }

    /// Sends every part of a step in an event of its own.
    fn send_separately(
        &mut self,
        now: Instant,
        output: ModelOutput<'_>,
        meta: MessageMeta<'_>,
        append: &AppendMeta,
    ) {
        let outputs = match output {
            // The end of a step, which says nothing else.
            ModelOutput::Answered(None, None) if self.mode != Mode::Chat => return,
            ModelOutput::Step(StepOutput { text, audio, end_of_turn }) => {
                // An empty step is reported too: some clients wait for it.
                let is_empty_step = audio.is_none() && !end_of_turn;
                let text = Some(text).filter(|text| is_empty_step || !text.is_empty());
                let listening = end_of_turn.then_some(ModelOutput::Listening);
                [text.map(ModelOutput::Text), audio.map(ModelOutput::Speech), listening]
            }
            output => [Some(output), None, None],
        };
        // Only ids that the client gave are reported to it.
        let input_id = append.input_id.as_deref().filter(|_| append.is_client_id);
        let turn = self.turn.take();
        for output in outputs.into_iter().flatten() {
            self.notify_about(now, output, meta.response_id.or(turn.as_deref()), input_id);
        }
        self.turn = turn;
    }

    /// Sends output that belongs to this answer and this append.
    fn notify_about(
        &mut self,
        now: Instant,
        output: ModelOutput<'_>,
        response_id: Option<&str>,
        input_id: Option<&str>,
    ) {
        let notice_meta = NoticeMeta { response_id, input_id, ..self.notice_meta(now) };
        let encoded = self.codecs.encode_notice(&ClientNotice::Output(output), &notice_meta);
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
            let listening = ModelOutput::Listening;
            let ended = if merges_replies { ModelOutput::Step(listening.parts()) } else { listening };
            self.notify_about(now, ended, Some(&turn), None);
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
            let notice_meta = NoticeMeta { session_id, context_tokens, elapsed_s, ..NoticeMeta::default() };
            let encoded = codecs.encode_notice(&ClientNotice::Output(output), &notice_meta);
            out.push_raw(encoded.map(Message::Text));
        });
    }
}
