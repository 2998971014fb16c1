//! Mishaps made on purpose, so that whoever trusts the counts can see them count.

/// Frames before the first mishap, and between two.
const EVERY: u64 = 20;

/// Which frame is sent next.
#[derive(Debug, Default)]
pub(crate) struct Spoil {
    mishaps: u32,
    made: u32,
    /// Frames that were due.
    due: u64,
    /// The frame of the loop that is next.
    next: u64,
    swapped: bool,
}

impl Spoil {
    pub(crate) fn new(mishaps: u32) -> Self {
        Self { mishaps, ..Self::default() }
    }

    /// Whether there are mishaps at all.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.mishaps > 0
    }

    /// Frames of the loop that were sent, or should have been.
    pub(crate) const fn frames(&self) -> u64 {
        self.next
    }

    /// The number under which the next frame is remembered, and which frame of the loop it is; none for one that is lost.
    pub(crate) fn next(&mut self) -> (u64, Option<u64>) {
        self.due += 1;
        if std::mem::take(&mut self.swapped) {
            return self.step(Some(self.next - 1));
        }
        if self.made == self.mishaps || !self.due.is_multiple_of(EVERY) {
            return self.step(Some(self.next));
        }
        self.made += 1;
        match self.made % 3 {
            1 => self.step(None),
            2 => (self.next - 1, Some(self.next - 1)),
            _ => {
                self.swapped = true;
                self.step(Some(self.next + 1))
            }
        }
    }

    fn step(&mut self, frame: Option<u64>) -> (u64, Option<u64>) {
        self.next += 1;
        (self.next - 1, frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_lost_one_repeated_two_swapped_and_all_else_in_order() {
        let mut spoil = Spoil::new(3);
        let frames: Vec<u64> = (0..70).filter_map(|_| spoil.next().1).collect();
        assert_eq!(frames[18..20], [18, 20], "19 is lost");
        assert_eq!(frames[37..40], [38, 38, 39]);
        assert_eq!(frames[57..62], [57, 59, 58, 60, 61]);
        assert_eq!(spoil.frames(), 69);
    }
}
