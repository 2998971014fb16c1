//! Messages that wait: because the transport is gone, or because the server has refused an append for want of room.
//!
//! The server names a refused append only if its manager refused it, not if its runner did (`input_backpressure`); without a
//! name, the last one is meant. Everything keeps its order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Wait before a refused append is sent again; it doubles up to the longest while the server refuses.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Appends that are kept in case the server refuses them, bytes: two units.
const SENT_MAX_BYTES: usize = 100_000;

/// A message, with its id if it is an append.
type Waiting = (Option<Box<str>>, String);

/// Messages that wait, and the appends that were sent last.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Waiting>,
    /// The last appends, which the server may refuse.
    sent: VecDeque<(Box<str>, String)>,
    /// Number of the refused ones, which are the first that wait.
    refused: usize,
    pause: Option<Duration>,
    release_at: Option<Instant>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps an append if it must wait, otherwise returns it.
    pub(super) fn admit(&mut self, id: Box<str>, text: String, is_up: bool) -> Option<String> {
        if !is_up || !self.is_empty() {
            self.waiting.push_back((Some(id), text));
            return None;
        }
        Some(self.mark_sent((Some(id), text)))
    }

    /// Keeps another message if the transport is gone, otherwise returns it.
    pub(super) fn admit_control(&mut self, text: String, is_up: bool) -> Option<String> {
        if is_up {
            return Some(text);
        }
        self.waiting.push_back((None, text));
        None
    }

    /// The server has room.
    pub(super) fn note_accepted(&mut self) {
        self.sent.clear();
        self.pause = None;
    }

    /// True while a refused append waits.
    pub(super) const fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// The server refused an append.
    pub(super) fn put_back_refused(&mut self, now: Instant, id: Option<&str>) {
        let at = match id {
            Some(id) => self.sent.iter().position(|(sent, _)| **sent == *id),
            None => self.sent.len().checked_sub(1),
        };
        let Some(at) = at else { return };
        let Some((id, text)) = self.sent.remove(at) else { return };
        self.waiting.insert(self.refused, (Some(id), text));
        self.refused += 1;
        if self.release_at.is_none() {
            let pause = self.pause.map_or(FIRST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
            self.pause = Some(pause);
            self.release_at = Some(now + pause);
        }
    }

    /// The server refused an append for good: the one with this id, or else the last.
    pub(super) fn forget_sent(&mut self, id: Option<&str>) {
        match id {
            Some(id) => self.sent.retain(|(sent, _)| **sent != *id),
            None => drop(self.sent.pop_back()),
        }
    }

    /// When the next message may be sent; `None` if none waits for the server's room.
    pub(super) const fn release_at(&self) -> Option<Instant> {
        self.release_at
    }

    /// Takes the message that may be sent. The others follow at the slower pace.
    pub(super) fn release_next(&mut self, now: Instant) -> Option<String> {
        self.refused = self.refused.saturating_sub(1);
        let next = self.waiting.pop_front();
        self.release_at = (!self.is_empty()).then(|| now + self.pause.unwrap_or_default());
        next.map(|waiting| self.mark_sent(waiting))
    }

    /// Takes everything, in order.
    pub(super) fn release_all(&mut self) -> Vec<String> {
        // Whether the old transport carried the last append is not known. It is not sent again.
        self.sent.clear();
        (self.refused, self.release_at) = (0, None);
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|waiting| self.mark_sent(waiting)).collect()
    }

    fn mark_sent(&mut self, (id, text): Waiting) -> String {
        self.sent.extend(id.map(|id| (id, text.clone())));
        let kept =
            |sent: &VecDeque<(Box<str>, String)>| sent.iter().map(|(_, text)| text.len()).sum::<usize>();
        while self.sent.len() > 1 && kept(&self.sent) > SENT_MAX_BYTES {
            self.sent.pop_front();
        }
        text
    }
}
