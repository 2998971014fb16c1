//! The routes of a configuration: what they name is found, and what does not go together is said.

use std::sync::Arc;

use super::{Config, profile_for, upstreams::Found};
use crate::{
    mapping::{ClientMapping, Library, Profile, UpstreamMapping, upstream::Mode},
    server::route::{Route, RouteFile, Routes},
};

/// A route whose protocol and profile are found; who serves it is not known yet.
pub(super) struct Planned {
    file: RouteFile,
    protocol: Option<Arc<ClientMapping>>,
    profile: Arc<Profile>,
}

impl Config {
    /// The routes, and the profile for everything else: the one named, or the one that fits the URL's mode.
    pub(super) fn planned(&self, library: &Library, mode: Option<&str>) -> Result<Vec<Planned>, String> {
        let mut files = self.routes.clone();
        // Routes without a catch-all mean it: an unknown model is then an error (design §3).
        if self.routes.is_empty() || self.profile.is_some() {
            let profile = match (&self.profile, mode) {
                (Some(name), _) => name.clone(),
                (None, None) => "speech".to_owned(),
                (None, Some(mode)) => profile_for(library, mode)?.name.clone(),
            };
            files.push(RouteFile::all_to(&profile));
        }
        files.into_iter().map(|file| self.plan(file, library)).collect()
    }

    fn plan(&self, file: RouteFile, library: &Library) -> Result<Planned, String> {
        let protocol = file.protocol.as_ref().map(|name| library.client(name)).transpose();
        let protocol = protocol.map_err(|problem| format!("[[route]] protocol: {problem}"))?;
        if let (Some(protocol), "*") = (&protocol, file.path.as_str()) {
            return Err(format!(
                "[[route]]: protocol {:?} needs a `path`; without one every connection would be taken for it",
                protocol.name
            ));
        }
        let profile = self.tuned(library.profile(&file.profile)?)?;
        Ok(Planned { file, protocol, profile })
    }
}

impl Planned {
    fn bound(self, found: &Found) -> Result<Route, String> {
        let upstreams = found.called(&self.file.upstream)?;
        expect_mode(&self.profile, &upstreams.dialect)?;
        Ok(Route {
            path: self.file.path,
            protocol: self.protocol,
            client: self.file.client,
            model: self.file.model,
            profile: self.profile,
            upstreams,
        })
    }
}

/// The routes with those who serve them.
pub(super) fn bound(planned: Vec<Planned>, found: &Found) -> Result<Routes, String> {
    let routes = planned.into_iter().map(|planned| planned.bound(found));
    routes.collect::<Result<_, _>>().map(Routes::new)
}

/// A profile's mode must be one the dialect has; utterances and texts are chat turns in all of them.
fn expect_mode(profile: &Profile, dialect: &UpstreamMapping) -> Result<(), String> {
    if let Some(mode) = [profile.mode, Mode::Chat].iter().find(|mode| !dialect.modes.contains_key(mode)) {
        return Err(format!(
            "profile {:?} needs mode {mode:?}, which dialect {:?} does not have",
            profile.name, dialect.name
        ));
    }
    let limit_ms = dialect.duplex.session_max_ms.get(&profile.mode).map(|ms| u64::from(*ms));
    let soft_ms = profile.talk.as_ref().map_or(0, |talk| talk.rollover.soft_before_ms);
    if let Some(limit_ms) = limit_ms.filter(|limit_ms| soft_ms >= *limit_ms) {
        return Err(format!(
            "profile {:?}: [rollover] soft_before_ms is {soft_ms}, but dialect {:?} ends sessions after {limit_ms} ms",
            profile.name, dialect.name
        ));
    }
    Ok(())
}
