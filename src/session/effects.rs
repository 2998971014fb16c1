//! Effects: what an input changed. [`super::follow_up`] runs the steps that they ask for.

/// A set of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects(u8);

impl Effects {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);
    /// A frame of the user's audio that decided nothing.
    pub(crate) const FRAME: Self = Self(1);
    /// More text or audio of the speech that is being played.
    pub(crate) const DELTA: Self = Self(1 << 1);
    /// Other output of a conversation's model, which cannot change a transcript.
    pub(crate) const MODEL: Self = Self(1 << 2);
    /// Anything may have changed.
    pub(crate) const ALL: Self = Self(1 << 2 | 1 << 3);
    /// Anything, and a text waits in an upstream's queue: it may wait for a worker of this session.
    pub(crate) const WORKER_WANTED: Self = Self(1 << 4 | Self::ALL.0);
    /// Anything, and a lane that was left has changed: a new one may be dialled.
    pub(crate) const LANE_LEFT: Self = Self(1 << 5 | Self::ALL.0);

    /// True if it has all of these changes.
    pub(crate) const fn has(self, changes: Self) -> bool {
        self.0 & changes.0 == changes.0
    }
}
