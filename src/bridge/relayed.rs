//! The bridge of a client that speaks the model's own protocol: two spellings and the session between them.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Instant};

use super::{Input, Output};
use crate::{
    downstream::{reference, relay::RelayCodec},
    error::{Error, ErrorKind},
    event::{
        Frame, LaneCommand, Message,
        relay::{self, About, EndName, ErrorTold, Opening, Told, Wires},
    },
    mapping::{
        ClientMapping, UpstreamMapping,
        check::listed,
        relay::Part,
        upstream::{SendName, VoiceEncoding},
    },
    session::{
        State,
        outbox::Action,
        relay::{Relay, RelaySetup},
    },
    upstream::Dialect,
};

/// One relayed session's spellings and state.
#[derive(Debug)]
pub(super) struct Relayed {
    wires: Spelling,
    /// Protocols that the connection may be of, until the first message.
    candidates: Vec<RelayCodec>,
    /// `None` where client or profile are not made for it.
    relay: Option<Relay>,
    client_open: bool,
    /// What operators were told that it has no effect, once each.
    noted: BTreeSet<String>,
}

impl Relayed {
    pub(super) fn open(
        now: Instant,
        candidates: &[Arc<ClientMapping>],
        query: &str,
        dialect: Arc<UpstreamMapping>,
        setup: RelaySetup,
    ) -> Self {
        let codec = |client: &Arc<ClientMapping>| RelayCodec::new(client.clone(), query, setup.unix_s);
        let mut candidates: Vec<_> = candidates.iter().filter_map(codec).take(CANDIDATES_MAX).collect();
        let speaks = |codec: &RelayCodec| codec.relay().is_some_and(|relay| relay.dialect == dialect.name);
        let first = candidates.iter().position(speaks).unwrap_or(0);
        let codec = (first < candidates.len()).then(|| candidates.remove(first));
        let wires = Spelling { codec, dialect: Dialect::new(dialect) };
        let relay = wires.codec.as_ref().and_then(|codec| Relay::open(now, &setup, codec.mode()));
        let mut relayed =
            Self { wires, candidates, client_open: relay.is_some(), relay, noted: BTreeSet::new() };
        relayed.expect_mode(now);
        relayed
    }

    /// A mode that the upstream does not have is nothing to wait for.
    fn expect_mode(&mut self, now: Instant) {
        let (Some(codec), Some(relay)) = (&self.wires.codec, &mut self.relay) else { return };
        let dialect = self.wires.dialect.mapping();
        let needed = [SendName::RelayOpen, SendName::RelayAppend];
        if let Some(name) =
            needed.iter().find(|name| dialect.message(**name).is_none() && !self.wires.native())
        {
            let error = format!(
                "the upstream speaks {}, whose file does not say how to tell it what clients of {} say: `{}` is missing",
                dialect.title,
                codec.mapping().title,
                name.name()
            );
            return relay.fail(now, &Error::new(ErrorKind::NoSuchMode, error), &self.wires);
        }
        match dialect.modes.contains_key(&codec.mode()) {
            true => relay.set_mode(now, codec.mode()),
            false => {
                let error = format!(
                    "the upstream speaks {}, which has no mode {}; it has {}",
                    dialect.title,
                    codec.mode().name(),
                    listed(dialect.modes.values().map(String::as_str))
                );
                relay.fail(now, &Error::new(ErrorKind::NoSuchMode, error), &self.wires);
            }
        }
    }

    pub(super) fn session_id(&self) -> &str {
        self.relay.as_ref().map_or("", Relay::id)
    }

    pub(super) fn state(&self) -> State {
        self.relay.as_ref().map_or(State::Ending, Relay::state)
    }

    pub(super) fn holds_back(&self) -> bool {
        self.relay.as_ref().is_some_and(Relay::holds_back)
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Client(Frame::Text(text)) = &input {
            self.recognise(now, text);
        }
        let Self { wires, relay: Some(relay), .. } = self else { return };
        match input {
            Input::Client(_) if !self.client_open => {}
            Input::Client(Frame::Text(text)) => wires.client(now, text, relay, &mut self.noted),
            Input::Client(Frame::Binary(_)) => {
                relay.refuse(
                    now,
                    &Error::new(ErrorKind::BinaryFrame, "a binary frame; text frames only"),
                    wires,
                );
            }
            Input::ClientClosed => {
                self.client_open = false;
                relay.client_gone(now);
            }
            Input::LaneOpened(lane) => relay.lane_opened(now, lane),
            Input::Lane(lane, frame) => {
                let text = if let Frame::Text(text) = frame { text } else { "" };
                let wires = &*wires;
                wires.dialect.decode_relayed(frame, |event, mark| {
                    relay.upstream(now, lane, (event, mark), text, wires);
                });
            }
            Input::LaneClosed(lane, why) => relay.lane_closed(now, lane, &why, wires),
            Input::Timeout => relay.timeout(now, wires),
            Input::Drain(within) => relay.drain(now, within, EndName::Shutdown, wires),
            Input::Close(within) => relay.drain(now, within, EndName::Operator, wires),
            Input::Rollover => relay.cannot_roll_over(),
        }
    }

