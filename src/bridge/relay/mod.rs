//! Session of a client that speaks the model's own protocol: one upstream session per client, message by message.
//!
//! The session knows no wire format; [`RelayCodecs`] encodes for both ends. If both ends share a spelling, messages
//! pass unchanged. This file handles the client's messages.
//!
//! - [`forwarding`] sends the client's messages to the upstream, or keeps them until there is one
//! - [`upstream`] handles the model's messages; [`merge_reply`] merges several into one event
//! - [`lane`] is the upstream session: dialled at once, retried, replaced when it is lost
//! - [`pending`] keeps messages that wait for an upstream or for an answer
//! - [`shutdown`] ends the session

mod codecs;
mod forwarding;
mod lane;
mod merge_reply;
mod pending;
mod shutdown;
mod upstream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) use self::codecs::RelayCodecs;
use self::{
    lane::RelayUpstream,
    merge_reply::ReplyMerger,
    pending::{AppendMeta, ClientMessage, InFlightAppends, Pending},
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        Lane, Message, Mode,
        relay::{NoticeMeta, RelayClientEvent, RelayEndReason, RelayInput, RelayOpening},
    },
    mapping::relay::RelayRules,
    session::{
        Observation, RelaySetup,
        lanes::{Lanes, backoff::RetryState},
        outbox::{Action, Actions},
        timers::{Timer, Timers},
        tts::voices::VoiceEncodingChoice,
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

/// Message that opens an upstream session.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayStart {
    /// The client has sent nothing yet.
    Unknown,
    /// The client's opening, once per variant that upstreams may accept.
    Init(Vec<String>),
    /// The client's first message. The worker completes an append by defaults (field notes §1.4), and the server judges
    /// anything else.
    FirstMessage,
}

/// The client's opening, and how upstreams took it.
#[derive(Debug)]
struct Opening {
    start: RelayStart,
    /// Message that opens the upstream session, while the session is not open.
    first_message: Option<ClientMessage>,
    /// Index of the opening variant in use.
    init_variant: usize,
    /// How often upstreams ended the session while it was initialised.
    refusals: u32,
    /// Length of the client's prompt, characters.
    prompt_chars: u64,
    /// Most slices per picture.
    max_slices: Option<i64>,
}

/// Progress towards an open session that the client has been informed of.
#[derive(Debug, Default)]
struct ReportedProgress {
    /// A worker is assigned.
    granted: bool,
    /// The position in the queue.
    queued: bool,
    /// The session is open.
    opened: bool,
    /// The upstream's session id.
    session_id: Option<String>,
}

/// The client's messages on their way to the upstream.
#[derive(Debug)]
struct Messages {
    pending: Pending,
    /// Lane that is not open yet, and the number of waiting messages already sent on it.
    sent_early: Option<(Lane, usize)>,
    in_flight: InFlightAppends,
    /// This upstream session got a message that the server may refuse.
    sent_unchecked: bool,
    /// Appends so far that got an id of the relay.
    append_count: u64,
}

/// One relayed session.
#[derive(Debug)]
pub(crate) struct Relay {
    codecs: Arc<RelayCodecs>,
    lanes: Lanes,
    out: Actions,
    timers: Timers,
    rules: RelayRules,
    mode: Mode,
    id: String,
    opened_at: Instant,
    phase: RelayPhase,
    upstream: RelayUpstream,
    opening: Opening,
    reported: ReportedProgress,
    /// Upstream's session id.
    session_id: Option<String>,
    context_tokens: Option<u32>,
    /// Open answer.
    turn: Option<RelayTurn>,
    retry: Option<RetryState>,
    messages: Messages,
    merger: ReplyMerger,
    /// When the upstream session opened.
    ready_at: Option<Instant>,
    answer_count: u64,
    /// Set while there is no upstream session.
    outage: Option<lane::RelayOutage>,
    idle_limit: Option<Duration>,
    client_heard_at: Instant,
}

/// Answer that the client has received in part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RelayTurn {
    response_id: String,
}

