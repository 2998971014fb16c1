//! JSON views of the admin listener, with stable field names. Times are in seconds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::AdminContext;
use crate::server::{
    process::lifecycle::LifecycleState,
    registry::{LiveSession, LiveSessionView, SessionRegistry},
    tool_servers::ToolServerView,
    upstream_pool::{Pool, UpstreamStatus},
};

/// Readiness for new sessions.
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    state: LifecycleState,
    /// Reasons why the server is not ready.
    reasons: Vec<ReadinessIssue>,
    /// Problems that do not affect readiness.
    warnings: Vec<ReadinessIssue>,
    sessions: usize,
    sessions_max: usize,
    /// Connections, calls and pages without a session.
    waiting: BTreeMap<&'static str, usize>,
    upstreams: usize,
    upstreams_usable: usize,
    /// Each upstream, without its URL, which may contain secrets.
    upstream: Vec<UpstreamView>,
    /// Lanes in upstreams' queues that nothing needs any more. They close once they have a worker.
    lanes_unneeded: u32,
    /// Each tool server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_server: Vec<ToolServerView>,
}

#[derive(Debug, Serialize)]
struct UpstreamView {
    name: String,
    dialect: String,
    in_service: bool,
    /// Open sessions.
    sessions: u32,
    /// Sessions at a time, as configured or learnt from a refusal; `null` if unknown, or if the upstream queues sessions.
    sessions_max: Option<u32>,
    /// Sessions that wait for a place.
    waiting: u32,
}

#[derive(Debug, Serialize)]
struct ReadinessIssue {
    code: &'static str,
    message: String,
}

/// Determines the readiness. A failed reload is only a warning, because the previous configuration stays active.
pub(super) fn readiness(context: &AdminContext) -> Readiness {
    let state = context.life.state();
    let (upstreams_usable, upstreams) = context.current.get().pool.usable_and_total();
    let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
    let mut add_reason = |applies, code, message: String| {
        if applies {
            reasons.push(ReadinessIssue { code, message });
        }
    };
    add_reason(
        state == LifecycleState::Starting,
        "starting",
        "the server does not accept sessions yet".to_owned(),
    );
    add_reason(
        state >= LifecycleState::Draining,
        "draining",
        "the server accepts no new sessions; live sessions finish".to_owned(),
    );
    let message = format!("none of {upstreams} upstreams is known to be in service");
    add_reason(upstreams_usable == 0, "no_upstream", message);
    let message = format!("all {} session slots are in use", context.room.max);
    add_reason(context.room.available() == 0, "full", message);
    if let Some(problem) = context.configuration.reload_stats().last_failure {
        let message =
            format!("the last reload failed, and the previous configuration stays active: {problem}");
        warnings.push(ReadinessIssue { code: "not_reloaded", message });
    }
    let tool_server = context.tool_servers.views();
    for server in tool_server.iter().filter(|server| !server.is_connected) {
        let message = format!("tool server {} is not connected: its tools are not offered", server.name);
        warnings.push(ReadinessIssue { code: "tool_server_down", message });
    }
    Readiness {
        ready: reasons.is_empty(),
        state,
        reasons,
        warnings,
        sessions: context.registry.len(),
        sessions_max: context.room.max,
        waiting: context.registry.waiting().counts().into(),
        upstreams,
        upstreams_usable,
        upstream: upstream_views(&context.current.get().pool),
        lanes_unneeded: context.current.get().pool.unneeded_count(),
        tool_server,
    }
}

fn upstream_views(pool: &Pool) -> Vec<UpstreamView> {
    let view = |((name, status), (_, dialect)): ((String, UpstreamStatus), (_, &str))| UpstreamView {
        name,
        dialect: dialect.to_owned(),
        in_service: status.load.ejected_until.is_none(),
        sessions: status.sessions,
        sessions_max: status.places.max,
        waiting: status.places.waiting,
    };
    pool.statuses().into_iter().zip(pool.dialects()).map(view).collect()
}

/// Lists all live sessions that match the filters of a query string.
pub(super) fn sessions(registry: &SessionRegistry, query: &str) -> Value {
    let filters: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
    let is_selected = |view: &Value| {
        filters
            .iter()
            .all(|(key, value)| view.get(key.as_ref()).is_some_and(|actual| actual == value.as_ref()))
    };
    let all = registry.all();
    let views = all.iter().filter_map(|live| serde_json::to_value(session(live)).ok());
    let views: Vec<Value> = views.filter(is_selected).collect();
    json!({"count": views.len(), "sessions": views})
}

/// View of one session.
#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    #[serde(flatten)]
    view: LiveSessionView,
    /// True if the session has a conversation, which can be rolled over.
    converses: bool,
}

/// Returns the view of one session.
pub(super) fn session(live: &LiveSession) -> SessionView {
    SessionView { view: live.view(), converses: live.info.has_conversation }
}
