//! Faults injected on purpose, to prove that the counters detect them.

/// Number of frames before the first fault, and between two.
const FAULT_INTERVAL_FRAMES: u64 = 20;

/// Chooses the next frame to send.
#[derive(Debug, Default)]
pub(crate) struct FaultSchedule {
    fault_count: u32,
    faults_made: u32,
    /// Number of frames due.
    frames_due: u64,
    /// Next frame of the loop.
    next_frame: u64,
    is_swap_pending: bool,
}

impl FaultSchedule {
    pub(crate) fn new(fault_count: u32) -> Self {
        Self { fault_count, ..Self::default() }
    }

    /// True if faults are injected.
    pub(crate) const fn has_faults(&self) -> bool {
        self.fault_count > 0
    }

    /// Number of loop frames sent or dropped on purpose.
    pub(crate) const fn frames_sent(&self) -> u64 {
        self.next_frame
    }

    /// Number of the next frame, and its index in the loop; `None` for a dropped frame.
    pub(crate) fn schedule_frame(&mut self) -> (u64, Option<u64>) {
        self.frames_due += 1;
        if std::mem::take(&mut self.is_swap_pending) {
            return self.advance(Some(self.next_frame - 1));
        }
        if self.faults_made == self.fault_count || !self.frames_due.is_multiple_of(FAULT_INTERVAL_FRAMES) {
            return self.advance(Some(self.next_frame));
        }
        self.faults_made += 1;
        match self.faults_made % 3 {
            1 => self.advance(None),
            2 => (self.next_frame - 1, Some(self.next_frame - 1)),
            _ => {
                self.is_swap_pending = true;
                self.advance(Some(self.next_frame + 1))
            }
        }
    }

    fn advance(&mut self, frame: Option<u64>) -> (u64, Option<u64>) {
        self.next_frame += 1;
        (self.next_frame - 1, frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_loses_repeats_and_swaps_one_frame_each() {
        let mut schedule = FaultSchedule::new(3);
        let frames: Vec<u64> = (0..70).filter_map(|_| schedule.schedule_frame().1).collect();
        assert_eq!(frames[18..20], [18, 20], "19 is lost");
        assert_eq!(frames[37..40], [38, 38, 39]);
        assert_eq!(frames[57..62], [57, 59, 58, 60, 61]);
        assert_eq!(schedule.frames_sent(), 69);
    }
}
