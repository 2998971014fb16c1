//! The session of a client that speaks the model's own protocol: one upstream session, message by message.
//!
//! Here is what the client says. It knows no wire: how both ends spell is asked of [`RelayTranslator`]. Where they spell alike a
//! message passes as it came. It adds what a client should not have to care for:
//!
//! - [`upstream`] is what the model says, and how it is told; [`merge_reply`] tells several things in one
//! - [`lane`] is the upstream session: dialled at once, tried again, replaced when it is lost
//! - [`pending`] is what waits for one, and what one has not answered
//! - [`shutdown`] is how a session ends, whoever ends it

mod lane;
mod merge_reply;
mod pending;
mod shutdown;
mod upstream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    lane::RelayUpstream,
    merge_reply::ReplyMerger,
    pending::{AppendMeta, ClientMessage, InFlightAppends, Pending},
};
use super::{
    context::LaneContext,
    dialogue::history::History,
    outbox::Action,
    tts::{player::Player, voices::VoiceEncodingChoice},
    upstream::backoff::RetryState,
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        Lane, LaneCommand, Message, Mode,
        relay::{NoticeMeta, RelayClientEvent, RelayEndReason, RelayInput, RelayOpening, RelayTranslator},
    },
    mapping::{Profile, relay::RelayRules},
};

/// What a relayed session starts from.
#[derive(Debug, Clone)]
pub struct RelaySetup {
    /// A profile that relays.
    pub profile: Arc<Profile>,
    /// A client that sends nothing for so long is closed, ms, where it is not to be as the profile says; 0 for never.
    pub idle_ms: Option<u64>,
    /// The session ends after so long, as soon as nobody is cut off by it, ms; 0 for as long as it likes.
    pub session_max_ms: u64,
    /// Wall clock at the start, seconds since 1970.
    pub unix_s: f64,
    /// Seed of everything random: ids and jitter.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayPhase {
    /// In use.
    Open,
    /// The client has said goodbye, for this reason, and waits for the upstream to say so too.
    Closing(Option<String>),
    /// It ends for this reason; what is being answered is finished first, until then.
    Finishing(Instant, RelayEndReason),
    /// The client is gone, or told that it is over.
    Over,
}

/// What opens an upstream session.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayStart {
    /// The client has said nothing yet.
    Unknown,
    /// What the client wants, in each of the ways in which upstreams may take it.
    Init(Vec<String>),
    /// The client's first message, whatever it is: for an append the worker makes up the rest (field notes §1.4), and the
    /// server knows what it makes of anything else.
    FirstMessage,
}

/// One relayed session.
#[derive(Debug)]
pub(crate) struct Relay {
    context: LaneContext,
    rules: RelayRules,
    mode: Mode,
    id: String,
    opened_at: Instant,
    phase: RelayPhase,
    upstream: RelayUpstream,
    start: RelayStart,
    /// The message that opens an upstream session, while it is not open.
    first_message: Option<ClientMessage>,
    /// The client was told that it has a worker.
    granted_sent: bool,
    /// The client was told of its place in a queue.
    queued_sent: bool,
    /// The client was told that the session is open.
    opened_sent: bool,
    /// Length of the client's prompt, characters.
    prompt_chars: u64,
    /// Most slices of a picture, as the session was opened.
    max_slices: Option<i64>,
    /// The upstream's name for the session.
    session_id: Option<String>,
    context_tokens: Option<u32>,
    /// The answer that is open, and its name.
    turn: Option<RelayTurn>,
    /// Which of the ways to open the session is tried.
    init_variant: usize,
    /// How often an upstream has ended the session while it was initialised.
    refusals: u32,
    retry: Option<RetryState>,
    pending: Pending,
    /// How many of what waits this lane was told already, before its session is open.
    sent_early: Option<(Lane, usize)>,
    in_flight: InFlightAppends,
    merger: ReplyMerger,
    append_count: u64,
    /// Since when the upstream session is open, and how often it has said something.
    ready_at: Option<Instant>,
    answer_count: u64,
    /// There is none.
    outage: Option<lane::RelayOutage>,
    idle_limit: Option<Duration>,
    /// When its time is up.
    ends_at: Option<Instant>,
    client_heard_at: Instant,
}

/// An answer of which something was told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RelayTurn {
    response_id: String,
}

