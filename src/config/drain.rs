//! `[drain]`: how the server ends its sessions at shutdown.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::server::process::lifecycle::DrainPolicy;

/// Longest configurable duration: one hour.
const DURATION_MAX_MS: u64 = 3_600_000;

/// `[drain]`: times of the shutdown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DrainConfig {
    /// Time in ms during which new sessions are rejected but running ones continue, so that load balancers
    /// notice.
    pub grace_ms: Option<u64>,
    /// Time in ms for sessions to finish; remaining sessions are then closed.
    pub timeout_ms: Option<u64>,
}

impl DrainConfig {
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, ms) in [("grace_ms", self.grace_ms), ("timeout_ms", self.timeout_ms)] {
            if ms.is_some_and(|ms| ms > DURATION_MAX_MS) {
                return Err(format!("drain.{name}: must be {DURATION_MAX_MS} (one hour) or less"));
            }
        }
        Ok(())
    }

    pub(super) fn resolve(&self) -> DrainPolicy {
        let duration = |ms: Option<u64>, default| ms.map_or(default, Duration::from_millis);
        DrainPolicy {
            grace: duration(self.grace_ms, Duration::ZERO),
            timeout: duration(self.timeout_ms, DrainPolicy::DEFAULT_TIMEOUT),
        }
    }
}
