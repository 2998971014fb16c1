//! Notices to a client whose request waits in the upstream's queue.

use std::time::{Duration, Instant};

use super::{LaneId, Lanes, connection::QueuePlace};
use crate::{
    session::{
        millis,
        timers::{Timer, Timers},
    },
    vocabulary::ClientEvent,
};

/// Time in the queue before the first notice. The short queue of an ordinary rollover stays unnoticed.
const FIRST_QUEUE_NOTICE: Duration = Duration::from_secs(2);
/// Time between two notices.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);

impl Lanes {
    /// Notice of where a lane waits in the upstream's queue, if the client wants to know.
    pub(crate) fn queue_notice(&self, now: Instant, id: LaneId) -> Option<ClientEvent> {
        let place = self.queue_position(id).filter(|_| self.reports_queue)?;
        Some(self.notice(now, place))
    }

    /// Notice, from time to time, of where a lane waits in the upstream's queue, and since when.
    pub(crate) fn wait_notice(
        &self,
        now: Instant,
        id: Option<LaneId>,
        timers: &mut Timers,
    ) -> Option<ClientEvent> {
        let Some(place) = id.and_then(|id| self.queue_position(id)) else {
            timers.clear(&[Timer::QueueNotice]);
            return None;
        };
        let is_due = timers.take_expired(Timer::QueueNotice, now);
        if is_due {
            timers.set(Timer::QueueNotice, now + QUEUE_NOTICE_INTERVAL);
        }
        // A lane that was refused after its wait may have waited for long.
        let since = id.and_then(|id| self.get(id)?.queued_since).unwrap_or(now);
        timers.set_if_clear(Timer::QueueNotice, now.max(since + FIRST_QUEUE_NOTICE));
        is_due.then(|| self.notice(now, place))
    }

    fn notice(&self, now: Instant, place: QueuePlace) -> ClientEvent {
        let (waited_ms, wait_max_ms) = (millis(now - place.since), self.shared.times.queue_max_ms);
        ClientEvent::Queued { position: place.position, waited_ms, wait_max_ms }
    }
}