    pub(super) fn poll_output(&mut self, _now: Instant) -> Output {
        let Some(relay) = &mut self.relay else { return Output::Finished };
        while let Some(action) = relay.pop_action() {
            match action {
                Action::Tell(message) if self.client_open => {
                    self.client_open = !matches!(message, Message::Close(..));
                    return Output::ToClient(message);
                }
                Action::OpenLane(lane, mode) => return Output::OpenLane(lane, mode),
                Action::ToLane(lane, LaneCommand::Spelled(text)) => {
                    return Output::ToLane(lane, Message::Text(text));
                }
                Action::ToLane(lane, command) => {
                    return Output::ToLane(lane, Message::Text(self.wires.dialect.encode(&command)));
                }
                Action::DropLane(lane) => return Output::CloseLane(lane),
                Action::Observe(observation) => return Output::Observe(observation),
                Action::Tell(_) | Action::Client(_) | Action::EndClient(_) | Action::DropAudio(_) => {}
            }
        }
        if relay.is_finished() { Output::Finished } else { Output::Wait(relay.next_timeout()) }
    }

    /// The first message that one of them has says which protocol it is. Until then it is the upstream's, or the first.
    fn recognise(&mut self, now: Instant, text: &str) {
        if self.candidates.is_empty() {
            return;
        }
        let known = self.wires.codec.iter().chain(&self.candidates);
        let chosen = known.clone().position(|codec| codec.begins_with(text));
        let Some(at) = chosen else { return };
        if at > 0 {
            self.wires.codec = Some(self.candidates.swap_remove(at - 1));
            self.expect_mode(now);
        }
        self.candidates.clear();
    }
}

/// More protocols than anybody serves at one path.
const CANDIDATES_MAX: usize = 8;

/// How both ends spell.
#[derive(Debug)]
struct Spelling {
    codec: Option<RelayCodec>,
    dialect: Dialect,
}

impl Spelling {
    fn open_with(&self, opening: &Opening<'_>, encoding: VoiceEncoding) -> Result<String, Error> {
        let (first, second) = (voice(opening.voice, encoding)?, voice(opening.speech_voice, encoding)?);
        let (voice, speech_voice) = (first.as_deref(), second.as_deref());
        let relay = self.codec.as_ref().and_then(RelayCodec::relay);
        let prompt = opening.prompt.or_else(|| relay.and_then(|relay| relay.default_prompt.as_deref()));
        Ok(self.dialect.relay_open(&Opening { prompt, voice, speech_voice, ..*opening }))
    }

    fn client(&self, now: Instant, text: &str, relay: &mut Relay, noted: &mut BTreeSet<String>) {
        let Some(codec) = &self.codec else { return };
        match codec.decode(text, self.native()) {
            Ok(read) => {
                if !self.native() {
                    let words = read.without_effect(|part| self.takes(part));
                    let news = words.into_iter().filter(|words| !super::is_noted(noted, words));
                    news.for_each(|words| relay.without_effect(now, words, self));
                }
                relay.client(now, &read.message(), text, self);
            }
            Err(error) => relay.refuse(now, &error, self),
        }
    }
}

impl Wires for Spelling {
    fn native(&self) -> bool {
        let dialect = self.codec.as_ref().and_then(|codec| Some(&codec.relay()?.dialect));
        dialect == Some(&self.dialect.mapping().name)
    }

    fn combines(&self) -> bool {
        self.codec.as_ref().and_then(RelayCodec::relay).is_some_and(|relay| relay.combines())
    }

    fn eager(&self) -> bool {
        self.codec.as_ref().and_then(RelayCodec::relay).is_some_and(|relay| relay.eager)
    }

    fn tell(&self, told: &Told<'_>, about: &About<'_>) -> Option<String> {
        self.codec.as_ref()?.tell(told, about)
    }

    fn error(&self, error: &Error, about: &About<'_>) -> ErrorTold {
        self.codec.as_ref().map_or_else(ErrorTold::default, |codec| codec.error(error, about))
    }

    fn close_frame(&self, why: EndName) -> (u16, String) {
        self.codec.as_ref().map_or((1000, String::new()), |codec| codec.close_frame(why))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Vec<String>, Error> {
        let encodings = &self.dialect.mapping().voice_encodings;
        let has_voice = opening.voice.is_some() || opening.speech_voice.is_some();
        let ways = if has_voice { encodings.len() } else { 1 };
        encodings.iter().take(ways).map(|encoding| self.open_with(opening, *encoding)).collect()
    }

    fn takes(&self, part: Part) -> bool {
        // These the session itself keeps, and gives back.
        matches!(part, Part::InputId | Part::ResponseId | Part::Reason)
            || [SendName::RelayOpen, SendName::RelayAppend]
                .iter()
                .any(|name| self.dialect.takes(*name, part.slot()))
    }

    fn append(&self, input: &relay::Input<'_>) -> String {
        self.dialect.relay_append(input)
    }

    fn close(&self, reason: Option<&str>) -> String {
        self.dialect.relay_close(reason)
    }

    fn audio_ms(&self, input: &relay::Input<'_>) -> u64 {
        let samples = input.audio.map_or(0, |audio| audio.len() as u64 * 3 / 4 / 4);
        samples * 1000 / u64::from(self.dialect.mapping().audio_rate_hz.max(1))
    }
}

/// A voice as the upstream takes it; one that is so already stays where it is.
fn voice(voice: Option<&str>, encoding: VoiceEncoding) -> Result<Option<Cow<'_, str>>, Error> {
    let Some(voice) = voice else { return Ok(None) };
    let spelled = match encoding {
        VoiceEncoding::Wav => reference::as_wav(voice),
        VoiceEncoding::F32le => reference::as_samples(voice),
    };
    spelled
        .map(Some)
        .map_err(|problem| Error::new(ErrorKind::Invalid, format!("the voice sample: {problem}")))
}