impl Relay {
    /// Opens a session, and dials. `None` for a profile that does not relay.
    pub(crate) fn open(now: Instant, setup: &RelaySetup, mode: Mode) -> Option<Self> {
        let rules = setup.profile.relay?;
        // Nothing is ever spoken here; the mouth comes with what lanes share.
        let player = Player::new(2, setup.profile.playout);
        let mut context = LaneContext::new(
            setup.profile.lanes,
            VoiceEncodingChoice::new([].into()),
            player,
            History::new(0),
            setup.seed,
        );
        let id = format!("relay_{:012x}", context.rng.u64(..) & 0xffff_ffff_ffff);
        let idle = Duration::from_millis(setup.idle_ms.unwrap_or(rules.idle_ms));
        Some(Self {
            upstream: RelayUpstream::Stopped,
            context,
            rules,
            mode,
            id,
            opened_at: now,
            phase: RelayPhase::Open,
            start: RelayStart::Unknown,
            first_message: None,
            granted_sent: false,
            queued_sent: false,
            opened_sent: false,
            prompt_chars: 0,
            max_slices: None,
            session_id: None,
            context_tokens: None,
            turn: None,
            init_variant: 0,
            refusals: 0,
            retry: None,
            pending: Pending::default(),
            sent_early: None,
            in_flight: InFlightAppends::new(rules.buffer_max_bytes),
            merger: ReplyMerger::new(rules.audio_hold_ms, rules.text_hold_ms),
            append_count: 0,
            ready_at: None,
            answer_count: 0,
            outage: None,
            idle_limit: Some(idle).filter(|idle| !idle.is_zero()),
            ends_at: (setup.session_max_ms > 0).then(|| now + Duration::from_millis(setup.session_max_ms)),
            client_heard_at: now,
        })
    }

    /// Dials in this mode, unless it has already.
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

