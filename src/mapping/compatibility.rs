//! Checks whether a client protocol, a profile and a dialect work together.

use super::{
    ClientMapping, Profile, UpstreamMapping,
    check::quoted_list,
    upstream::{Mode, SendName},
};

/// Checks that this profile can serve this client on this dialect.
///
/// # Errors
/// The reason, as a message.
pub fn check_compatible(
    client: &ClientMapping,
    profile: &Profile,
    dialect: &UpstreamMapping,
) -> Result<(), String> {
    check_client_with_profile(client, profile)?;
    check_profile_with_dialect(profile, dialect)
}

/// Checks that this profile can serve this client.
///
/// # Errors
/// The reason, as a message.
pub fn check_client_with_profile(client: &ClientMapping, profile: &Profile) -> Result<(), String> {
    let (name, of) = (&client.name, &profile.name);
    match (client.is_relayed(), profile.is_relay(), profile.barge_in().is_some()) {
        (true, false, _) => Err(format!(
            "client {name:?} is relayed message by message, but profile {of:?} has no [relay]; use profile `relay`"
        )),
        (false, true, _) => Err(format!(
            "profile {of:?} relays message by message, but client {name:?} does not speak a protocol of the model"
        )),
        (_, _, true) if client.audio_in.frame_max_bytes == 0 => {
            Err(format!("profile {of:?} is a conversation, but client {name:?} sends no audio"))
        }
        (_, _, true) if client.audio_out.frame_max_bytes == 0 => {
            Err(format!("profile {of:?} is a conversation, but client {name:?} receives no audio"))
        }
        _ => Ok(()),
    }
}

/// Checks that this profile can run on this dialect.
///
/// # Errors
/// The reason, as a message.
pub fn check_profile_with_dialect(profile: &Profile, dialect: &UpstreamMapping) -> Result<(), String> {
    // Relayed clients choose their own mode. A missing mode is rejected at that point.
    if profile.is_relay() {
        return Ok(());
    }
    let mut needs = required_modes(profile).into_iter();
    if let Some((mode, why, remedy)) = needs.find(|(mode, ..)| !dialect.modes.contains_key(mode)) {
        return Err(format!(
            "profile {:?} needs mode {} ({why}), but dialect {:?} only has {}: {remedy}, or use another dialect",
            profile.name,
            mode.name(),
            dialect.name,
            quoted_list(dialect.modes.keys().map(|mode| mode.name()))
        ));
    }
    let mut chat = SendName::CHAT.into_iter().filter(|_| profile.answers.is_some());
    if let Some(missing) = chat.find(|name| dialect.message(*name).is_none()) {
        return Err(format!(
            "profile {:?} answers in turns, but dialect {:?} has no message `{}` in [send]",
            profile.name,
            dialect.name,
            missing.name()
        ));
    }
    let limit_ms = dialect.duplex.session_max_ms.get(&profile.mode).map(|ms| u64::from(*ms));
    let soft_ms = profile.dialogue.as_ref().map_or(0, |talk| talk.rollover.soft_before_ms);
    if let Some(limit_ms) = limit_ms.filter(|limit_ms| soft_ms >= *limit_ms) {
        return Err(format!(
            "profile {:?}: [rollover] soft_before_ms is {soft_ms}, but dialect {:?} ends sessions after {limit_ms} ms",
            profile.name, dialect.name
        ));
    }
    Ok(())
}

/// Modes that a profile needs of the dialect: mode, reason and remedy.
fn required_modes(profile: &Profile) -> Vec<(Mode, &'static str, &'static str)> {
    let transcribes = profile.dialogue.as_ref().is_some_and(|talk| talk.converse.transcribe_user);
    let own = match profile.mode {
        Mode::Chat => "utterances and texts are chat turns",
        Mode::Audio | Mode::Video => "the profile is a conversation",
    };
    let mut needs = vec![(profile.mode, own, "choose another profile")];
    if transcribes {
        needs.push((
            Mode::Chat,
            "the profile transcribes the user",
            "set transcribe_user = false in [converse]",
        ));
    }
    needs
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mapping::Library;

    #[test]
    fn conversation_with_transcripts_needs_chat_mode() {
        let library = Library::embedded().unwrap();
        let mut profile = (*library.profile("conversation").unwrap()).clone();
        let mut talk = (**profile.dialogue.as_ref().unwrap()).clone();
        talk.converse.transcribe_user = true;
        profile.dialogue = Some(Arc::new(talk));
        let problem =
            check_profile_with_dialect(&profile, &library.upstream("minicpm-o-legacy").unwrap()).unwrap_err();
        assert!(
            problem.contains("needs mode chat") && problem.contains("transcribe_user = false"),
            "{problem}"
        );
        assert_eq!(check_profile_with_dialect(&profile, &library.upstream("minicpm-o").unwrap()), Ok(()));
    }

    #[test]
    fn client_profile_pairs_are_checked() {
        let library = Library::embedded().unwrap();
        let dialect = library.upstream("minicpm-o").unwrap();
        for (client, profile, fits) in [
            ("minicpm-o", "relay", true),
            ("minicpm-o-legacy", "relay", true),
            ("minicpm-o", "conversation", false),
            ("macaw", "relay", false),
            ("vosk", "speech", true),
            ("vosk", "conversation", false),
            ("deepgram-listen", "video", false),
            ("deepgram-speak", "conversation", false),
            ("deepgram-speak", "speech", true),
        ] {
            let (client, profile) = (library.client(client).unwrap(), library.profile(profile).unwrap());
            assert_eq!(
                check_compatible(&client, &profile, &dialect).is_ok(),
                fits,
                "{} {}",
                client.name,
                profile.name
            );
        }
    }
}
