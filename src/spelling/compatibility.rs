//! Checks whether a client protocol, a profile and a dialect work together.

use std::sync::Arc;

use super::{
    ClientMapping, Profile, UpstreamMapping,
    client::LockStep,
    upstream::{Dialects, SendName},
};
use crate::{
    suggestion::quoted_list,
    vocabulary::{LanePurpose, Mode},
};

/// Checks that this profile can serve this client on this dialect.
///
/// # Errors
/// The reason, as a message.
pub fn check_compatible(
    client: &ClientMapping,
    profile: &Profile,
    dialect: &Arc<UpstreamMapping>,
) -> Result<(), String> {
    check_client_with_profile(client, profile)?;
    if client.relay.as_ref().is_some_and(|relay| !relay.reaches(dialect)) {
        return Err(format!(
            "dialect {:?} holds no conversations, so that the messages of client {:?} have no counterpart",
            dialect.name, client.name
        ));
    }
    check_profile_with_dialects(profile, &dialect.clone().into())
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
        (_, _, true) if client.lock_step != LockStep::Off => Err(format!(
            "profile {of:?} is a conversation, but client {name:?} gets transcripts as answers only (`lock_step`)"
        )),
        _ => Ok(()),
    }
}

/// Checks that this profile can run on upstreams of these dialects.
///
/// # Errors
/// The reason, as a message.
pub fn check_profile_with_dialects(profile: &Profile, dialects: &Dialects) -> Result<(), String> {
    // Relayed clients choose their own mode. A missing mode is rejected at that point.
    if profile.is_relay() {
        return Ok(());
    }
    let names = || quoted_list(dialects.iter().map(|dialect| &*dialect.name));
    let mut needs = required_lanes(profile).into_iter();
    let is_missing =
        |lane: &RequiredLane| !lane.purposes.iter().any(|purpose| dialects.serve(*purpose, lane.mode));
    if let Some(RequiredLane { mode, reason, remedy, .. }) = needs.find(is_missing) {
        let remedy = match mode {
            Mode::Chat if remedy == OTHER_PROFILE && dialects.serve(LanePurpose::Converse, Mode::Audio) => {
                format!("{remedy}, such as `conversation` (--profile conversation)")
            }
            _ => remedy.to_owned(),
        };
        return Err(format!(
            "profile {:?} needs mode {} ({reason}), which no upstream serves (dialects: {}): {remedy}, or use another dialect",
            profile.name,
            mode.name(),
            names()
        ));
    }
    if profile.answers.is_some() && !dialects.serve(LanePurpose::Answer, Mode::Chat) {
        let has = |name: &SendName| dialects.first().message(*name).is_some();
        let missing = SendName::CHAT.into_iter().find(|name| !has(name)).map_or("chat", SendName::name);
        return Err(format!(
            "profile {:?} answers in turns, which no upstream serves (dialects: {}; the first has no message `{missing}` in \
             [send])",
            profile.name,
            names()
        ));
    }
    let limit_ms = dialects.duplex().session_max_ms.get(&profile.mode).map(|ms| u64::from(*ms));
    let soft_ms = profile.dialogue.as_ref().map_or(0, |talk| talk.rollover.soft_before_ms);
    if let Some(limit_ms) = limit_ms.filter(|limit_ms| soft_ms >= *limit_ms) {
        return Err(format!(
            "profile {:?}: [rollover] soft_before_ms is {soft_ms}, but sessions end after {limit_ms} ms (dialects: {})",
            profile.name,
            names()
        ));
    }
    Ok(())
}

/// Advice about a profile that no upstream can serve.
const OTHER_PROFILE: &str = "choose another profile";

/// A problem without the advice to choose another profile, for commands that choose profiles themselves.
pub fn without_choice_of_profile(problem: &str) -> &str {
    problem.split_once(&format!(": {OTHER_PROFILE}")).map_or(problem, |(problem, _)| problem)
}

/// A lane that a profile cannot do without.
struct RequiredLane {
    mode: Mode,
    /// One of them is enough.
    purposes: &'static [LanePurpose],
    reason: &'static str,
    remedy: &'static str,
}

fn required_lanes(profile: &Profile) -> Vec<RequiredLane> {
    let transcribes = profile.dialogue.as_ref().is_some_and(|talk| talk.converse.transcribe_user);
    let (purposes, reason): (&[LanePurpose], _) = match profile.mode {
        Mode::Chat => (&[LanePurpose::Transcribe, LanePurpose::Speak], "utterances and texts are chat turns"),
        Mode::Audio | Mode::Video => (&[LanePurpose::Converse], "the profile is a conversation"),
    };
    let mut needs = vec![RequiredLane { mode: profile.mode, purposes, reason, remedy: OTHER_PROFILE }];
    if transcribes {
        needs.push(RequiredLane {
            mode: Mode::Chat,
            purposes: &[LanePurpose::Transcribe],
            reason: "the profile transcribes the user",
            remedy: "set transcribe_user = false in [converse], or add an upstream that serves `transcribe`",
        });
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    #[test]
    fn conversation_with_transcripts_needs_chat_mode() {
        let library = Library::embedded().unwrap();
        let mut profile = (*library.profile("conversation").unwrap()).clone();
        let mut talk = (**profile.dialogue.as_ref().unwrap()).clone();
        talk.converse.transcribe_user = true;
        profile.dialogue = Some(Arc::new(talk));
        let problem =
            check_profile_with_dialects(&profile, &library.upstream("minicpm-o-legacy").unwrap().into())
                .unwrap_err();
        assert!(
            problem.contains("needs mode chat") && problem.contains("transcribe_user = false"),
            "{problem}"
        );
        assert_eq!(
            check_profile_with_dialects(&profile, &library.upstream("minicpm-o").unwrap().into()),
            Ok(())
        );
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
