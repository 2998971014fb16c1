//! The bridge of a client that speaks the model's own protocol: two spellings and the session between them.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Instant};

use super::{Input, Output};
use crate::{
    downstream::{reference, relay::RelayCodec},
    error::{Error, ErrorKind},
    event::{
        Frame, LaneCommand, Message,
        relay::{self, ClientNotice, ErrorNotice, NoticeMeta, RelayEndReason, RelayOpening, RelayTranslator},
    },
    mapping::{
        ClientMapping, UpstreamMapping,
        check::quoted_list,
        relay::RelayFieldRole,
        upstream::{SendName, VoiceEncoding},
    },
    session::{
        SessionState,
        outbox::Action,
        relay::{Relay, RelaySetup},
    },
    upstream::Dialect,
};

/// One relayed session's spellings and state.
#[derive(Debug)]
pub(super) struct RelayBridge {
    translator: CodecTranslator,
    /// Protocols that the connection may be of, until the first message.
    candidates: Vec<RelayCodec>,
    /// `None` where client or profile are not made for it.
    relay: Option<Relay>,
    is_client_open: bool,
    /// What operators were told that it has no effect, once each.
    noted_no_effect: BTreeSet<String>,
}

impl RelayBridge {
    pub(super) fn open(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialect: Arc<UpstreamMapping>,
        setup: RelaySetup,
    ) -> Self {
        let codec = |client: &Arc<ClientMapping>| RelayCodec::new(client.clone(), query, setup.unix_s);
        let mut candidates: Vec<_> = candidates.iter().filter_map(codec).take(MAX_CANDIDATES).collect();
        let matches_dialect =
            |codec: &RelayCodec| codec.protocol().is_some_and(|relay| relay.dialect == dialect.name);
        let first = candidates.iter().position(matches_dialect).unwrap_or(0);
        let codec = (first < candidates.len()).then(|| candidates.remove(first));
        let translator = CodecTranslator { codec, dialect: Dialect::new(dialect) };
        let relay = translator.codec.as_ref().and_then(|codec| Relay::open(now, &setup, codec.mode()));
        let mut relayed = Self {
            translator,
            candidates,
            is_client_open: relay.is_some(),
            relay,
            noted_no_effect: BTreeSet::new(),
        };
        relayed.check_mode(now);
        relayed
    }

    /// A mode that the upstream does not have is nothing to wait for.
    fn check_mode(&mut self, now: Instant) {
        let (Some(codec), Some(relay)) = (&self.translator.codec, &mut self.relay) else { return };
        let dialect = self.translator.dialect.mapping();
        let required = [SendName::RelayOpen, SendName::RelayAppend];
        if let Some(name) = required
            .iter()
            .find(|name| dialect.message(**name).is_none() && !self.translator.is_passthrough())
        {
            let error = format!(
                "the upstream speaks {}, whose file does not say how to tell it what clients of {} say: `{}` is missing",
                dialect.title,
                codec.mapping().title,
                name.name()
            );
            return relay.fail(now, &Error::new(ErrorKind::NoSuchMode, error), &self.translator);
        }
        match dialect.modes.contains_key(&codec.mode()) {
            true => relay.set_mode(now, codec.mode()),
            false => {
                let error = format!(
                    "the upstream speaks {}, which has no mode {}; it has {}",
                    dialect.title,
                    codec.mode().name(),
                    quoted_list(dialect.modes.values().map(String::as_str))
                );
                relay.fail(now, &Error::new(ErrorKind::NoSuchMode, error), &self.translator);
            }
        }
    }

    pub(super) fn session_id(&self) -> &str {
        self.relay.as_ref().map_or("", Relay::id)
    }

    pub(super) fn state(&self) -> SessionState {
        self.relay.as_ref().map_or(SessionState::Ending, Relay::state)
    }

