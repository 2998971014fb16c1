//! Codec of one lane, and the codecs of all lanes of a session.
//!
//! A bridge opens a codec when it dials a lane and drops it with the lane. It shows the codec everything that happens on
//! the lane: the open transport, messages, commands, and the end. Most of it is in the mapping file; the codec adds what a
//! dialect without a queue leaves out.

use std::{sync::Arc, time::Instant};

pub use super::behaviour::CodecAction;
use super::{
    Dialect,
    behaviour::{LaneBehaviour, Plain},
    http::HttpLane,
    openai_realtime::OpenaiRealtime,
    sglang_omni::SglangOmni,
    vllm_omni::VllmOmni,
};
use crate::{
    spelling::{
        UpstreamMapping,
        upstream::{CodecName, Dialects},
    },
    vocabulary::{
        AnswerPart, DisconnectReason, EndKind, Frame, Lane, LaneEvent, LanePurpose, LaneRequest, Message,
        MessageMeta, Mode, UpstreamEnd,
    },
};

/// Meaning of a transport's end for its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEnd {
    /// The lane is over. The codec adds the end that the upstream did not report.
    Over(Option<UpstreamEnd>),
    /// The codec resumes the session: the lane goes on.
    Resumes,
}

/// Meaning of an open transport for its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneOpening {
    /// The upstream says when it has a place for the session.
    Waits,
    /// The session has its place, because the upstream has no queue.
    Granted,
    /// The session goes on.
    Resumed,
}

/// Codec of one lane.
#[derive(Debug)]
pub struct LaneCodec {
    dialect: Dialect,
    mode: Mode,
    purpose: LanePurpose,
    /// The upstream has sent a message.
    has_answered: bool,
    behaviour: Box<dyn LaneBehaviour>,
}

impl LaneCodec {
    /// Codec of a lane that is dialled in this mode, for this purpose.
    pub fn new(mapping: Arc<UpstreamMapping>, mode: Mode, purpose: LanePurpose) -> Self {
        let behaviour: Box<dyn LaneBehaviour> = match mapping.codec {
            CodecName::Plain => Box::new(Plain),
            CodecName::Http => Box::<HttpLane>::default(),
            CodecName::VllmOmni => Box::<VllmOmni>::default(),
            CodecName::SglangOmni => Box::<SglangOmni>::default(),
            CodecName::OpenaiRealtime => Box::new(OpenaiRealtime::new(purpose, mapping.input_rate_hz)),
        };
        Self { dialect: Dialect::in_mode(mapping, mode), mode, purpose, has_answered: false, behaviour }
    }

    /// The transport is open.
    pub fn handle_opened(&mut self, now: Instant) -> LaneOpening {
        if self.behaviour.handle_opened(now) {
            return LaneOpening::Resumed;
        }
        match self.dialect.mapping().has_queue() {
            true => LaneOpening::Waits,
            false => LaneOpening::Granted,
        }
    }

    /// Decodes one message of the upstream, which may have several events.
    pub fn decode(
        &mut self,
        now: Instant,
        frame: Frame<'_>,
        mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>),
    ) {
        self.has_answered = true;
        self.behaviour.decode(now, &self.dialect, frame, &mut emit);
    }

    /// Takes a part of the answer to an HTTP request. Its body is decoded like messages.
    pub fn handle_answer(&mut self, part: AnswerPart, mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        self.behaviour.handle_answer(part, &mut emit);
    }

    /// Encodes a command. It may take several messages, or the end of the transport.
    pub fn encode(&mut self, now: Instant, command: LaneRequest, mut emit: impl FnMut(Message)) {
        self.behaviour.encode(now, &self.dialect, command, self.mode, &mut emit);
    }

    /// The next action of the codec's own. Empty it after every other call.
    pub fn pop_action(&mut self) -> Option<CodecAction> {
        self.behaviour.pop_action()
    }

    /// When [`LaneCodec::handle_timeout`] must run.
    pub fn deadline(&self) -> Option<Instant> {
        self.behaviour.deadline()
    }

    /// The codec's deadline has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.behaviour.handle_timeout(now, &self.dialect);
    }

    /// Decodes one message of the upstream for a relay that takes it as the upstream sent it: one event, with undecoded audio.
    pub fn decode_as_sent(&mut self, frame: Frame<'_>, emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        self.has_answered = true;
        self.dialect.decode_as_sent(frame, emit);
    }

    /// Mapping of its dialect.
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        self.dialect.mapping()
    }

    /// The transport is gone, or could not be opened.
    pub fn handle_end(&mut self, now: Instant, reason: &DisconnectReason) -> LaneEnd {
        if self.behaviour.handle_lost(now, reason) {
            return LaneEnd::Resumes;
        }
        LaneEnd::Over(self.unreported_end(reason))
    }

    /// The end of the session that the upstream did not report before the end of its transport: an upstream without a
    /// place for another session ends it before the first message, and gives no reason.
    fn unreported_end(&self, reason: &DisconnectReason) -> Option<UpstreamEnd> {
        if let DisconnectReason::HttpRejected(429 | 503) = reason
            && !self.dialect.mapping().has_queue()
        {
            let detail = format!("it has no place for another session: it {reason}");
            return Some(UpstreamEnd { kind: EndKind::QueueFull, detail });
        }
        let sessions_max = self.dialect.mapping().sessions_max.filter(|_| !self.has_answered)?;
        let was_silent = matches!(reason, DisconnectReason::Closed(..) | DisconnectReason::Lost(_));
        was_silent.then(|| UpstreamEnd {
            kind: EndKind::QueueFull,
            detail: format!(
                "it closed the connection without a message, as it does while another client uses it (sessions at a \
                 time: {sessions_max})"
            ),
        })
    }
}

