//! What passes, shown to who looks on, if anybody does.

use std::{sync::Arc, time::Instant};

use super::super::tap::{Passed, Tap, Wire};
use crate::event::{Frame, Message, Why};

/// Who looks on.
pub(super) struct Tapped(pub(super) Option<Arc<dyn Tap>>);

impl Tapped {
    /// voxbridge sends this.
    pub(super) fn sent(&self, session: &str, now: Instant, wire: Wire, message: &Message) {
        let passed = match message {
            Message::Text(text) => Passed::Text(text),
            Message::Binary(bytes) => Passed::Binary(bytes),
            Message::Close(code, _) => Passed::Close(Some(*code)),
        };
        self.passed(session, now, wire, passed);
    }

    /// This came.
    pub(super) fn came(&self, session: &str, now: Instant, wire: Wire, frame: Frame<'_>) {
        let passed = match frame {
            Frame::Text(text) => Passed::Text(text),
            Frame::Binary(bytes) => Passed::Binary(bytes),
        };
        self.passed(session, now, wire, passed);
    }

    /// The other side has ended it.
    pub(super) fn ended(&self, session: &str, now: Instant, wire: Wire, why: &Why) {
        let code = if let Why::Closed(code, _) = why { Some(*code) } else { None };
        self.passed(session, now, wire, Passed::Close(code));
    }

    fn passed(&self, session: &str, now: Instant, wire: Wire, passed: Passed<'_>) {
        if let Some(tap) = &self.0 {
            tap.passed(session, now, wire, passed);
        }
    }
}
