//! A tap sees every frame between clients, voxbridge and upstreams. The demo uses one.

use std::time::Instant;

use crate::vocabulary::{DisconnectReason, Frame, Lane, Message};

/// The direction and the peer of a frame.
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

/// The contents of a frame.
#[derive(Debug, Clone, Copy)]
pub enum TapFrame<'a> {
    /// A text frame.
    Text(&'a str),
    /// A binary frame.
    Binary(&'a [u8]),
    /// A close frame with its code, or the end of the transport.
    Close(Option<u16>),
}

/// Sees every frame of every session. Session tasks call the tap, so it must be quick and never block.
pub trait Tap: Send + Sync {
    /// Called for each frame.
    fn on_frame(&self, session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>);
}

impl<'a> From<&'a Message> for TapFrame<'a> {
    fn from(message: &'a Message) -> Self {
        match message {
            Message::Text(text) => Self::Text(text),
            Message::Binary(bytes) => Self::Binary(bytes),
            Message::Close(code, _) => Self::Close(Some(*code)),
        }
    }
}

impl<'a> From<Frame<'a>> for TapFrame<'a> {
    fn from(frame: Frame<'a>) -> Self {
        match frame {
            Frame::Text(text) => Self::Text(text),
            Frame::Binary(bytes) => Self::Binary(bytes),
        }
    }
}

impl From<&DisconnectReason> for TapFrame<'_> {
    fn from(reason: &DisconnectReason) -> Self {
        Self::Close(if let DisconnectReason::Closed(code, _) = reason { Some(*code) } else { None })
    }
}
