//! Inputs of a new session: the parts of client protocol, profile and dialect that concern the session.

use std::{sync::Arc, time::Duration};

use super::{floor::FloorOptions, input::speech_input::pause::PauseUse, tts::voices::VoiceCatalog};
use crate::{
    spelling::{
        ClientMapping, Profile, UpstreamMapping,
        client::{AudioIn, AudioOut, LockStep, TranscriptRules},
        profile::PlayoutRules,
        upstream::{Dialects, DuplexLimits, SendName},
    },
    vocabulary::{Eagerness, EventName, LanePurpose, Mode, TurnEnd, TurnEndRule, VoiceEncoding},
};

/// Inputs of a new session.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// The profile: the meaning of the client's commands.
    pub profile: Arc<Profile>,
    /// Format and limits of audio from the client.
    pub audio_in: AudioIn,
    /// Format of audio to the client.
    pub audio_out: AudioOut,
    /// How utterances are transcribed.
    pub transcripts: TranscriptRules,
    /// Tells the client when all audio of a text or turn was sent.
    pub reports_complete: bool,
    /// The client confirms when it has played a text or turn.
    pub confirms_playback: bool,
    /// Which messages of the client are answered by one transcript. Between them, no transcript is sent.
    pub lock_step: LockStep,
    /// A final transcript that is held for such an answer is also reported as a part of it.
    pub reports_parts: bool,
    /// Each message with audio is acknowledged.
    pub acknowledges_audio: bool,
    /// Each message with audio has an answer of either kind, so that messages are not joined.
    pub answers_frames: bool,
    /// The end of speech is reported to the client at once, not after the transcript.
    pub reports_speech_end_first: bool,
    /// The client is one HTTP request, with a whole recording or text. It gets notices while it waits in the upstream's queue.
    pub is_request: bool,
    /// Final transcripts have word times in the client protocol.
    pub has_word_times: bool,
    /// Longest audio of one upstream request, ms.
    pub audio_max_ms: u64,
    /// Limits of the upstreams' conversations.
    pub duplex: Arc<DuplexLimits>,
    /// A text to speak that is blank is an error of the client.
    pub rejects_blank_texts: bool,
    /// True if an upstream speaks given texts.
    pub can_speak: bool,
    /// True if every upstream that answers offers tools in messages. Otherwise some models are prompted for calls.
    pub calls_natively: bool,
    /// True if an upstream transcribes.
    pub can_transcribe: bool,
    /// True if an upstream takes a sampling temperature for an answer.
    pub takes_temperature: bool,
    /// True if every upstream has voices of its own that are named.
    pub takes_voice_names: bool,
    /// Encodings of voice samples that the upstreams may accept, in the order of attempts.
    pub voice_encodings: Arc<[VoiceEncoding]>,
    /// Configured voices, by name.
    pub voice_catalog: Arc<VoiceCatalog>,
    /// A model judges the ends of turns.
    pub has_turn_judge: bool,
    /// The client is another voxbridge, which opens a session when its user begins to ask. The lane for the answer is dialled at once.
    pub asks_soon: bool,
    /// Longest session, ms; 0 for no limit. The session then ends as soon as that interrupts no one.
    pub session_max_ms: u64,
    /// Seed of all random values: ids and jitter.
    pub seed: u64,
}

impl SessionSetup {
    /// Combines a client protocol, a profile and the dialects of its upstreams. No voices are configured, and the idle timeout is
    /// the protocol's own.
    #[must_use]
    pub fn new(client: &ClientMapping, profile: Arc<Profile>, dialects: &Dialects, seed: u64) -> Self {
        let acknowledges_audio = !client.event(EventName::AudioReceived).is_empty();
        Self {
            profile,
            audio_in: client.audio_in.clone(),
            audio_out: client.audio_out.clone(),
            transcripts: client.transcripts,
            reports_complete: client.confirms_playback || !client.event(EventName::AudioComplete).is_empty(),
            confirms_playback: client.confirms_playback,
            lock_step: client.lock_step,
            reports_parts: !client.event(EventName::TranscriptPart).is_empty(),
            acknowledges_audio,
            answers_frames: client.lock_step == LockStep::EveryFrame || acknowledges_audio,
            reports_speech_end_first: client.realtime.is_some(),
            is_request: client.is_rest,
            has_word_times: client.has_word_times,
            audio_max_ms: dialects.audio_max_ms(),
            duplex: dialects.duplex(),
            rejects_blank_texts: client.rejects_blank_texts(),
            can_speak: dialects.serve(LanePurpose::Speak, Mode::Chat),
            calls_natively: dialects
                .serving(LanePurpose::Answer, Mode::Chat)
                .all(UpstreamMapping::calls_tools),
            can_transcribe: dialects.serve(LanePurpose::Transcribe, Mode::Chat),
            takes_temperature: dialects.iter().any(|dialect| dialect.takes_temperature),
            takes_voice_names: dialects.iter().all(|dialect| dialect.message(SendName::Voice).is_some()),
            voice_encodings: dialects.voice_encodings(),
            voice_catalog: Arc::default(),
            has_turn_judge: false,
            asks_soon: false,
            session_max_ms: 0,
            seed,
        }
    }

