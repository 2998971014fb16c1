//! Session quotas: concurrent sessions and session rate. Time is an argument. Dropping the [`QuotaTicket`] frees its
//! share, however the session ends.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::address::client_subnet;

/// Owner of a quota.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum QuotaSubject {
    /// A client address.
    Address(IpAddr),
    /// An API key, by name.
    Key(Arc<str>),
    /// Offers of calls from a client.
    Offers(CallerName),
}

/// Name of a client that begins calls: its key where it has one, else its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::server) enum CallerName {
    /// The subnet of a client address.
    Address(IpAddr),
    /// An API key, by name.
    Key(Arc<str>),
}

impl CallerName {
    /// The client with this address, which may have a key.
    pub(in crate::server) fn new(key: Option<&Arc<str>>, address: IpAddr) -> Self {
        key.map_or_else(|| Self::Address(client_subnet(address)), |key| Self::Key(key.clone()))
    }
}

/// Limits of one subject.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct Quota {
    /// Maximum number of concurrent sessions.
    pub(in crate::server) sessions_max: Option<usize>,
    /// Session rate: this many at once, refilled evenly over a minute.
    pub(in crate::server) sessions_per_minute: Option<u32>,
}

/// Reason of a rejection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum QuotaExceeded {
    /// The limit of concurrent sessions is reached.
    #[error("has reached its limit of {0} concurrent sessions")]
    Sessions(usize),
    /// The rate per minute is exceeded; the next session is possible after this time.
    #[error("has reached its limit of {0} new sessions a minute")]
    Rate(u32, Duration),
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "address {address}"),
            Self::Key(name) => write!(f, "key {name}"),
            Self::Offers(CallerName::Address(address)) => write!(f, "address {address} (offers of calls)"),
            Self::Offers(CallerName::Key(name)) => write!(f, "key {name} (offers of calls)"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct QuotaUsage {
    sessions: usize,
    /// Instant at which the opened sessions are paid off at the allowed rate.
    theoretical_arrival: Option<Instant>,
}

/// Usage of all subjects. Survives a reload.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Quotas(Arc<Mutex<BTreeMap<QuotaSubject, QuotaUsage>>>);

/// One counted session.
#[derive(Debug)]
pub(in crate::server) struct QuotaTicket {
    quotas: Quotas,
    subject: QuotaSubject,
}

/// Above this number, subjects without sessions whose rate is paid off are forgotten.
const SUBJECTS_MAX: usize = 4096;

const MINUTE: Duration = Duration::from_secs(60);

impl Quotas {
    /// Counts one more session, or rejects it.
    pub(in crate::server) fn acquire(
        &self,
        now: Instant,
        subject: QuotaSubject,
        quota: Quota,
    ) -> Result<QuotaTicket, QuotaExceeded> {
        let mut usage_by_subject = self.lock();
        if usage_by_subject.len() > SUBJECTS_MAX {
            usage_by_subject.retain(|_, usage| usage.sessions > 0 || usage.theoretical_arrival > Some(now));
        }
        let usage = usage_by_subject.entry(subject.clone()).or_default();
        let result = usage.acquire(now, quota);
        usage.sessions += usize::from(result.is_ok());
        if usage.sessions == 0 && usage.theoretical_arrival.is_none() {
            usage_by_subject.remove(&subject);
        }
        result.map(|()| QuotaTicket { quotas: self.clone(), subject })
    }

    /// Fails if one more session would be rejected; counts nothing.
    pub(in crate::server) fn check(
        &self,
        now: Instant,
        subject: &QuotaSubject,
        quota: Quota,
    ) -> Result<(), QuotaExceeded> {
        let mut usage = self.lock().get(subject).copied().unwrap_or_default();
        usage.acquire(now, quota)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QuotaSubject, QuotaUsage>> {
        // A panic cannot leave the counters inconsistent.
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
            // A rate must be remembered.
            if usage.sessions == 0 && usage.theoretical_arrival.is_none() {
                usage_by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_reads_as_a_sentence() {
        let (key, minute) = (QuotaSubject::Key("alice".into()), QuotaExceeded::Rate(2, Duration::ZERO));
        assert_eq!(
            format!("{key} {}", QuotaExceeded::Sessions(3)),
            "key alice has reached its limit of 3 concurrent sessions"
        );
        let address = QuotaSubject::Address([10, 0, 0, 7].into());
        assert_eq!(
            format!("{address} {minute}"),
            "address 10.0.0.7 has reached its limit of 2 new sessions a minute"
        );
    }

    #[test]
    fn offers_count_for_the_key_or_else_for_the_address() {
        let [one, other] = [[10, 0, 0, 7], [10, 0, 1, 7]].map(IpAddr::from);
        let ann = Some(Arc::from("ann"));
        assert_eq!(CallerName::new(ann.as_ref(), one), CallerName::new(ann.as_ref(), other));
        assert_ne!(CallerName::new(ann.as_ref(), one), CallerName::new(None, one));
        assert_ne!(CallerName::new(None, one), CallerName::new(None, other));
        let words = QuotaSubject::Offers(CallerName::new(ann.as_ref(), one)).to_string();
        assert_eq!(words, "key ann (offers of calls)");
    }

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
            "a rejected attempt costs nothing"
        );
        assert_eq!((open(10), open(10)), (Ok(()), Err(QuotaExceeded::Rate(6, Duration::from_secs(10)))));
        for _ in 0..6 {
            assert_eq!(open(600), Ok(()), "the burst is limited to one minute's sessions");
        }
        assert!(open(600).is_err());
    }
}
