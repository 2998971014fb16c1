//! Lanes that the driver does not read for now, because the client is behind. Their deadlines stand still.

use std::time::Instant;

use super::{Lanes, Owner, Slot};
use crate::vocabulary::Lane;

impl Lanes {
    /// Starts or stops holding lanes. When an upstream is read again, the deadline for its next output starts anew.
    pub(crate) fn set_held(&mut self, now: Instant, are_held: bool) {
        if std::mem::replace(&mut self.are_held, are_held) && !are_held {
            for slot in self.slots.iter_mut().filter(|slot| slot.can_be_held()) {
                slot.connection.restart_reply_wait(now);
            }
        }
    }

    /// True while lanes are held.
    pub(crate) const fn are_held(&self) -> bool {
        self.are_held
    }

    /// True for a lane that is not read for now.
    pub(crate) fn is_held(&self, lane: Lane) -> bool {
        self.are_held && self.slots.iter().any(|slot| slot.connection.lane == lane && slot.can_be_held())
    }
}

impl Slot {
    /// True for a lane whose output the client waits for, and whose upstream can wait. A conversation cannot wait, because a
    /// model that is not read seems to have stopped. A lane that was left is read to its end.
    fn can_be_held(&self) -> bool {
        match self.owner {
            Owner::Synthesizer | Owner::Assistant | Owner::AnswerSpeech => {
                self.connection.is_awaiting_reply()
            }
            Owner::Relay => self.connection.is_engaged(),
            Owner::Transcriber | Owner::Dialogue | Owner::Standby | Owner::Closing => false,
        }
    }

    /// The connection's deadline; `None` while it stands still.
    pub(super) fn deadline(&self, are_held: bool) -> Option<Instant> {
        self.connection.deadline().filter(|_| !(are_held && self.can_be_held()))
    }
}
