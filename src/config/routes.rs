//! Resolves the configured routes to protocols, profiles and upstreams, and rejects combinations that cannot
//! work.

use std::{collections::BTreeSet, sync::Arc};

use super::{Config, problems::ConfigProblems, profile_for_mode, upstreams::ResolvedUpstreams};
use crate::{
    server::route::{Route, RouteConfig, Routes, covers_glob, matches_glob},
    spelling::{
        ClientMapping, Library, Profile,
        compatibility::{check_client_with_profile, check_profile_with_dialects},
        url_path::canonical_path,
    },
    suggestion::quoted_list,
    vocabulary::{LanePurpose, Mode},
};

/// Default profile for relayed clients.
const RELAY_PROFILE: &str = "relay";
/// Default profile for clients that the configured profile cannot serve, such as clients that only listen.
const SPEECH_PROFILE: &str = "speech";

/// A route with resolved protocol and profile, but without its upstreams.
pub(super) struct PlannedRoute {
    file: RouteConfig,
    /// Index in the configuration; `None` for the default profile and fallbacks.
    index: Option<usize>,
    protocol: Option<Arc<ClientMapping>>,
    profile: Arc<Profile>,
    /// Added automatically, not configured. A fallback that no upstream can serve is left out.
    is_fallback: bool,
}

