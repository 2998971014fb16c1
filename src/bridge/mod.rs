//! One session, sans-IO: codec + session + dialect behind two methods.
//!
//! The contract: give [`Bridge::handle_input`] one input, then drain [`Bridge::poll_output`] until it says
//! [`Output::Wait`] or [`Output::Finished`]. It cannot fail: what goes wrong becomes outputs. The driver decides nothing;
//! it moves frames, dials lanes and waits. An audio frame's way up: [`Codec::decode`] → the session's ear → an
//! utterance → [`Dialect::encode`]; its way down: [`Dialect::decode`] → the session's speech → [`Codec::encode`].
//!
//! There are two kinds: the bridge of a session that voxbridge leads itself (`served`), and that of a client which speaks
//! the model's own protocol and has an upstream session of its own (`relayed`).
//!
//! [`Codec::decode`]: crate::downstream::Codec::decode
//! [`Codec::encode`]: crate::downstream::Codec::encode
//! [`Dialect::decode`]: crate::upstream::Dialect::decode
//! [`Dialect::encode`]: crate::upstream::Dialect::encode

mod relay;
mod relayed;
mod served;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{relayed::RelayBridge, served::ServedBridge};
use crate::{
    downstream::{Codec, ConnectQuery},
    error::Error,
    event::{DisconnectReason, Frame, Lane, Message, Mode, TurnTag},
    mapping::{ClientMapping, UpstreamMapping},
    session::{
        AudioTotals, Observation, ReadWindow, RelaySetup, SampleCounts, SessionSetup, SessionState,
        UplinkCounts,
    },
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A frame from the client.
    Client(Frame<'a>),
    /// The client's transport is gone.
    ClientClosed,
    /// A lane's transport is up.
    LaneOpened(Lane),
    /// A frame from an upstream.
    Lane(Lane, Frame<'a>),
    /// A lane's transport is gone, or never came up.
    LaneClosed(Lane, DisconnectReason),
    /// The instant of the last [`Output::Wait`] has come.
    Timeout,
    /// voxbridge stops: finish what is going on within this time, begin nothing.
    Drain(Duration),
    /// An operator ends this session, in the same way.
    Close(Duration),
    /// An operator wants the conversation to go on in another upstream session, at the next quiet moment. Where there is
    /// none nothing happens.
    Rollover,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Send this to the client; nothing follows a close frame. Audio is tagged with its text or turn.
    ToClient(Message, Option<TurnTag>),
    /// Discard what is still queued for the client with this tag.
    DropTurn {
        /// The cancelled text or turn.
        turn: TurnTag,
        /// Bytes of its audio that were given out, before base64: for the trace.
        audio_bytes: u64,
    },
    /// Connect to an upstream in this mode.
    OpenLane(Lane, Mode),
    /// Send this to an upstream.
    ToLane(Lane, Message),
    /// Drop the transport; nothing of this lane is expected any more.
    CloseLane(Lane),
    /// For the log and the metrics.
    Observe(Observation),
    /// Nothing more until something happens, or until then.
    Wait(Option<Instant>),
    /// The session is over and every lane is gone.
    Finished,
}

/// One session's bridge.
#[derive(Debug)]
pub struct Bridge(BridgeKind);

#[derive(Debug)]
enum BridgeKind {
    Served(Box<ServedBridge>),
    Relayed(Box<RelayBridge>),
}

impl Bridge {
    /// Opens a session for a connection that was accepted.
    #[must_use]
    pub fn open(
        now: Instant,
        codec: Codec,
        connect: ConnectQuery,
        dialect: Arc<UpstreamMapping>,
        setup: SessionSetup,
    ) -> Self {
        Self(BridgeKind::Served(Box::new(ServedBridge::open(now, codec, connect, dialect, setup))))
    }

    /// Opens a session for the client of a relay. Of several protocols that its connection may be of, the first message
    /// chooses: the one that begins like this, or else the first. Each finds its mode in the query string; those that do not
    /// relay, or have no such mode, do not count.
    #[must_use]
    pub fn open_relay(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialect: Arc<UpstreamMapping>,
        setup: RelaySetup,
    ) -> Self {
        Self(BridgeKind::Relayed(Box::new(RelayBridge::open(now, candidates, query, dialect, setup))))
    }

    /// Answers a connection that cannot be served: the error, then the close frame the protocol has for it.
    #[must_use]
    pub fn reject(now: Instant, codec: Codec, dialect: Arc<UpstreamMapping>, error: &Error) -> Self {
        Self(BridgeKind::Served(Box::new(ServedBridge::reject(now, codec, dialect, error))))
    }

    /// The session's id; empty for a connection that was refused.
    #[must_use]
    pub fn session_id(&self) -> &str {
        match &self.0 {
            BridgeKind::Served(served) => served.session_id(),
            BridgeKind::Relayed(relayed) => relayed.session_id(),
        }
    }

    /// Where every audio sample went, and how many sample groups were dropped as too far ahead of the clock.
    #[must_use]
    pub fn sample_counts(&self) -> (SampleCounts, u64) {
        match &self.0 {
            BridgeKind::Served(served) => served.sample_counts(),
            BridgeKind::Relayed(_) => Default::default(),
        }
    }

    /// Whether messages pass from one end to the other. Then nobody here counts audio.
    #[must_use]
    pub const fn is_relay(&self) -> bool {
        matches!(self.0, BridgeKind::Relayed(_))
    }

    /// Whether there is a conversation, which alone can be rolled over.
    #[must_use]
    pub fn has_conversation(&self) -> bool {
        self.uplink_counts().is_some()
    }

    /// Where the audio of a conversation went; none in a session without one.
    #[must_use]
    pub fn uplink_counts(&self) -> Option<UplinkCounts> {
        match &self.0 {
            BridgeKind::Served(served) => served.uplink_counts(),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// Where the session is. Derived anew each time, and cheap.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match &self.0 {
            BridgeKind::Served(served) => served.state(),
            BridgeKind::Relayed(relayed) => relayed.state(),
        }
    }

    /// Where the audio went so far; `None` where nobody here counts it.
    #[must_use]
    pub fn audio_totals(&self) -> Option<AudioTotals> {
        match &self.0 {
            BridgeKind::Served(served) => served.audio_totals(),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// Whether audio leaves for the client as it is heard. Then the session itself bounds what waits, and an upstream need
    /// not be made to wait for a slow client.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        match &self.0 {
            BridgeKind::Served(served) => served.is_paced(),
            BridgeKind::Relayed(_) => false,
        }
    }

    /// Whether the client is to be read no further for now. What it sends all the same is taken.
    #[must_use]
    pub fn needs_backpressure(&self) -> bool {
        match &self.0 {
            BridgeKind::Served(served) => served.needs_backpressure(),
            BridgeKind::Relayed(relayed) => relayed.needs_backpressure(),
        }
    }

    /// How long the client may be left unread, because nothing can be decided by what it streams; none if every message is
    /// to be read at once.
    #[must_use]
    pub fn read_window(&self, now: Instant) -> Option<ReadWindow> {
        match &self.0 {
            BridgeKind::Served(served) => served.read_window(now),
            BridgeKind::Relayed(_) => None,
        }
    }

    /// Takes one input; drain [`Bridge::poll_output`] before the next.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match &mut self.0 {
            BridgeKind::Served(served) => served.handle_input(now, input),
            BridgeKind::Relayed(relayed) => relayed.handle_input(now, input),
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self, now: Instant) -> Output {
        match &mut self.0 {
            BridgeKind::Served(served) => served.poll_output(now),
            BridgeKind::Relayed(relayed) => relayed.poll_output(now),
        }
    }
}

/// Marks a note as reported; true the first time.
fn mark_noted(noted: &mut BTreeSet<String>, note: &str) -> bool {
    // A client that names another voice each time is not worth more memory than this.
    const MAX_NOTED: usize = 64;
    !noted.contains(note) && noted.len() < MAX_NOTED && noted.insert(note.to_owned())
}
