//! Tries mapping files in a synthetic session, in virtual time: the client speaks, has a text spoken and closes, and the
//! upstream answers by script. All messages of both sides are made from the mappings themselves.
//!
//! Finds what compiles and cannot work, such as an answer without an end, or a detector that hears no speech. A real
//! server is the business of [`crate::doctor`]. Relayed clients are left out: their messages pass unchanged.

mod run;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::run::SessionRun;
use crate::{
    bridge::Input,
    spelling::{ClientMapping, Profile, UpstreamMapping, client::Verb, profile::AssistantText},
    vocabulary::{EventName, Mode},
};

/// The mappings of one session.
#[derive(Debug, Clone)]
pub(super) struct SyntheticSession {
    pub(super) client: Arc<ClientMapping>,
    pub(super) profile: Arc<Profile>,
    pub(super) dialect: Arc<UpstreamMapping>,
}

/// Result of the client's speech.
struct SpeechResult {
    /// Audio of the model reached the client.
    is_answered: bool,
    /// How far the utterance came.
    progress: &'static str,
}

impl SyntheticSession {
    /// Runs the session from this instant and describes what does not work; empty if everything does.
    pub(super) fn find_problems(&self, epoch: Instant) -> Vec<String> {
        let mut run = SessionRun::new(self, epoch);
        let spoken = self.play(&mut run);
        self.judge(&run, spoken)
    }

    /// Plays the client's part; returns how far its speech came.
    fn play(&self, run: &mut SessionRun<'_>) -> SpeechResult {
        run.advance(Duration::from_secs(1));
        run.send_first(&[Verb::Configure]);
        run.send_speech();
        run.advance(Duration::from_secs(8));
        run.send_first(&[Verb::Commit, Verb::Finalize]);
        run.advance(Duration::from_secs(4));
        let spoken =
            SpeechResult { is_answered: std::mem::take(&mut run.has_audio), progress: run.progress() };
        if self.can_speak_texts() {
            run.send_first(&[Verb::Speak, Verb::AppendText]);
            run.send_first(&[Verb::Flush, Verb::SpeakAppended]);
            run.advance(Duration::from_secs(8));
            run.send_first(&[Verb::CancelSpeech, Verb::Clear]);
        }
        if !run.send_first(&[Verb::Finish, Verb::Close, Verb::CancelSession]) {
            run.feed(Input::ClientClosed);
        }
        run.advance(Duration::from_secs(60));
        spoken
    }

    fn can_speak_texts(&self) -> bool {
        let has_command = self.client.has_verb(Verb::Speak) || self.client.has_verb(Verb::AppendText);
        has_command && self.dialect.modes.contains_key(&Mode::Chat)
    }

    fn judge(
        &self,
        run: &SessionRun<'_>,
        SpeechResult { is_answered, progress }: SpeechResult,
    ) -> Vec<String> {
        let is_conversation = self.profile.dialogue.is_some();
        let sends_audio = self.client.audio_in.frame_max_bytes > 0;
        let has_transcripts = !self.client.event(EventName::TranscriptFinal).is_empty();
        let mut problems = Vec::new();
        let is_transcribed =
            self.profile.dialogue.as_ref().is_none_or(|it| it.converse.text == AssistantText::Transcripts);
        if sends_audio && is_transcribed && has_transcripts && !run.has_transcript {
            problems.push(format!("no transcript reaches the client ({progress})"));
        }
        if sends_audio && is_conversation && !is_answered {
            problems.push(format!("no audio of the model reaches the client ({progress})"));
        }
        if self.can_speak_texts() && !run.has_audio {
            problems.push("a text to speak gives no audio".to_owned());
        }
        if !run.is_finished {
            problems.push("the session does not end within 60 s after the client has left".to_owned());
        }
        problems.extend(run.errors.iter().take(3).map(|error| format!("error: {error}")));
        problems
    }
}

impl std::fmt::Display for SyntheticSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client, profile, dialect } = self;
        write!(f, "client {:?} with profile {:?} on dialect {:?}", client.name, profile.name, dialect.name)
    }
}

#[cfg(test)]
mod tests;

/// Start of virtual time. Any instant will do, because only differences are used.
#[expect(clippy::disallowed_methods, reason = "an instant has no other source")]
pub(in crate::cli) fn replay_epoch() -> Instant {
    Instant::now()
}
