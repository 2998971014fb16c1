//! State that the parts of a session share: settings, lanes, the floor with the client's outbox, timers and numbers.
//!
//! The entry points of a part take all of it, and functions that read settings. Others take what they touch.

use super::{floor::Floor, lanes::Lanes, timers::Timers};
use crate::vocabulary::{ClientSettings, VoiceSample};

/// Tools of one session.
#[derive(Debug)]
pub(crate) struct Tools {
    /// Settings in force.
    pub(crate) settings: ClientSettings,
    /// Voice of the model's own turns and answers under these settings; `None` for the upstream's own.
    pub(crate) voice: Option<VoiceSample>,
    /// Its name, for an upstream with voices of its own; `None` if the client named none.
    pub(crate) voice_name: Option<String>,
    pub(crate) lanes: Lanes,
    pub(crate) floor: Floor,
    pub(crate) timers: Timers,
    pub(crate) segment_ids: SegmentIds,
}

impl Tools {
    /// True if the bridge has taken every action.
    pub(super) fn is_drained(&self) -> bool {
        self.floor.out.is_empty() && self.lanes.shared.out.is_empty()
    }
}

/// Numbers of utterances and turns, in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct SegmentIds(u32);

impl SegmentIds {
    /// Allocates the next number.
    pub(crate) const fn next_id(&mut self) -> u32 {
        let number = self.0;
        self.0 += 1;
        number
    }
}
