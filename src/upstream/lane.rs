//! Codec of one lane, and the codecs of all lanes of a session.
//!
//! A bridge opens a codec when it dials a lane and drops it with the lane. It shows the codec everything that happens on
//! the lane: the open transport, messages, commands, and the end. Most of it is in the mapping file; the codec adds what a
//! dialect without a queue leaves out.

use std::sync::Arc;

use super::Dialect;
use crate::{
    event::{
        DisconnectReason, EndKind, Frame, Lane, LaneCommand, LaneEvent, Message, MessageMeta, Mode,
        UpstreamEnd, relay::UpstreamMessage,
    },
    mapping::{UpstreamMapping, upstream::CloseBy},
};

/// Close code of a lane whose upstream takes no closing message (RFC 6455 §7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// Codec of one lane.
#[derive(Debug)]
pub struct LaneCodec {
    dialect: Dialect,
    mode: Mode,
    /// The upstream has sent a message.
    has_answered: bool,
}

impl LaneCodec {
    /// Codec of a lane that is dialled in this mode.
    pub const fn new(mapping: Arc<UpstreamMapping>, mode: Mode) -> Self {
        Self { dialect: Dialect::new(mapping), mode, has_answered: false }
    }

    /// True if the open transport is all that a session needs, because the upstream has no queue.
    pub fn is_granted_by_transport(&self) -> bool {
        !self.dialect.mapping().has_queue()
    }

    /// Decodes one message of the upstream, which may have several events.
    pub fn decode(&mut self, frame: Frame<'_>, emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        self.has_answered = true;
        self.dialect.decode(frame, emit);
    }

    /// Encodes a command. It may take several messages, or the end of the transport.
    pub fn encode(&mut self, command: LaneCommand, mut emit: impl FnMut(Message)) {
        let closes_socket = self.dialect.mapping().close_by == CloseBy::Socket;
        emit(match command {
            LaneCommand::Close if closes_socket => Message::Close(NORMAL_CLOSURE, String::new()),
            LaneCommand::RawText(text) => Message::Text(text),
            command => Message::Text(self.dialect.encode(&command, self.mode)),
        });
    }

    /// Decodes one message of the upstream for a relay.
    pub fn decode_message(
        &mut self,
        frame: Frame<'_>,
        emit: impl FnOnce(&UpstreamMessage<'_>, MessageMeta<'_>),
    ) {
        self.has_answered = true;
        self.dialect.decode_message(frame, emit);
    }

    /// The end of the session that the upstream did not report before the end of its transport: an upstream without a
    /// place for another session ends it before the first message, and gives no reason.
    pub fn unreported_end(&self, reason: &DisconnectReason) -> Option<UpstreamEnd> {
        let sessions_max = self.dialect.mapping().sessions_max.filter(|_| !self.has_answered)?;
        let was_silent = matches!(reason, DisconnectReason::Closed(..) | DisconnectReason::Lost(_));
        was_silent.then(|| UpstreamEnd {
            kind: EndKind::QueueFull,
            detail: format!(
                "it closed the connection without a message, as it does while another client uses it (sessions at a \
                 time: {sessions_max})"
            ),
        })
    }
}

/// Codecs of a session's lanes.
#[derive(Debug)]
pub struct LaneCodecs {
    mapping: Arc<UpstreamMapping>,
    /// A session has few lanes, so that a search costs less than a map.
    codecs: Vec<(Lane, LaneCodec)>,
}

impl LaneCodecs {
    /// Codecs for lanes to upstreams of this dialect; none is open.
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping, codecs: Vec::new() }
    }

    /// Creates the codec of a lane that is dialled.
    pub fn open(&mut self, lane: Lane, mode: Mode) {
        self.codecs.push((lane, LaneCodec::new(self.mapping.clone(), mode)));
    }

    /// The codec of a lane that is not closed.
    pub fn get_mut(&mut self, lane: Lane) -> Option<&mut LaneCodec> {
        self.codecs.iter_mut().find_map(|(known, codec)| (*known == lane).then_some(codec))
    }

    /// Removes the codec of a lane that is gone.
    pub fn close(&mut self, lane: Lane) -> Option<LaneCodec> {
        let index = self.codecs.iter().position(|(known, _)| *known == lane)?;
        Some(self.codecs.swap_remove(index).1)
    }
}
