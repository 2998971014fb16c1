//! SGLang-Omni's needs beyond its mapping file: numbered units, pictures before their unit, one end for each unit, and
//! barge-in without a command for it.
//!
//! Source: serve/realtime of the package sglang-omni 0.1.9 (tests/golden/sglang-omni). To change here: how that server
//! behaves. Not here: its names and fields, which are in `mappings/upstream/sglang-omni.toml`.
//!
//! - Units are numbered without gaps. A unit that the server has no room for is sent again, before any later one.
//! - The end of a response comes before the end of its unit, which becomes the one event that ends the unit: `Listen` after
//!   the end of a response and for a unit without output, otherwise `Done`.
//! - The model cannot be made to listen. The session drops the rest of an interrupted turn until the model listens by itself.
//!   A turn that begins while the session still demands silence answers the words of the interruption: it is held until the
//!   session takes output again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    spelling::upstream::SendName,
    vocabulary::{LaneEvent, LaneRequest, Message, MessageMeta, Mode, SlotValue, Sound, UnitInput},
};

/// Pause before a refused unit is sent again.
const RESEND_PAUSE: Duration = Duration::from_millis(250);

/// Units of a turn that may be held. Longer speech of the user interrupts that turn, too.
const HELD_UNITS_MAX: usize = 3;

/// Error code of a unit that the server has no room for.
const NO_ROOM: &str = "buffer_overflow";

/// Id of every message with a picture.
const PICTURE_ID: &str = "picture";

/// First bytes of the pictures that the server takes: JPEG and PNG.
const PICTURE_STARTS: [&[u8]; 2] = [b"\xff\xd8", b"\x89PNG"];

/// A unit that the model has not answered.
#[derive(Debug)]
struct SentUnit {
    seq: u64,
    start_ms: u64,
    input: UnitInput,
}

/// Output for a session that takes none yet.
#[derive(Debug)]
enum HeldOutput {
    Text(String),
    Audio(Vec<f32>),
}

/// Behaviour of one lane.
#[derive(Debug, Default)]
pub(super) struct SglangOmni {
    next_seq: u64,
    sent_samples: u64,
    unanswered: VecDeque<SentUnit>,
    /// The first refused unit, and when it and all later ones are sent again.
    resend: Option<(u64, Instant)>,
    actions: VecDeque<CodecAction>,
    /// A picture that was left out, for the log.
    left_out: Option<usize>,
    /// Number of the model's turn.
    turn: u64,
    /// The turn has output.
    speaks: bool,
    /// The unit has output, and ended a response.
    unit_speaks: bool,
    unit_ends_response: bool,
    /// The turn began while the session demanded silence.
    is_held: bool,
    held: Vec<HeldOutput>,
    held_units: usize,
}

impl SglangOmni {
    /// Sends a unit, unless an earlier one waits to be sent again.
    fn send_unit(&mut self, dialect: &Dialect, input: UnitInput, emit: impl FnMut(String)) {
        if input.force_listen && self.held_units >= HELD_UNITS_MAX {
            self.drop_held();
        }
        let start_ms = self.sent_samples * 1000 / u64::from(SPEECH_RATE_HZ);
        let unit = SentUnit { seq: self.next_seq, start_ms, input };
        self.next_seq += 1;
        self.sent_samples += unit.input.audio.len() as u64;
        if self.resend.is_none() {
            self.left_out = write_unit(dialect, &unit, emit).or(self.left_out);
        }
        self.unanswered.push_back(unit);
    }

    fn drop_held(&mut self) -> Vec<HeldOutput> {
        (self.is_held, self.held_units) = (false, 0);
        std::mem::take(&mut self.held)
    }

    fn handle_output(&mut self, event: LaneEvent<'_>, emit: &mut EventSink<'_>) {
        let is_forced = self.unanswered.front().is_some_and(|unit| unit.input.force_listen);
        self.is_held |= is_forced && !self.speaks;
        (self.speaks, self.unit_speaks) = (true, true);
        if is_forced && self.is_held {
            self.held.push(match event {
                LaneEvent::Audio(samples) => HeldOutput::Audio(samples.to_vec()),
                LaneEvent::Text(text) => HeldOutput::Text(text.to_owned()),
                _ => return,
            });
            return;
        }
        self.release_held(emit);
        self.emit_output(event, emit);
    }

    fn release_held(&mut self, emit: &mut EventSink<'_>) {
        for output in self.drop_held() {
            match &output {
                HeldOutput::Text(text) => self.emit_output(LaneEvent::Text(text), emit),
                HeldOutput::Audio(samples) => {
                    self.emit_output(LaneEvent::Audio(Sound::Samples(samples)), emit);
                }
            }
        }
    }

    /// Emits output under an id of its turn. The server's id of a response may last beyond a pause in which the model listens.
    fn emit_output(&self, event: LaneEvent<'_>, emit: &mut EventSink<'_>) {
        let turn = self.turn.to_string();
        emit(event, MessageMeta { response_id: Some(&turn), ..MessageMeta::default() });
    }

