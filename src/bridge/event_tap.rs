//! An event tap sees what passes between a client, its session and its lanes, in the words of the vocabulary. Distributed traces are
//! made from it.

use std::{fmt::Debug, time::Instant};

use crate::vocabulary::{
    ClientEvent, ClientRequest, EntryId, Lane, LaneEvent, LaneRequest, MessageMeta, ServerCall,
    ServerCallResult,
};

/// Sees the events and requests of one session. The session calls it, so it must be quick and never block.
pub trait EventTap: Debug + Send {
    /// The client asks for this, or sends audio.
    fn client_request(&mut self, now: Instant, request: &ClientRequest<'_>);

    /// The client gets this event. Its protocol may have no message for it.
    fn client_event(&mut self, now: Instant, event: &ClientEvent);

    /// A lane's upstream is asked for this.
    fn lane_request(&mut self, now: Instant, lane: Lane, request: &LaneRequest);

    /// A lane's upstream sent this.
    fn lane_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>, meta: &MessageMeta<'_>);

    /// A tool server is called.
    fn tool_called(&mut self, now: Instant, call: &ServerCall);

    /// The call on a tool server has ended.
    fn tool_ended(&mut self, now: Instant, call: EntryId, result: &ServerCallResult);
}