/// Codecs of a session's lanes.
#[derive(Debug)]
pub struct LaneCodecs {
    dialects: Dialects,
    /// A session has few lanes, so that a search costs less than a map.
    codecs: Vec<(Lane, LaneCodec)>,
}

impl LaneCodecs {
    /// Codecs for lanes to upstreams of these dialects; none is open.
    pub const fn new(dialects: Dialects) -> Self {
        Self { dialects, codecs: Vec::new() }
    }

    /// Name of the first dialect.
    pub fn dialect(&self) -> &str {
        &self.dialects.first().name
    }

    /// Creates the codec of a lane that is dialled. Its dialect is the first, until [`LaneCodecs::set_dialect`].
    pub fn open(&mut self, lane: Lane, mode: Mode, purpose: LanePurpose) {
        self.codecs.push((lane, LaneCodec::new(self.dialects.first().clone(), mode, purpose)));
    }

    /// The lane goes to an upstream of this dialect.
    pub fn set_dialect(&mut self, lane: Lane, name: &str) {
        let Some(mapping) = self.dialects.named(name).cloned() else { return };
        if let Some(codec) = self.get_mut(lane) {
            *codec = LaneCodec::new(mapping, codec.mode, codec.purpose);
        }
    }

    /// The codec of a lane that is not closed.
    pub fn get_mut(&mut self, lane: Lane) -> Option<&mut LaneCodec> {
        self.codecs.iter_mut().find_map(|(known, codec)| (*known == lane).then_some(codec))
    }

    /// True if the lane is not closed.
    pub fn contains(&self, lane: Lane) -> bool {
        self.codecs.iter().any(|(known, _)| *known == lane)
    }

    /// The end of a lane's transport.
    pub fn handle_end(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) -> LaneEnd {
        let end = self.get_mut(lane).map_or(LaneEnd::Over(None), |codec| codec.handle_end(now, reason));
        if end != LaneEnd::Resumes {
            self.close(lane);
        }
        end
    }

    /// Removes the codec of a lane that is gone.
    pub fn close(&mut self, lane: Lane) {
        self.codecs.retain(|(known, _)| *known != lane);
    }

    /// When [`LaneCodecs::handle_timeout`] must run.
    pub fn deadline(&self) -> Option<Instant> {
        self.codecs.iter().filter_map(|(_, codec)| codec.deadline()).min()
    }

    /// Tells the codecs whose deadline has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = |codec: &LaneCodec| codec.deadline().is_some_and(|deadline| deadline <= now);
        self.codecs
            .iter_mut()
            .filter(|(_, codec)| due(codec))
            .for_each(|(_, codec)| codec.handle_timeout(now));
    }

    /// The next action of a codec's own, with its lane and the lane's mode and purpose.
    pub fn pop_action(&mut self) -> Option<(Lane, (Mode, LanePurpose), CodecAction)> {
        self.codecs.iter_mut().find_map(|(lane, codec)| {
            codec.pop_action().map(|action| (*lane, (codec.mode, codec.purpose), action))
        })
    }
}
