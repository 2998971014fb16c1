//! The session of a client that speaks the model's own protocol: one upstream session, message by message.
//!
//! Here is what the client says. It knows no wire: how both ends spell is asked of [`Wires`]. Where they spell alike a
//! message passes as it came. It adds what a client should not have to care for:
//!
//! - [`upstream`] is what the model says, and how it is told; [`combine`] tells several things in one
//! - [`lane`] is the upstream session: dialled at once, tried again, replaced when it is lost
//! - [`keep`] is what waits for one, and what one has not answered
//! - [`ending`] is how a session ends, whoever ends it

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
    lane::Place,
    merge_reply::Combine,
    pending::{Append, Flight, Keep, Words},
};
use super::{
    context::Host,
    dialogue::history::Memory,
    outbox::Action,
    tts::{player::Mouth, voices::Encodings},
    upstream::backoff::Trouble,
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        Lane, LaneCommand, Message, Mode,
        relay::{About, EndName, Input, Opening, ToModel, Wires},
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
enum Phase {
    /// In use.
    Open,
    /// The client has said goodbye, for this reason, and waits for the upstream to say so too.
    Closing(Option<String>),
    /// It ends for this reason; what is being answered is finished first, until then.
    Finishing(Instant, EndName),
    /// The client is gone, or told that it is over.
    Over,
}

/// What opens an upstream session.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Begin {
    /// The client has said nothing yet.
    Unknown,
    /// What the client wants, in each of the ways in which upstreams may take it.
    Opening(Vec<String>),
    /// The client's first message, whatever it is: for an append the worker makes up the rest (field notes §1.4), and the
    /// server knows what it makes of anything else.
    Message,
}

/// One relayed session.
#[derive(Debug)]
pub(crate) struct Relay {
    host: Host,
    rules: RelayRules,
    mode: Mode,
    id: String,
    opened_at: Instant,
    phase: Phase,
    place: Place,
    begin: Begin,
    /// The message that opens an upstream session, while it is not open.
    first: Option<Words>,
    /// The client was told that it has a worker.
    told_granted: bool,
    /// The client was told of its place in a queue.
    told_queued: bool,
    /// The client was told that the session is open.
    told_open: bool,
    /// Length of the client's prompt, characters.
    prompt_chars: u64,
    /// Most slices of a picture, as the session was opened.
    slice_max: Option<i64>,
    /// The upstream's name for the session.
    session_id: Option<String>,
    context_tokens: Option<u32>,
    /// The answer that is open, and its name.
    turn: Option<Turn>,
    /// Which of the ways to open the session is tried.
    spelling: usize,
    /// How often an upstream has ended the session while it was initialised.
    refusals: u32,
    trouble: Option<Trouble>,
    keep: Keep,
    /// How many of what waits this lane was told already, before its session is open.
    ahead: Option<(Lane, usize)>,
    flight: Flight,
    combine: Combine,
    appends: u64,
    /// Since when the upstream session is open, and how often it has said something.
    ready_at: Option<Instant>,
    answers: u64,
    /// There is none.
    gap: Option<lane::Gap>,
    idle: Option<Duration>,
    /// When its time is up.
    ends_at: Option<Instant>,
    heard_at: Instant,
}

/// An answer of which something was told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    response_id: String,
}

