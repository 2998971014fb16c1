//! Codecs of both ends of a relay: the client's protocol and the upstream's dialect.

use std::borrow::Cow;

use crate::{
    downstream::{reference, relay::RelayCodec},
    error::{Error, ErrorKind},
    event::{
        Mode,
        relay::{ClientNotice, ErrorNotice, NoticeMeta, RelayEndReason, RelayInput, RelayOpening},
    },
    mapping::{
        relay::{RelayFieldRole, RelayProtocol},
        upstream::{CloseBy, SendName, VoiceEncoding},
    },
    upstream::Dialect,
};

/// Codecs of both ends.
#[derive(Debug)]
pub(in crate::bridge) struct RelayCodecs {
    pub(in crate::bridge) client: RelayCodec,
    pub(in crate::bridge) upstream: Dialect,
}

impl RelayCodecs {
    /// Mode that the client requested.
    pub(super) const fn mode(&self) -> Mode {
        self.client.mode()
    }

    fn protocol(&self) -> Option<&RelayProtocol> {
        self.client.protocol()
    }

    /// True if client and upstream share a spelling. Messages then pass unchanged.
    pub(in crate::bridge) fn is_passthrough(&self) -> bool {
        self.protocol().is_some_and(|relay| relay.dialect == self.upstream.mapping().name)
    }

    /// True if the client receives text, audio and the end of a turn in one event.
    pub(super) fn merges_replies(&self) -> bool {
        self.protocol().is_some_and(RelayProtocol::has_combined_output)
    }

    /// True if the client may append before the session is open.
    pub(super) fn accepts_early_appends(&self) -> bool {
        self.protocol().is_some_and(|relay| relay.append_before_open)
    }

    /// Encodes an event for the client; `None` if its protocol has no such event.
    pub(super) fn encode_notice(&self, notice: &ClientNotice<'_>, meta: &NoticeMeta<'_>) -> Option<String> {
        self.client.encode_notice(notice, meta)
    }

    /// Encodes an error for the client.
    pub(super) fn encode_error(&self, error: &Error, meta: &NoticeMeta<'_>) -> ErrorNotice {
        self.client.encode_error(error, meta)
    }

    /// Close frame after the last event.
    pub(super) fn close_frame(&self, reason: RelayEndReason) -> (u16, String) {
        self.client.close_frame(reason)
    }

    /// Encodes the message that opens an upstream session, once per voice encoding that the upstream may accept.
    ///
    /// # Errors
    /// If the voice sample is unreadable.
    pub(super) fn encode_opening(&self, opening: &RelayOpening<'_>) -> Result<Vec<String>, Error> {
        let encodings = &self.upstream.mapping().voice_encodings;
        let has_voice = opening.voice.is_some() || opening.speech_voice.is_some();
        let attempts = if has_voice { encodings.len() } else { 1 };
        encodings.iter().take(attempts).map(|encoding| self.encode_opening_with(opening, *encoding)).collect()
    }

    fn encode_opening_with(
        &self,
        opening: &RelayOpening<'_>,
        encoding: VoiceEncoding,
    ) -> Result<String, Error> {
        let (voice, speech_voice) =
            (encode_voice(opening.voice, encoding)?, encode_voice(opening.speech_voice, encoding)?);
        let (voice, speech_voice) = (voice.as_deref(), speech_voice.as_deref());
        let default_prompt = || self.protocol().and_then(|relay| relay.default_prompt.as_deref());
        let prompt = opening.prompt.or_else(default_prompt);
        Ok(self
            .upstream
            .encode_relay_opening(&RelayOpening { prompt, voice, speech_voice, ..*opening }, self.mode()))
    }

    /// True if the upstream's dialect can carry this field.
    pub(in crate::bridge) fn supports(&self, part: RelayFieldRole) -> bool {
        // The session keeps these itself and returns them in its events.
        matches!(part, RelayFieldRole::InputId | RelayFieldRole::ResponseId | RelayFieldRole::Reason)
            || self.upstream.mapping().has_slot(&[SendName::RelayOpen, SendName::RelayAppend], part.name())
    }

    /// Encodes the input of one step.
    pub(super) fn encode_append(&self, input: &RelayInput<'_>) -> String {
        self.upstream.encode_relay_append(input)
    }

    /// The message that closes an upstream session, when the client closes its own by `text`; `None` if the dialect has
    /// no such message.
    pub(super) fn closing_message(&self, reason: Option<&str>, text: &str) -> Option<String> {
        match self.upstream.mapping().close_by {
            CloseBy::Socket => None,
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
    encoded
        .map(Some)
        .map_err(|problem| Error::new(ErrorKind::Invalid, format!("the voice sample: {problem}")))
}
