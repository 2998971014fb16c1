//! The routes of a configuration: what they name is found, and what does not go together is said.

use std::{collections::BTreeSet, sync::Arc};

use super::{Config, profile_for, upstreams::Found};
use crate::{
    mapping::{
        ClientMapping, Library, Profile,
        compatibility::{pair, suit},
        upstream::Mode,
    },
    server::route::{Route, RouteFile, Routes, glob},
};

/// The profile of clients that are relayed, where the configuration names none.
const RELAY: &str = "relay";
/// The profile of clients that cannot be served by the one the configuration names, such as those that only listen.
const SPEECH: &str = "speech";

/// A route whose protocol and profile are found; who serves it is not known yet.
pub(super) struct Planned {
    file: RouteFile,
    protocol: Option<Arc<ClientMapping>>,
    profile: Arc<Profile>,
    /// Nobody has asked for it: where it cannot be, it is left out.
    spare: bool,
}

impl Config {
    /// The routes, and the profile for everything else: the one named, or the one that fits the URL's mode.
    pub(super) fn planned(&self, library: &Library, mode: Option<&str>) -> Result<Vec<Planned>, String> {
        let mut files: Vec<_> = self.routes.iter().map(|file| (file.clone(), false)).collect();
        // Routes without a catch-all mean it: an unknown model is then an error (design §3).
        if self.routes.is_empty() || self.profile.is_some() {
            let profile = match (&self.profile, mode) {
                (Some(name), _) => name.clone(),
                (None, None) => "speech".to_owned(),
                (None, Some(mode)) => profile_for(library, mode)?.name.clone(),
            };
            files.push((RouteFile::all_to(&profile), false));
            files.extend([SPEECH, RELAY].map(|spare| (RouteFile::all_to(spare), true)));
        }
        files.into_iter().map(|(file, spare)| self.plan(file, spare, library)).collect()
    }

    fn plan(&self, file: RouteFile, spare: bool, library: &Library) -> Result<Planned, String> {
        let protocol = file.protocol.as_ref().map(|name| library.client(name)).transpose();
        let protocol = protocol.map_err(|problem| format!("[[route]] protocol: {problem}"))?;
        if let (Some(protocol), "*") = (&protocol, file.path.as_str()) {
            return Err(format!(
                "[[route]]: protocol {:?} needs a `path`; without one every connection would be taken for it",
                protocol.name
            ));
        }
        let profile = library.profile(&file.profile)?;
        // Its language is nobody's wish.
        let profile = if spare { profile } else { self.tuned(profile)? };
        expect_somebody(&file, protocol.as_deref(), &profile, library)?;
        Ok(Planned { file, protocol, profile, spare })
    }
}

impl Planned {
    /// `None` for a spare one that cannot be.
    fn bound(self, found: &Found) -> Result<Option<Route>, String> {
        let upstreams = found.called(&self.file.upstream)?;
        match suit(&self.profile, &upstreams.dialect) {
            Err(_) if self.spare => return Ok(None),
            suits => suits?,
        }
        Ok(Some(Route {
            path: self.file.path,
            protocol: self.protocol,
            client: self.file.client,
            model: self.file.model,
            profile: self.profile,
            upstreams,
        }))
    }
}

/// A route that no client can take is a mistake.
fn expect_somebody(
    file: &RouteFile,
    protocol: Option<&ClientMapping>,
    profile: &Profile,
    library: &Library,
) -> Result<(), String> {
    if profile.relays() && !glob(&file.model, "") {
        let model = &file.model;
        return Err(format!("[[route]] model = {model:?}: relayed clients name no model; leave it out"));
    }
    if let Some(protocol) = protocol {
        return pair(protocol, profile).map_err(|problem| format!("[[route]]: {problem}"));
    }
    let mut meant = library.clients().filter(|client| glob(&file.client, &client.name)).peekable();
    if meant.peek().is_none() {
        return library
            .client(&file.client)
            .map(drop)
            .map_err(|problem| format!("[[route]] client: {problem}"));
    }
    let mut problem = String::new();
    match meant.any(|client| pair(client, profile).map_err(|words| problem = words).is_ok()) {
        true => Ok(()),
        false => Err(format!("[[route]] client = {:?} serves nobody: {problem}", file.client)),
    }
}

/// The routes with those who serve them.
pub(super) fn bound(planned: Vec<Planned>, found: &Found) -> Result<Routes, String> {
    let routes = planned.into_iter().filter_map(|planned| planned.bound(found).transpose());
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
