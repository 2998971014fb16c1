//! The harness of `voxbridge-test-support` with the allocations of every step, which this program's allocator counts.

use allocation_counter::AllocationInfo;
use voxbridge_test_support::world::harness::{self, StepMeter};

use super::*;
pub(crate) use voxbridge_test_support::world::{
    bytes_of,
    config::{HarnessConfig, ScriptedJudge},
    http_server::{HttpFailure, HttpScript},
    ms,
    observed::{ClientFrame, Traffic},
    recording, secs, two_seconds, utterance, voice, zeros,
};

/// A bridge and a simulated gateway in virtual time.
pub(crate) type Harness = harness::Harness<AllocationMeter>;
/// One input of the bridge, up to the next `Wait`.
pub(crate) type BridgeStep = harness::BridgeStep<AllocationInfo>;

/// Counts memory allocations.
pub(crate) struct AllocationMeter;

impl StepMeter for AllocationMeter {
    type Cost = AllocationInfo;

    fn measure(step: &mut dyn FnMut()) -> AllocationInfo {
        measure(step)
    }
}
