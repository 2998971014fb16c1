//! Behaviour of a dialect on a lane, beyond its mapping file.

use std::{fmt::Debug, time::Instant};

use super::Dialect;
use crate::vocabulary::{
    AnswerPart, DisconnectReason, Frame, HttpRequest, LaneEvent, LaneRequest, Message, MessageMeta, Mode,
};

/// Receives the events of a lane.
pub(super) type EventSink<'s> = dyn FnMut(LaneEvent<'_>, MessageMeta<'_>) + 's;

/// Action of a lane's codec, in addition to the session's commands.
#[derive(Debug, Clone, PartialEq)]
pub enum CodecAction {
    /// Sends a message.
    Send(Message),
    /// Sends an HTTP request, in place of one that is not answered.
    Request(HttpRequest),
    /// Reports an event that no message of the upstream has.
    Event(LaneEvent<'static>),
    /// Dials the same upstream again, to resume the session whose transport is gone.
    Redial,
    /// Gives the session up, for this reason.
    End(DisconnectReason),
}

/// Behaviour of a dialect on one lane. By default it is all in the mapping file.
pub(super) trait LaneBehaviour: Debug + Send {
    /// The transport is open. True if it continues a session.
    fn handle_opened(&mut self, _now: Instant) -> bool {
        false
    }

    /// Decodes one message of the upstream.
    fn decode(&mut self, now: Instant, dialect: &Dialect, frame: Frame<'_>, emit: &mut EventSink<'_>) {
        dialect.decode(frame, |event, meta| self.handle_event(now, event, meta, emit));
    }

    /// Handles an event of the upstream, and emits what it means for the session.
    fn handle_event(
        &mut self,
        _now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        emit(event, meta);
    }

    /// Takes a part of the answer to an HTTP request that is no frame.
    fn handle_answer(&mut self, _part: AnswerPart, _emit: &mut EventSink<'_>) {}

    /// Encodes a command.
    fn encode(
        &mut self,
        _now: Instant,
        dialect: &Dialect,
        command: LaneRequest,
        mode: Mode,
        emit: &mut dyn FnMut(Message),
    ) {
        dialect.message_for(command, mode).into_iter().for_each(emit);
    }

    /// The next action of its own.
    fn pop_action(&mut self) -> Option<CodecAction> {
        None
    }

    /// When [`LaneBehaviour::handle_timeout`] must run.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The deadline has come.
    fn handle_timeout(&mut self, _now: Instant, _dialect: &Dialect) {}

    /// The transport is gone, or could not be opened. True if the session is resumed.
    fn handle_lost(&mut self, _now: Instant, _reason: &DisconnectReason) -> bool {
        false
    }
}

/// Behaviour of a dialect whose mapping file says everything.
#[derive(Debug)]
pub(super) struct Plain;

impl LaneBehaviour for Plain {}
