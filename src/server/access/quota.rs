//! How many sessions somebody has, and how fast they open them. Time is an argument; what is counted is given back when the
//! [`QuotaTicket`] is dropped, however its session ends.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Whose sessions are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum QuotaSubject {
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
    pub(in crate::server) sessions_per_minute: Option<u32>,
}

/// Why not now.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum QuotaExceeded {
    /// So many are open.
    Sessions(usize),
    /// So many may be opened a minute; the next one then.
    Rate(u32, Duration),
}

#[derive(Debug, Default)]
struct QuotaUsage {
    sessions: usize,
    /// When all that was opened has been paid for, at the rate that is allowed.
    theoretical_arrival: Option<Instant>,
}

/// What everybody uses. It outlives what is loaded again.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Quotas(Arc<Mutex<BTreeMap<QuotaSubject, QuotaUsage>>>);

/// A session that counts.
#[derive(Debug)]
pub(in crate::server) struct QuotaTicket {
    quotas: Quotas,
    subject: QuotaSubject,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Quotas {
    /// Counts one more session.
    pub(in crate::server) fn acquire(
        &self,
        now: Instant,
        subject: QuotaSubject,
        quota: Quota,
    ) -> Result<QuotaTicket, QuotaExceeded> {
        let mut usage_by_subject = self.lock();
        let usage = usage_by_subject.entry(subject.clone()).or_default();
        let result = usage.acquire(now, quota);
        usage.sessions += usize::from(result.is_ok());
        if usage.sessions == 0 && usage.theoretical_arrival.is_none() {
            usage_by_subject.remove(&subject);
        }
        result.map(|()| QuotaTicket { quotas: self.clone(), subject })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QuotaSubject, QuotaUsage>> {
        // Numbers are whole between two of their changes, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaUsage {
    fn acquire(&mut self, now: Instant, quota: Quota) -> Result<(), QuotaExceeded> {
        if let Some(max) = quota.sessions_max.filter(|max| self.sessions >= *max) {
            return Err(QuotaExceeded::Sessions(max));
        }
        let Some(rate) = quota.sessions_per_minute else {
            self.theoretical_arrival = None;
            return Ok(());
        };
        let theoretical_arrival =
            self.theoretical_arrival.map_or(now, |at| at.max(now)) + MINUTE / rate.max(1);
        let too_early_by = (theoretical_arrival - now).saturating_sub(MINUTE);
        if !too_early_by.is_zero() {
            return Err(QuotaExceeded::Rate(rate, too_early_by));
        }
        self.theoretical_arrival = Some(theoretical_arrival);
        Ok(())
    }
}

impl Drop for QuotaTicket {
    fn drop(&mut self) {
        let mut usage_by_subject = self.quotas.lock();
        if let Some(usage) = usage_by_subject.get_mut(&self.subject) {
            usage.sessions -= 1;
            // A rate is remembered; there are no more of them than keys.
            if usage.sessions == 0 && usage.theoretical_arrival.is_none() {
                usage_by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> QuotaSubject {
        QuotaSubject::Key("robots".into())
    }

    #[tokio::test]
    async fn dropped_tickets_free_their_quota() {
        let (quotas, now) = (Quotas::default(), tokio::time::Instant::now().into_std());
        let two = Quota { sessions_max: Some(2), ..Quota::default() };
        let first = quotas.acquire(now, key(), two).unwrap();
        let second = quotas.acquire(now, key(), two).unwrap();
        assert_eq!(quotas.acquire(now, key(), two).unwrap_err(), QuotaExceeded::Sessions(2));
        let other = QuotaSubject::Address("192.0.2.1".parse().unwrap());
        let other = quotas.acquire(now, other, two).unwrap();
        drop(first);
        let third = quotas.acquire(now, key(), two).unwrap();
        drop((second, third, other));
        assert!(quotas.lock().is_empty());
    }

    #[tokio::test]
    async fn rate_quota_allows_a_burst_then_reports_the_wait() {
        let (quotas, start) = (Quotas::default(), tokio::time::Instant::now().into_std());
        let six = Quota { sessions_per_minute: Some(6), ..Quota::default() };
        let open = |at_s: u64| quotas.acquire(start + Duration::from_secs(at_s), key(), six).map(drop);
        for _ in 0..6 {
            assert_eq!(open(0), Ok(()));
        }
        assert_eq!(open(0), Err(QuotaExceeded::Rate(6, Duration::from_secs(10))));
        assert_eq!(
            open(7),
            Err(QuotaExceeded::Rate(6, Duration::from_secs(3))),
            "who asks too early loses nothing"
        );
        assert_eq!((open(10), open(10)), (Ok(()), Err(QuotaExceeded::Rate(6, Duration::from_secs(10)))));
        for _ in 0..6 {
            assert_eq!(open(600), Ok(()), "nothing is saved up beyond a minute's");
        }
        assert!(open(600).is_err());
    }
}
