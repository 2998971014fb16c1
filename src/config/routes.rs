//! The routes of a configuration: what they name is found, and what does not go together is said.

use std::{collections::BTreeSet, sync::Arc};

use super::{Config, profile_for_mode, upstreams::ResolvedUpstreams};
use crate::{
    mapping::{
        ClientMapping, Library, Profile,
        compatibility::{check_client_with_profile, check_profile_with_dialect},
        upstream::Mode,
    },
    server::route::{Route, RouteConfig, Routes, matches_glob},
};

/// The profile of clients that are relayed, where the configuration names none.
const RELAY_PROFILE: &str = "relay";
/// The profile of clients that cannot be served by the one the configuration names, such as those that only listen.
const SPEECH_PROFILE: &str = "speech";

/// A route whose protocol and profile are found; who serves it is not known yet.
pub(super) struct PlannedRoute {
    file: RouteConfig,
    protocol: Option<Arc<ClientMapping>>,
    profile: Arc<Profile>,
    /// Nobody has asked for it: where it cannot be, it is left out.
    is_fallback: bool,
}

impl Config {
    /// The routes, and the profile for everything else: the one named, or the one that fits the URL's mode.
    pub(super) fn plan_routes(
        &self,
        library: &Library,
        mode: Option<&str>,
    ) -> Result<Vec<PlannedRoute>, String> {
        let mut files: Vec<_> = self.routes.iter().map(|file| (file.clone(), false)).collect();
        // Routes without a catch-all mean it: an unknown model is then an error (design §3).
        if self.routes.is_empty() || self.profile.is_some() {
            let profile = match (&self.profile, mode) {
                (Some(name), _) => name.clone(),
                (None, None) => "speech".to_owned(),
                (None, Some(mode)) => profile_for_mode(library, mode)?.name.clone(),
            };
            files.push((RouteConfig::catch_all(&profile), false));
            files.extend(
                [SPEECH_PROFILE, RELAY_PROFILE].map(|profile| (RouteConfig::catch_all(profile), true)),
            );
        }
        files.into_iter().map(|(file, is_fallback)| self.plan_route(file, is_fallback, library)).collect()
    }

    fn plan_route(
        &self,
        file: RouteConfig,
        is_fallback: bool,
        library: &Library,
    ) -> Result<PlannedRoute, String> {
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
        let profile = if is_fallback { profile } else { self.with_language(profile)? };
        check_has_clients(&file, protocol.as_deref(), &profile, library)?;
        Ok(PlannedRoute { file, protocol, profile, is_fallback })
    }
}

impl PlannedRoute {
    /// `None` for a spare one that cannot be.
    fn bind(self, upstreams: &ResolvedUpstreams) -> Result<Option<Route>, String> {
        let matching = upstreams.matching(&self.file.upstream)?;
        match check_profile_with_dialect(&self.profile, &matching.dialect) {
            Err(_) if self.is_fallback => return Ok(None),
            suits => suits?,
        }
        Ok(Some(Route {
            path: self.file.path,
            protocol: self.protocol,
            client: self.file.client,
            model: self.file.model,
            profile: self.profile,
            upstreams: matching,
        }))
    }
}

/// A route that no client can take is a mistake.
fn check_has_clients(
    file: &RouteConfig,
    protocol: Option<&ClientMapping>,
    profile: &Profile,
    library: &Library,
) -> Result<(), String> {
    if profile.is_relay() && !matches_glob(&file.model, "") {
        let model = &file.model;
        return Err(format!("[[route]] model = {model:?}: relayed clients name no model; leave it out"));
    }
    if let Some(protocol) = protocol {
        return check_client_with_profile(protocol, profile)
            .map_err(|problem| format!("[[route]]: {problem}"));
    }
    let mut candidates =
        library.clients().filter(|client| matches_glob(&file.client, &client.name)).peekable();
    if candidates.peek().is_none() {
        return library
            .client(&file.client)
            .map(drop)
            .map_err(|problem| format!("[[route]] client: {problem}"));
    }
    let mut problem = String::new();
    match candidates
        .any(|client| check_client_with_profile(client, profile).map_err(|words| problem = words).is_ok())
    {
        true => Ok(()),
        false => Err(format!("[[route]] client = {:?} serves nobody: {problem}", file.client)),
    }
}

/// The routes with those who serve them.
pub(super) fn bind_all(planned: Vec<PlannedRoute>, upstreams: &ResolvedUpstreams) -> Result<Routes, String> {
    let routes = planned.into_iter().filter_map(|planned| planned.bind(upstreams).transpose());
    routes.collect::<Result<_, _>>().map(Routes::new)
}

/// What works otherwise on these routes than who reads a profile may think, a line each.
pub(super) fn route_notes(routes: &Routes) -> Vec<String> {
    let lacks_chat = |route: &&Route| !route.upstreams.dialect.modes.contains_key(&Mode::Chat);
    let note = |route: &Route| {
        let refused = if route.profile.is_relay() { "clients in mode chat" } else { "texts to speak" };
        format!(
            "profile {:?}: {refused} are refused, for dialect {:?} has no chat mode",
            route.profile.name, route.upstreams.dialect.name
        )
    };
    routes.iter().filter(lacks_chat).map(note).collect::<BTreeSet<_>>().into_iter().collect()
}