    /// The client said something; `text` is how it came.
    pub(crate) fn handle_client_message(
        &mut self,
        now: Instant,
        message: &RelayClientEvent<'_>,
        text: &str,
        translator: &dyn RelayTranslator,
    ) {
        if !matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..)) {
            return;
        }
        self.client_heard_at = now;
        match message {
            RelayClientEvent::Open(opening) => self.handle_client_open(now, opening, text, translator),
            RelayClientEvent::Append(input) => self.handle_client_append(now, input, text, translator),
            RelayClientEvent::Close(reason) => self.handle_client_close(now, *reason, text, translator),
            RelayClientEvent::Unknown(_) if translator.is_passthrough() => {
                self.send_or_queue(now, ClientMessage { text: text.to_owned(), append: None }, translator);
            }
            RelayClientEvent::Unknown(name) => {
                self.report_error(now, &Error::new(ErrorKind::UnknownCommand, *name), translator)
            }
        }
    }

    fn handle_client_open(
        &mut self,
        now: Instant,
        opening: &RelayOpening<'_>,
        text: &str,
        translator: &dyn RelayTranslator,
    ) {
        let variants = if translator.is_passthrough() {
            Ok(vec![text.to_owned()])
        } else {
            translator.encode_opening(opening)
        };
        let variants = match variants {
            Ok(variants) => variants,
            Err(error) => return self.report_error(now, &error, translator),
        };
        let (bytes, max_bytes) = (variants.iter().map(String::len).max(), self.rules.buffer_max_bytes);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > max_bytes && !translator.is_passthrough()) {
            let detail = format!("what opens the session has {bytes} bytes; at most {max_bytes} are taken");
            return self.report_error(now, &Error::new(ErrorKind::TooMuch, detail), translator);
        }
        if self.start != RelayStart::Unknown && translator.is_passthrough() {
            // The server knows what it makes of a second one.
            if matches!(self.start, RelayStart::Init(_)) {
                self.start = RelayStart::Init(variants);
            } else if self.first_message.as_ref().is_some_and(|first| first.append.is_none()) {
                return self.replace_first_message(now, variants, translator);
            }
            return self.send_or_queue(
                now,
                ClientMessage { text: text.to_owned(), append: None },
                translator,
            );
        }
        self.max_slices = opening.slice_max;
        self.prompt_chars = opening.prompt.map_or(0, |prompt| prompt.chars().count() as u64);
        let is_reopening = self.start != RelayStart::Unknown;
        (self.start, self.init_variant) = (RelayStart::Init(variants), 0);
        if is_reopening { self.reopen(now, translator) } else { self.initialise(now) }
    }

    fn handle_client_append(
        &mut self,
        now: Instant,
        input: &RelayInput<'_>,
        text: &str,
        translator: &dyn RelayTranslator,
    ) {
        if !self.opened_sent && !translator.accepts_early_appends() {
            let detail = "the session is not open yet: wait for the event that says so";
            return self.report_error(now, &Error::new(ErrorKind::NotReady, detail), translator);
        }
        let id = match input.input_id {
            Some(id) => Some(id.into()),
            None if translator.is_passthrough() => None,
            None => {
                self.append_count += 1;
                Some(format!("a{}", self.append_count).into_boxed_str())
            }
        };
        // Some say it once, others with every picture.
        let slice_max = input.slice_max.or(self.max_slices.filter(|_| input.frames.is_some()));
        let text = if translator.is_passthrough() {
            text.to_owned()
        } else {
            translator.encode_append(&RelayInput { input_id: id.as_deref(), slice_max, ..*input })
        };
        let append = AppendMeta {
            is_client_id: input.input_id.is_some(),
            input_id: id,
            response_id: input.response_id.map(Into::into),
            force_listen: input.force_listen == Some(true),
            audio_ms: translator.audio_duration_ms(input),
        };
        if self.start == RelayStart::Unknown && !translator.is_passthrough() {
            match translator.encode_opening(&RelayOpening::default()) {
                Ok(variants) => self.start = RelayStart::Init(variants),
                Err(error) => return self.report_error(now, &error, translator),
            }
            self.initialise(now);
        }
        self.send_or_queue(now, ClientMessage { text, append: Some(append) }, translator);
    }

    /// To the upstream, or kept for it.
    fn send_or_queue(&mut self, now: Instant, message: ClientMessage, translator: &dyn RelayTranslator) {
        if self.is_open() {
            return self.send_upstream(message);
        }
        if self.start == RelayStart::Unknown {
            self.start = RelayStart::FirstMessage;
        }
        self.pending.push(message);
        self.init_with_first_message(now);
        self.send_early(translator);
        self.limit_pending();
    }

    fn send_upstream(&mut self, message: ClientMessage) {
        let RelayUpstream::Connected(connection) = &self.upstream else { return };
        let lane = connection.lane();
        let ClientMessage { text, append } = message;
        if let Some(append) = append {
            self.in_flight.push(text.clone(), append);
        }
        self.context.out.push(Action::ToLane(lane, LaneCommand::RawText(text)));
    }

    /// While a conversation's upstream is replaced the oldest goes.
    fn limit_pending(&mut self) {
        if self.can_drop_pending() {
            self.pending.drop_oldest(self.rules.buffer_max_bytes, self.rules.outage_audio_max_ms);
        }
    }

    fn can_drop_pending(&self) -> bool {
        self.opened_sent && self.mode != Mode::Chat
    }

    /// Who has sent too much before there is an upstream to take it is read no further until there is one.
    pub(crate) fn needs_backpressure(&self) -> bool {
        let is_waiting = !self.is_open()
            && !self.can_drop_pending()
            && matches!(self.phase, RelayPhase::Open | RelayPhase::Finishing(..));
        is_waiting && self.pending.bytes() > self.rules.buffer_max_bytes
    }

    /// Bad input, or a failure: the client is told in its own words; some errors are the end.
    pub(crate) fn report_error(&mut self, now: Instant, error: &Error, translator: &dyn RelayTranslator) {
        if self.phase == RelayPhase::Over {
            return;
        }
        let notice_meta = self.notice_meta(now);
        let notice = translator.encode_error(error, &notice_meta);
        self.context.out.observe(super::Observation::ErrorTold(error.clone()));
        let ends_session = notice.session_end.is_some() || notice.close.is_some();
        if ends_session && self.opened_sent {
            self.close_turn(now, translator);
        }
        for text in [notice.event, notice.session_end].into_iter().flatten() {
            self.send_client(Message::Text(text));
        }
        if ends_session {
            let (code, reason) =
                notice.close.unwrap_or_else(|| translator.close_frame(RelayEndReason::Failed));
            self.send_client(Message::Close(code, reason));
            self.stop(now);
        }
    }

    /// A failure that ends the session, whatever the client's protocol says about such errors.
    pub(crate) fn fail(&mut self, now: Instant, error: &Error, translator: &dyn RelayTranslator) {
        self.report_error(now, error, translator);
        self.end(now, RelayEndReason::Failed, Some(&error.detail), translator);
    }

    /// Something that the upstream cannot be told: operators know, and clients whose protocol has words for it.
    pub(crate) fn report_no_effect(
        &mut self,
        now: Instant,
        detail: String,
        translator: &dyn RelayTranslator,
    ) {
        let error = Error::new(ErrorKind::NoCounterpart, detail.clone());
        let notice = translator.encode_error(&error, &self.notice_meta(now));
        self.context.out.observe(super::Observation::NoEffect(detail));
        if let (Some(text), RelayPhase::Open) = (notice.event, &self.phase) {
            self.send_client(Message::Text(text));
        }
    }

    fn send_client(&mut self, message: Message) {
        self.context.out.push(Action::RawToClient(message));
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
