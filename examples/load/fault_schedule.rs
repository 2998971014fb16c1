//! Mishaps made on purpose, so that whoever trusts the counts can see them count.

/// Frames before the first mishap, and between two.
const FAULT_INTERVAL_FRAMES: u64 = 20;

/// Which frame is sent next.
#[derive(Debug, Default)]
pub(crate) struct FaultSchedule {
    fault_count: u32,
    faults_made: u32,
    /// Frames that were due.
    frames_due: u64,
    /// The frame of the loop that is next.
    next_frame: u64,
    is_swap_pending: bool,
}

impl FaultSchedule {
    pub(crate) fn new(fault_count: u32) -> Self {
        Self { fault_count, ..Self::default() }
    }

    /// Whether there are mishaps at all.
    pub(crate) const fn has_faults(&self) -> bool {
        self.fault_count > 0
    }

    /// Frames of the loop that were sent, or should have been.
    pub(crate) const fn frames_sent(&self) -> u64 {
        self.next_frame
    }

    /// The number under which the next frame is remembered, and which frame of the loop it is; none for one that is lost.
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
