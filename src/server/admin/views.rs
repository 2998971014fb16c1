//! What the admin listener shows, as JSON whose shapes stay: times are in seconds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::AdminContext;
use crate::server::{
    process::lifecycle::LifecycleState,
    registry::{LiveSession, LiveSessionView, SessionRegistry},
};

/// Whether new sessions would be served.
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    state: LifecycleState,
    /// Why not.
    reasons: Vec<ReadinessIssue>,
    /// What is wrong and keeps nobody out.
    warnings: Vec<ReadinessIssue>,
    sessions: usize,
    sessions_max: usize,
    upstreams: usize,
    upstreams_usable: usize,
}

#[derive(Debug, Serialize)]
struct ReadinessIssue {
    code: &'static str,
    message: String,
}

/// Whether new sessions would be served, and if not, why not. A configuration that was read again and is bad keeps nobody
/// out: the old one still holds.
pub(super) fn readiness(context: &AdminContext) -> Readiness {
    let state = context.life.state();
    let (upstreams_usable, upstreams) = context.current.get().pool.usable_and_total();
    let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
    let mut add_reason = |applies, code, message: String| {
        if applies {
            reasons.push(ReadinessIssue { code, message });
        }
    };
    add_reason(state == LifecycleState::Starting, "starting", "no sessions are taken yet".to_owned());
    add_reason(
        state >= LifecycleState::Draining,
        "draining",
        "no sessions are taken any more; those that run finish".to_owned(),
    );
    let message = format!("none of {upstreams} upstreams is in service, as far as they have answered");
    add_reason(upstreams_usable == 0, "no_upstream", message);
    let message = format!("all {} sessions that there may be are taken", context.room.max);
    add_reason(context.room.available() == 0, "full", message);
    if let Some(problem) = context.configuration.reload_stats().last_failure {
        let message =
            format!("the configuration was read again and is bad, and the one before still holds: {problem}");
        warnings.push(ReadinessIssue { code: "not_reloaded", message });
    }
    Readiness {
        ready: reasons.is_empty(),
        state,
        reasons,
        warnings,
        sessions: context.registry.len(),
        sessions_max: context.room.max,
        upstreams,
        upstreams_usable,
    }
}

/// Every session that runs, or those that a query string asks for.
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

/// One session.
#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    #[serde(flatten)]
    view: LiveSessionView,
    /// It has a conversation, which can be rolled over.
    converses: bool,
}

/// One session.
pub(super) fn session(live: &LiveSession) -> SessionView {
    SessionView { view: live.view(), converses: live.info.has_conversation }
}
