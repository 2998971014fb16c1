//! `[otlp]`: traces, metrics and the log for a collector of OpenTelemetry. The standard variables `OTEL_…` say the rest, and also
//! name the collector where the configuration does not.

use serde::{Deserialize, Serialize};

use super::env_var;
use crate::telemetry::otlp::{self, settings::OtlpSettings};

/// `[otlp]`: off unless `url` or a variable names a collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// `http://` or `https://` URL of the collector, without `/v1/traces`.
    pub url: Option<String>,
    /// Spans have what users, models and tools say.
    pub content: Option<bool>,
}

impl OtlpConfig {
    /// What is exported, and where to; `None` for nothing. Mistakes in variables alone are [`warnings`](Self::warnings), because these
    /// variables are set for other programs, too.
    ///
    /// # Errors
    /// A message about the URL, a variable or this program.
    pub fn settings(&self) -> Result<Option<OtlpSettings>, String> {
        match self.read() {
            Err(_) if self.url.is_none() => Ok(None),
            Err(problem) => Err(format!("otlp.url: {problem}")),
            Ok(settings) => Ok(settings),
        }
    }

    fn read(&self) -> Result<Option<OtlpSettings>, String> {
        let settings = OtlpSettings::read(self.url.as_deref(), self.content, &env_var)?;
        if settings.is_some() {
            otlp::check()?;
        }
        Ok(settings)
    }

    /// Why nothing is exported although a variable names a collector.
    pub(super) fn warnings(&self) -> Option<String> {
        let problem = self.read().err().filter(|_| self.url.is_none())?;
        Some(format!("nothing is sent to a collector of OpenTelemetry: {problem}"))
    }
}
