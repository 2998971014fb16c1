//! Notices to a client whose request waits in the upstream's queue.

use std::time::{Duration, Instant};

use super::{LaneId, Lanes};
use crate::{
    session::{
        millis,
        outbox::Actions,
        timers::{Timer, Timers},
    },
    vocabulary::ClientEvent,
};

/// Time in the queue before the first notice. The short queue of an ordinary rollover stays unnoticed.
const FIRST_QUEUE_NOTICE: Duration = Duration::from_secs(2);
/// Time between two notices.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);

impl Lanes {
    /// Reports where a lane waits in the upstream's queue, if the client wants to know.
    pub(crate) fn report_queue(&self, now: Instant, id: LaneId, out: &mut Actions) {
        if let Some(place) = self.queue_position(id).filter(|_| self.reports_queue) {
            out.push_client(self.notice(now, place));
        }
    }

    /// Reports from time to time where a lane waits in the upstream's queue, and since when.
    pub(crate) fn report_wait(
        &self,
        now: Instant,
        id: Option<LaneId>,
        timers: &mut Timers,
        out: &mut Actions,
    ) {
        let Some(place) = id.and_then(|id| self.queue_position(id)) else {
            return timers.clear(&[Timer::QueueNotice]);
        };
        if timers.take_expired(Timer::QueueNotice, now) {
            timers.set(Timer::QueueNotice, now + QUEUE_NOTICE_INTERVAL);
            out.push_client(self.notice(now, place));
        }
        // A lane that was refused after its wait may have waited for long.
        let since = id.and_then(|id| self.get(id)?.queued_since).unwrap_or(now);
        timers.set_if_clear(Timer::QueueNotice, now.max(since + FIRST_QUEUE_NOTICE));
    }

    fn notice(&self, now: Instant, (position, since): (u32, Instant)) -> ClientEvent {
        let (waited_ms, wait_max_ms) = (millis(now - since), self.shared.times.queue_max_ms);
        ClientEvent::Queued { position, waited_ms, wait_max_ms }
    }
}
