//! What the admin listener shows, as JSON whose shapes stay: times are in seconds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::Control;
use crate::server::{
    process::lifecycle::State,
    registry::{Live, Registry, View},
};

/// Whether new sessions would be served.
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    state: State,
    /// Why not.
    reasons: Vec<Reason>,
    /// What is wrong and keeps nobody out.
    warnings: Vec<Reason>,
    sessions: usize,
    sessions_max: usize,
    upstreams: usize,
    upstreams_usable: usize,
}

#[derive(Debug, Serialize)]
struct Reason {
    code: &'static str,
    message: String,
}

/// Whether new sessions would be served, and if not, why not. A configuration that was read again and is bad keeps nobody
/// out: the old one still holds.
pub(super) fn readiness(control: &Control) -> Readiness {
    let state = control.life.state();
    let (upstreams_usable, upstreams) = control.current.get().pool.usable();
    let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
    let mut reason = |is_so, code, message: String| {
        if is_so {
            reasons.push(Reason { code, message });
        }
    };
    reason(state == State::Starting, "starting", "no sessions are taken yet".to_owned());
    reason(
        state >= State::Draining,
        "draining",
        "no sessions are taken any more; those that run finish".to_owned(),
    );
    let message = format!("none of {upstreams} upstreams is in service, as far as they have answered");
    reason(upstreams_usable == 0, "no_upstream", message);
    let message = format!("all {} sessions that there may be are taken", control.room.max);
    reason(control.room.left() == 0, "full", message);
    if let Some(problem) = control.configuration.history().last_failure {
        let message =
            format!("the configuration was read again and is bad, and the one before still holds: {problem}");
        warnings.push(Reason { code: "not_reloaded", message });
    }
    Readiness {
        ready: reasons.is_empty(),
        state,
        reasons,
        warnings,
        sessions: control.registry.len(),
        sessions_max: control.room.max,
        upstreams,
        upstreams_usable,
    }
}

/// Every session that runs, or those that a query string asks for.
pub(super) fn sessions(registry: &Registry, query: &str) -> Value {
    let wanted: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
    let is_wanted = |view: &Value| {
        wanted.iter().all(|(key, value)| view.get(key.as_ref()).is_some_and(|held| held == value.as_ref()))
    };
    let all = registry.all();
    let views = all.iter().filter_map(|live| serde_json::to_value(session(live)).ok());
    let views: Vec<Value> = views.filter(is_wanted).collect();
    json!({"count": views.len(), "sessions": views})
}

/// One session.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    #[serde(flatten)]
    view: View,
    /// It has a conversation, which can be rolled over.
    converses: bool,
}

/// One session.
pub(super) fn session(live: &Live) -> Session {
    Session { view: live.view(), converses: live.who.converses }
}
