//! What a lane's codec does by itself.

use crate::event::{DisconnectReason, HttpRequest, LaneEvent, Message};

/// What a codec does by itself, in addition to the session's commands.
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
