//! Passes the frames of a session to the tap, if there is one.

use std::{sync::Arc, time::Instant};

use super::super::tap::{Tap, TapFrame, TapPoint};
use crate::event::{DisconnectReason, Frame, Message};

/// The tap, if there is one.
pub(super) struct TapHandle(pub(super) Option<Arc<dyn Tap>>);

impl TapHandle {
    /// voxbridge sends a message.
    pub(super) fn on_sent(&self, session: &str, now: Instant, point: TapPoint, message: &Message) {
        let tap_frame = match message {
            Message::Text(text) => TapFrame::Text(text),
            Message::Binary(bytes) => TapFrame::Binary(bytes),
            Message::Close(code, _) => TapFrame::Close(Some(*code)),
        };
        self.forward(session, now, point, tap_frame);
    }

    /// A frame was received.
    pub(super) fn on_received(&self, session: &str, now: Instant, point: TapPoint, frame: Frame<'_>) {
        let tap_frame = match frame {
            Frame::Text(text) => TapFrame::Text(text),
            Frame::Binary(bytes) => TapFrame::Binary(bytes),
        };
        self.forward(session, now, point, tap_frame);
    }

    /// The peer has closed the connection.
    pub(super) fn on_closed(&self, session: &str, now: Instant, point: TapPoint, reason: &DisconnectReason) {
        let code = if let DisconnectReason::Closed(code, _) = reason { Some(*code) } else { None };
        self.forward(session, now, point, TapFrame::Close(code));
    }

    fn forward(&self, session: &str, now: Instant, point: TapPoint, tap_frame: TapFrame<'_>) {
        if let Some(tap) = &self.0 {
            tap.on_frame(session, now, point, tap_frame);
        }
    }
}
