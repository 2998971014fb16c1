//! Actions of a lane's codec, in addition to the session's commands.

use crate::vocabulary::{DisconnectReason, HttpRequest, LaneEvent, Message};

/// An action of a codec, in addition to the session's commands.
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
