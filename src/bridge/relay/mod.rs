//! Session of a client that speaks the model's own protocol: one upstream session per client, message by message.
//!
//! The session knows no wire format; [`RelayCodecs`] encodes for both ends. If both ends share a spelling, messages
//! pass unchanged. This file handles the client's messages.
//!
//! - [`upstream`] handles the upstream's messages and opens its session
//! - [`output`] is what the client receives; [`merge_reply`] merges several messages into one event
//! - [`lane`] is the upstream session: dialled at once, retried, replaced when it is lost
//! - [`opening`] is the message that opens the session; [`pending`] keeps messages that wait for an upstream or for an answer
//! - [`session`] is the relay as the bridge sees it: which protocol the client speaks, and each kind of input
//! - [`shutdown`] replaces a lost upstream session, or ends the client's

mod codecs;
mod lane;
mod merge_reply;
mod opening;
mod output;
mod pending;
mod session;
mod shutdown;
mod upstream;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    codecs::RelayCodecs,
    lane::{RelayLane, RelayUpstream},
    merge_reply::ReplyMerger,
    opening::{Messages, Opening, RelayStart, ReportedProgress},
    output::ClientSide,
    pending::{AppendMeta, ClientMessage},
};
use crate::{
    client::relay::RelayCodec,
    error::{Error, ErrorKind},
    session::{
        Observation, RelaySetup,
        lanes::{Lanes, voice_encoding::VoiceEncodingChoice},
        outbox::Actions,
        timers::{Timer, Timers},
    },
    spelling::{UpstreamMapping, profile::RelayRules},
    upstream::Dialect,
    vocabulary::{
        Lane, LaneRequest, Message, Mode,
        relay::{RelayEndReason, RelayInput, RelayOpening, RelayRequest},
    },
};

#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayPhase {
    /// In use.
    Open,
    /// The client closed the session, with this reason. The upstream's confirmation is awaited.
    Closing(Option<String>),
    /// The session ends for this reason once the current answer is complete, or [`Timer::Finish`] expires.
    Finishing(RelayEndReason),
    /// The client is gone or has received its last event.
    Over,
}

/// One relayed session.
#[derive(Debug)]
pub(in crate::bridge) struct Relay {
    /// Other protocols that the client may speak, until its first message decides.
    candidates: Vec<RelayCodec>,
    /// Fields without effect that operators know about already.
    noted_no_effect: BTreeSet<String>,
    client: ClientSide,
    lane: RelayLane,
    timers: Timers,
    rules: RelayRules,
    id: String,
    phase: RelayPhase,
    opening: Opening,
    reported: ReportedProgress,
    messages: Messages,
    idle_limit: Option<Duration>,
    client_heard_at: Instant,
}

impl Relay {
    /// A session without an upstream; `None` if the profile does not relay. Its client may speak one of the `candidates` instead.
    fn new(
        now: Instant,
        setup: &RelaySetup,
        codecs: RelayCodecs,
        candidates: Vec<RelayCodec>,
    ) -> Option<Self> {
        let rules = setup.profile.relay?;
        let mut lanes = Lanes::new(setup.profile.lanes, VoiceEncodingChoice::new([].into()), setup.seed);
        let mut timers = Timers::default();
        if setup.session_max_ms > 0 {
            timers.set(Timer::TimeLimit, now + Duration::from_millis(setup.session_max_ms));
        }
        let id = format!("relay_{:012x}", lanes.rng().u64(..) & 0xffff_ffff_ffff);
        let idle = Duration::from_millis(setup.idle_ms.unwrap_or(rules.idle_ms));
        let client = ClientSide {
            mode: codecs.mode(),
            codecs: Arc::new(codecs),
            out: Actions::new(lanes.shared.out.numbers()),
            opened_at: now,
            session_id: None,
            context_tokens: None,
            turn: None,
            merger: ReplyMerger::new(rules.audio_hold_ms, rules.text_hold_ms),
        };
        Some(Self {
            candidates,
            noted_no_effect: BTreeSet::new(),
            client,
            lane: RelayLane::new(lanes),
            timers,
            rules,
            id,
            phase: RelayPhase::Open,
            opening: Opening::default(),
            reported: ReportedProgress::default(),
            messages: Messages::new(rules.buffer_max_bytes),
            idle_limit: Some(idle).filter(|idle| !idle.is_zero()),
            client_heard_at: now,
        })
    }

    /// Replaces the codecs, once the client's first message has shown its protocol.
    fn set_codecs(&mut self, codecs: RelayCodecs) {
        self.client.codecs = Arc::new(codecs);
    }

    /// Dials in this mode, unless a connection in this mode exists.
    fn set_mode(&mut self, now: Instant, mode: Mode) {
        if self.phase == RelayPhase::Open
            && (mode != self.client.mode || self.lane.upstream == RelayUpstream::Stopped)
        {
            self.client.mode = mode;
            self.leave_upstream(now);
            self.dial(now);
        }
    }

