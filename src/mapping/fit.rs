//! Whether a client protocol, a profile and a dialect go together.

use super::{ClientMapping, Profile, UpstreamMapping, check::listed, upstream::Mode};

/// Whether this client can be served by this profile on this dialect.
///
/// # Errors
/// Why not, in words.
pub fn fit(_: &ClientMapping, profile: &Profile, dialect: &UpstreamMapping) -> Result<(), String> {
    let transcribes = profile.talk.as_ref().is_some_and(|talk| talk.converse.transcribe_user);
    let chat = (Mode::Chat, "to transcribe what the user says");
    let needs = [Some((profile.mode, "for its sessions")), transcribes.then_some(chat)];
    for (mode, what) in needs.into_iter().flatten() {
        if !dialect.modes.contains_key(&mode) {
            let modes: Vec<String> = dialect.modes.keys().map(|mode| name(*mode)).collect();
            return Err(format!(
                "profile {} needs mode `{}` {what}, and dialect {} has {} only",
                profile.name,
                name(mode),
                dialect.name,
                listed(modes.iter().map(String::as_str))
            ));
        }
    }
    let limit_ms = dialect.duplex.session_max_ms.get(&profile.mode).map(|ms| u64::from(*ms));
    let soft_ms = profile.talk.as_ref().map_or(0, |talk| talk.rollover.soft_before_ms);
    match limit_ms.filter(|limit_ms| soft_ms >= *limit_ms) {
        None => Ok(()),
        Some(limit_ms) => Err(format!(
            "profile {} wants {soft_ms} ms before the end of an upstream session (`soft_before_ms`), and on dialect {} a session has {limit_ms} ms",
            profile.name, dialect.name
        )),
    }
}

fn name(mode: Mode) -> String {
    format!("{mode:?}").to_lowercase()
}
