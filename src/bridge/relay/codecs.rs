//! Codecs of both ends of a relay: the client's protocol and the upstream's dialect.

use std::borrow::Cow;

use crate::{
    client::{json_text::Fields, reference, relay::RelayCodec},
    error::{Error, ErrorKind},
    foreign::shortened,
    spelling::{
        UpstreamMapping,
        relay::{RelayFieldRole, RelayProtocol},
        upstream::CloseBy,
    },
    upstream::{Dialect, relay::RelayUnits},
    vocabulary::{
        ConversationInit, LaneRequest, Mode, VoiceEncoding, VoiceSample,
        relay::{RelayInput, RelayOpening, RelayRequest},
    },
};

/// Most settings that a note names.
const LOST_SETTINGS_MAX: usize = 20;

/// Codecs of both ends.
#[derive(Debug, Clone)]
pub(super) struct RelayCodecs {
    pub(super) client: RelayCodec,
    pub(super) upstream: Dialect,
    /// The configured voice, for an upstream that gets commands and a client that names none.
    pub(super) default_voice: Option<VoiceSample>,
}

impl RelayCodecs {
    pub(super) fn with_client(&self, client: RelayCodec) -> Self {
        Self { client, ..self.clone() }
    }

    pub(super) fn with_default_voice(&self, voice: VoiceSample) -> Self {
        Self { default_voice: Some(voice), ..self.clone() }
    }

    pub(super) fn with_upstream(&self, upstream: Dialect) -> Self {
        Self { upstream, ..self.clone() }
    }

    /// Mode that the client requested.
    pub(super) const fn mode(&self) -> Mode {
        self.client.mode()
    }

    fn protocol(&self) -> Option<&RelayProtocol> {
        self.client.protocol()
    }

    /// True if client and upstream share a spelling. Messages then pass unchanged.
    pub(super) fn is_passthrough(&self) -> bool {
        self.protocol().is_some_and(|relay| relay.dialect == self.upstream.mapping().name)
    }

    /// True if the upstream gets the commands of a conversation, because its dialect has no messages of a relay.
    pub(super) fn uses_commands(&self) -> bool {
        !self.is_passthrough() && !self.upstream.mapping().has_relay_messages()
    }

    /// True if the client's messages can be translated to this dialect, in the client's mode.
    pub(super) fn can_translate_to(client: &RelayCodec, dialect: &UpstreamMapping) -> bool {
        let has_mode = dialect.modes.contains_key(&client.mode());
        has_mode && client.protocol().is_some_and(|relay| relay.reaches(dialect))
    }

    /// True if the client receives text, audio and the end of a turn in one event.
    pub(super) fn merges_replies(&self) -> bool {
        self.protocol().is_some_and(RelayProtocol::has_combined_output)
    }

    /// True if the client may append before the session is open.
    pub(super) fn accepts_early_appends(&self) -> bool {
        self.protocol().is_some_and(|relay| relay.append_before_open)
    }

    /// True for an upstream whose messages are taken as it sent them, with undecoded audio. Others get the commands of a
    /// conversation, and their codecs know what the messages mean.
    pub(super) fn takes_as_sent(&self, dialect: &UpstreamMapping) -> bool {
        self.is_passthrough() || dialect.has_relay_messages()
    }

    /// Encodes the client's message that opens a session, or the opening of a client that sent none.
    ///
    /// # Errors
    /// If the message is malformed, or the voice sample is unreadable.
    pub(super) fn encode_opening_text(&self, text: Option<&str>) -> Result<Vec<LaneRequest>, Error> {
        let Some(text) = text else { return self.encode_opening(&RelayOpening::default()) };
        if self.is_passthrough() {
            return Ok(vec![LaneRequest::RawText(text.to_owned())]);
        }
        match self.client.decode(text, false)?.to_request() {
            RelayRequest::Open(opening) => self.encode_opening(&opening),
            _ => self.encode_opening(&RelayOpening::default()),
        }
    }

    /// Encodes the message that opens an upstream session, once per voice encoding that the upstream may accept.
    ///
    /// # Errors
    /// If the voice sample is unreadable.
    pub(super) fn encode_opening(&self, opening: &RelayOpening<'_>) -> Result<Vec<LaneRequest>, Error> {
        let encodings = &self.upstream.mapping().voice_encodings;
        let has_default = self.default_voice.is_some() && self.uses_commands();
        let has_voice = opening.voice.is_some() || opening.speech_voice.is_some() || has_default;
        let attempts = if has_voice { encodings.len() } else { 1 };
        encodings.iter().take(attempts).map(|encoding| self.encode_opening_with(opening, *encoding)).collect()
    }