    /// Handles a message of the client. `text` is the message itself.
    fn handle_client_request(&mut self, now: Instant, request: &RelayRequest<'_>, text: &str) {
        if !matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..)) {
            return;
        }
        self.client_heard_at = now;
        match request {
            RelayRequest::Open(opening) => self.handle_client_open(now, opening, text),
            RelayRequest::Append(input) => self.handle_client_append(now, input, text),
            RelayRequest::Close(reason) => self.handle_client_close(now, *reason, text),
            RelayRequest::Unknown(_) if self.client.codecs.is_passthrough() => {
                self.send_or_queue(now, ClientMessage { text: text.to_owned(), append: None }, None);
            }
            RelayRequest::Unknown(name) => {
                self.report_error(now, &Error::new(ErrorKind::UnknownCommand, *name));
            }
        }
    }

    fn handle_client_open(&mut self, now: Instant, opening: &RelayOpening<'_>, text: &str) {
        let (bytes, max_bytes) = (text.len(), self.rules.buffer_max_bytes);
        if bytes > max_bytes && !self.client.codecs.is_passthrough() {
            let detail = format!(
                "the message that opens the session has {bytes} bytes; the limit is {max_bytes} bytes"
            );
            return self.report_error(now, &Error::new(ErrorKind::TooMuch, detail));
        }
        if !self.client.codecs.is_passthrough()
            && let Err(error) = self.client.codecs.encode_opening(opening)
        {
            return self.report_error(now, &error);
        }
        if self.opening.start != RelayStart::Unknown && self.client.codecs.is_passthrough() {
            // The server decides on a second opening.
            if matches!(self.opening.start, RelayStart::Init(_)) {
                self.opening.start = RelayStart::Init(Some(text.to_owned()));
            } else if self.opening.first_message.as_ref().is_some_and(|first| first.append.is_none()) {
                return self.replace_first_message(now, text);
            }
            return self.send_or_queue(now, ClientMessage { text: text.to_owned(), append: None }, None);
        }
        self.opening.max_slices = opening.slice_max;
        self.opening.prompt_chars = opening.prompt.map_or(0, |prompt| prompt.chars().count() as u64);
        let is_reopening = self.opening.start != RelayStart::Unknown;
        (self.opening.start, self.opening.init_variant) = (RelayStart::Init(Some(text.to_owned())), 0);
        if is_reopening { self.reopen(now) } else { self.initialise(now) }
    }

    fn handle_client_append(&mut self, now: Instant, input: &RelayInput<'_>, text: &str) {
        if !self.reported.opened && !self.client.codecs.accepts_early_appends() {
            let detail = "the session is not open yet: wait for the event that says so";
            return self.report_error(now, &Error::new(ErrorKind::NotReady, detail));
        }
        let append = AppendMeta {
            is_client_id: input.input_id.is_some(),
            input_id: input.input_id.map(Into::into),
            response_id: input.response_id.map(Into::into),
            force_listen: input.force_listen == Some(true),
            audio_ms: self.client.codecs.audio_duration_ms(input),
        };
        if self.opening.start == RelayStart::Unknown && !self.client.codecs.is_passthrough() {
            self.opening.start = RelayStart::Init(None);
            self.initialise(now);
        }
        let message = ClientMessage { text: text.to_owned(), append: Some(append) };
        self.send_or_queue(now, message, Some(input));
    }

    /// Reports an error to the client. Some errors end the session.
    fn report_error(&mut self, now: Instant, error: &Error) {
        if self.phase == RelayPhase::Over {
            return;
        }
        let event_meta = self.client.event_meta(now);
        let messages = self.client.codecs.client.encode_error(error, &event_meta);
        self.client.out.observe(Observation::ErrorTold(error.clone()));
        let ends_session = messages.session_end.is_some() || messages.close.is_some();
        if ends_session && self.reported.opened {
            self.client.close_turn(now);
        }
        for text in [messages.event, messages.session_end].into_iter().flatten() {
            self.client.send(Message::Text(text));
        }
        if ends_session {
            let (code, reason) = messages
                .close
                .unwrap_or_else(|| self.client.codecs.client.close_frame(RelayEndReason::Failed));
            self.client.send(Message::Close(code, reason));
            self.stop(now);
        }
    }

    /// Reports a failure and ends the session.
    fn fail(&mut self, now: Instant, error: &Error) {
        self.report_error(now, error);
        self.end(now, RelayEndReason::Failed, Some(&error.detail));
    }

    /// Reports a field that the upstream cannot take, once, to operators, and to clients whose protocol has such an event.
    fn report_no_effect(&mut self, now: Instant, detail: String) {
        if !super::mark_noted(&mut self.noted_no_effect, &detail) {
            return;
        }
        let error = Error::new(ErrorKind::NoCounterpart, detail.clone());
        let messages = self.client.codecs.client.encode_error(&error, &self.client.event_meta(now));
        self.client.out.observe(Observation::NoEffect(detail));
        if let (Some(text), RelayPhase::Open) = (messages.event, &self.phase) {
            self.client.send(Message::Text(text));
        }
    }

    /// Sends a message to the upstream, or queues it. `input` is what it holds.
    fn send_or_queue(&mut self, now: Instant, message: ClientMessage, input: Option<&RelayInput<'_>>) {
        if self.lane.is_open() {
            return self.send_upstream(now, message, input);
        }
        if self.opening.start == RelayStart::Unknown {
            self.opening.start = RelayStart::FirstMessage;
        }
        self.messages.pending.push(message);
        self.init_with_first_message(now);
        self.send_early();
        self.limit_pending();
    }

    /// Sends a message, translated for this upstream. `input` is what it holds, if it was decoded already.
    fn send_upstream(&mut self, now: Instant, message: ClientMessage, input: Option<&RelayInput<'_>>) {
        let Some(lane) = self.lane.connection().map(|connection| connection.lane) else { return };
        let codecs = Arc::clone(&self.client.codecs);
        let ClientMessage { text, append } = message;
        match append {
            Some(append) if !codecs.is_passthrough() => {
                let sent = match input {
                    Some(input) => self.send_append(lane, input, &text, append),
                    None => {
                        codecs.client.decode(&text, false).and_then(|message| match message.to_request() {
                            RelayRequest::Append(input) => self.send_append(lane, &input, &text, append),
                            _ => Ok(()),
                        })
                    }
                };
                return sent.unwrap_or_else(|error| self.report_error(now, &error));
            }
            Some(append) => self.messages.in_flight.push(&text, append),
            // Came when an upstream of the client's own dialect was expected.
            None if !codecs.is_passthrough() => return,
            None => self.messages.sent_unchecked = true,
        }
        self.lane.lanes.send(lane, LaneRequest::RawText(text));
    }

    /// Translates an append and sends it. It gets an id, unless the client gave it one.
    fn send_append(
        &mut self,
        lane: Lane,
        input: &RelayInput<'_>,
        text: &str,
        mut append: AppendMeta,
    ) -> Result<(), Error> {
        if append.input_id.is_none() {
            self.messages.append_count += 1;
            append.input_id = Some(format!("a{}", self.messages.append_count).into());
        }
        // Some clients send the limit once, others with every picture.
        let slice_max = input.slice_max.or(self.opening.max_slices.filter(|_| input.frames.is_some()));
        let input = RelayInput { input_id: append.input_id.as_deref(), slice_max, ..*input };
        let (units, lanes) = (&mut self.messages.units, &mut self.lane.lanes);
        let send = |command| lanes.send(lane, command);
        self.client.codecs.encode_append(&input, units, send)?;
        self.messages.in_flight.push(text, append);
        Ok(())
    }

    /// The upstream speaks this dialect.
    fn set_dialect(&mut self, now: Instant, mapping: &Arc<UpstreamMapping>) {
        self.set_codecs(self.client.codecs.with_upstream(Dialect::new(Arc::clone(mapping))));
        match (&self.opening.start, self.client.codecs.is_passthrough()) {
            (RelayStart::FirstMessage, false) => {
                let first = self.opening.first_message.take();
                first.into_iter().for_each(|first| self.messages.pending.push_front(first));
                self.opening.start = RelayStart::Init(None);
            }
            (RelayStart::Init(None), true) => self.opening.start = RelayStart::FirstMessage,
            _ => {}
        }
        self.opening.init_variant = 0;
        self.initialise(now);
        self.init_with_first_message(now);
    }

    /// Drops the oldest messages of a conversation whose upstream is being replaced.
    fn limit_pending(&mut self) {
        if self.can_drop_pending() {
            self.messages.pending.drop_oldest(self.rules.buffer_max_bytes, self.rules.outage_audio_max_ms);
        }
    }

    fn can_drop_pending(&self) -> bool {
        self.reported.opened && self.client.mode != Mode::Chat
    }

    /// True while the driver should stop reading from the client: too much waits for an upstream.
    fn needs_backpressure(&self) -> bool {
        let is_waiting = !self.lane.is_open()
            && !self.can_drop_pending()
            && matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..));
        is_waiting && self.messages.pending.bytes() > self.rules.buffer_max_bytes
    }

    /// Memory of the client's messages that wait for the upstream or for its answer, bytes.
    fn kept_bytes(&self) -> usize {
        self.opening.bytes() + self.messages.pending.bytes() + self.messages.in_flight.bytes()
    }
}
