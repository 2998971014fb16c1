//! The end that is not the client's wish: how much time there is, and what for.
//!
//! Whoever is in the middle of a sentence is heard to its end, what was said is answered, and the lanes are told goodbye;
//! each has a part of the time, so that the last is not paid for with the first.

use std::time::{Duration, Instant};

/// Worth waiting for a worker that is given back politely, and no more.
pub(super) const HURRY: Duration = Duration::from_secs(10);

/// Beyond the longest time that a session may last, for what is going on then.
pub(super) const OVERTIME: Duration = Duration::from_secs(25);

/// A session that is to end as soon as nobody is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parting<W> {
    /// Why.
    pub(super) why: W,
    /// Who still speaks then is cut off: what follows needs the rest of the time.
    pub(super) heard_by: Instant,
    /// What is not answered or spoken by then will not be; the rest is for the lanes' polite end.
    pub(super) answered_by: Instant,
    /// Answers that nobody waits for any more are waited out no longer than until then.
    pub(super) hurry_by: Instant,
}

impl<W> Parting<W> {
    /// To be over `within` from now.
    pub(super) fn new(now: Instant, within: Duration, why: W) -> Self {
        let answered_by = now + within * 5 / 6;
        Self { why, heard_by: now + within * 2 / 3, answered_by, hurry_by: answered_by.min(now + HURRY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_part_of_the_time() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let parting = Parting::new(now, Duration::from_secs(30), ());
        assert_eq!(parting.heard_by - now, Duration::from_secs(20));
        assert_eq!(parting.answered_by - now, Duration::from_secs(25));
    }
}