    /// How pauses in an utterance are used, under the client's rule for the end of an utterance. Nothing is judged in full
    /// duplex, where the model itself decides when it speaks, and in recordings sent by HTTP.
    pub(crate) fn pause_use(&self, turn_end: TurnEnd) -> PauseUse {
        let wanted = match (turn_end, self.profile.listen.turn_end) {
            (TurnEnd::Semantic(eagerness), _) => Some(eagerness),
            (TurnEnd::OfProfile, TurnEndRule::Semantic) => Some(Eagerness::default()),
            (TurnEnd::Fixed, _) | (TurnEnd::OfProfile, TurnEndRule::Fixed) => None,
        };
        let asks_early = self.profile.answers.as_ref().is_some_and(|rules| rules.answer.eager);
        let judged = wanted.filter(|_| self.can_judge()).map(Into::into);
        PauseUse { judged, asks_early, likely_from: None }
    }

    /// True if an end-of-turn model may judge pauses: in a conversation the model itself decides, and recordings are read faster
    /// than it judges.
    pub(crate) fn can_judge(&self) -> bool {
        self.has_turn_judge && !self.is_request && self.profile.dialogue.is_none()
    }

    /// How audio is sent: the profile's rules, and what the protocol puts in their place.
    pub(crate) fn playout(&self) -> PlayoutRules {
        let rules = self.profile.playout;
        PlayoutRules {
            pace: self.audio_out.pace.unwrap_or(rules.pace),
            frame_ms: self.audio_out.frame_ms.unwrap_or(rules.frame_ms),
            lead_ms: self.audio_out.lead_ms.unwrap_or(rules.lead_ms),
            ..rules
        }
    }

    /// Audio waiting for transcripts above which the client is no longer read, ms; 0 disables. A conversation goes on
    /// while transcripts wait: its audio is live, and other upstreams serve it.
    pub(crate) fn transcript_backpressure_ms(&self) -> u64 {
        let is_live = self.profile.answers.is_some() || self.profile.dialogue.is_some();
        if is_live { 0 } else { self.audio_in.backpressure_ms }
    }

    /// Longest delay of the end of speech for its transcript.
    pub(crate) fn speech_end_wait(&self) -> Duration {
        match (self.reports_speech_end_first, self.transcripts.in_order) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::MAX,
            (false, false) => self.profile.hear.speech_end_wait,
        }
    }

    /// Options of the session's floor.
    pub(crate) fn floor_options(&self) -> FloorOptions {
        FloorOptions {
            frame_max_bytes: self.audio_out.frame_max_bytes,
            has_fixed_frames: self.audio_out.frame_ms.is_some(),
            reports_complete: self.reports_complete,
            confirms_playback: self.confirms_playback,
            playout: self.playout(),
            has_streamed_turns: !self.duplex.has_units(),
            packets: self.audio_out.packet_options(),
            tail: Duration::from_millis(self.audio_out.tail_ms.into()),
        }
    }
}

/// Parameters of a relayed session.
#[derive(Debug, Clone)]
pub struct RelaySetup {
    /// Profile with a `relay` section.
    pub profile: Arc<Profile>,
    /// Closes a client that sends nothing for this time, ms. `None` takes the profile's value, 0 disables the limit.
    pub idle_ms: Option<u64>,
    /// Longest session, ms; 0 for no limit. An answer in progress is finished first.
    pub session_max_ms: u64,
    /// Wall clock at the start, seconds since 1970.
    pub unix_s: f64,
    /// Seed for ids and jitter.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    #[test]
    fn only_live_speech_that_is_answered_in_turns_is_judged() {
        let library = Library::embedded().unwrap();
        let dialects: Dialects = library.upstream("minicpm-o").unwrap().into();
        let judged = |client: &str, profile: &str| {
            let (client, profile) = (library.client(client).unwrap(), library.profile(profile).unwrap());
            let mut setup = SessionSetup::new(&client, profile, &dialects, 1);
            setup.has_turn_judge = true;
            setup.pause_use(TurnEnd::Semantic(Eagerness::default())).judged.is_some()
        };
        assert!(judged("openai-realtime", "assistant") && judged("macaw", "speech"));
        assert!(!judged("openai-realtime", "conversation"), "full duplex");
        assert!(!judged("rest", "speech"), "a recording");
    }
}
