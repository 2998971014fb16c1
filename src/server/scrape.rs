//! The state of sessions and upstreams when metrics are scraped.

use std::sync::Arc;

use super::{
    active_config::ServiceConfig,
    registry::{LiveSession, SessionRegistry},
    upstream_pool::UpstreamStatus,
};
use crate::telemetry::{
    access_log::AccessLog,
    log,
    metrics::scrape::{ServerSnapshot, UpstreamSnapshot},
    otlp::Otlp,
};

/// The state of sessions and upstreams when metrics are scraped.
pub(super) fn metrics_snapshot(
    config: &ServiceConfig,
    registry: &SessionRegistry,
    access_log: Option<&AccessLog>,
    otlp: Option<&Otlp>,
) -> ServerSnapshot {
    let sessions = registry.all().into_iter();
    let kind = |session: Arc<LiveSession>| {
        (session.info.client.as_str().into(), session.info.profile.as_str().into(), session.state())
    };
    let upstream =
        |((name, standing), (_, dialect)): ((String, UpstreamStatus), (_, &str))| UpstreamSnapshot {
            name,
            dialect: dialect.to_owned(),
            in_service: standing.load.ejected_until.is_none(),
            load: standing.load.lanes,
            failures: standing.failures,
            ejections: standing.ejections,
            unneeded: standing.unneeded,
        };
    ServerSnapshot {
        kinds: config.session_kinds(),
        sessions: sessions.map(kind).collect(),
        waiting: registry.waiting().counts().into(),
        upstreams: config.pool.statuses().into_iter().zip(config.pool.dialects()).map(upstream).collect(),
        access_log_lines_lost: access_log.map_or(0, AccessLog::lost_lines),
        otlp_lost: otlp.map(Otlp::lost).into_iter().flatten().collect(),
        log_lines_lost: log::lost_lines(),
        trace_lines_lost: config.traces.as_ref().map_or(0, |traces| traces.lost_lines()),
        recordings_incomplete: config.recordings.as_ref().map_or(0, |recordings| recordings.incomplete()),
    }
}
