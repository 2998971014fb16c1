//! The routes of a configuration: what they name is found, and what does not go together is said.

use std::{collections::BTreeSet, sync::Arc};

use super::{Config, profile_for, upstreams::Found};
use crate::{
    mapping::{ClientMapping, Library, Profile, UpstreamMapping, check::listed, upstream::Mode},
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
        expect_modes(&self.profile, &upstreams.dialect)?;
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

/// What a profile needs a mode for that the dialect has to have, and what can be done where it has not.
fn needs(profile: &Profile) -> Vec<(Mode, &'static str, &'static str)> {
    let transcribes = profile.talk.as_ref().is_some_and(|talk| talk.converse.transcribe_user);
    let own = match profile.mode {
        Mode::Chat => "its utterances and texts are chat turns",
        Mode::Audio | Mode::Video => "it is a conversation",
    };
    let mut needs = vec![(profile.mode, own, "choose another profile")];
    if transcribes {
        needs.push((Mode::Chat, "it asks for the user's words", "set transcribe_user = false in [converse]"));
    }
    needs
}

/// Every mode a profile needs must be one the dialect has.
fn expect_modes(profile: &Profile, dialect: &UpstreamMapping) -> Result<(), String> {
    // Its clients say which mode they want; one that is not there is refused then.
    if profile.relays() {
        return Ok(());
    }
    let mut needs = needs(profile).into_iter();
    if let Some((mode, why, remedy)) = needs.find(|(mode, ..)| !dialect.modes.contains_key(mode)) {
        return Err(format!(
            "profile {:?} needs mode {} ({why}), which dialect {:?} does not have; that has {}: {remedy}, or another dialect",
            profile.name,
            mode.name(),
            dialect.name,
            listed(dialect.modes.keys().map(|mode| mode.name()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_that_transcribes_needs_chat() {
        let library = Library::embedded().unwrap();
        let mut profile = (*library.profile("conversation").unwrap()).clone();
        let mut talk = (**profile.talk.as_ref().unwrap()).clone();
        talk.converse.transcribe_user = true;
        profile.talk = Some(Arc::new(talk));
        let problem = expect_modes(&profile, &library.upstream("minicpm-o-legacy").unwrap()).unwrap_err();
        assert!(
            problem.contains("needs mode chat") && problem.contains("transcribe_user = false"),
            "{problem}"
        );
        assert_eq!(expect_modes(&profile, &library.upstream("minicpm-o").unwrap()), Ok(()));
    }
}