impl Config {
    /// The configured routes, followed by the default profile: the configured one, or one that fits the mode
    /// in the upstream URL. Their mistakes are added to `problems`.
    pub(super) fn plan_routes(
        &self,
        library: &Library,
        mode: Option<&str>,
        problems: &mut ConfigProblems,
    ) -> Vec<PlannedRoute> {
        let mut files: Vec<_> = self.routes.iter().map(|file| (file.clone(), false)).collect();
        // Routes without a catch-all are intentional: an unknown model is then an error.
        if self.routes.is_empty() || self.profile.is_some() {
            let profile = match (&self.profile, mode) {
                (Some(name), _) => name.clone(),
                (None, None) => "speech".to_owned(),
                (None, Some(mode)) => {
                    let profile = problems.take(&["upstream", "0", "url"], profile_for_mode(mode));
                    profile.unwrap_or(SPEECH_PROFILE).to_owned()
                }
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
        let planned = files.into_iter().enumerate().filter_map(|(at, (file, is_fallback))| {
            let index = Some(at).filter(|at| *at < self.routes.len());
            let planned = self.plan_route(file, index, is_fallback, library);
            let push = |(key, message)| push_route_problem(problems, index, key, message);
            planned.map_err(|found| found.into_iter().for_each(push)).ok()
        });
        planned.collect()
    }

    /// The errors have the keys of the route that they are about.
    fn plan_route(
        &self,
        file: RouteConfig,
        index: Option<usize>,
        is_fallback: bool,
        library: &Library,
    ) -> Result<PlannedRoute, Vec<(&'static str, String)>> {
        let protocol = file.protocol.as_ref().map(|name| library.client(name)).transpose();
        let protocol = protocol.map_err(|problem| ("protocol", format!("[[route]] protocol: {problem}")));
        let profile = library.profile(&file.profile).map_err(|problem| ("profile", problem));
        let (protocol, profile) = match (protocol, profile) {
            (Ok(protocol), Ok(profile)) => (protocol, profile),
            (protocol, profile) => {
                let client = check_client_is_known(&file, library).err();
                return Err([protocol.err(), profile.err(), client].into_iter().flatten().collect());
            }
        };
        let one = |problem| vec![problem];
        if let (Some(protocol), "*") = (&protocol, file.path.as_str()) {
            let message = format!(
                "[[route]]: protocol {:?} needs a `path`; without one, every connection would match",
                protocol.name
            );
            return Err(vec![("protocol", message)]);
        }
        // The configured language applies to configured profiles only.
        let is_default = is_fallback && file.client == "*";
        let profile = if is_default {
            profile
        } else {
            self.with_language(profile).map_err(|problem| one(("language", problem)))?
        };
        check_has_clients(&file, protocol.as_deref(), &profile, library).map_err(one)?;
        Ok(PlannedRoute { file, index, protocol, profile, is_fallback })
    }
}

/// Adds a mistake in a key of a route, or in the key of the configuration that a route was made from.
fn push_route_problem(problems: &mut ConfigProblems, index: Option<usize>, key: &str, message: String) {
    match index {
        Some(index) if key != "language" => problems.push(&["route", &index.to_string(), key], message),
        _ => problems.push(&[key], message),
    }
}

impl PlannedRoute {
    /// Binds the route to its upstreams; `None` for a fallback that they cannot serve. The error has the key that it is
    /// about.
    fn bind(
        self,
        upstreams: &ResolvedUpstreams,
        has_voice: bool,
    ) -> Result<Option<Route>, (&'static str, String)> {
        let matching = upstreams.matching(&self.file.upstream).map_err(|problem| ("upstream", problem))?;
        match check_profile_with_dialects(&self.profile, &matching.dialects) {
            Err(_) if self.is_fallback => return Ok(None),
            suits => suits.map_err(|problem| ("profile", problem))?,
        }
        let is_conversation = self.profile.dialogue.is_some();
        let needs_voice = matching.dialects.serving(LanePurpose::Converse, self.profile.mode);
        let needs_voice =
            needs_voice.filter(|dialect| dialect.voice_required).map(|dialect| dialect.title.clone()).last();
        if let Some(title) = needs_voice.filter(|_| is_conversation && !has_voice) {
            let message = format!(
                "a conversation with {title} needs a voice sample; name one: [voices] default = \"FILE.wav\""
            );
            return Err(("profile", message));
        }
        Ok(Some(Route {
            path: canonical_path(&self.file.path).into_owned(),
            protocol: self.protocol,
            client: self.file.client,
            model: self.file.model,
            profile: self.profile,
            upstreams: matching,
            is_fallback: self.is_fallback,
        }))
    }
}

/// Rejects a route that no client can match. The error has the key that it is about.
fn check_has_clients(
    file: &RouteConfig,
    protocol: Option<&ClientMapping>,
    profile: &Profile,
    library: &Library,
) -> Result<(), (&'static str, String)> {
    if !file.path.starts_with(['/', '*', '?']) {
        let path = &file.path;
        let message = format!(
            "[[route]] path = {path:?} matches no client: a path begins with `/`, without scheme and host"
        );
        return Err(("path", message));
    }
    if file.path.split_once('?').is_some_and(|(_, rest)| rest.contains('=')) {
        let path = &file.path;
        let message =
            format!("[[route]] path = {path:?} matches no client: a route matches paths without their query");
        return Err(("path", message));
    }
    if profile.is_relay() && !matches_glob(&file.model, "") {
        let model = &file.model;
        let message =
            format!("[[route]] model = {model:?}: relayed clients send no model name; leave `model` out");
        return Err(("model", message));
    }
    if let Some(protocol) = protocol {
        return check_client_with_profile(protocol, profile)
            .map_err(|problem| ("profile", format!("[[route]]: {problem}")));
    }
    check_client_is_known(file, library)?;
    let mut candidates = library.clients().filter(|client| matches_glob(&file.client, &client.name));
    let mut problem = String::new();
    match candidates
        .any(|client| check_client_with_profile(client, profile).map_err(|words| problem = words).is_ok())
    {
        true => Ok(()),
        false => {
            let client = &file.client;
            let message = format!(
                "[[route]] client = {client:?} matches no client that its profile can serve: {problem}"
            );
            Err(("client", message))
        }
    }
}

/// Rejects a pattern that fits no client. The error has the key that it is about.
fn check_client_is_known(file: &RouteConfig, library: &Library) -> Result<(), (&'static str, String)> {
    if library.clients().any(|client| matches_glob(&file.client, &client.name)) {
        return Ok(());
    }
    let known = library.client(&file.client).map(drop);
    known.map_err(|problem| ("client", format!("[[route]] client: {problem}")))
}

/// Binds all routes to their upstreams, which may need a voice for clients that name none, and adds their mistakes to
/// `problems`.
pub(super) fn bind_all(
    planned: Vec<PlannedRoute>,
    upstreams: &ResolvedUpstreams,
    has_voice: bool,
    problems: &mut ConfigProblems,
) -> Routes {
    let bind = |planned: PlannedRoute| {
        let index = planned.index;
        let bound = planned.bind(upstreams, has_voice);
        bound.unwrap_or_else(|(key, message)| {
            push_route_problem(problems, index, key, message);
            None
        })
    };
    Routes::new(planned.into_iter().filter_map(bind).collect())
}

/// Warnings about routes that no connection reaches, because earlier ones take all of theirs.
pub(super) fn shadowed_route_warnings(routes: &Routes, library: &Library) -> Vec<String> {
    let routes: Vec<&Route> = routes.iter().filter(|route| !route.is_fallback).collect();
    let warning = |(at, route): (usize, &&Route)| {
        let earlier = shadowed_by(route, &routes[..at], library)?;
        Some(format!(
            "[[route]] {} (model {:?}, profile {:?}) never matches, because [[route]] {} takes its connections; move it up",
            at + 1,
            route.model,
            route.profile.name,
            earlier + 1
        ))
    };
    routes.iter().enumerate().filter_map(warning).collect()
}

/// Index of the first of the earlier routes that take all connections of this one.
fn shadowed_by(route: &Route, earlier: &[&Route], library: &Library) -> Option<usize> {
    let mut first = None;
    for client in library.clients().filter(|client| route.can_serve(client)) {
        let takes_all = |earlier: &&Route| {
            earlier.can_serve(client)
                && covers_glob(&earlier.path, &route.path)
                && covers_glob(&earlier.model, &route.model)
        };
        first = first.or(Some(earlier.iter().position(takes_all)?));
    }
    first
}

/// Notes on surprising effects of these routes, one line each.
pub(super) fn route_notes(routes: &Routes, has_voice: bool) -> Vec<String> {
    let lacks_chat = |route: &&Route| {
        let purpose = if route.profile.is_relay() { LanePurpose::Relay } else { LanePurpose::Speak };
        !route.upstreams.dialects.serve(purpose, Mode::Chat)
    };
    let note = |route: &Route| {
        let rejected = if route.profile.is_relay() { "clients in mode chat" } else { "texts to speak" };
        let dialects = quoted_list(route.upstreams.dialects.iter().map(|dialect| &*dialect.name));
        format!(
            "profile {:?}: {rejected} are rejected, because no upstream has a chat mode for them (dialects: {dialects})",
            route.profile.name
        )
    };
    let voice_note = |route: &Route| {
        let dialects = route.upstreams.dialects.serving(LanePurpose::Converse, route.profile.mode);
        let title = dialects
            .filter(|dialect| dialect.may_require_voice())
            .map(|dialect| dialect.title.clone())
            .last();
        let title = title.filter(|_| route.profile.dialogue.is_some() && !has_voice)?;
        Some(format!(
            "profile {:?}: {title} may refuse conversations without a voice sample; to give one: [voices] default = \"FILE.wav\"",
            route.profile.name
        ))
    };
    let notes = routes.iter().filter(lacks_chat).map(note).chain(routes.iter().filter_map(voice_note));
    notes.collect::<BTreeSet<_>>().into_iter().collect()
}