impl Relay {
    /// Opens a session. `None` if the profile does not relay.
    pub(crate) fn open(now: Instant, setup: &RelaySetup, codecs: RelayCodecs) -> Option<Self> {
        let rules = setup.profile.relay?;
        let mut lanes = Lanes::new(setup.profile.lanes, VoiceEncodingChoice::new([].into()), setup.seed);
        let mut timers = Timers::default();
        if setup.session_max_ms > 0 {
            timers.set(Timer::TimeLimit, now + Duration::from_millis(setup.session_max_ms));
        }
        let id = format!("relay_{:012x}", lanes.rng().u64(..) & 0xffff_ffff_ffff);
        let idle = Duration::from_millis(setup.idle_ms.unwrap_or(rules.idle_ms));
        let mode = codecs.mode();
        Some(Self {
            codecs: Arc::new(codecs),
            upstream: RelayUpstream::Stopped,
            lanes,
            out: Actions::default(),
            timers,
            rules,
            mode,
            id,
            opened_at: now,
            phase: RelayPhase::Open,
            opening: Opening {
                start: RelayStart::Unknown,
                first_message: None,
                init_variant: 0,
                refusals: 0,
                prompt_chars: 0,
                max_slices: None,
            },
            reported: ReportedProgress::default(),
            session_id: None,
            context_tokens: None,
            turn: None,
            retry: None,
            messages: Messages {
                pending: Pending::default(),
                sent_early: None,
                in_flight: InFlightAppends::new(rules.buffer_max_bytes),
                sent_unchecked: false,
                append_count: 0,
            },
            merger: ReplyMerger::new(rules.audio_hold_ms, rules.text_hold_ms),
            ready_at: None,
            answer_count: 0,
            outage: None,
            idle_limit: Some(idle).filter(|idle| !idle.is_zero()),
            client_heard_at: now,
        })
    }

    /// Codecs of both ends.
    pub(super) const fn codecs(&self) -> &Arc<RelayCodecs> {
        &self.codecs
    }

    /// Replaces the codecs, once the client's first message has shown its protocol.
    pub(super) fn set_codecs(&mut self, codecs: RelayCodecs) {
        self.codecs = Arc::new(codecs);
    }

    /// Dials in this mode, unless a connection in this mode exists.
    pub(crate) fn set_mode(&mut self, now: Instant, mode: Mode) {
        if self.phase == RelayPhase::Open
            && (mode != self.mode || matches!(self.upstream, RelayUpstream::Stopped))
        {
            self.mode = mode;
            self.leave_upstream(now);
            self.dial(now);
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Handles a message of the client. `text` is the message itself.
    pub(crate) fn handle_client_message(&mut self, now: Instant, message: &RelayClientEvent<'_>, text: &str) {
        if !matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..)) {
            return;
        }
        self.client_heard_at = now;
        match message {
            RelayClientEvent::Open(opening) => self.handle_client_open(now, opening, text),
            RelayClientEvent::Append(input) => self.handle_client_append(now, input, text),
            RelayClientEvent::Close(reason) => self.handle_client_close(now, *reason, text),
            RelayClientEvent::Unknown(_) if self.codecs.is_passthrough() => {
                self.send_or_queue(now, ClientMessage { text: text.to_owned(), append: None });
            }
            RelayClientEvent::Unknown(name) => {
                self.report_error(now, &Error::new(ErrorKind::UnknownCommand, *name));
            }
        }
    }

