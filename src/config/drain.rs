//! `[drain]`: how a server takes leave of its sessions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::server::process::lifecycle::DrainPolicy;

/// The longest that anybody may have to wait for, ms: who wants more wants no bound at all.
const DURATION_MAX_MS: u64 = 3_600_000;

/// How long it takes leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DrainConfig {
    /// For so long new sessions are refused before those that run are ended, so that balancers notice, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Sessions may take so long to finish, ms; what is left then is cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl DrainConfig {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (name, ms) in [("grace_ms", self.grace_ms), ("timeout_ms", self.timeout_ms)] {
            if ms.is_some_and(|ms| ms > DURATION_MAX_MS) {
                return Err(format!("drain.{name}: must be {DURATION_MAX_MS} or less, which is an hour"));
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