impl Relay {
    /// Opens a session, and dials. `None` for a profile that does not relay.
    pub(crate) fn open(now: Instant, setup: &RelaySetup, mode: Mode) -> Option<Self> {
        let rules = setup.profile.relay?;
        // Nothing is ever spoken here; the mouth comes with what lanes share.
        let mouth = Mouth::new(2, setup.profile.playout);
        let mut host =
            Host::new(setup.profile.lanes, Encodings::new([].into()), mouth, Memory::new(0), setup.seed);
        let id = format!("relay_{:012x}", host.rng.u64(..) & 0xffff_ffff_ffff);
        let idle = Duration::from_millis(setup.idle_ms.unwrap_or(rules.idle_ms));
        Some(Self {
            place: Place::Out,
            host,
            rules,
            mode,
            id,
            opened_at: now,
            phase: Phase::Open,
            begin: Begin::Unknown,
            first: None,
            told_granted: false,
            told_queued: false,
            told_open: false,
            prompt_chars: 0,
            slice_max: None,
            session_id: None,
            context_tokens: None,
            turn: None,
            spelling: 0,
            refusals: 0,
            trouble: None,
            keep: Keep::default(),
            ahead: None,
            flight: Flight::new(rules.kept_max_bytes),
            combine: Combine::new(rules.hold_ms, rules.text_hold_ms),
            appends: 0,
            ready_at: None,
            answers: 0,
            gap: None,
            idle: Some(idle).filter(|idle| !idle.is_zero()),
            ends_at: (setup.session_max_ms > 0).then(|| now + Duration::from_millis(setup.session_max_ms)),
            heard_at: now,
        })
    }

