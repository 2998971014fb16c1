//! A look at what passes on both wires of a session, for the demo and for traces.

use std::time::Instant;

use crate::event::Lane;

/// Where a frame passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapPoint {
    /// From the client to voxbridge.
    FromClient,
    /// From voxbridge to the client.
    ToClient,
    /// From the upstream to voxbridge.
    FromLane(Lane),
    /// From voxbridge to the upstream.
    ToLane(Lane),
}

/// What passed.
#[derive(Debug, Clone, Copy)]
pub enum TapFrame<'a> {
    /// A text frame.
    Text(&'a str),
    /// A binary frame.
    Binary(&'a [u8]),
    /// A close frame, or the end of the transport.
    Close(Option<u16>),
}

/// Sees every frame of every session. Called from session tasks: it must be quick and never block.
pub trait Tap: Send + Sync {
    /// One frame passed.
    fn on_frame(&self, session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>);
}
