//! The routes of a configuration: what they name is found, and what does not go together is said.

use std::{collections::BTreeSet, sync::Arc};

use super::{Config, profile_for, upstreams::Found};
use crate::{
    mapping::{ClientMapping, Library, Profile, fit::suit, upstream::Mode},
    server::route::{Route, RouteFile, Routes},
};

/// The profile of clients that are relayed, where the configuration names none.
const RELAY: &str = "relay";

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
            files.push(RouteFile::all_to(RELAY));
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
        let named = protocol.clone().or_else(|| library.client(&file.client).ok());
        if let Some(client) = named.filter(|client| client.relays() != profile.relays()) {
            let (is, can) = match client.relays() {
                true => ("is relayed", format!("only a profile with [relay], such as `{RELAY}`, serves it")),
                false => ("is not relayed", "a profile with [relay] does not serve it".to_owned()),
            };
            return Err(format!(
                "[[route]]: client protocol {:?} {is}: {can}, and {:?} is another",
                client.name, profile.name
            ));
        }
        Ok(Planned { file, protocol, profile })
    }
}

impl Planned {
    fn bound(self, found: &Found) -> Result<Route, String> {
        let upstreams = found.called(&self.file.upstream)?;
        suit(&self.profile, &upstreams.dialect)?;
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

/// What works otherwise on these routes than who reads a profile may think, a line each.
pub(super) fn notes(routes: &Routes) -> Vec<String> {
    let mute = |route: &&Route| !route.upstreams.dialect.modes.contains_key(&Mode::Chat);
    let note = |route: &Route| {
        let refused = if route.profile.relays() { "clients in mode chat" } else { "texts to speak" };
        format!(
            "profile {:?}: {refused} are refused, for dialect {:?} has no chat mode",
            route.profile.name, route.upstreams.dialect.name
        )
    };
    routes.iter().filter(mute).map(note).collect::<BTreeSet<_>>().into_iter().collect()
}