    /// Dials in this mode, unless it has already.
    pub(crate) fn set_mode(&mut self, now: Instant, mode: Mode) {
        if self.phase == Phase::Open && (mode != self.mode || matches!(self.place, Place::Out)) {
            self.mode = mode;
            self.leave(now);
            self.dial(now);
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The client said something; `text` is how it came.
    pub(crate) fn client(&mut self, now: Instant, message: &ToModel<'_>, text: &str, w: &dyn Wires) {
        if !matches!(self.phase, Phase::Open | Phase::Finishing(..)) {
            return;
        }
        self.heard_at = now;
        match message {
            ToModel::Open(opening) => self.client_opens(now, opening, text, w),
            ToModel::Append(input) => self.client_appends(now, input, text, w),
            ToModel::Close(reason) => self.client_closes(now, *reason, text, w),
            ToModel::Unknown(_) if w.native() => {
                self.pass_up(now, Words { text: text.to_owned(), append: None }, w);
            }
            ToModel::Unknown(name) => self.refuse(now, &Error::new(ErrorKind::UnknownCommand, *name), w),
        }
    }

    fn client_opens(&mut self, now: Instant, opening: &Opening<'_>, text: &str, w: &dyn Wires) {
        let spelled = if w.native() { Ok(vec![text.to_owned()]) } else { w.open(opening) };
        let words = match spelled {
            Ok(words) => words,
            Err(error) => return self.refuse(now, &error, w),
        };
        let (bytes, most) = (words.iter().map(String::len).max(), self.rules.kept_max_bytes);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > most && !w.native()) {
            let detail = format!("what opens the session has {bytes} bytes; at most {most} are taken");
            return self.refuse(now, &Error::new(ErrorKind::TooMuch, detail), w);
        }
        if self.begin != Begin::Unknown && w.native() {
            // The server knows what it makes of a second one.
            if matches!(self.begin, Begin::Opening(_)) {
                self.begin = Begin::Opening(words);
            } else if self.first.as_ref().is_some_and(|first| first.append.is_none()) {
                return self.open_instead(now, words, w);
            }
            return self.pass_up(now, Words { text: text.to_owned(), append: None }, w);
        }
        self.slice_max = opening.slice_max;
        self.prompt_chars = opening.prompt.map_or(0, |prompt| prompt.chars().count() as u64);
        let again = self.begin != Begin::Unknown;
        (self.begin, self.spelling) = (Begin::Opening(words), 0);
        if again { self.open_again(now, w) } else { self.initialise(now) }
    }

    fn client_appends(&mut self, now: Instant, input: &Input<'_>, text: &str, w: &dyn Wires) {
        if !self.told_open && !w.eager() {
            let detail = "the session is not open yet: wait for the event that says so";
            return self.refuse(now, &Error::new(ErrorKind::NotReady, detail), w);
        }
        let id = match input.input_id {
            Some(id) => Some(id.into()),
            None if w.native() => None,
            None => {
                self.appends += 1;
                Some(format!("a{}", self.appends).into_boxed_str())
            }
        };
        // Some say it once, others with every picture.
        let slice_max = input.slice_max.or(self.slice_max.filter(|_| input.frames.is_some()));
        let text = if w.native() {
            text.to_owned()
        } else {
            w.append(&Input { input_id: id.as_deref(), slice_max, ..*input })
        };
        let append = Append {
            own_id: input.input_id.is_some(),
            input_id: id,
            response_id: input.response_id.map(Into::into),
            forced: input.force_listen == Some(true),
            audio_ms: w.audio_ms(input),
        };
        if self.begin == Begin::Unknown && !w.native() {
            match w.open(&Opening::default()) {
                Ok(words) => self.begin = Begin::Opening(words),
                Err(error) => return self.refuse(now, &error, w),
            }
            self.initialise(now);
        }
        self.pass_up(now, Words { text, append: Some(append) }, w);
    }

    /// To the upstream, or kept for it.
    fn pass_up(&mut self, now: Instant, words: Words, w: &dyn Wires) {
        if self.is_up() {
            return self.send_up(words);
        }
        if self.begin == Begin::Unknown {
            self.begin = Begin::Message;
        }
        self.keep.push(words);
        self.begin_with_message(now);
        self.pass_ahead(w);
        self.bound_kept();
    }

    fn send_up(&mut self, words: Words) {
        let Place::Up(link) = &self.place else { return };
        let lane = link.lane();
        let Words { text, append } = words;
        if let Some(append) = append {
            self.flight.push(text.clone(), append);
        }
        self.host.out.push(Action::ToLane(lane, LaneCommand::Spelled(text)));
    }

    /// While a conversation's upstream is replaced the oldest goes.
    fn bound_kept(&mut self) {
        if self.forgets() {
            self.keep.drop_oldest(self.rules.kept_max_bytes, self.rules.gap_max_ms);
        }
    }

    fn forgets(&self) -> bool {
        self.told_open && self.mode != Mode::Chat
    }

    /// Who has sent too much before there is an upstream to take it is read no further until there is one.
    pub(crate) fn holds_back(&self) -> bool {
        let waits =
            !self.is_up() && !self.forgets() && matches!(self.phase, Phase::Open | Phase::Finishing(..));
        waits && self.keep.bytes() > self.rules.kept_max_bytes
    }

    /// Bad input, or a failure: the client is told in its own words; some errors are the end.
    pub(crate) fn refuse(&mut self, now: Instant, error: &Error, w: &dyn Wires) {
        if self.phase == Phase::Over {
            return;
        }
        let about = self.about(now);
        let told = w.error(error, &about);
        self.host.out.observe(super::Observation::ErrorTold(error.clone()));
        let last = told.ended.is_some() || told.close.is_some();
        if last && self.told_open {
            self.close_turn(now, w);
        }
        for text in [told.event, told.ended].into_iter().flatten() {
            self.tell(Message::Text(text));
        }
        if last {
            let (code, reason) = told.close.unwrap_or_else(|| w.close_frame(EndName::Failed));
            self.tell(Message::Close(code, reason));
            self.over(now);
        }
    }

    /// A failure that ends the session, whatever the client's protocol says about such errors.
    pub(crate) fn fail(&mut self, now: Instant, error: &Error, w: &dyn Wires) {
        self.refuse(now, error, w);
        self.end(now, EndName::Failed, Some(&error.detail), w);
    }

    /// Something that the upstream cannot be told: operators know, and clients whose protocol has words for it.
    pub(crate) fn without_effect(&mut self, now: Instant, words: String, w: &dyn Wires) {
        let error = Error::new(ErrorKind::NoCounterpart, words.clone());
        let told = w.error(&error, &self.about(now));
        self.host.out.observe(super::Observation::NoEffect(words));
        if let (Some(text), Phase::Open) = (told.event, &self.phase) {
            self.tell(Message::Text(text));
        }
    }

    fn tell(&mut self, message: Message) {
        self.host.out.push(Action::Tell(message));
    }

    fn about(&self, now: Instant) -> About<'_> {
        About {
            session_id: self.session_id.as_deref(),
            response_id: None,
            input_id: None,
            context_tokens: self.context_tokens,
            at_s: (now - self.opened_at).as_secs_f64(),
        }
    }
}
