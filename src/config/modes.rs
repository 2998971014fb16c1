//! Whether the profiles that are served and the upstreams' dialect go together.

use crate::{
    mapping::{Profile, UpstreamMapping, check::listed, upstream::Mode},
    server::route::Routes,
};

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

/// Every mode a profile needs must be one the dialect has, and its sessions must last long enough.
///
/// # Errors
/// What does not go together, in words.
pub(super) fn expect(routes: &Routes, dialect: &UpstreamMapping) -> Result<(), String> {
    for profile in routes.profiles() {
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
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{mapping::Library, server::route::Route};

    #[test]
    fn a_conversation_that_transcribes_needs_chat() {
        let library = Library::embedded().unwrap();
        let mut profile = (*library.profile("conversation").unwrap()).clone();
        let mut talk = (**profile.talk.as_ref().unwrap()).clone();
        talk.converse.transcribe_user = true;
        profile.talk = Some(Arc::new(talk));
        let route = Route { client: "*".into(), model: "*".into(), profile: Arc::new(profile) };
        let routes = Routes::new(vec![route]);
        let problem = expect(&routes, &library.upstream("minicpm-o-legacy").unwrap()).unwrap_err();
        assert!(
            problem.contains("needs mode chat") && problem.contains("transcribe_user = false"),
            "{problem}"
        );
        assert_eq!(expect(&routes, &library.upstream("minicpm-o").unwrap()), Ok(()));
    }
}