    fn encode_opening_with(
        &self,
        opening: &RelayOpening<'_>,
        encoding: VoiceEncoding,
    ) -> Result<LaneRequest, Error> {
        let default_prompt = || self.protocol().and_then(|relay| relay.default_prompt.as_deref());
        let prompt = opening.prompt.or_else(default_prompt);
        if self.uses_commands() {
            let voice = opening.voice.or(opening.speech_voice).map(reference::to_voice_sample).transpose();
            let voice = voice.map_err(invalid_voice)?.or_else(|| self.default_voice.clone());
            if voice.is_none() && self.upstream.mapping().voice_required {
                let title = &self.upstream.mapping().title;
                let detail = format!(
                    "ref_audio_required: {title} opens a session only with a voice sample, the client sent none, and none is configured"
                );
                return Err(Error::new(ErrorKind::NoSuchMode, detail));
            }
            return Ok(LaneRequest::InitConversation(Box::new(ConversationInit {
                prompt: prompt.unwrap_or_default().to_owned(),
                config: opening.config.unwrap_or("{}").into(),
                voice: voice.map(|voice| VoiceSample { encoding, ..voice }),
                voice_name: None,
            })));
        }
        let (voice, speech_voice) =
            (encode_voice(opening.voice, encoding)?, encode_voice(opening.speech_voice, encoding)?);
        let (voice, speech_voice) = (voice.as_deref(), speech_voice.as_deref());
        let opening = RelayOpening { prompt, voice, speech_voice, ..*opening };
        Ok(LaneRequest::RawText(self.upstream.encode_relay_opening(&opening, self.mode())))
    }

    /// A note with the names of the settings that an upstream which gets commands does not know.
    pub(super) fn lost_settings(&self, request: &RelayRequest<'_>) -> Option<String> {
        let RelayRequest::Open(RelayOpening { config: Some(config), .. }) = request else { return None };
        let mapping = self.upstream.mapping();
        let knows = |name: &str| match &mapping.config_keys {
            _ if !self.supports(RelayFieldRole::Config) => false,
            Some(known) => known.iter().any(|known| known == name),
            None => true,
        };
        let settings: Fields<'_> = serde_json::from_str(config).ok().filter(|_| self.uses_commands())?;
        let lost = settings.iter().map(|(name, _)| shortened(name)).filter(|name| !knows(name));
        let lost = lost.take(LOST_SETTINGS_MAX).collect::<Vec<_>>().join(", ");
        let note =
            format!("each of these settings has no effect: {lost}. {} does not know them", mapping.title);
        (!lost.is_empty()).then_some(note)
    }

    /// True if the upstream's dialect can carry this field.
    pub(super) fn supports(&self, part: RelayFieldRole) -> bool {
        // The session keeps these itself and returns them in its events.
        matches!(part, RelayFieldRole::InputId | RelayFieldRole::ResponseId | RelayFieldRole::Reason)
            || part.is_taken_by(self.upstream.mapping())
    }

    /// Encodes the input of one step. An upstream that gets commands gets the units that `units` has complete.
    ///
    /// # Errors
    /// If the audio or a picture is unreadable.
    pub(super) fn encode_append(
        &self,
        input: &RelayInput<'_>,
        units: &mut RelayUnits,
        mut emit: impl FnMut(LaneRequest),
    ) -> Result<(), Error> {
        if !self.uses_commands() {
            emit(LaneRequest::RawText(self.upstream.encode_relay_append(input)));
            return Ok(());
        }
        let pushed = units.push(input, |unit| emit(LaneRequest::Append(unit)));
        pushed.map_err(|problem| Error::new(ErrorKind::Invalid, problem))
    }

    /// The message that closes an upstream session, when the client closes its own by `text`; `None` if the dialect has
    /// no such message.
    pub(super) fn closing_message(&self, reason: Option<&str>, text: &str) -> Option<String> {
        match self.upstream.mapping().close_by {
            CloseBy::Socket => None,
            CloseBy::Message if self.uses_commands() => None,
            CloseBy::Message if self.is_passthrough() => Some(text.to_owned()),
            CloseBy::Message => Some(self.upstream.encode_relay_close(reason)),
        }
    }

    /// Length of the audio in an append, ms.
    pub(super) fn audio_duration_ms(&self, input: &RelayInput<'_>) -> u64 {
        let samples = input.audio.map_or(0, |audio| audio.len() as u64 * 3 / 4 / 4);
        samples * 1000 / u64::from(self.upstream.mapping().input_rate_hz.max(1))
    }
}

/// Converts a voice sample to the encoding that the upstream takes. A sample in that encoding is borrowed.
fn encode_voice(voice: Option<&str>, encoding: VoiceEncoding) -> Result<Option<Cow<'_, str>>, Error> {
    let Some(voice) = voice else { return Ok(None) };
    let encoded = match encoding {
        VoiceEncoding::Wav | VoiceEncoding::WavUrl => reference::to_wav_base64(voice),
        VoiceEncoding::F32le => reference::to_f32_base64(voice),
    };
    encoded.map(Some).map_err(invalid_voice)
}

fn invalid_voice(problem: String) -> Error {
    Error::new(ErrorKind::Invalid, format!("the voice sample: {problem}"))
}
