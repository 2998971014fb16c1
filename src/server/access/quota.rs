//! How many sessions somebody has, and how fast they open them. Time is an argument; what is counted is given back when the
//! [`Ticket`] is dropped, however its session ends.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Whose sessions are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Who {
    /// Those of an address.
    Address(IpAddr),
    /// Those of a key, by its name.
    Key(Arc<str>),
}

/// How much they may.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct Quota {
    /// At a time.
    pub(in crate::server) sessions_max: Option<usize>,
    /// As many at once, and one more each time a minute's part of them has passed.
    pub(in crate::server) new_per_minute: Option<u32>,
}

/// Why not now.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum Over {
    /// So many are open.
    Sessions(usize),
    /// So many may be opened a minute; the next one then.
    Rate(u32, Duration),
}

#[derive(Debug, Default)]
struct Use {
    sessions: usize,
    /// When all that was opened has been paid for, at the rate that is allowed.
    paid_at: Option<Instant>,
}

/// What everybody uses. It outlives what is loaded again.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Quotas(Arc<Mutex<BTreeMap<Who, Use>>>);

/// A session that counts.
#[derive(Debug)]
pub(in crate::server) struct Ticket {
    quotas: Quotas,
    who: Who,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Quotas {
    /// Counts one more session.
    pub(in crate::server) fn take(&self, now: Instant, who: Who, quota: Quota) -> Result<Ticket, Over> {
        let mut all = self.all();
        let used = all.entry(who.clone()).or_default();
        let taken = used.take(now, quota);
        used.sessions += usize::from(taken.is_ok());
        if used.sessions == 0 && used.paid_at.is_none() {
            all.remove(&who);
        }
        taken.map(|()| Ticket { quotas: self.clone(), who })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Who, Use>> {
        // Numbers are whole between two of their changes, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    fn take(&mut self, now: Instant, quota: Quota) -> Result<(), Over> {
        if let Some(max) = quota.sessions_max.filter(|max| self.sessions >= *max) {
            return Err(Over::Sessions(max));
        }
        let Some(rate) = quota.new_per_minute else {
            self.paid_at = None;
            return Ok(());
        };
        let paid_at = self.paid_at.map_or(now, |at| at.max(now)) + MINUTE / rate.max(1);
        let early = (paid_at - now).saturating_sub(MINUTE);
        if !early.is_zero() {
            return Err(Over::Rate(rate, early));
        }
        self.paid_at = Some(paid_at);
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = self.quotas.all();
        if let Some(used) = all.get_mut(&self.who) {
            used.sessions -= 1;
            // A rate is remembered; there are no more of them than keys.
            if used.sessions == 0 && used.paid_at.is_none() {
                all.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Who {
        Who::Key("robots".into())
    }

    #[tokio::test]
    async fn what_is_over_is_given_back_and_forgotten() {
        let (quotas, now) = (Quotas::default(), tokio::time::Instant::now().into_std());
        let two = Quota { sessions_max: Some(2), ..Quota::default() };
        let first = quotas.take(now, key(), two).unwrap();
        let second = quotas.take(now, key(), two).unwrap();
        assert_eq!(quotas.take(now, key(), two).unwrap_err(), Over::Sessions(2));
        let other = Who::Address("192.0.2.1".parse().unwrap());
        let other = quotas.take(now, other, two).unwrap();
        drop(first);
        let third = quotas.take(now, key(), two).unwrap();
        drop((second, third, other));
        assert!(quotas.all().is_empty());
    }

    #[tokio::test]
    async fn a_rate_allows_a_burst_and_says_when_the_next_may_come() {
        let (quotas, start) = (Quotas::default(), tokio::time::Instant::now().into_std());
        let six = Quota { new_per_minute: Some(6), ..Quota::default() };
        let open = |at_s: u64| quotas.take(start + Duration::from_secs(at_s), key(), six).map(drop);
        for _ in 0..6 {
            assert_eq!(open(0), Ok(()));
        }
        assert_eq!(open(0), Err(Over::Rate(6, Duration::from_secs(10))));
        assert_eq!(open(7), Err(Over::Rate(6, Duration::from_secs(3))), "who asks too early loses nothing");
        assert_eq!((open(10), open(10)), (Ok(()), Err(Over::Rate(6, Duration::from_secs(10)))));
        for _ in 0..6 {
            assert_eq!(open(600), Ok(()), "nothing is saved up beyond a minute's");
        }
        assert!(open(600).is_err());
    }
}
