//! The model side's wire for a relay: neutral messages to templates, upstream frames to neutral messages.
//!
//! The same compiled rules as for sessions of the bridge's own. Audio is not decoded: it passes as the text it is.

use super::{Dialect, describe, ending, is_in, mark, matches, without_data_prefix};
use crate::{
    event::{
        Frame, Mark,
        relay::{EndName, FromModel, Input, Opening, Output, QueuePlace},
    },
    mapping::{
        UpstreamMapping,
        extract::{Found, Node},
        template::Fill,
        upstream::{ReceiveName, Rule, SendName},
    },
};

impl Dialect {
    /// Reads one frame, leniently: what cannot be read is [`FromModel::Unknown`], never an error.
    pub fn decode_relayed(&self, frame: Frame<'_>, told: impl FnOnce(&FromModel<'_>, Mark<'_>)) {
        let Frame::Text(text) = frame else {
            return told(&FromModel::Unknown("a binary frame".to_owned()), Mark::default());
        };
        let mapping = self.mapping();
        match mapping.shape.extract(text) {
            Ok(found) => match mapping.rules.iter().find(|rule| matches(rule, &found)) {
                Some(rule) => told(&event(mapping, rule, &found), mark(rule, &found)),
                None => told(&FromModel::Unknown(describe(mapping, &found)), Mark::default()),
            },
            Err(error) => told(&FromModel::Unknown(error.to_string()), Mark::default()),
        }
    }

    /// The text frame that opens a session.
    #[must_use]
    pub fn relay_open(&self, opening: &Opening<'_>) -> String {
        let room = [opening.prompt, opening.config, opening.voice, opening.speech_voice];
        let room = room.iter().flatten().map(|text| text.len()).sum::<usize>();
        self.spelled(SendName::RelayOpen, room, |slot| match slot {
            "prompt" => opening.prompt.into(),
            "config" => opening.config.map_or(Fill::Null, Fill::Raw),
            "voice" => opening.voice.into(),
            "speech_voice" => opening.speech_voice.into(),
            "slice_max" => opening.slice_max.map_or(Fill::Null, Fill::Int),
            _ => Fill::Null,
        })
    }

    /// The text frame of one step's input.
    #[must_use]
    pub fn relay_append(&self, input: &Input<'_>) -> String {
        let frames = input.frames.iter().copied().flatten().filter_map(Node::as_str).map(str::len);
        let room = input.audio.map_or(0, str::len) + frames.sum::<usize>();
        self.spelled(SendName::RelayAppend, room, |slot| match slot {
            "audio" => input.audio.map(without_data_prefix).map_or(Fill::Null, base64),
            "frames" => input.frames.map_or(Fill::Null, Fill::List),
            "force_listen" => input.force_listen.map_or(Fill::Null, Fill::Bool),
            "slice_max" => input.slice_max.map_or(Fill::Null, Fill::Int),
            "input_id" => input.input_id.into(),
            "response_id" => input.response_id.into(),
            _ => Fill::Null,
        })
    }

    /// The text frame that says goodbye.
    #[must_use]
    pub fn relay_close(&self, reason: Option<&str>) -> String {
        self.spelled(SendName::Close, 64, |_| Fill::Str(reason.unwrap_or("user_stop")))
    }

    fn spelled<'v>(&self, name: SendName, room: usize, fill: impl Fn(&str) -> Fill<'v>) -> String {
        let mut json = String::with_capacity(room + 256);
        if let Some(template) = self.mapping().message(name) {
            template.render(&mut json, |slot| fill(name.slots()[slot]));
        }
        json
    }

    /// Whether a message has room for this.
    #[must_use]
    pub fn takes(&self, name: SendName, slot: &str) -> bool {
        let at = name.slots().iter().position(|known| *known == slot);
        at.zip(self.mapping().message(name)).is_some_and(|(at, template)| template.uses(at))
    }
}

/// base64 needs no escapes; what only passes for it may.
fn base64(text: &str) -> Fill<'_> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) { Fill::Plain(text) } else { Fill::Str(text) }
}

fn event<'f>(mapping: &UpstreamMapping, rule: &Rule, found: &'f Found<'_>) -> FromModel<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let number = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let count = |slot| number(slot).map(|number| number.clamp(0.0, f64::from(u32::MAX)) as u32);
    match rule.event {
        ReceiveName::Queued => FromModel::Queued(QueuePlace {
            position: count(rule.position),
            length: count(rule.length),
            wait_s: number(rule.wait_s),
            ticket: text(rule.ticket),
        }),
        ReceiveName::Granted => FromModel::Granted,
        ReceiveName::Ready => FromModel::Opened(text(rule.session_id)),
        ReceiveName::Listen => FromModel::Listening,
        ReceiveName::Text => FromModel::Text(text(rule.text).unwrap_or_default()),
        ReceiveName::Audio => FromModel::Speech(text(rule.audio).unwrap_or_default()),
        ReceiveName::Done => FromModel::Answered(text(rule.text), text(rule.audio)),
        ReceiveName::Output => FromModel::Output(Output {
            text: text(rule.text).unwrap_or_default(),
            audio: text(rule.audio).filter(|audio| !audio.is_empty()),
            end_of_turn: rule.end_of_turn.and_then(|slot| found.get(slot)) == Some(&Node::Bool(true)),
        }),
        ReceiveName::Closed => {
            let reason = text(rule.reason);
            FromModel::Ended(end_name(mapping, reason), ending(mapping, reason, text(rule.detail)))
        }
        ReceiveName::Failed => {
            let code = text(rule.code);
            let goes_on = code.is_some_and(|code| is_in(&mapping.meanings.goes_on, code));
            FromModel::Failed(ending(mapping, code, text(rule.detail)), goes_on)
        }
    }
}

fn end_name(mapping: &UpstreamMapping, reason: Option<&str>) -> EndName {
    let meanings = &mapping.meanings;
    let named = [
        (&meanings.asked, EndName::Asked),
        (&meanings.timeout, EndName::Timeout),
        (&meanings.context_full, EndName::ContextFull),
        (&meanings.shutdown, EndName::Shutdown),
    ];
    let is_in = |list: &[String]| list.iter().any(|known| Some(known.as_str()) == reason);
    named.into_iter().find(|(list, _)| is_in(list)).map_or(EndName::Failed, |(_, name)| name)
}
