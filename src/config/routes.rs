//! Resolves the configured routes to protocols, profiles and upstreams, and rejects combinations that cannot
//! work.

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

/// Default profile for relayed clients.
const RELAY_PROFILE: &str = "relay";
/// Default profile for clients that the configured profile cannot serve, such as clients that only listen.
const SPEECH_PROFILE: &str = "speech";

/// A route with resolved protocol and profile, but without its upstreams.
pub(super) struct PlannedRoute {
    file: RouteConfig,
    protocol: Option<Arc<ClientMapping>>,
    profile: Arc<Profile>,
    /// Added automatically, not configured. A fallback that no upstream can serve is left out.
    is_fallback: bool,
}

impl Config {
    /// The configured routes, followed by the default profile: the configured one, or one that fits the mode
    /// in the upstream URL.
    pub(super) fn plan_routes(
        &self,
        library: &Library,
        mode: Option<&str>,
    ) -> Result<Vec<PlannedRoute>, String> {
        let mut files: Vec<_> = self.routes.iter().map(|file| (file.clone(), false)).collect();
        // Routes without a catch-all are intentional: an unknown model is then an error (design §3).
        if self.routes.is_empty() || self.profile.is_some() {
            let profile = match (&self.profile, mode) {
                (Some(name), _) => name.clone(),
                (None, None) => "speech".to_owned(),
                (None, Some(mode)) => profile_for_mode(mode)?.to_owned(),
            };
            // A protocol whose clients expect more than speech to text and back has a default of its own.
            if self.profile.is_none() && mode.is_none() {
                let own = library.clients().filter_map(|client| {
                    let profile = client.default_profile.as_ref()?;
                    Some(RouteConfig { client: client.name.clone(), ..RouteConfig::catch_all(profile) })
                });
                files.extend(own.map(|route| (route, true)));
            }
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
                "[[route]]: protocol {:?} needs a `path`; without one, every connection would match",
                protocol.name
            ));
        }
        let profile = library.profile(&file.profile)?;
        // The configured language applies to configured profiles only.
        let is_default = is_fallback && file.client == "*";
        let profile = if is_default { profile } else { self.with_language(profile)? };
        check_has_clients(&file, protocol.as_deref(), &profile, library)?;
        Ok(PlannedRoute { file, protocol, profile, is_fallback })
    }
}

impl PlannedRoute {
    /// Binds the route to its upstreams; `None` for a fallback that they cannot serve.
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
            is_fallback: self.is_fallback,
        }))
    }
}

/// Rejects a route that no client can match.
fn check_has_clients(
    file: &RouteConfig,
    protocol: Option<&ClientMapping>,
    profile: &Profile,
    library: &Library,
) -> Result<(), String> {
    if profile.is_relay() && !matches_glob(&file.model, "") {
        let model = &file.model;
        return Err(format!(
            "[[route]] model = {model:?}: relayed clients send no model name; leave `model` out"
        ));
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
        false => Err(format!(
            "[[route]] client = {:?} matches no client that its profile can serve: {problem}",
            file.client
        )),
    }
}

/// Binds all routes to their upstreams.
pub(super) fn bind_all(planned: Vec<PlannedRoute>, upstreams: &ResolvedUpstreams) -> Result<Routes, String> {
    let routes = planned.into_iter().filter_map(|planned| planned.bind(upstreams).transpose());
    routes.collect::<Result<_, _>>().map(Routes::new)
}

/// Notes on surprising effects of these routes, one line each.
pub(super) fn route_notes(routes: &Routes) -> Vec<String> {
    let lacks_chat = |route: &&Route| !route.upstreams.dialect.modes.contains_key(&Mode::Chat);
    let note = |route: &Route| {
        let rejected = if route.profile.is_relay() { "clients in mode chat" } else { "texts to speak" };
        format!(
            "profile {:?}: {rejected} are rejected, because dialect {:?} has no chat mode",
            route.profile.name, route.upstreams.dialect.name
        )
    };
    routes.iter().filter(lacks_chat).map(note).collect::<BTreeSet<_>>().into_iter().collect()
}