    pub(super) fn needs_backpressure(&self) -> bool {
        self.relay.as_ref().is_some_and(Relay::needs_backpressure)
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Client(Frame::Text(text)) = &input {
            self.detect_protocol(now, text);
        }
        let Self { translator, relay: Some(relay), .. } = self else { return };
        match input {
            Input::Client(_) if !self.is_client_open => {}
            Input::Client(Frame::Text(text)) => {
                translator.handle_client_text(now, text, relay, &mut self.noted_no_effect)
            }
            Input::Client(Frame::Binary(_)) => {
                relay.report_error(
                    now,
                    &Error::new(ErrorKind::BinaryFrame, "a binary frame; text frames only"),
                    translator,
                );
            }
            Input::ClientClosed => {
                self.is_client_open = false;
                relay.handle_client_gone(now);
            }
            Input::LaneOpened(lane) => relay.handle_lane_opened(now, lane),
            Input::Lane(lane, frame) => {
                let text = if let Frame::Text(text) = frame { text } else { "" };
                let translator = &*translator;
                translator.dialect.decode_for_relay(frame, |event, meta| {
                    relay.handle_upstream_message(now, lane, (event, meta), text, translator);
                });
            }
            Input::LaneClosed(lane, reason) => relay.handle_lane_closed(now, lane, &reason, translator),
            Input::Timeout => relay.handle_timeout(now, translator),
            Input::Drain(within) => relay.drain(now, within, RelayEndReason::Shutdown, translator),
            Input::Close(within) => relay.drain(now, within, RelayEndReason::Operator, translator),
            Input::Rollover => relay.reject_rollover(),
        }
    }

    pub(super) fn poll_output(&mut self, _now: Instant) -> Output {
        let Some(relay) = &mut self.relay else { return Output::Finished };
        while let Some(action) = relay.pop_action() {
            match action {
                Action::RawToClient(message) if self.is_client_open => {
                    self.is_client_open = !matches!(message, Message::Close(..));
                    return Output::ToClient(message, None);
                }
                Action::OpenLane(lane, mode) => return Output::OpenLane(lane, mode),
                Action::ToLane(lane, LaneCommand::RawText(text)) => {
                    return Output::ToLane(lane, Message::Text(text));
                }
                Action::ToLane(lane, command) => {
                    return Output::ToLane(lane, Message::Text(self.translator.dialect.encode(&command)));
                }
                Action::DropLane(lane) => return Output::CloseLane(lane),
                Action::Observe(observation) => return Output::Observe(observation),
                Action::RawToClient(_)
                | Action::ToClient(_)
                | Action::CloseClient(_)
                | Action::DropTurn(..) => {}
            }
        }
        if relay.is_finished() { Output::Finished } else { Output::Wait(relay.next_timeout()) }
    }

    /// The first message that one of them has says which protocol it is. Until then it is the upstream's, or the first.
    fn detect_protocol(&mut self, now: Instant, text: &str) {
        if self.candidates.is_empty() {
            return;
        }
        let codecs = self.translator.codec.iter().chain(&self.candidates);
        let chosen = codecs.clone().position(|codec| codec.can_begin_with(text));
        let Some(index) = chosen else { return };
        if index > 0 {
            self.translator.codec = Some(self.candidates.swap_remove(index - 1));
            self.check_mode(now);
        }
        self.candidates.clear();
    }
}

/// More protocols than anybody serves at one path.
const MAX_CANDIDATES: usize = 8;

/// How both ends spell.
#[derive(Debug)]
struct CodecTranslator {
    codec: Option<RelayCodec>,
    dialect: Dialect,
}

impl CodecTranslator {
    fn encode_opening_with(
        &self,
        opening: &RelayOpening<'_>,
        encoding: VoiceEncoding,
    ) -> Result<String, Error> {
        let (voice, speech_voice) =
            (encode_voice(opening.voice, encoding)?, encode_voice(opening.speech_voice, encoding)?);
        let (voice, speech_voice) = (voice.as_deref(), speech_voice.as_deref());
        let relay = self.codec.as_ref().and_then(RelayCodec::protocol);
        let prompt = opening.prompt.or_else(|| relay.and_then(|relay| relay.default_prompt.as_deref()));
        Ok(self.dialect.encode_relay_opening(&RelayOpening { prompt, voice, speech_voice, ..*opening }))
    }