    fn handle_client_open(&mut self, now: Instant, opening: &RelayOpening<'_>, text: &str) {
        let variants = if self.codecs.is_passthrough() {
            Ok(vec![text.to_owned()])
        } else {
            self.codecs.encode_opening(opening)
        };
        let variants = match variants {
            Ok(variants) => variants,
            Err(error) => return self.report_error(now, &error),
        };
        let (bytes, max_bytes) = (variants.iter().map(String::len).max(), self.rules.buffer_max_bytes);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > max_bytes && !self.codecs.is_passthrough()) {
            let detail = format!(
                "the message that opens the session has {bytes} bytes; the limit is {max_bytes} bytes"
            );
            return self.report_error(now, &Error::new(ErrorKind::TooMuch, detail));
        }
        if self.opening.start != RelayStart::Unknown && self.codecs.is_passthrough() {
            // The server decides on a second opening.
            if matches!(self.opening.start, RelayStart::Init(_)) {
                self.opening.start = RelayStart::Init(variants);
            } else if self.opening.first_message.as_ref().is_some_and(|first| first.append.is_none()) {
                return self.replace_first_message(now, variants);
            }
            return self.send_or_queue(now, ClientMessage { text: text.to_owned(), append: None });
        }
        self.opening.max_slices = opening.slice_max;
        self.opening.prompt_chars = opening.prompt.map_or(0, |prompt| prompt.chars().count() as u64);
        let is_reopening = self.opening.start != RelayStart::Unknown;
        (self.opening.start, self.opening.init_variant) = (RelayStart::Init(variants), 0);
        if is_reopening { self.reopen(now) } else { self.initialise(now) }
    }

    fn handle_client_append(&mut self, now: Instant, input: &RelayInput<'_>, text: &str) {
        if !self.reported.opened && !self.codecs.accepts_early_appends() {
            let detail = "the session is not open yet: wait for the event that says so";
            return self.report_error(now, &Error::new(ErrorKind::NotReady, detail));
        }
        let id = match input.input_id {
            Some(id) => Some(id.into()),
            None if self.codecs.is_passthrough() => None,
            None => {
                self.messages.append_count += 1;
                Some(format!("a{}", self.messages.append_count).into_boxed_str())
            }
        };
        // Some clients send the limit once, others with every picture.
        let slice_max = input.slice_max.or(self.opening.max_slices.filter(|_| input.frames.is_some()));
        let text = if self.codecs.is_passthrough() {
            text.to_owned()
        } else {
            self.codecs.encode_append(&RelayInput { input_id: id.as_deref(), slice_max, ..*input })
        };
        let append = AppendMeta {
            is_client_id: input.input_id.is_some(),
            input_id: id,
            response_id: input.response_id.map(Into::into),
            force_listen: input.force_listen == Some(true),
            audio_ms: self.codecs.audio_duration_ms(input),
        };
        if self.opening.start == RelayStart::Unknown && !self.codecs.is_passthrough() {
            match self.codecs.encode_opening(&RelayOpening::default()) {
                Ok(variants) => self.opening.start = RelayStart::Init(variants),
                Err(error) => return self.report_error(now, &error),
            }
            self.initialise(now);
        }
        self.send_or_queue(now, ClientMessage { text, append: Some(append) });
    }

    /// Reports an error to the client. Some errors end the session.
    pub(crate) fn report_error(&mut self, now: Instant, error: &Error) {
        if self.phase == RelayPhase::Over {
            return;
        }
        let notice_meta = self.notice_meta(now);
        let notice = self.codecs.encode_error(error, &notice_meta);
        self.out.observe(Observation::ErrorTold(error.clone()));
        let ends_session = notice.session_end.is_some() || notice.close.is_some();
        if ends_session && self.reported.opened {
            self.close_turn(now);
        }
        for text in [notice.event, notice.session_end].into_iter().flatten() {
            self.send_client(Message::Text(text));
        }
        if ends_session {
            let (code, reason) =
                notice.close.unwrap_or_else(|| self.codecs.close_frame(RelayEndReason::Failed));
            self.send_client(Message::Close(code, reason));
            self.stop(now);
        }
    }

    /// Reports a failure and ends the session.
    pub(crate) fn fail(&mut self, now: Instant, error: &Error) {
        self.report_error(now, error);
        self.end(now, RelayEndReason::Failed, Some(&error.detail));
    }

    /// Reports a field that the upstream cannot take to operators, and to clients whose protocol has such an event.
    pub(crate) fn report_no_effect(&mut self, now: Instant, detail: String) {
        let error = Error::new(ErrorKind::NoCounterpart, detail.clone());
        let notice = self.codecs.encode_error(&error, &self.notice_meta(now));
        self.out.observe(Observation::NoEffect(detail));
        if let (Some(text), RelayPhase::Open) = (notice.event, &self.phase) {
            self.send_client(Message::Text(text));
        }
    }

    fn send_client(&mut self, message: Message) {
        self.out.push(Action::RawToClient(message));
    }

    fn notice_meta(&self, now: Instant) -> NoticeMeta<'_> {
        NoticeMeta {
            session_id: self.session_id.as_deref(),
            response_id: None,
            input_id: None,
            context_tokens: self.context_tokens,
            elapsed_s: (now - self.opened_at).as_secs_f64(),
        }
    }
}