    /// Ends the unit with this id of the server's.
    fn end_unit(&mut self, unit_id: Option<&str>, emit: &mut EventSink<'_>) {
        let speaks = std::mem::take(&mut self.unit_speaks);
        let ends_response = std::mem::take(&mut self.unit_ends_response);
        let seq = unit_id.and_then(|id| id.rsplit('_').next()?.parse::<u64>().ok());
        let Some(unit) = seq.and_then(|seq| self.take_answered(seq)) else { return };
        let is_forced = unit.input.force_listen;
        if is_forced {
            self.held_units += usize::from(self.is_held);
        } else {
            self.release_held(emit);
        }
        let listens = ends_response || !speaks;
        let meta = MessageMeta { input_id: Some(&unit.input.input_id), ..MessageMeta::default() };
        match listens || self.is_held {
            true => emit(LaneEvent::Listen, meta),
            false => emit(LaneEvent::Done { text: None, audio: Sound::NONE }, meta),
        }
        if listens {
            self.speaks = false;
            self.turn += 1;
        }
    }

    /// Removes the unit with this number, and those before it, which the server has passed over.
    fn take_answered(&mut self, seq: u64) -> Option<SentUnit> {
        let passed = self.unanswered.iter().take_while(|unit| unit.seq <= seq).count();
        self.unanswered.drain(..passed).next_back().filter(|unit| unit.seq == seq)
    }

    /// Handles an error that the session survives.
    fn handle_error(&mut self, now: Instant, detail: &str, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        if meta.input_id == Some(PICTURE_ID) {
            let words = format!("a picture that the upstream refused: {detail}");
            return emit(LaneEvent::Unknown(words), MessageMeta::default());
        }
        let named =
            meta.input_id.and_then(|id| self.unanswered.iter().find(|unit| *unit.input.input_id == *id));
        match named {
            Some(unit) if detail.starts_with(NO_ROOM) && self.resend.is_none() => {
                self.resend = Some((unit.seq, now + RESEND_PAUSE));
            }
            // Units after the refused one are refused because of the gap.
            Some(_) if self.resend.is_some() => {}
            // A picture has a message of its own.
            _ => emit(LaneEvent::RecoverableError(detail), MessageMeta { refused: None, ..meta }),
        }
    }
}

impl LaneBehaviour for SglangOmni {
    fn handle_event(
        &mut self,
        now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        if let Some(bytes) = self.left_out.take() {
            let words = format!("a picture of {bytes} bytes was left out: the upstream does not take it");
            emit(LaneEvent::Unknown(words), MessageMeta::default());
        }
        match event {
            LaneEvent::Text(_) | LaneEvent::Audio(_) => self.handle_output(event, emit),
            LaneEvent::Listen => self.unit_ends_response = true,
            LaneEvent::Done { .. } => self.end_unit(meta.input_id, emit),
            LaneEvent::RecoverableError(detail) => self.handle_error(now, detail, meta, emit),
            LaneEvent::Ignored => {}
            event => emit(event, meta),
        }
    }

    fn encode(
        &mut self,
        _now: Instant,
        dialect: &Dialect,
        command: LaneRequest,
        mode: Mode,
        emit: &mut dyn FnMut(Message),
    ) {
        match command {
            LaneRequest::Append(unit) => self.send_unit(dialect, unit, |text| emit(Message::Text(text))),
            command => dialect.message_for(command, mode).into_iter().for_each(emit),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.resend.map(|(_, at)| at)
    }

    /// Sends refused units again.
    fn handle_timeout(&mut self, now: Instant, dialect: &Dialect) {
        let Some((from, _)) = self.resend.take_if(|(_, at)| *at <= now) else { return };
        for unit in self.unanswered.iter().filter(|unit| unit.seq >= from) {
            // Its picture was accepted with the first attempt.
            let text = render(dialect, SendName::Append, unit);
            self.actions.push_back(CodecAction::Send(Message::Text(text)));
        }
    }

    fn pop_action(&mut self) -> Option<CodecAction> {
        self.actions.pop_front()
    }
}

/// Writes the messages of a unit: its picture first. Returns the size of a picture that the server would refuse.
fn write_unit(dialect: &Dialect, unit: &SentUnit, mut emit: impl FnMut(String)) -> Option<usize> {
    let max_bytes = dialect.mapping().picture_max_bytes.unwrap_or(usize::MAX);
    let picture = unit.input.frame.as_ref().map(|frame| &frame.0);
    let is_taken = picture.is_some_and(|picture| {
        picture.len() <= max_bytes && PICTURE_STARTS.iter().any(|start| picture.starts_with(start))
    });
    if is_taken {
        emit(render(dialect, SendName::AppendWithFrame, unit));
    }
    emit(render(dialect, SendName::Append, unit));
    picture.filter(|_| !is_taken).map(|picture| picture.len())
}

fn render(dialect: &Dialect, name: SendName, unit: &SentUnit) -> String {
    let input = &unit.input;
    let picture = input.frame.as_ref().filter(|_| name == SendName::AppendWithFrame);
    let bytes = picture.map_or(2 * input.audio.len(), |picture| picture.0.len());
    let mut json = String::with_capacity(200 + bytes.div_ceil(3) * 4);
    if let Some(template) = dialect.mapping().message(name) {
        template.render(&mut json, |slot| match name.slots()[slot] {
            "audio" => dialect.mapping().audio_value(&input.audio),
            "frame" => picture.map_or(SlotValue::Null, |picture| SlotValue::Base64(&picture.0)),
            "input_id" => SlotValue::Str(&input.input_id),
            "force_listen" => SlotValue::Bool(input.force_listen),
            "seq" => SlotValue::Int(unit.seq.cast_signed()),
            "t_start_ms" => SlotValue::Int(unit.start_ms.cast_signed()),
            _ => SlotValue::Null,
        });
    }
    json
}

#[cfg(test)]
mod tests;