    fn handle_client_text(
        &self,
        now: Instant,
        text: &str,
        relay: &mut Relay,
        noted_no_effect: &mut BTreeSet<String>,
    ) {
        let Some(codec) = &self.codec else { return };
        match codec.decode(text, self.is_passthrough()) {
            Ok(read) => {
                if !self.is_passthrough() {
                    let notes = read.ineffective_fields(|part| self.supports(part));
                    let unreported =
                        notes.into_iter().filter(|note| super::mark_noted(noted_no_effect, note));
                    unreported.for_each(|note| relay.report_no_effect(now, note, self));
                }
                relay.handle_client_message(now, &read.to_client_event(), text, self);
            }
            Err(error) => relay.report_error(now, &error, self),
        }
    }
}

impl RelayTranslator for CodecTranslator {
    fn is_passthrough(&self) -> bool {
        let dialect = self.codec.as_ref().and_then(|codec| Some(&codec.protocol()?.dialect));
        dialect == Some(&self.dialect.mapping().name)
    }

    fn merges_replies(&self) -> bool {
        self.codec.as_ref().and_then(RelayCodec::protocol).is_some_and(|relay| relay.has_combined_output())
    }

    fn accepts_early_appends(&self) -> bool {
        self.codec.as_ref().and_then(RelayCodec::protocol).is_some_and(|relay| relay.append_before_open)
    }

    fn encode_notice(&self, notice: &ClientNotice<'_>, meta: &NoticeMeta<'_>) -> Option<String> {
        self.codec.as_ref()?.encode_notice(notice, meta)
    }

    fn encode_error(&self, error: &Error, meta: &NoticeMeta<'_>) -> ErrorNotice {
        self.codec.as_ref().map_or_else(ErrorNotice::default, |codec| codec.encode_error(error, meta))
    }

    fn close_frame(&self, name: RelayEndReason) -> (u16, String) {
        self.codec.as_ref().map_or((1000, String::new()), |codec| codec.close_frame(name))
    }

    fn encode_opening(&self, opening: &RelayOpening<'_>) -> Result<Vec<String>, Error> {
        let encodings = &self.dialect.mapping().voice_encodings;
        let has_voice = opening.voice.is_some() || opening.speech_voice.is_some();
        let attempts = if has_voice { encodings.len() } else { 1 };
        encodings.iter().take(attempts).map(|encoding| self.encode_opening_with(opening, *encoding)).collect()
    }

    fn supports(&self, part: RelayFieldRole) -> bool {
        // These the session itself keeps, and gives back.
        matches!(part, RelayFieldRole::InputId | RelayFieldRole::ResponseId | RelayFieldRole::Reason)
            || [SendName::RelayOpen, SendName::RelayAppend]
                .iter()
                .any(|name| self.dialect.supports_slot(*name, part.slot()))
    }

    fn encode_append(&self, input: &relay::RelayInput<'_>) -> String {
        self.dialect.encode_relay_append(input)
    }

    fn encode_close(&self, reason: Option<&str>) -> String {
        self.dialect.encode_relay_close(reason)
    }

    fn audio_duration_ms(&self, input: &relay::RelayInput<'_>) -> u64 {
        let samples = input.audio.map_or(0, |audio| audio.len() as u64 * 3 / 4 / 4);
        samples * 1000 / u64::from(self.dialect.mapping().input_rate_hz.max(1))
    }
}

/// A voice as the upstream takes it; one that is so already stays where it is.
fn encode_voice(voice: Option<&str>, encoding: VoiceEncoding) -> Result<Option<Cow<'_, str>>, Error> {
    let Some(voice) = voice else { return Ok(None) };
    let encoded = match encoding {
        VoiceEncoding::Wav => reference::to_wav_base64(voice),
        VoiceEncoding::F32le => reference::to_f32_base64(voice),
    };
    encoded
        .map(Some)
        .map_err(|problem| Error::new(ErrorKind::Invalid, format!("the voice sample: {problem}")))
}
